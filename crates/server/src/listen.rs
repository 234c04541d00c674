//! From a socket to requests: accept, TLS, HTTP/1.1 or HTTP/2, and an orderly end.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::peer::Peer;
use crate::server::Server;
use crate::{chain, limits};

/// Encrypted bytes that wait for one connection's socket. When a large event goes to thousands of
/// watchers at once, this times their number is held.
const TLS_BUFFER: usize = 96 * 1024;

/// Serves until `shutdown` turns true, then lets open requests finish for up to `grace`.
pub async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: Arc<ArcSwap<ServerConfig>>,
    mut shutdown: watch::Receiver<bool>,
    grace: Duration,
) {
    let graceful = GracefulShutdown::new();
    let http = Arc::new(http());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = shutdown.wait_for(|down| *down) => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: wait for some to come back.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let watcher = graceful.watcher();
        let acceptor = TlsAcceptor::from(tls.load_full());
        let (server, http) = (server.clone(), http.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let accept = acceptor.accept_with(stream, |tls| tls.set_buffer_limit(Some(TLS_BUFFER)));
            let handshake = tokio::time::timeout(limits::HANDSHAKE, accept);
            match handshake.await {
                Ok(Ok(stream)) => connection(server, &http, stream, address, watcher).await,
                Ok(Err(error)) => tracing::debug!(%address, %error, "TLS handshake failed"),
                Err(_) => tracing::debug!(%address, "no TLS handshake in time"),
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still open when the grace period ended");
    }
}

type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

async fn connection(
    server: Arc<Server>,
    http: &Builder<TokioExecutor>,
    stream: TlsStream,
    address: std::net::SocketAddr,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain = chain.iter().map(|c| c.clone().into_owned()).collect();
    let peer = Arc::new(Peer::tls(address, chain));
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let (server, peer) = (server.clone(), peer.clone());
        async move {
            let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
            Ok::<_, std::convert::Infallible>(chain::handle(&server, &peer, request).await)
        }
    });
    let connection = http.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%address, %error, "connection ended");
    }
}

fn http() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEADER_READ)
        .max_buf_size(limits::HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::STREAMS)
        .max_header_list_size(limits::HEADERS as u32)
        // What one stream and one connection may have in flight to us: bodies are at most 3 MiB.
        .initial_stream_window_size(64 * 1024)
        .initial_connection_window_size(256 * 1024)
        // What is buffered for a stream that does not read; hyper's own default is 400 KiB.
        .max_send_buf_size(64 * 1024)
        // Against floods of streams that are opened and reset (CVE-2023-44487).
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(1024)
        // A peer that is gone is noticed, and its watches end.
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}
