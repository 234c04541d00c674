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

mod host_volumes;
mod pod_teardown;
mod host_resources;
mod dependencies;
mod pod_volumes_root;
mod pod_volumes;
pub mod report;
mod pod_status;
#[cfg(test)]
mod tests;
mod tmpfs;
mod managed_volume;
mod volume_loop;
mod snapshot;

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};

use crate::volume_certificates::VolumeCertificateManager;
use crate::clock::Clock;
use crate::files::FileSystem;
use crate::node_certificates::RandomSource;
use crate::metrics::volumes::VolumeMetrics;
use crate::projections::{Notifier, HostProjections};
use crate::node_status::NodeRegistration;
use crate::sources::SourceChange;
use crate::sources::bundles::BundleView;
use crate::sources::objects::ObjectCache;
use crate::sources::pods::NodePods;
use crate::sources::tokens::TokenManager;

use report::VolumeReports;
use pod_status::PodStatusReporter;
use volume_loop::VolumeLoop;

pub use pod_volumes_root::release;

/// What it works with.
pub struct VolumeManager {
    /// The server, as the node: for events and conditions.
    pub client: Client,
    /// The node's name.
    pub node: String,
    /// Where pods' volumes are, in `pods/<uid>/volumes/kubernetes.io~projected/<volume>`.
    pub root_dir: PathBuf,
    /// The disk.
    pub files: FileSystem,
    /// What time it is.
    pub clock: Clock,
    /// So that not everything is done at once.
    pub random: RandomSource,
    /// Whether volumes of pods are to be in memory, where this process may mount.
    pub tmpfs: bool,
    /// The node's pods.
    pub pods: watch::Receiver<NodePods>,
    /// The bundles.
    pub bundles: watch::Receiver<Arc<BundleView>>,
    /// The machine's own volumes.
    pub projections: watch::Receiver<HostProjections>,
    /// Whether there is a kubelet, whose the pods are then.
    pub registration: watch::Receiver<NodeRegistration>,
    /// ConfigMaps and Secrets.
    pub objects: ObjectCache,
    /// Tokens.
    pub tokens: Arc<TokenManager>,
    /// Certificates.
    pub certificates: Arc<VolumeCertificateManager>,
    /// Tells applications.
    pub notifier: Arc<Notifier>,
    /// What has changed.
    pub wakes: mpsc::UnboundedReceiver<SourceChange>,
    /// What is counted.
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
