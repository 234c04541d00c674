//! From a socket to requests: accept, TLS, HTTP/1.1 or HTTP/2, and an orderly end.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Version};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustix::net::sockopt;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::body::{Body, BodyError, Received};
use crate::peer::Peer;
use crate::server::Server;
use crate::tls::HandshakeLog;
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
    let (open, requests) = mpsc::channel(1);
    let http = Arc::new(http());
    let failures = Arc::new(HandshakeLog::default());
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
        let (server, http, open) = (server.clone(), http.clone(), open.downgrade());
        let failures = failures.clone();
        tokio::spawn(async move {
            set_options(&stream);
            let accept = acceptor.accept_with(stream, |tls| tls.set_buffer_limit(Some(TLS_BUFFER)));
            let handshake = tokio::time::timeout(limits::HANDSHAKE, accept);
            match handshake.await {
                Ok(Ok(stream)) => connection(server, &http, stream, address, watcher, open).await,
                Ok(Err(error)) => failures.report(address, &error),
                Err(_) => tracing::debug!(%address, "no TLS handshake in time"),
            }
        });
    }
    drop(listener);
    drop(open);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = all_answered(requests) => {}
        () = tokio::time::sleep(grace) => {
            tracing::warn!("requests were still open when the grace period ended");
        }
    }
}

/// An open request: there is nothing in it, it is only counted.
type Open = mpsc::Sender<Infallible>;

/// Waits until no request is open, and a moment longer for the last bytes of answers.
///
/// Connections are not waited for: that an HTTP/2 connection ends takes a client that hears of it.
async fn all_answered(mut requests: mpsc::Receiver<Infallible>) {
    let None = requests.recv().await;
    tokio::time::sleep(limits::DRAIN).await;
}

type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

async fn connection(
    server: Arc<Server>,
    http: &Builder<TokioExecutor>,
    stream: TlsStream,
    address: std::net::SocketAddr,
    watcher: hyper_util::server::graceful::Watcher,
    open: mpsc::WeakSender<Infallible>,
) {
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain = chain.iter().map(|c| c.clone().into_owned()).collect();
    let peer = Arc::new(Peer::tls(address, chain));
    let asked = Arc::new(AtomicBool::new(false));
    let asking = asked.clone();
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        asking.store(true, Ordering::Relaxed);
        let (server, peer, open) = (server.clone(), peer.clone(), open.upgrade());
        async move {
            let request =
                request.map(|body| Received::new(body).map_err(Into::into).boxed_unsync());
            let one = request.version() <= Version::HTTP_11;
            let mut response = chain::handle(&server, &peer, request).await;
            if one && server.is_leaving() {
                // The client turns elsewhere between two requests; later, it might do so within one.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| Answer::new(body, open)))
        }
    });
    let connection = http.serve_connection(TokioIo::new(stream), service).into_owned();
    let mut connection = pin!(watcher.watch(connection));
    let ended = match tokio::time::timeout(limits::HEADER_READ, &mut connection).await {
        Ok(ended) => ended,
        // The libraries have no deadline for the first bytes, nor for the start of HTTP/2.
        Err(_) if !asked.load(Ordering::Relaxed) => {
            tracing::debug!(%address, "no request in time");
            return;
        }
        Err(_) => connection.await,
    };
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "connection ended");
    }
}

/// A body that keeps its request open until it is written.
struct Answer {
    body: Body,
    _open: Option<Open>,
}

impl Answer {
    fn new(body: Body, open: Option<Open>) -> Answer {
        // Watches end by themselves when the server does. One whose client does not read cannot
        // even do that, and is not waited for.
        let open = open.filter(|_| !matches!(body, Body::Watch(_)));
        Answer { body, _open: open }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What the kernel is to do for a connection. None of it is worth refusing one for.
fn set_options(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    // A client that stops reading, or is gone without a word: writes to it would wait for ever,
    // and so would a watch that has nothing to write.
    let _ = sockopt::set_tcp_user_timeout(stream, limits::UNREAD.as_millis() as u32);
    let _ = sockopt::set_tcp_keepidle(stream, limits::UNREAD);
    let _ = sockopt::set_socket_keepalive(stream, true);
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
