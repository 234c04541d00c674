//! The volume manager: keeps all projected volumes of this node up to date, those of its pods and those of the host.
//!
//! | module | holds |
//! |---|---|
//! | `volume_loop` | the loop that composes the parts below |
//! | `volume_table`, `managed_volume`, `volume_state` | all volumes, one volume, and the states and transitions of one |
//! | `job_runner`, `volume_job` | jobs beside the loop; inspecting and writing a volume |
//! | `pod_tracker`, `pod_volumes`, `pod_teardown` | which pods exist, their volumes, and their end |
//! | `host_volumes` | host projections and their volumes |
//! | `selections`, `dependencies`, `snapshot` | selected bundles; other sources of a volume; all of them at one point in time |
//! | `credentials` | requests for tokens and certificates |
//! | `pod_status` | events and conditions on pods |
//! | `pod_volumes_root`, `tmpfs` | the directory of pod volumes |
//! | [`report`] | the state of each volume, for others |

mod credentials;
mod dependencies;
mod host_resources;
mod host_volumes;
mod job_runner;
mod managed_volume;
mod pod_status;
mod pod_teardown;
mod pod_tracker;
mod pod_volumes;
mod pod_volumes_root;
pub mod report;
mod selections;
mod snapshot;
#[cfg(test)]
mod tests;
mod tmpfs;
mod volume_job;
mod volume_loop;
mod volume_state;
mod volume_table;

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::metrics::volumes::VolumeMetrics;
use crate::node_certificates::RandomSource;
use crate::node_status::NodeRegistration;
use crate::projections::{HostProjections, Notifier};
use crate::read_observer::ReadObserver;
use crate::sources::SourceChange;
use crate::sources::bundles::BundleView;
use crate::sources::objects::ObjectCache;
use crate::sources::pods::NodePods;
use crate::sources::revocation_lists::RevocationListView;
use crate::sources::tokens::TokenManager;
use crate::volume_certificates::VolumeCertificateManager;
use windlass_runtime::durable::FileSystem;

use pod_status::PodStatusReporter;
use report::VolumeReports;
use volume_loop::VolumeLoop;

pub use pod_volumes_root::release;

/// Dependencies of the volume manager, which `run` consumes.
pub struct VolumeManager {
    /// Client with the node's credentials, for events and conditions.
    pub client: Client,
    /// The name of the Node object, used in events.
    pub node: String,
    /// Root directory; pod volumes are in `pods/<uid>/volumes/kubernetes.io~projected/<volume>`.
    pub root_dir: PathBuf,
    /// File system access for volumes and certificate state.
    pub files: FileSystem,
    /// Source of time for retries, checks and time stamps.
    pub clock: Clock,
    /// Jitter of checks and retries, between 0 and 1.
    pub random: RandomSource,
    /// Whether pod volumes are on a tmpfs, where this process may mount one.
    pub tmpfs: bool,
    /// Pods bound to this node by UID; `None` until the first list.
    pub pods: watch::Receiver<NodePods>,
    /// ClusterTrustBundles of the cluster, with the arrival time of changes.
    pub bundles: watch::Receiver<Arc<BundleView>>,
    /// CertificateRevocationLists of the cluster, once a projection needs them.
    pub revocation_lists: watch::Receiver<RevocationListView>,
    /// Volumes of the host, from the host projections file.
    pub projections: watch::Receiver<Arc<HostProjections>>,
    /// Whether the node is registered, and whether a kubelet manages its pods.
    pub registration: watch::Receiver<NodeRegistration>,
    /// Watched ConfigMaps and Secrets that volumes reference.
    pub objects: ObjectCache,
    /// Service account tokens, requested and refreshed for volumes.
    pub tokens: Arc<TokenManager>,
    /// Certificates and keys, requested and renewed for volumes.
    pub certificates: Arc<VolumeCertificateManager>,
    /// Notifies applications when the files of a host projection change.
    pub notifier: Arc<Notifier>,
    /// Observes whether applications read trust anchors.
    pub reads: Arc<ReadObserver>,
    /// Changes of objects, tokens and certificates that volumes depend on.
    pub wakes: mpsc::UnboundedReceiver<SourceChange>,
    /// Counters and histograms that the manager updates.
    pub metrics: VolumeMetrics,
    /// Receives the report on each volume.
    pub reports: watch::Sender<VolumeReports>,
}

impl VolumeManager {
    /// Manages the volumes until it is dropped.
    pub async fn run(self) {
        let (pod_reports, received) = mpsc::unbounded_channel();
        let (client, clock, random) = (self.client.clone(), self.clock.clone(), self.random.clone());
        let reporter = PodStatusReporter::new(client, &self.node, clock, random);
        tokio::join!(reporter.run(received), VolumeLoop::new(self, pod_reports).run());
    }
}
