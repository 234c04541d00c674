//! A server with signers for pods and hosts, and nodes that request certificates.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as NodeObject, Pod, ServiceAccount};
use kube::api::{DynamicObject, ListParams};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use time::{Duration as Span, OffsetDateTime};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tower::Service as _;
use windlass_controllers::ledger::Ledger;
use windlass_controllers::{csr_signer, signers};
use windlass_node::clock::{Clock, ClockReading};
use windlass_node::feature_gates::FeatureGates;
use windlass_node::sources::{SourceChange, bundles};
use windlass_node::volume::id::{SourceId, VolumeId, VolumeOwner};
use windlass_node::volume::plan::{CredentialBundle, CredentialState};
use windlass_node::volume_certificates::{
    CertificateSpec, CertificateSubject, VolumeCertificateConfig, VolumeCertificateManager,
};
use windlass_runtime::durable::FileSystem;
use windlass_server::{AdmissionPlugins, LocalClient};
use windlass_testkit::{TestServer, create};

pub use windlass_node::volume::definition::CertificateSource as Certificate;

pub const SIGNER: &str = "example.com/workloads";
/// A test that waits longer than this has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

const SIGNERS: &str = "
apiVersion: windlass.dev/v1
kind: Signers
signers:
- name: example.com/workloads
  ca: {selfSigned: {directory: workloads}}
  pods: {trustDomain: example.com}
- name: example.com/hosts
  ca: {selfSigned: {directory: hosts}}
  requests:
    commonNames: [edge]
    dnsNames: [edge.example]
    usages: [digital signature, client auth, server auth]
    maxDuration: 24h
    duration: 24h
    approval: manual
";

/// Fields of a host's certificate request.
pub mod host {
    use super::{SourceId, VolumeId, VolumeOwner};

    pub const SIGNER: &str = "example.com/hosts";

    pub fn id(name: &str) -> SourceId {
        SourceId { volume: VolumeId { owner: VolumeOwner::Host, name: name.into() }, index: 0 }
    }
}

pub struct IssuingFixture {
    server: TestServer,
    _loops: JoinSet<std::convert::Infallible>,
    /// How far the nodes' clock is ahead, in seconds.
    ahead: Arc<AtomicI64>,
    version: &'static str,
}

pub struct IssuingNode {
    pub certificates: Arc<VolumeCertificateManager>,
    setup: Arc<dyn Fn(mpsc::UnboundedSender<SourceChange>) -> VolumeCertificateConfig>,
    wakes: mpsc::UnboundedReceiver<SourceChange>,
    task: JoinHandle<()>,
    state: PathBuf,
}

pub struct BoundPod {
    name: String,
    pub uid: String,
}

impl IssuingFixture {
    /// Starts a server that offers nodes no newer version of PodCertificateRequests than this.
    pub async fn start(version: &'static str) -> Self {
        let plugins = AdmissionPlugins::default();
        let server = TestServer::with(|options| options.plugins = plugins).await;
        let (mut loops, admin, dir) = (JoinSet::new(), server.client(), server.dir());
        std::fs::write(dir.join("signers.yaml"), SIGNERS).unwrap();
        let clock: windlass_controllers::Clock = Arc::new(OffsetDateTime::now_utc);
        let open = || signers::open(&dir.join("signers.yaml"), &clock).unwrap();
        let kind = resource("v1");
        let metrics = windlass_controllers::MetricFamilies::unregistered();
        let (client, at) = (admin.clone(), clock.clone());
        loops.spawn(signers::pods::run(client, kind, open(), Ledger::disabled(), at, metrics.clone()));
        let (client, at) = (admin.clone(), clock.clone());
        loops.spawn(csr_signer::run(client, Vec::new(), DAY, open(), Ledger::disabled(), at, metrics));
        let nodes: Api<NodeObject> = Api::all(admin.clone());
        create(&nodes, json!({"metadata": {"name": "n1"}})).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(admin, "default");
        create(&accounts, json!({"metadata": {"name": "frontend"}})).await;
        Self { server, _loops: loops, ahead: Arc::default(), version }
    }

    pub fn admin(&self) -> Client {
        self.server.client()
    }

    /// Sets how far the nodes' clock is ahead.
    pub fn ahead(&self, by: Span) {
        self.ahead.store(by.whole_seconds(), Relaxed);
    }

    /// Creates a pod on the node with these sources in one volume.
    pub async fn create_pod(&self, name: &str, sources: &[Certificate]) -> BoundPod {
        let sources = sources.iter().enumerate().map(|(index, source)| {
            let mut certificate = json!({
                "signerName": source.signer, "keyType": source.key_type,
                "credentialBundlePath": format!("{index}.pem"),
            });
            if let Some(seconds) = source.max_expiration_seconds {
                certificate["maxExpirationSeconds"] = seconds.into();
            }
            if !source.user_annotations.is_empty() {
                certificate["userAnnotations"] = json!(source.user_annotations);
            }
            json!({"podCertificate": certificate})
        });
        let sources = sources.collect::<Vec<_>>();
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "serviceAccountName": "frontend", "nodeName": "n1",
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "tls", "projected": {"sources": sources}}],
            },
        });
        let made: Pod = create(&Api::default_namespaced(self.admin()), pod).await;
        BoundPod { name: name.into(), uid: made.uid().unwrap() }
    }

    /// Returns all PodCertificateRequests with all fields.
    pub async fn requests(&self) -> Vec<DynamicObject> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.admin(), "default", &resource("v1beta1"));
        api.list(&ListParams::default()).await.unwrap().items
    }

    pub fn node(&mut self) -> IssuingNode {
        let state = self.server.dir().join("node");
        let ahead = self.ahead.clone();
        let began = std::time::Instant::now();
        let clock: Clock = Arc::new(move || {
            let wall = OffsetDateTime::now_utc() + Span::seconds(ahead.load(Relaxed));
            ClockReading { wall, since: began.elapsed() }
        });
        let transport = self.server.transport_as("system:node:n1", &["system:nodes"]);
        let client = limited(transport, self.version);
        IssuingNode::start(
            Arc::new(move |wakes| VolumeCertificateConfig {
                client: client.clone(),
                node: "n1".into(),
                files: FileSystem::default(),
                clock: clock.clone(),
                random: Arc::new(|| 0.01),
                gates: FeatureGates::default(),
                wakes,
                look: Duration::from_secs(60),
                bundles: watch::Sender::new(bundles::initial_view(FeatureGates::default())).subscribe(),
            }),
            state,
        )
    }
}

const DAY: Duration = Duration::from_secs(86_400);

impl IssuingNode {
    fn start(
        setup: Arc<dyn Fn(mpsc::UnboundedSender<SourceChange>) -> VolumeCertificateConfig>,
        state: PathBuf,
    ) -> Self {
        let (wake, wakes) = mpsc::unbounded_channel();
        let certificates = VolumeCertificateManager::new(setup(wake));
        let task = tokio::spawn(certificates.clone().run());
        Self { certificates, setup, wakes, task, state }
    }

    /// Replaces the process by a new one.
    pub async fn restart(self) -> Self {
        self.task.abort();
        let _ = self.task.await;
        Self::start(self.setup, self.state)
    }

    pub fn state(&self) -> PathBuf {
        self.state.clone()
    }

    pub fn ensure(&mut self, id: &SourceId, wanted: CertificateSpec) {
        self.certificates.ensure(id, wanted);
    }

    /// Waits until the served certificate satisfies the condition.
    pub async fn until(&mut self, id: &SourceId, good: impl Fn(&CredentialState<CredentialBundle>) -> bool) {
        let certificates = self.certificates.clone();
        let waiting = async {
            while !good(&certificates.get(id)) {
                self.wakes.recv().await.unwrap();
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("{id:?} is {:?}", self.certificates.get(id));
        }
    }

    pub async fn ready(&mut self, id: &SourceId) -> CredentialBundle {
        self.until(id, |got| matches!(got, CredentialState::Available(_))).await;
        self.credential(id)
    }

    pub async fn after(&mut self, id: &SourceId, before: &CredentialBundle) -> CredentialBundle {
        let other = |got: &CredentialState<CredentialBundle>| matches!(got, CredentialState::Available(now) if now.chain != before.chain);
        self.until(id, other).await;
        self.credential(id)
    }

    pub fn credential(&self, id: &SourceId) -> CredentialBundle {
        match self.certificates.get(id) {
            CredentialState::Available(credential) => credential,
            CredentialState::Unavailable(why) => panic!("{why}"),
        }
    }
}

impl BoundPod {
    pub fn id(&self, index: usize) -> SourceId {
        let (name, uid) = (self.name.clone(), self.uid.clone());
        let owner = VolumeOwner::Pod { namespace: "default".into(), name, uid };
        SourceId { volume: VolumeId { owner, name: "tls".into() }, index }
    }

    pub fn certificate_spec(&self, source: Certificate, state: PathBuf) -> CertificateSpec {
        CertificateSpec {
            source,
            subject: CertificateSubject::Pod { service_account: "frontend".into() },
            state,
        }
    }
}

/// Returns a `podCertificate` source of a volume.
pub fn source(key_type: &str) -> Certificate {
    Certificate {
        signer: SIGNER.into(),
        key_type: key_type.into(),
        max_expiration_seconds: None,
        user_annotations: BTreeMap::new(),
        bundle: None,
        key: None,
        chain: None,
        owner: None,
    }
}

/// Returns a client that does not see newer API versions than this.
fn limited(local: LocalClient, version: &'static str) -> Client {
    let hidden: &'static [&'static str] = match version {
        "v1" => &[],
        "v1beta1" => &["v1"],
        _ => &["v1", "v1beta1"],
    };
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let discovered = request.uri().path().strip_prefix("/apis/certificates.k8s.io/");
        if discovered.is_some_and(|version| hidden.contains(&version)) {
            *request.uri_mut() = "/apis/certificates.k8s.io/v0".parse().unwrap();
        }
        local.clone().call(request)
    });
    Client::new(service, "default")
}

fn resource(version: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk("certificates.k8s.io", version, "PodCertificateRequest");
    ApiResource::from_gvk(&kind)
}
