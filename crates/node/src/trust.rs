//! Reports which trust anchors are in the volumes of this node, in its NodeTrust.
//!
//! - [`object`]: the API resource.
//! - [`status`]: computes the status from the reports on volumes.
//! - `reporter`: keeps the object on the server up to date.

pub mod object;
mod reporter;
pub mod status;

use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::read_observer::ReadStates;
use crate::volume_manager::report::VolumeReports;

use reporter::NodeTrustReporter;

/// Keeps the node's NodeTrust up to date with the reports, writing only when its content changes.
/// Never returns.
pub async fn report(
    client: Client,
    node: String,
    clock: Clock,
    reports: watch::Receiver<VolumeReports>,
    reads: watch::Receiver<ReadStates>,
) {
    NodeTrustReporter::new(client, node, clock, Arc::new(rand::random::<f64>)).run(reports, reads).await;
}
