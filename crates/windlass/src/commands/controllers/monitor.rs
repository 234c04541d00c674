//! Serves metrics and health of the controllers over plain HTTP, for clients on this machine.

use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use windlass_node::serving::{self, ServingTransport};
use windlass_runtime::metrics::MetricsRegistry;

use crate::expiry::ExpiryMonitor;

/// Serves until the returned guard is dropped.
pub async fn serve(
    address: SocketAddr,
    metrics: MetricsRegistry,
    expiry: Arc<ExpiryMonitor>,
) -> std::io::Result<JoinSet<()>> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving metrics");
    let mut serving = JoinSet::new();
    serving.spawn(serving::serve(
        listener,
        ServingTransport::Plain,
        Arc::new(move |path: &str| page(path, &metrics, &expiry)),
    ));
    Ok(serving)
}

fn page(path: &str, metrics: &MetricsRegistry, expiry: &ExpiryMonitor) -> Option<(StatusCode, String)> {
    match path {
        "/healthz" => Some((StatusCode::OK, "ok".to_owned())),
        "/metrics" => {
            let mut text = metrics.encode();
            expiry.metrics(&mut text);
            Some((StatusCode::OK, text))
        }
        _ => None,
    }
}
