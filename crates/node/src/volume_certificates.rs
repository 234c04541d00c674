//! Keys and certificates in volumes: requested, kept over restarts, and renewed in time, while the old ones stay in use.
//!
//! | module | holds |
//! |---|---|
//! | `state_machine`, `driver` | what to do next about one certificate, and the task that does it |
//! | `issuance`, `pod_request`, `host_request` | obtaining a certificate; the requests for pods and for the host |
//! | `dispatcher` | the watch of PodCertificateRequests, for all that wait for one |
//! | `state_file`, `managed_certificate` | the state on the disk, and in memory |
//! | `event_writer` | events on pods and on the Node |

mod dispatcher;
mod driver;
mod event_writer;
mod host_request;
mod issuance;
mod managed_certificate;
mod pod_request;
mod state_file;
mod state_machine;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use windlass_api::selector::labels::LabelSelector;
use windlass_pki::AltNames;

use crate::clock::Clock;
use crate::feature_gates::FeatureGates;
use crate::node_certificates::RandomSource;
use crate::sources::ChangeSender;
use crate::sources::bundles::BundleView;
use crate::volume::definition::CertificateSource;
use crate::volume::id::{SourceId, VolumeOwner};
use crate::volume::plan::{CredentialBundle, CredentialState, OptionalApi};
use crate::volume::trust_anchors::{BundleSelector, TrustAnchors};
use windlass_runtime::discovery::{
    AGENT_PACING, KindPresence, POD_CERTIFICATE_REQUESTS, RecheckSignal, watch_presence,
};
use windlass_runtime::durable::FileSystem;

use dispatcher::RequestDispatcher;
use managed_certificate::{ManagedCertificate, PublishedCertificate, lock};
use state_file::{LoadedState, StateFile};

/// Configuration and dependencies of a `VolumeCertificateManager`.
pub struct VolumeCertificateConfig {
    /// API client with the node's credentials.
    pub client: Client,
    /// The name of the Node object, which is part of every request.
    pub node: String,
    /// File system access for the certificate state files.
    pub files: FileSystem,
    /// Source of wall-clock and monotonic time for renewal.
    pub clock: Clock,
    /// Random numbers that spread requests over time.
    pub random: RandomSource,
    /// Feature gates; `PodCertificateRequest` turned off stops all pod requests.
    pub gates: FeatureGates,
    /// Notified when a certificate, or the reason for its absence, changes.
    pub wakes: ChangeSender,
    /// How often the wall clock is checked, because it may jump.
    pub look: Duration,
    /// Trust anchors that signers publish. A certificate issued under none of its signer's anchors
    /// is renewed at once.
    pub bundles: watch::Receiver<Arc<BundleView>>,
}

/// Definition of a certificate to obtain.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateSpec {
    /// The `podCertificate` source of the volume: signer, key type and lifetime.
    pub source: CertificateSource,
    /// The pod or host that the certificate is issued to.
    pub subject: CertificateSubject,
    /// Private directory of the state that survives restarts. Whoever forgets the certificate
    /// removes it.
    pub state: PathBuf,
}

/// The subject of a certificate: a pod or the host.
#[derive(Clone, Debug, PartialEq)]
pub enum CertificateSubject {
    /// A pod, through a PodCertificateRequest.
    Pod {
        /// Name of the service account, in the pod's namespace.
        service_account: String,
    },
    /// The host, through a CertificateSigningRequest, since there is no pod.
    Host {
        /// `CN` of the subject; `None` uses the node's name.
        common_name: Option<String>,
        /// Subject alternative names to request; may be empty.
        names: AltNames,
    },
}

/// Requests and renews the certificates of volumes.
pub struct VolumeCertificateManager {
    setup: VolumeCertificateConfig,
    sources: Mutex<BTreeMap<SourceId, Arc<ManagedCertificate>>>,
    /// Certificates to start managing, sent to `run`.
    begin: mpsc::UnboundedSender<CertificateStart>,
    /// Taken by the first call of `run`.
    inbox: Mutex<Option<CertificateInbox>>,
    /// Whether a pod ever needed a certificate; until then, requests are not watched.
    pods: watch::Sender<bool>,
    /// Limits the number of concurrent requests.
    turns: Semaphore,
    presence: watch::Sender<KindPresence>,
    again: RecheckSignal,
    hub: RequestDispatcher,
    requests: pod_request::PodRequestClient,
    notices: mpsc::Sender<event_writer::QueuedEvent>,
}

/// Messages that `run` receives and handles.
struct CertificateInbox {
    begin: mpsc::UnboundedReceiver<CertificateStart>,
    notices: mpsc::Receiver<event_writer::QueuedEvent>,
}

struct CertificateStart {
    source: Arc<ManagedCertificate>,
    loaded: LoadedState,
}

/// Number of concurrent submissions. Requests that are pending do not count.
const TURNS: usize = 8;

const OFF: &str = "PodCertificate projection: the feature gate PodCertificateRequest is off";
const MISSING: &str = "the server does not serve podcertificaterequests.certificates.k8s.io";
/// Kubelet's message for unknown credentials.
const UNKNOWN: &str = "no credentials yet";

impl VolumeCertificateManager {
    /// Creates a manager without certificates; `ensure` adds them and `run` requests them.
    pub fn new(setup: VolumeCertificateConfig) -> Arc<Self> {
        let (begin, begins) = mpsc::unbounded_channel();
        let (notices, noticed) = mpsc::channel(event_writer::WAITING);
        let (client, node, again) = (setup.client.clone(), setup.node.clone(), RecheckSignal::default());
        Arc::new(Self {
            sources: Mutex::default(),
            begin,
            inbox: Mutex::new(Some(CertificateInbox { begin: begins, notices: noticed })),
            pods: watch::Sender::new(false),
            turns: Semaphore::new(TURNS),
            presence: watch::Sender::new(KindPresence::Unknown),
            requests: pod_request::PodRequestClient::new(client, node, setup.random.clone(), again.clone()),
            again,
            hub: RequestDispatcher::default(),
            notices,
            setup,
        })
    }

    /// Requests and renews certificates. Never returns. Runs once: a second call does nothing.
    pub async fn run(self: Arc<Self>) {
        let inbox = lock(&self.inbox).take();
        let Some(CertificateInbox { mut begin, notices }) = inbox else {
            return std::future::pending().await;
        };
        let VolumeCertificateConfig { client, node, clock, .. } = &self.setup;
        let keeping = async {
            let mut tasks = JoinSet::new();
            loop {
                tokio::select! {
                    Some(CertificateStart { source, loaded }) = begin.recv() => {
                        let keep = driver::run(self.clone(), source.clone(), loaded);
                        source.begin(|| tasks.spawn(keep));
                    }
                    Some(ended) = tasks.join_next() => if let Err(error) = ended
                        && error.is_panic()
                    {
                        tracing::error!("renewal task panicked");
                    },
                }
            }
        };
        let telling = event_writer::write_events(client.clone(), node.clone(), clock.clone(), notices);
        tokio::join!(keeping, telling, self.watch_requests());
    }

    /// Ensures that such a certificate is requested and renewed, continuing from the state that an
    /// earlier process left.
    pub fn ensure(&self, id: &SourceId, wanted: CertificateSpec) {
        let before = lock(&self.sources).get(id).cloned();
        if let Some(before) = before {
            if before.wanted == wanted {
                return;
            }
            before.end();
        }
        let place = StateFile::for_source(id, &wanted);
        let is_pod = matches!(wanted.subject, CertificateSubject::Pod { .. });
        let off = is_pod && !self.setup.gates.pod_certificate_request;
        let loaded = if off { LoadedState::default() } else { place.load(&self.setup.files) };
        if let Some(why) = &loaded.warning {
            tracing::warn!(volume = %id.volume, error = why, "cannot load a certificate; requesting a new one");
        }
        let why = if off { OFF } else { state_machine::NOT_YET }.to_owned();
        let shown =
            PublishedCertificate { current: loaded.kept.current.clone(), reason: why, refuser: None, off };
        let source = Arc::new(ManagedCertificate::new(id.clone(), wanted, place, shown));
        lock(&self.sources).insert(id.clone(), source.clone());
        if !off {
            self.pods.send_if_modified(|pods| is_pod && !std::mem::replace(pods, true));
            // `run` has ended only if the agent has.
            let _ = self.begin.send(CertificateStart { source, loaded });
        }
    }

    /// Stops requests for all volumes of this owner except these.
    pub fn retain(&self, owner: &VolumeOwner, wanted: &[SourceId]) {
        let mut forgotten = Vec::new();
        lock(&self.sources).retain(|id, source| {
            let keep = id.volume.owner != *owner || wanted.contains(id);
            if !keep {
                forgotten.push(source.clone());
            }
            keep
        });
        for source in forgotten {
            source.forget(&self.setup.files);
        }
    }

    /// Returns the certificate and its key, or why there is none.
    pub fn get(&self, id: &SourceId) -> CredentialState<CredentialBundle> {
        let source = lock(&self.sources).get(id).cloned();
        source.map_or_else(|| CredentialState::Unavailable(UNKNOWN.into()), |source| source.get())
    }

    /// Returns the trust anchors that a signer publishes, without duplicates; `None` if there are
    /// none or they are unknown.
    fn anchors(&self, signer: &str) -> Option<TrustAnchors> {
        let view = self.setup.bundles.borrow().clone();
        let OptionalApi::Synced(bundles) = &view.bundles else { return None };
        let select = BundleSelector::Signer(signer.to_owned(), LabelSelector::everything());
        bundles.anchors(&select, false).ok()
    }

    /// Returns the number of certificates per signer and state, for
    /// `kubelet_podcertificate_states`.
    pub fn states(&self) -> BTreeMap<(String, &'static str), u64> {
        let now = (self.setup.clock)().wall;
        let mut states = BTreeMap::new();
        for source in lock(&self.sources).values() {
            if let Some(state) = source.state(now) {
                let count: &mut u64 = states.entry((source.wanted.source.signer.clone(), state)).or_default();
                *count = count.saturating_add(1);
            }
        }
        states
    }

    /// Watches the PodCertificateRequests of this node once there are any. Never returns.
    async fn watch_requests(&self) {
        if self.pods.subscribe().wait_for(|pods| *pods).await.is_err() {
            return std::future::pending().await;
        }
        let (client, again) = (self.setup.client.clone(), self.again.clone());
        let presence = self.presence.subscribe();
        let (kind, found) = (POD_CERTIFICATE_REQUESTS, self.presence.clone());
        let finding = watch_presence(client.clone(), kind, AGENT_PACING, again.clone(), found);
        tokio::join!(finding, self.hub.run(client, &self.setup.node, presence, again));
    }
}
