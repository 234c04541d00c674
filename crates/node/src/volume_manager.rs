//! Keeps all volumes of this node as they should be: those of its pods, and those of the machine.
//!
//! - [`report`]: what is known of each volume, for others.
//! - `work`: the loop. It hears what has changed, works out which volumes may be concerned, and has
//!   their files made: several volumes at once, but never twice the same.
//! - `pods`, `hosts`: which volumes there are. `leaving`: pods that have none any more.
//! - `volume`: one volume. `needs`: what it depends on. `world`: what is known of that. `machine`: what the
//!   machine has.
//! - `tell`: tells pods how their volumes are.
//! - `place`, `tmpfs`: where the volumes of pods are.

mod dependencies;
mod host_resources;
mod host_volumes;
mod managed_volume;
mod pod_status;
mod pod_teardown;
mod pod_volumes;
mod pod_volumes_root;
pub mod report;
mod snapshot;
#[cfg(test)]
mod tests;
mod tmpfs;
mod volume_loop;

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::files::FileSystem;
use crate::metrics::volumes::VolumeMetrics;
use crate::node_certificates::RandomSource;
use crate::node_status::NodeRegistration;
use crate::projections::{HostProjections, Notifier};
use crate::sources::SourceChange;
use crate::sources::bundles::BundleView;
use crate::sources::objects::ObjectCache;
use crate::sources::pods::NodePods;
use crate::sources::tokens::TokenManager;
use crate::volume_certificates::VolumeCertificateManager;

use pod_status::PodStatusReporter;
use report::VolumeReports;
use volume_loop::VolumeLoop;

pub use pod_volumes_root::release;

/// Dependencies of the volume manager, which `run` consumes.
pub struct VolumeManager {
    /// The server, as the node: for events and conditions.
    pub client: Client,
    /// The name of the Node object, used in events.
    pub node: String,
    /// Where pods' volumes are, in `pods/<uid>/volumes/kubernetes.io~projected/<volume>`.
    pub root_dir: PathBuf,
    /// File system access for volumes and certificate state.
    pub files: FileSystem,
    /// Source of time for retries, checks and time stamps.
    pub clock: Clock,
    /// So that not everything is done at once.
    pub random: RandomSource,
    /// Whether volumes of pods are to be in memory, where this process may mount.
    pub tmpfs: bool,
    /// Pods bound to this node by UID; `None` until the first list.
    pub pods: watch::Receiver<NodePods>,
    /// ClusterTrustBundles of the cluster, with the arrival time of changes.
    pub bundles: watch::Receiver<Arc<BundleView>>,
    /// Volumes of the host, from the host projections file.
    pub projections: watch::Receiver<HostProjections>,
    /// Whether there is a kubelet, whose the pods are then.
    pub registration: watch::Receiver<NodeRegistration>,
    /// Watched ConfigMaps and Secrets that volumes reference.
    pub objects: ObjectCache,
    /// Service account tokens, requested and refreshed for volumes.
    pub tokens: Arc<TokenManager>,
    /// Certificates and keys, requested and renewed for volumes.
    pub certificates: Arc<VolumeCertificateManager>,
    /// Notifies applications when the files of a host projection change.
    pub notifier: Arc<Notifier>,
    /// Changes of objects, tokens and certificates that volumes depend on.
    pub wakes: mpsc::UnboundedReceiver<SourceChange>,
    /// Counters and histograms that the manager updates.
    pub metrics: Arc<VolumeMetrics>,
    /// What is known of each volume.
    pub reports: watch::Sender<VolumeReports>,
}

impl VolumeManager {
    /// Keeps them so. Does not end.
    pub async fn run(self) {
        let (tell, news) = mpsc::unbounded_channel();
        let (client, node) = (self.client.clone(), self.node.clone());
        let teller = PodStatusReporter::new(client, node, self.clock.clone(), self.random.clone());
        // Whoever ends one of them ends both.
        tokio::join!(teller.run(news), VolumeLoop::new(self, tell).run());
    }
}
