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

mod hosts;
mod leaving;
mod machine;
mod needs;
mod place;
mod pods;
pub mod report;
mod tell;
#[cfg(test)]
mod tests;
mod tmpfs;
mod volume;
mod work;
mod world;

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};

use crate::certificates::Certificates;
use crate::clock::Clock;
use crate::files::Files;
use crate::manager::Random;
use crate::metrics::volumes::VolumeMetrics;
use crate::projections::{Notifier, Projections};
use crate::register::Registration;
use crate::sources::Wake;
use crate::sources::bundles::View;
use crate::sources::objects::Objects;
use crate::sources::pods::Pods;
use crate::sources::tokens::Tokens;

use report::Reports;
use tell::Teller;
use work::Work;

pub use place::release;

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
    /// So that not everything is done at once.
    pub random: Random,
    /// Whether volumes of pods are to be in memory, where this process may mount.
    pub tmpfs: bool,
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
        let (tell, news) = mpsc::unbounded_channel();
        let (client, node) = (self.client.clone(), self.node.clone());
        let teller = Teller::new(client, node, self.clock.clone(), self.random.clone());
        // Whoever ends one of them ends both.
        tokio::join!(teller.run(news), Work::new(self, tell).run());
    }
}
