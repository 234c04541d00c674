//! Tells the server which trust anchors are in the volumes of this node, in its NodeTrust.
//!
//! - [`object`]: the object, as it is on the server.
//! - [`status`]: what is in it, from what is known of volumes.
//! - `reporter`: keeps it so.

pub mod object;
mod reporter;
pub mod status;

use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::volume_manager::report::VolumeReports;

use reporter::NodeTrustReporter;

/// Keeps the node's NodeTrust as the reports say, and writes it only when they say something else.
/// Does not end.
pub async fn report(
    client: Client,
    node: String,
    clock: Clock,
    reports: watch::Receiver<VolumeReports>,
) {
    NodeTrustReporter::new(client, node, clock, Arc::new(rand::random::<f64>)).run(reports).await;
}
