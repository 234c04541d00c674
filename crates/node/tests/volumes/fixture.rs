//! A server in this process, and a node with managed volumes.

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_controllers::ca::CaSource;
use windlass_controllers::ledger::Ledger;
use windlass_controllers::signers::config::SignersConfig;
use windlass_controllers::signers::{CustomSigner, pods as pod_signer};
use windlass_node::agent::volumes::VolumeRuntime;
use windlass_node::node_status::NodeRegistration;
use windlass_node::volume_manager::report::{VolumeReport, VolumeReports};
use windlass_testkit::{TestServer, self_signed_ca, write_ca};

pub use windlass_testkit::{PATIENCE, object};

/// Signer name of pod certificates.
pub const SIGNER: &str = "example.com/workloads";

/// A server, and the disk of the node `n1`.
pub struct VolumesFixture {
    pub admin: Client,
    pub volumes: Arc<VolumeRuntime>,
    server: TestServer,
    loops: JoinSet<std::convert::Infallible>,
}

/// Tasks of the node, aborted on drop.
pub struct RunningVolumeTasks(#[allow(dead_code, reason = "it is held")] JoinSet<()>);

impl VolumesFixture {
    pub async fn start() -> Self {
        let server = TestServer::start().await;
        let options = windlass_node::AgentOptions::new(PathBuf::new(), PathBuf::new());
        let (admin, volumes) = (server.client(), VolumeRuntime::new(&options));
        let world = Self { admin, volumes, server, loops: JoinSet::new() };
        let node: Node = object(json!({"metadata": {"name": "n1"}}));
        Api::all(world.admin.clone()).create(&PostParams::default(), &node).await.unwrap();
        let account: ServiceAccount = object(json!({"metadata": {"name": "frontend"}}));
        world.create(&account).await;
        world
    }

    /// Starts the volume manager with the node's credentials.
    pub fn run(&self) -> RunningVolumeTasks {
        let mut tasks = JoinSet::new();
        let root_dir = self.root();
        let options = windlass_node::AgentOptions {
            node_name: "n1".into(),
            tmpfs: false,
            random: Arc::new(|| 0.5),
            ..windlass_node::AgentOptions::new(root_dir.join("kubeconfig"), root_dir)
        };
        let heartbeat = Some(OffsetDateTime::now_utc());
        let registration = NodeRegistration { heartbeat, ..NodeRegistration::default() };
        let registration = watch::Sender::new(registration).subscribe();
        self.volumes.start(&options, &self.client_of_node(), registration, &mut tasks);
        RunningVolumeTasks(tasks)
    }

    pub fn sign(&mut self) {
        let clock: windlass_controllers::Clock = Arc::new(OffsetDateTime::now_utc);
        let [certificate, key] = write_ca(self.server.dir(), &self_signed_ca("workloads"));
        let ca = CaSource::from_files(certificate, key, clock.clone());
        let text = format!(
            "{{apiVersion: windlass.dev/v1, kind: Signers, signers: [{{name: {SIGNER}, \
             ca: {{files: {{certificate: ca.crt, key: ca.key}}}}, pods: {{trustDomain: example.com}}}}]}}"
        );
        let signers = SignersConfig::parse(&self.server.dir().join("signers.yaml"), &text).unwrap();
        let custom = signers.signers.into_iter();
        let custom = custom.map(|custom| CustomSigner::new(custom, ca.clone())).collect();
        let kind =
            kube::core::GroupVersionKind::gvk("certificates.k8s.io", "v1beta1", "PodCertificateRequest");
        let resource = kube::core::ApiResource::from_gvk(&kind);
        let metrics = windlass_controllers::MetricFamilies::unregistered();
        self.loops.spawn(pod_signer::run(
            self.admin.clone(),
            resource,
            custom,
            Ledger::disabled(),
            clock,
            metrics,
        ));
    }

    pub fn client_of_node(&self) -> Client {
        self.server.client_as("system:node:n1", &["system:nodes", "system:authenticated"])
    }

    pub fn root(&self) -> PathBuf {
        self.server.dir().join("root")
    }

    /// Returns the API of a kind in `default`.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.admin.clone(), "default")
    }

    pub async fn create<K>(&self, object: &K) -> K
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        self.api().create(&PostParams::default(), object).await.unwrap()
    }

    /// Creates a bundle, or replaces its text.
    pub async fn apply_bundle(&self, name: &str, text: &str) {
        let bundles: Api<ClusterTrustBundle> = Api::all(self.admin.clone());
        let bundle = object(json!({"metadata": {"name": name}, "spec": {"trustBundle": text}}));
        if bundles.get_opt(name).await.unwrap().is_some() {
            let patch = Patch::Merge(json!({"spec": {"trustBundle": text}}));
            bundles.patch(name, &PatchParams::default(), &patch).await.unwrap();
        } else {
            bundles.create(&PostParams::default(), &bundle).await.unwrap();
        }
    }

    /// Creates a pod on the node with a volume `v` of these sources. Returns its directory.
    pub async fn create_pod(&self, name: &str, sources: Value) -> PathBuf {
        let pod: Pod = object(json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {
                "serviceAccountName": "frontend",
                "nodeName": "n1",
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "v", "projected": {"sources": sources}}],
            },
        }));
        let pod = self.create(&pod).await;
        let volumes = "volumes/kubernetes.io~projected/v";
        self.root().join("pods").join(pod.uid().unwrap()).join(volumes)
    }

    /// Waits until the report of a pod's volume satisfies the condition.
    pub async fn until(&self, pod: &str, good: impl Fn(&VolumeReport) -> bool) {
        let name = format!("default/{pod}/v");
        let shown = |reports: &VolumeReports| {
            let mut named = reports.iter().filter(|(id, _)| id.to_string() == name);
            named.next().map(|(_, report)| report.clone())
        };
        let mut reports = self.volumes.reports.subscribe();
        let waiting = reports.wait_for(|all| shown(all).is_some_and(|report| good(&report)));
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("{name} is {:?}", shown(&self.volumes.reports.borrow()));
        }
    }

    /// Waits until the volume is up to date.
    pub async fn until_good(&self, pod: &str) {
        self.until(pod, |report| report.ready && report.blocked.is_none()).await;
    }
}

pub fn anchor() -> String {
    self_signed_ca("root").certificate().to_pem()
}

/// Waits until `good` holds for an object; `None` stands for one that does not exist.
pub async fn until<K>(api: &Api<K>, name: &str, good: impl Fn(Option<&K>) -> bool)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize + Send + 'static,
{
    windlass_testkit::wait_until(api, name, "change", good).await;
}
