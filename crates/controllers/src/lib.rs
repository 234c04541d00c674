//! The controllers.

use tokio::sync::watch;

/// Runs every controller until `shutdown` turns true.
pub async fn run(client: kube::Client, mut shutdown: watch::Receiver<bool>) {
    let _ = client;
    let _ = shutdown.wait_for(|down| *down).await;
}

/// Writes the controllers' metrics as Prometheus text.
pub fn metrics(out: &mut String) {
    let _ = out;
}
