//! The loop, with sources that tests control and a server that records requests.

mod anchors;
mod lifecycle;
mod pod_status;
mod reads;
mod revocation_lists;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use windlass_pki::PrivateKey;
use windlass_testkit::{ApiCall, scripted_client};

use super::VolumeManager;
use super::report::{VolumeReport, VolumeReports};
use crate::clock::{Clock, ClockReading};
use crate::feature_gates::FeatureGates;
use crate::metrics::volumes::VolumeMetrics;
use crate::node_status::NodeRegistration;
use crate::projections::{HostProjections, Notifier};
use crate::read_observer::ReadObserver;
use crate::sources::ChangeSender;
use crate::sources::bundles::{BundleArrival, BundleView, initial_view};
use crate::sources::objects::ObjectCache;
use crate::sources::pods::NodePods;
use crate::sources::revocation_lists::RevocationListView;
use crate::sources::tokens::TokenManager;
use crate::testing::{CertificateFixture, START};
use crate::volume::plan::OptionalApi;
use crate::volume::trust_anchors::{TrustBundle, TrustBundleIndex};
use crate::volume_certificates::{VolumeCertificateConfig, VolumeCertificateManager};
use windlass_runtime::durable::FileSystem;
use windlass_runtime::metrics::MetricsRegistry;

/// Longer than any wait, in virtual time.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A request that the server received.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub method: Method,
    pub path: String,
    pub body: Value,
}

/// A node without a server, on which a volume manager is started and killed.
pub struct VolumeTestNode {
    pub dir: TempDir,
    pub files: FileSystem,
    pub pods: watch::Sender<NodePods>,
    pub bundles: watch::Sender<Arc<BundleView>>,
    pub projections: watch::Sender<Arc<HostProjections>>,
    pub revocation_lists: watch::Sender<RevocationListView>,
    pub registration: watch::Sender<NodeRegistration>,
    pub reports: watch::Sender<VolumeReports>,
    pub metrics: VolumeMetrics,
    pub registry: MetricsRegistry,
    pub asked: watch::Sender<Vec<RecordedRequest>>,
    pub wakes: Mutex<Option<ChangeSender>>,
    /// Observer of the manager that was started last.
    pub reads: Mutex<Option<Arc<ReadObserver>>>,
    /// HTTP status of responses; `None` echoes the request.
    pub refuse: Arc<Mutex<Option<u16>>>,
    began: Instant,
}

pub struct RunningVolumeManager(JoinHandle<()>);

impl RunningVolumeManager {
    /// Kills the manager without a shutdown.
    pub async fn kill(self) {
        self.0.abort();
        let _ = self.0.await;
    }
}

impl VolumeTestNode {
    /// A node whose heartbeat has arrived, without pods and bundles.
    pub fn new() -> Self {
        let registration = NodeRegistration { heartbeat: Some(START), ..NodeRegistration::default() };
        let registry = MetricsRegistry::new();
        let node = Self {
            dir: tempfile::tempdir().unwrap(),
            files: FileSystem::default(),
            pods: watch::Sender::new(Some(Arc::default())),
            bundles: watch::Sender::new(initial_view(FeatureGates::default())),
            projections: watch::Sender::default(),
            revocation_lists: watch::Sender::new(crate::sources::revocation_lists::initial_view()),
            registration: watch::Sender::new(registration),
            reports: watch::Sender::default(),
            metrics: VolumeMetrics::register(&registry),
            registry,
            asked: watch::Sender::default(),
            wakes: Mutex::default(),
            reads: Mutex::default(),
            refuse: Arc::default(),
            began: Instant::now(),
        };
        node.set_bundles(&[]);
        node
    }

    pub fn start(&self) -> RunningVolumeManager {
        let (wakes, woken) = mpsc::unbounded_channel();
        *self.wakes.lock().unwrap() = Some(wakes.clone());
        let (client, clock) = (self.client(), self.clock());
        let (random, files) = (Arc::new(|| 0.5), self.files.clone());
        let root_dir = self.dir.path().to_owned();
        let certificates = VolumeCertificateManager::new(VolumeCertificateConfig {
            client: client.clone(),
            node: "n1".into(),
            files: files.clone(),
            clock: clock.clone(),
            random: random.clone(),
            gates: FeatureGates::default(),
            wakes: wakes.clone(),
            look: Duration::from_secs(60),
            bundles: self.bundles.subscribe(),
        });
        let reads = ReadObserver::new(&root_dir, files.clone(), clock.clone());
        *self.reads.lock().unwrap() = Some(reads.clone());
        let keeper = VolumeManager {
            node: "n1".into(),
            tmpfs: false,
            pods: self.pods.subscribe(),
            bundles: self.bundles.subscribe(),
            projections: self.projections.subscribe(),
            revocation_lists: self.revocation_lists.subscribe(),
            registration: self.registration.subscribe(),
            objects: ObjectCache::new(client.clone(), wakes.clone()),
            tokens: TokenManager::new(client.clone(), clock.clone(), random.clone(), wakes),
            certificates,
            notifier: Notifier::new(
                root_dir.join("projections"),
                files.clone(),
                clock.clone(),
                Default::default(),
            ),
            reads: reads.clone(),
            wakes: woken,
            metrics: self.metrics.clone(),
            reports: self.reports.clone(),
            client,
            root_dir,
            files,
            clock,
            random,
        };
        RunningVolumeManager(tokio::spawn(async move {
            tokio::join!(keeper.run(), reads.run());
        }))
    }

    pub fn clock(&self) -> Clock {
        let began = self.began;
        Arc::new(move || ClockReading { wall: START + began.elapsed(), since: began.elapsed() })
    }

    /// Sets the bundles; the first set has no arrival times.
    pub fn set_bundles(&self, all: &[TrustBundle]) {
        let mut bundles = TrustBundleIndex::default();
        all.iter().cloned().for_each(|bundle| bundles.set(bundle));
        self.bundles.send_modify(|view| {
            let came = (self.clock())();
            let mut arrivals = view.arrivals.clone();
            for bundle in all {
                let made = Some(came.wall - time::Duration::seconds(2));
                arrivals.insert(bundle.name.clone(), BundleArrival { received: came, written: made });
            }
            *view = Arc::new(BundleView { bundles: OptionalApi::Synced(bundles), arrivals });
        });
    }

    /// Sets the pods by UID.
    pub fn set_pods(&self, all: &[Pod]) {
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap();
        self.pods.send_modify(|pods| {
            let before = pods.clone().unwrap_or_default();
            let same = |pod: &Pod| before.get(&uid(pod)).filter(|old| ***old == *pod).cloned();
            let one = |pod: &Pod| (uid(pod), same(pod).unwrap_or_else(|| Arc::new(pod.clone())));
            *pods = Some(Arc::new(all.iter().map(one).collect()));
        });
    }

    /// Waits until the report of this volume satisfies the condition.
    pub async fn until(&self, name: &str, good: impl Fn(&VolumeReport) -> bool) {
        let shown = |reports: &VolumeReports| {
            let named = reports.iter().filter(|(id, _)| id.to_string() == name);
            named.map(|(_, report)| report.clone()).next()
        };
        let mut reports = self.reports.subscribe();
        let waiting = reports.wait_for(|all| shown(all).is_some_and(|report| good(&report)));
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("{name} is {:?}", shown(&self.reports.borrow()));
        }
    }

    /// Waits until the volume is ready and up to date.
    pub async fn until_good(&self, name: &str) {
        self.until(name, |report| report.ready && report.blocked.is_none()).await;
    }

    /// Waits until a path no longer exists.
    pub async fn until_gone(&self, path: &Path) {
        let mut tries = 0;
        while path.exists() {
            tries += 1;
            assert!(tries < 10_000, "{path:?} is still there");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until this many matching requests were received, and returns them.
    pub async fn until_asked(&self, method: Method, path: &str, count: usize) -> Vec<RecordedRequest> {
        let such = |asked: &Vec<RecordedRequest>| {
            let all = asked.iter().filter(|one| one.method == method && one.path.contains(path));
            all.cloned().collect::<Vec<_>>()
        };
        let mut asked = self.asked.subscribe();
        let waited = tokio::time::timeout(PATIENCE, asked.wait_for(|all| such(all).len() >= count));
        match waited.await {
            Ok(all) => such(&all.unwrap()),
            Err(_) => panic!("asked was {:?}", self.asked.borrow()),
        }
    }

    /// Returns the directory of a pod's volume.
    pub fn volume(&self, uid: &str, name: &str) -> PathBuf {
        let volumes = "volumes/kubernetes.io~projected";
        self.dir.path().join("pods").join(uid).join(volumes).join(name)
    }

    /// Reads a file of the volume `v` of a pod.
    pub fn file(&self, uid: &str, path: &str) -> String {
        std::fs::read_to_string(self.volume(uid, "v").join(path)).unwrap()
    }

    fn client(&self) -> Client {
        let (asked, refuse) = (self.asked.clone(), self.refuse.clone());
        scripted_client(move |ApiCall { method, path, body, .. }| {
            let answer = match *refuse.lock().unwrap() {
                Some(code) => {
                    let status = json!({"kind": "Status", "apiVersion": "v1",
                        "status": "Failure", "code": code});
                    (code, status)
                }
                None => (200, answer(&method, &path, &body)),
            };
            asked.send_modify(|all| all.push(RecordedRequest { method, path, body }));
            async move { answer }
        })
    }
}

fn answer(method: &Method, path: &str, body: &Value) -> Value {
    match *method {
        Method::POST if path.ends_with("/events") => {
            let mut event = body.clone();
            event["metadata"]["name"] = json!("event-1");
            event
        }
        Method::PATCH if path.contains("/events/") => json!({"metadata": {"name": "event-1"}}),
        Method::PATCH | Method::DELETE => json!({"metadata": {"name": "p"}}),
        _ => json!({}),
    }
}

/// A pod in `default` with one projected volume `v` of these sources.
pub fn pod(uid: &str, sources: Value) -> Pod {
    pod_of(json!({
        "metadata": {"name": format!("pod-{uid}"), "namespace": "default", "uid": uid},
        "spec": {"containers": [], "volumes": [{"name": "v", "projected": {"sources": sources}}]},
    }))
}

pub fn pod_of(pod: Value) -> Pod {
    serde_json::from_value(pod).unwrap()
}

/// A source that selects a bundle by name.
pub fn named(name: &str, optional: bool) -> Value {
    json!({"clusterTrustBundle": {"name": name, "path": "ca.pem", "optional": optional}})
}

/// A source that selects bundles of the signer `a.b/c`.
pub fn selected(path: &str, selector: Option<Value>) -> Value {
    let mut source = json!({"signerName": "a.b/c", "path": path, "optional": true});
    if let Some(selector) = selector {
        source["labelSelector"] = selector;
    }
    json!({ "clusterTrustBundle": source })
}

/// A bundle with its own certificate.
pub fn bundle(name: &str, signer: &str, labels: &[(&str, &str)]) -> TrustBundle {
    let text = CertificateFixture::client(START).pem(PrivateKey::generate().unwrap().public_key());
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    TrustBundle::new(name, 1, signer, labels.collect::<BTreeMap<_, _>>(), &text)
}

pub fn text(bundles: &[&TrustBundle]) -> String {
    let mut all = crate::volume::trust_anchors::TrustAnchors::default();
    bundles.iter().for_each(|bundle| all.add(&bundle.anchors));
    all.to_pem()
}
