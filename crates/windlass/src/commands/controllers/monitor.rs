//! Serves metrics and health of the controllers over plain HTTP, for clients on this machine.

use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use windlass_node::serving::{self, ServingTransport};
use windlass_runtime::metrics::MetricsRegistry;

/// Serves until the returned guard is dropped.
pub async fn serve(address: SocketAddr, metrics: MetricsRegistry) -> std::io::Result<JoinSet<()>> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving metrics");
    let mut serving = JoinSet::new();
    serving.spawn(serving::serve(
        listener,
        ServingTransport::Plain,
        Arc::new(move |path: &str| page(path, &metrics)),
    ));
    Ok(serving)
}

fn page(path: &str, metrics: &MetricsRegistry) -> Option<(StatusCode, String)> {
    match path {
        "/healthz" => Some((StatusCode::OK, "ok".to_owned())),
        "/metrics" => Some((StatusCode::OK, metrics.encode())),
        _ => None,
    }
}
