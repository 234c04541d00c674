//! The listener: accepts connections, terminates TLS, serves HTTP/1.1 and HTTP/2, and shuts down
//! gracefully.

mod connection;
mod connections;
mod exchange;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::CONNECTION;
use http::{HeaderValue, Response, Version};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

pub use connections::{ConnectionDeadlines, ConnectionLimits, ConnectionTracker};

use crate::body::{RequestBody, ResponseBody};
use crate::chain::{self, AuthenticationOutcome};
use crate::limits;
use crate::peer::Peer;
use crate::server::Server;
use crate::tls::HandshakeLog;
use connection::{ConnectionState, ConnectionVerdict};
use exchange::{HttpExchange, Open, StreamExecutor, TrackedBody};

/// Encrypted bytes buffered for one connection's socket. A large event sent to thousands of
/// watchers at once takes this times their number.
const TLS_BUFFER: usize = 96 * 1024;

/// Serves until `shutdown` becomes true, then lets open requests finish for up to `grace`.
pub async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: Arc<ArcSwap<ServerConfig>>,
    connections: Arc<ConnectionTracker>,
    mut shutdown: watch::Receiver<bool>,
    grace: Duration,
) {
    let (alive, mut ended) = mpsc::channel::<Infallible>(1);
    let (open, requests) = mpsc::channel(1);
    let http = Arc::new(http(&connections.deadlines));
    let failures = Arc::new(HandshakeLog::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = shutdown.wait_for(|down| *down) => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                back_off_after_accept_error(&connections, &error).await;
                continue;
            }
        };
        let Ok(admission) = connections.admit(address.ip()) else { continue };
        let acceptor = TlsAcceptor::from(tls.load_full());
        let context = ConnectionContext {
            server: server.clone(),
            http: http.clone(),
            open: open.downgrade(),
            shutdown: shutdown.clone(),
            failures: failures.clone(),
        };
        let alive = alive.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = admission.0.aborted() => tracing::debug!(%address, "connection closed"),
                () = serve_connection(context, &admission.0, acceptor, stream, address) => {}
            }
            drop((admission, alive));
        });
    }
    drop(listener);
    drop(open);
    drop(alive);
    tokio::select! {
        None = ended.recv() => {}
        () = drain_requests(requests) => {}
        () = tokio::time::sleep(grace) => {
            tracing::warn!("grace period ended with open requests");
        }
    }
}

/// Backs off after a connection could not be accepted. If file descriptors are exhausted, closes an
/// idle unauthenticated connection.
async fn back_off_after_accept_error(connections: &ConnectionTracker, error: &std::io::Error) {
    connections.counts.accept_errors.fetch_add(1, Ordering::Relaxed);
    if let Some(suppressed) = connections.accept_errors.admit(1, std::time::Instant::now()) {
        tracing::warn!(%error, suppressed, "accept failed");
    }
    let exhausted = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    if exhausted.contains(&error.raw_os_error()) {
        connections.evict_one();
    }
    tokio::time::sleep(limits::ACCEPT_RETRY).await;
}

/// Waits until no request is open, and a little longer for the last bytes of responses.
///
/// Does not wait for connections: closing an HTTP/2 connection requires a cooperating client.
async fn drain_requests(mut requests: mpsc::Receiver<Infallible>) {
    let None = requests.recv().await;
    tokio::time::sleep(limits::DRAIN).await;
}

/// State shared by the connections of a listener.
struct ConnectionContext {
    server: Arc<Server>,
    http: Arc<Builder<StreamExecutor>>,
    open: mpsc::WeakSender<Infallible>,
    shutdown: watch::Receiver<bool>,
    failures: Arc<HandshakeLog>,
}

type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

/// Serves a connection from its TLS handshake to its end.
async fn serve_connection(
    context: ConnectionContext,
    connection: &Arc<ConnectionState>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
) {
    set_options(&stream);
    let accept = acceptor.accept_with(stream, |tls| tls.set_buffer_limit(Some(TLS_BUFFER)));
    let deadline = connection.connections.deadlines.handshake;
    match tokio::time::timeout(deadline, accept).await {
        Ok(Ok(stream)) => serve_requests(context, connection, stream, address).await,
        Ok(Err(error)) => context.failures.report(address, &error),
        Err(_) => tracing::debug!(%address, "TLS handshake timed out"),
    }
}

/// Serves the requests of a connection, and closes it when it is idle, unread or evicted.
async fn serve_requests(
    context: ConnectionContext,
    connection: &Arc<ConnectionState>,
    stream: TlsStream,
    address: SocketAddr,
) {
    connection.established();
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain = chain.iter().map(|c| c.clone().into_owned()).collect();
    let peer = Arc::new(Peer::from_tls(address, chain));
    let ConnectionContext { server, http, open, mut shutdown, .. } = context;
    let service = service_fn(|request| {
        let exchange = HttpExchange::begin(connection);
        answer(server.clone(), peer.clone(), exchange, open.upgrade(), request)
    });
    let mut talk = pin!(http.serve_connection(TokioIo::new(stream), service));
    let mut check = pin!(tokio::time::sleep(Duration::ZERO));
    let mut closing = false;
    loop {
        tokio::select! {
            ended = talk.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%address, %error, "connection ended");
                }
                return;
            }
            () = connection.closing(), if !closing => closing = true,
            _ = shutdown.wait_for(|down| *down), if !closing => {
                closing = true;
                connection.close_gracefully();
            }
            () = check.as_mut() => match connection.check(connection.connections.now()) {
                ConnectionVerdict::Wait(time) => {
                    check.as_mut().reset(tokio::time::Instant::now() + time);
                    continue;
                }
                ConnectionVerdict::Idle => {
                    connection.close_gracefully();
                    continue;
                }
                ConnectionVerdict::Abort(reason) => {
                    tracing::debug!(%address, reason, "connection closed");
                    return;
                }
            },
        }
        talk.as_mut().graceful_shutdown();
        // The client's time to close the connection starts now.
        check.as_mut().reset(tokio::time::Instant::now());
    }
}

/// Handles one request. An unauthenticated one is the last of its connection, as in Kubernetes
/// (`UnauthenticatedHTTP2DOSMitigation`), so that unauthenticated callers cannot hold connections.
async fn answer(
    server: Arc<Server>,
    peer: Arc<Peer>,
    exchange: Arc<HttpExchange>,
    open: Option<Open>,
    request: hyper::Request<hyper::body::Incoming>,
) -> Result<Response<TrackedBody>, Infallible> {
    exchange.attach();
    let request = request.map(|body| RequestBody::new(body).map_err(Into::into).boxed_unsync());
    let one = request.version() <= Version::HTTP_11;
    let mut response = chain::handle_request(&server, &peer, request).await;
    let connection = &exchange.connection;
    let known = response.extensions().get().copied();
    match known.unwrap_or(AuthenticationOutcome::Unknown) {
        AuthenticationOutcome::Succeeded => connection.set_authenticated(),
        AuthenticationOutcome::Unknown if connection.is_authenticated() => {}
        AuthenticationOutcome::Unknown | AuthenticationOutcome::Failed => {
            connection.close_gracefully();
            // Watches are limited separately, and are idle most of the time.
            if !matches!(response.body(), ResponseBody::Watch(_)) {
                exchange.set_unauthenticated();
            }
        }
    }
    if one && (server.is_shutting_down() || connection.is_closing()) {
        // Makes the client reconnect between two requests; later, it might have to within one.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| TrackedBody::new(body, exchange, open)))
}

/// Sets socket options. A failure is no reason to refuse the connection.
fn set_options(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    // Bounds writes to a client that stops reading or is silently gone: they would wait for ever,
    // and so would an idle watch.
    let _ = sockopt::set_tcp_user_timeout(stream, limits::UNREAD.as_millis() as u32);
    let _ = sockopt::set_tcp_keepidle(stream, limits::UNREAD);
    let _ = sockopt::set_socket_keepalive(stream, true);
}

fn http(deadlines: &ConnectionDeadlines) -> Builder<StreamExecutor> {
    let mut builder = Builder::new(StreamExecutor);
    builder
        .http1()
        .timer(TokioTimer::new())
        // This timeout starts at the end of the previous request, and an idle connection sends no
        // header. The first header of a connection has a shorter deadline.
        .header_read_timeout(deadlines.idle)
        .max_buf_size(limits::HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::STREAMS)
        .max_header_list_size(limits::HEADERS as u32)
        // Receive windows of a stream and of a connection; bodies are at most 3 MiB.
        .initial_stream_window_size(64 * 1024)
        .initial_connection_window_size(256 * 1024)
        // Send buffer of a stream that is not read; hyper's default is 400 KiB.
        .max_send_buf_size(64 * 1024)
        // Against floods of opened and reset streams (CVE-2023-44487).
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(1024)
        // Detects a dead peer, which ends its watches.
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}
