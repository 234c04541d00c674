//! Tests of certificate signing requests, from creation to cleanup.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::task::JoinSet;
use windlass_controllers::ca::CaSource;
use windlass_controllers::csr_signer::{BuiltInSigner, KubernetesSigner};
use windlass_controllers::ledger::Ledger;
use windlass_controllers::{Clock, MetricFamilies};
use windlass_controllers::{approver, cleaner, csr_signer};
use windlass_pki::Certificate;
use windlass_testkit::{self_signed_ca, write_ca};

use crate::fixture::{TestCluster, object, wait_until, wait_until_removed};

type Csr = CertificateSigningRequest;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// Group of kubeadm's bootstrap tokens.
pub const NODE_TOKENS: &str = "system:bootstrappers:kubeadm:default-node-token";
const BOOTSTRAP: (&str, &[&str]) =
    ("system:bootstrap:abcdef", &["system:bootstrappers", NODE_TOKENS, "system:authenticated"]);
const NODE: (&str, &[&str]) = ("system:node:n1", &["system:nodes", "system:authenticated"]);

/// Running controllers, which stop when this is dropped.
pub struct SigningLoops {
    pub ca: Arc<CaSource>,
    loops: JoinSet<Infallible>,
    _files: TempDir,
}

impl SigningLoops {
    /// Starts all signers with one CA.
    pub fn start(world: &TestCluster) -> SigningLoops {
        SigningLoops::with_ledger(world.client.clone(), Ledger::disabled())
    }

    /// Starts all signers with one CA, a client and a ledger.
    pub fn with_ledger(client: Client, ledger: Ledger) -> SigningLoops {
        let files = tempfile::tempdir().unwrap();
        let ca = authority(files.path());
        let signers = KubernetesSigner::ALL.map(|signer| BuiltInSigner { signer, ca: ca.clone() }).to_vec();
        let mut loops = JoinSet::new();
        loops.spawn(csr_signer::run(
            client,
            signers,
            YEAR,
            Vec::new(),
            ledger,
            clock_after(0),
            MetricFamilies::unregistered(),
        ));
        SigningLoops { ca, loops, _files: files }
    }

    fn with_approver(mut self, world: &TestCluster, serving: bool) -> SigningLoops {
        let approvals = approver::ApprovalPolicy {
            kubelet_client: true,
            kubelet_serving: serving,
            ..approver::ApprovalPolicy::default()
        };
        let metrics = MetricFamilies::unregistered();
        self.loops.spawn(approver::run(world.client.clone(), approvals, clock_after(0), metrics));
        self
    }
}

/// Creates a new CA in a directory.
pub fn authority(files: &Path) -> Arc<CaSource> {
    let [certificate, key] = write_ca(files, &self_signed_ca("kubernetes"));
    CaSource::from_files(certificate, key, clock_after(0))
}

/// Returns a clock that is this many minutes ahead.
fn clock_after(minutes: i64) -> Clock {
    Arc::new(move || OffsetDateTime::now_utc() + time::Duration::minutes(minutes))
}

/// Creates a request with the content of a recorded case.
pub async fn create_csr(api: &Api<Csr>, name: &str, case: &str) {
    let cases: Vec<Value> = serde_json::from_str(include_str!("issuance.json")).unwrap();
    let case = cases.into_iter().find(|each| each["case"] == case).unwrap();
    let (signer, usages) = (case["signerName"].as_str().unwrap(), &case["usages"]);
    let request = build_csr(name, signer, usages, case["request"].as_str().unwrap().as_bytes());
    api.create(&PostParams::default(), &request).await.unwrap();
}

fn build_csr(name: &str, signer: &str, usages: &Value, text: &[u8]) -> Csr {
    let mut request: Csr = object(json!({
        "metadata": {"name": name},
        "spec": {"request": "", "signerName": signer, "usages": usages},
    }));
    request.spec.request = ByteString(text.to_vec());
    request
}

/// Approves a request as an administrator would.
pub async fn approve(api: &Api<Csr>, name: &str) {
    add_condition(api, name, "Approved").await;
}

async fn add_condition(api: &Api<Csr>, name: &str, kind: &str) {
    let mut request = api.get(name).await.unwrap();
    let decision = json!([{"type": kind, "status": "True", "reason": "Tested"}]);
    request.status.get_or_insert_default().conditions = Some(object(decision));
    let params = PostParams::default();
    api.replace_subresource("approval", name, &params, &request).await.unwrap();
}

pub fn condition<'a>(request: &'a Csr, kind: &str) -> Option<&'a CertificateSigningRequestCondition> {
    let conditions = request.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

fn certificate(request: &Csr) -> Option<&[u8]> {
    request.status.as_ref()?.certificate.as_ref().map(|text| text.0.as_slice())
}

/// Whether a signer has issued or failed the request.
pub fn is_settled(request: Option<&Csr>) -> bool {
    request.is_some_and(|r| certificate(r).is_some() || condition(r, "Failed").is_some())
}

async fn bind(client: &Client, name: &str, role: &str, group: &str) {
    let binding: ClusterRoleBinding = object(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    }));
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

/// Grants bootstrap tokens and nodes the permissions that kubeadm grants.
pub async fn bind_as_kubeadm_does(client: &Client) {
    let clients = "system:certificates.k8s.io:certificatesigningrequests";
    bind(client, "kubelet-bootstrap", "system:node-bootstrapper", NODE_TOKENS).await;
    bind(client, "autoapprove", &format!("{clients}:nodeclient"), NODE_TOKENS).await;
    bind(client, "rotation", &format!("{clients}:selfnodeclient"), "system:nodes").await;
}

#[tokio::test]
async fn a_node_joins_and_renews() {
    let world = TestCluster::without_controllers().await;
    bind_as_kubeadm_does(&world.client).await;
    let signing = SigningLoops::start(&world).with_approver(&world, false);
    let joins = "Auto approving kubelet client certificate after SubjectAccessReview.";
    let renews = "Auto approving self kubelet client certificate after SubjectAccessReview.";
    for (name, (user, groups), message) in [("joins", BOOTSTRAP, joins), ("renews", NODE, renews)] {
        let api: Api<Csr> = Api::all(world.client_as(user, groups));
        create_csr(&api, name, "kubelet client").await;
        let all: Api<Csr> = Api::all(world.client.clone());
        let signed = wait_until(&all, name, "be answered", is_settled).await.unwrap();
        let approved = condition(&signed, "Approved").unwrap();
        assert_eq!(approved.status, "True");
        assert_eq!(approved.reason.as_deref(), Some("AutoApproved"));
        assert_eq!(approved.message.as_deref(), Some(message));
        assert!(approved.last_update_time.is_some(), "the server says when");
        let text = certificate(&signed).unwrap();
        let issued = Certificate::from_pem(text).unwrap();
        assert!(signing.ca.current().unwrap().authority().has_issued(&issued));
        assert_eq!(issued.common_name(), Some("system:node:n1"));
        assert_eq!(issued.organizations(), ["system:nodes"]);
    }
}

#[tokio::test]
async fn an_unauthorized_requester_is_not_approved_until_authorized() {
    let world = TestCluster::without_controllers().await;
    bind(&world.client, "kubelet-bootstrap", "system:node-bootstrapper", NODE_TOKENS).await;
    let _signing = SigningLoops::start(&world).with_approver(&world, false);
    let (user, groups) = BOOTSTRAP;
    let all: Api<Csr> = Api::all(world.client.clone());
    create_csr(&Api::all(world.client_as(user, groups)), "early", "kubelet client").await;
    // A later request that may be approved is approved, so the earlier one was evaluated too.
    let nodeclient = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
    bind(&world.client, "others", nodeclient, "others").await;
    bind(&world.client, "others-ask", "system:node-bootstrapper", "others").await;
    let others = world.client_as("other", &["others", "system:authenticated"]);
    create_csr(&Api::all(others), "late", "kubelet client").await;
    wait_until(&all, "late", "be answered", is_settled).await;
    let early = all.get("early").await.unwrap();
    assert!(condition(&early, "Approved").is_none() && certificate(&early).is_none());
    assert!(condition(&early, "Denied").is_none());

    bind(&world.client, "autoapprove", nodeclient, NODE_TOKENS).await;
    let touch = Patch::Merge(json!({"metadata": {"annotations": {"look": "again"}}}));
    all.patch("early", &PatchParams::default(), &touch).await.unwrap();
    wait_until(&all, "early", "be answered", is_settled).await;
}

#[tokio::test]
async fn no_user_becomes_a_member_of_system_masters() {
    let world = TestCluster::without_controllers().await;
    let masters = include_bytes!("../../../server/tests/api/conformance/fixtures/csr-masters.pem");
    let signer = KubernetesSigner::Client.name();
    let request = build_csr("masters", signer, &json!(["client auth"]), masters);
    let api: Api<Csr> = Api::all(world.client.clone());
    let refused = api.create(&PostParams::default(), &request).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("{refused:?}") };
    assert_eq!(status.code, 403, "{status:?}");
}

/// Creates the Node that the recorded requests name.
async fn node(client: &Client, addresses: Value) {
    let api: Api<Node> = Api::all(client.clone());
    let node: Node = object(json!({"metadata": {"name": "n1"}}));
    api.create(&PostParams::default(), &node).await.unwrap();
    let status = Patch::Merge(json!({"status": {"addresses": addresses}}));
    api.patch_status("n1", &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test]
async fn a_node_serves_under_its_own_names() {
    let world = TestCluster::without_controllers().await;
    let name = json!({"type": "Hostname", "address": "n1"});
    node(&world.client, json!([name])).await;
    let _signing = SigningLoops::start(&world).with_approver(&world, true);
    let (user, groups) = NODE;
    let all: Api<Csr> = Api::all(world.client.clone());
    create_csr(&Api::all(world.client_as(user, groups)), "serving", "kubelet serving").await;
    let reported =
        |request: Option<&Csr>| request.and_then(|r| condition(r, "windlass.dev/ApprovalDelayed")).is_some();
    let pending = wait_until(&all, "serving", "say what is wrong", reported).await.unwrap();
    let why = condition(&pending, "windlass.dev/ApprovalDelayed").unwrap();
    assert_eq!(why.reason.as_deref(), Some("AddressMismatch"));
    assert!(why.message.as_ref().unwrap().contains("10.0.0.1"), "{why:?}");
    assert!(condition(&pending, "Denied").is_none() && certificate(&pending).is_none());

    let number = json!({"type": "InternalIP", "address": "10.0.0.1"});
    let api: Api<Node> = Api::all(world.client.clone());
    let status = Patch::Merge(json!({"status": {"addresses": [name, number]}}));
    api.patch_status("n1", &PatchParams::default(), &status).await.unwrap();
    let signed = wait_until(&all, "serving", "be answered", is_settled).await.unwrap();
    assert!(certificate(&signed).is_some());
    assert!(condition(&signed, "windlass.dev/ApprovalDelayed").is_none());
    let events: Api<Event> = Api::namespaced(world.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    assert!(events.iter().any(|event| event.reason.as_deref() == Some("AddressMismatch")));
}

/// When two signers answer the same request, the first one wins and the other leaves it unchanged.
#[tokio::test]
async fn no_request_gets_two_certificates() {
    let world = TestCluster::without_controllers().await;
    let (_one, _other) = (SigningLoops::start(&world), SigningLoops::start(&world));
    let api: Api<Csr> = Api::all(world.client.clone());
    let mut first = Vec::new();
    for number in 0..20 {
        let name = format!("wanted-{number}");
        create_csr(&api, &name, "key p256").await;
        approve(&api, &name).await;
        let signed = wait_until(&api, &name, "be answered", is_settled).await.unwrap();
        first.push((name, certificate(&signed).unwrap().to_vec()));
    }
    for (name, text) in first {
        assert_eq!(certificate(&api.get(&name).await.unwrap()), Some(text.as_slice()), "{name}");
    }
}

#[tokio::test]
async fn decided_requests_are_cleaned_up() {
    let world = TestCluster::without_controllers().await;
    let api: Api<Csr> = Api::all(world.client.clone());
    for (name, decision) in [("denied", Some("Denied")), ("approved", Some("Approved")), ("new", None)] {
        create_csr(&api, name, "key p256").await;
        if let Some(decision) = decision {
            add_condition(&api, name, decision).await;
        }
    }
    let mut cleaning = JoinSet::new();
    let clean = |clock| cleaner::run_csr_cleaner(world.client.clone(), clock, MetricFamilies::unregistered());
    cleaning.spawn(clean(clock_after(61)));
    wait_until_removed(&api, "denied").await;
    let left: Vec<_> = api.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(left.len(), 2, "an hour is no time for what waits");
    cleaning.shutdown().await;
    cleaning.spawn(clean(clock_after(24 * 60 + 1)));
    wait_until_removed(&api, "approved").await;
    wait_until_removed(&api, "new").await;
}

#[tokio::test]
async fn pods_requests_are_cleaned_up() {
    let world = TestCluster::without_controllers().await;
    let kind = GroupVersionKind::gvk("certificates.k8s.io", "v1beta1", "PodCertificateRequest");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), "default", &resource);
    let stub = include_bytes!("../../../server/tests/api/conformance/fixtures/pcr-p256.stub.der");
    let request: DynamicObject = object(json!({
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "PodCertificateRequest",
        "metadata": {"name": "pods"},
        "spec": {
            "signerName": "example.com/pods",
            "podName": "p",
            "podUID": "9f1c7b9e-6d0b-4a55-8f39-0d5b6f0c1a11",
            "serviceAccountName": "default",
            "serviceAccountUID": "s1",
            "nodeName": "node-1",
            "nodeUID": "n1",
            "stubPKCS10Request": ByteString(stub.to_vec()),
        },
    }));
    api.create(&PostParams::default(), &request).await.unwrap();
    let mut cleaning = JoinSet::new();
    cleaning.spawn(cleaner::run_pod_request_cleaner(
        world.client.clone(),
        resource.clone(),
        clock_after(16),
        MetricFamilies::unregistered(),
    ));
    let gone = async {
        let fields = ListParams::default();
        while !api.list(&fields).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
}
