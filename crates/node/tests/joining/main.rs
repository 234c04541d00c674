//! Nodes that join a real server in this process, whose controllers approve and sign.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use time::{Duration as Span, OffsetDateTime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_controllers::ca::CaSource;
use windlass_controllers::csr_signer::{BuiltInSigner, KubernetesSigner};
use windlass_controllers::ledger::Ledger;
use windlass_controllers::{approver, csr_signer};
use windlass_node::cert_store::CertStore;
use windlass_node::clock::{self, Clock, ClockReading};
use windlass_node::feature_gates::FeatureGates;
use windlass_node::key_pair::CertificateKeyPair;
use windlass_node::node_certificates::{
    ClientFactory, FailureCause, ManagerActivity, NodeCertificateConfig, NodeCertificateManager,
    NodeCertificateReport, RequesterCredential, RetryPolicy,
};
use windlass_node::sources::bundles::initial_view;
use windlass_node::template::{CertificatePurpose, CertificateTemplate};
use windlass_runtime::durable::FileSystem;
use windlass_testkit::{PATIENCE, TestServer, create, self_signed_ca, write_ca};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const TOKENS: &str = "system:bootstrappers:kubeadm:default-node-token";

struct JoiningFixture {
    server: TestServer,
    loops: JoinSet<()>,
    /// How far the nodes' clocks are ahead, in days.
    ahead: Arc<AtomicI64>,
}

impl JoiningFixture {
    async fn start() -> Self {
        let server = TestServer::start().await;
        let mut world = Self { server, loops: JoinSet::new(), ahead: Arc::default() };
        let certificates = "system:certificates.k8s.io:certificatesigningrequests";
        for (role, group) in [
            ("system:node-bootstrapper".to_owned(), TOKENS),
            (format!("{certificates}:nodeclient"), TOKENS),
            (format!("{certificates}:selfnodeclient"), "system:nodes"),
        ] {
            world.bind(&role, group).await;
        }
        world.sign();
        world
    }

    fn admin(&self) -> Client {
        self.server.client()
    }

    async fn bind(&self, role: &str, group: &str) {
        let api = "rbac.authorization.k8s.io";
        let bindings: Api<ClusterRoleBinding> = Api::all(self.admin());
        let binding = json!({
            "metadata": {"name": role.replace(':', "-")},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": api, "kind": "Group", "name": group}],
        });
        create(&bindings, binding).await;
    }

    fn sign(&mut self) {
        let clock: windlass_controllers::Clock = Arc::new(OffsetDateTime::now_utc);
        let [certificate, key] = write_ca(self.server.dir(), &self_signed_ca("kubernetes"));
        let ca = CaSource::from_files(certificate, key, clock.clone());
        let signers = KubernetesSigner::ALL.map(|signer| BuiltInSigner { signer, ca: ca.clone() }).to_vec();
        let metrics = windlass_controllers::MetricFamilies::unregistered();
        let (admin, at) = (self.admin(), clock.clone());
        let signing =
            csr_signer::run(admin, signers, YEAR, Vec::new(), Ledger::disabled(), at, metrics.clone());
        self.loops.spawn(async { match signing.await {} });
        let approvals = approver::ApprovalPolicy {
            kubelet_client: true,
            kubelet_serving: true,
            ..approver::ApprovalPolicy::default()
        };
        let approving = approver::run(self.admin(), approvals, clock, metrics);
        self.loops.spawn(async { match approving.await {} });
    }

    fn clock(&self) -> Clock {
        let (system, ahead) = (clock::system(), self.ahead.clone());
        Arc::new(move || {
            let now = system();
            ClockReading { wall: now.wall + Span::days(ahead.load(Relaxed)), ..now }
        })
    }

    /// Creates a certificate manager of the node `n1`.
    fn manager(
        &self,
        purpose: CertificatePurpose,
        template: CertificateTemplate,
    ) -> Arc<NodeCertificateManager> {
        let own = self.server.client_as("system:node:n1", &["system:nodes", "system:authenticated"]);
        let bootstrappers = ["system:bootstrappers", TOKENS, "system:authenticated"];
        let bootstrap = self.server.client_as("system:bootstrap:abcdef", &bootstrappers);
        let clients: ClientFactory = Arc::new(move |credential| {
            let client = match credential {
                RequesterCredential::Own => own.clone(),
                RequesterCredential::Bootstrap => bootstrap.clone(),
            };
            async { Ok(client) }.boxed()
        });
        let pki = self.server.dir().join("pki");
        let (store, clock) = (CertStore::new(&pki, purpose.prefix(), FileSystem::default()), self.clock());
        let loaded = store.load(clock().wall);
        let setup = NodeCertificateConfig {
            purpose,
            store,
            templates: watch::Sender::new(Some(template)).subscribe(),
            clients,
            rejections: watch::Sender::new(None).subscribe(),
            bundles: watch::Sender::new(initial_view(FeatureGates::default())).subscribe(),
            clock,
            random: Arc::new(|| 0.5),
            pace: RetryPolicy::default(),
        };
        Arc::new(NodeCertificateManager::new(setup, loaded))
    }

    fn run(&mut self, manager: &Arc<NodeCertificateManager>) {
        let manager = manager.clone();
        self.loops.spawn(async move {
            let (_down, shutdown) = watch::channel(false);
            manager.run(shutdown).await;
        });
    }

    async fn requests(&self) -> Vec<String> {
        let api: Api<CertificateSigningRequest> = Api::all(self.admin());
        let list = api.list(&ListParams::default()).await.unwrap();
        list.items.iter().map(|request| request.name_any()).collect()
    }
}

async fn until(manager: &NodeCertificateManager, good: impl Fn(&NodeCertificateReport) -> bool) {
    let mut reports = manager.reports();
    let waiting = reports.wait_for(|report| good(report));
    if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
        panic!("it is {:?}", manager.report());
    }
}

fn der(identity: &CertificateKeyPair) -> Vec<u8> {
    identity.leaf().der().to_vec()
}

#[tokio::test]
async fn a_node_joins_restarts_and_rotates() {
    let mut world = JoiningFixture::start().await;
    let manager = world.manager(CertificatePurpose::Client, CertificateTemplate::client("n1"));
    world.run(&manager);
    let first = manager.ready(PATIENCE).await.unwrap();
    assert_eq!(first.leaf().subject().common_name(), "system:node:n1");
    assert_eq!(first.leaf().subject().organizations(), ["system:nodes"]);
    until(&manager, |report| report.doing == ManagerActivity::Holding).await;
    assert_eq!(world.requests().await.len(), 1);
    // Another process loads it from disk.
    let again = world.manager(CertificatePurpose::Client, CertificateTemplate::client("n1"));
    assert_eq!(der(&again.ready(PATIENCE).await.unwrap()), der(&first));
    // When rotation is due, the node requests with its own certificate.
    world.ahead.store(300, Relaxed);
    world.run(&again);
    until(&again, |report| report.stored == 1).await;
    let second = again.ready(PATIENCE).await.unwrap();
    assert_ne!(second.key().public_key(), first.key().public_key());
    assert_eq!(world.requests().await.len(), 2);
}

#[tokio::test]
async fn a_serving_certificate_waits_for_the_addresses_to_be_true() {
    let mut world = JoiningFixture::start().await;
    let nodes: Api<Node> = Api::all(world.admin());
    let node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let address = "192.0.2.1".parse().unwrap();
    let template = CertificateTemplate::serving("n1", ["n1".to_owned()], [address]).unwrap();
    let manager = world.manager(CertificatePurpose::Serving, template);
    world.run(&manager);
    until(&manager, |report| matches!(report.doing, ManagerActivity::Waiting { .. })).await;
    let addresses = json!([
        {"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "192.0.2.1"},
    ]);
    let patch = Patch::Merge(json!({"status": {"addresses": addresses}}));
    nodes.patch_status("n1", &PatchParams::default(), &patch).await.unwrap();
    let held = manager.ready(PATIENCE).await.unwrap();
    assert_eq!(held.leaf().alt_names().dns_names, ["n1"]);
    assert_eq!(held.leaf().alt_names().ip_addresses, [address]);
    assert_eq!(world.requests().await.len(), 1);
}

#[tokio::test]
async fn an_unauthorized_node_reports_the_error() {
    let mut world = JoiningFixture::start().await;
    let bindings: Api<ClusterRoleBinding> = Api::all(world.admin());
    let _ = bindings.delete("system-node-bootstrapper", &Default::default()).await.unwrap();
    let manager = world.manager(CertificatePurpose::Client, CertificateTemplate::client("n1"));
    world.run(&manager);
    let forbidden = |report: &NodeCertificateReport| {
        report.trouble.as_ref().is_some_and(|trouble| trouble.cause == FailureCause::Forbidden)
    };
    until(&manager, forbidden).await;
    let message = manager.report().trouble.unwrap().message;
    assert!(message.contains("system:bootstrap:abcdef"), "{message}");
    world.bind("system:node-bootstrapper", TOKENS).await;
    manager.ready(PATIENCE).await.unwrap();
}
