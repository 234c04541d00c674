//! Server for health and metrics: over TLS for others, or plain HTTP for this host.
//!
//! The certificate is looked up at each handshake, so a new one needs no restart. Connections with
//! an old one end with their next response, or after an idle period.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::tls_resolver::{CurrentKeyPair, TlsCertResolver};

/// Limit of concurrent connections. One more closes the oldest: anyone who reaches the address can
/// hold connections open, and health checks must not wait for these.
const CONNECTIONS: usize = 64;
/// Longest lifetime of a connection, because idle ones block others.
const LIFETIME: Duration = Duration::from_secs(60);
/// Time limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long a new connection may take for its first request after the certificate changed; then it
/// is closed.
const GRACE: Duration = Duration::from_secs(5);

/// Returns the status and text of a page by its path.
pub type PageHandler = Arc<dyn Fn(&str) -> Option<(StatusCode, String)> + Send + Sync>;

/// Transport of the server: plain HTTP or TLS.
#[derive(Clone)]
pub enum ServingTransport {
    /// Plain HTTP; anyone who can reach the address can read the pages.
    Plain,
    /// TLS with the current certificate. Handshakes fail while there is none.
    Tls(CurrentKeyPair),
}

/// Serves the pages until it is dropped.
pub async fn serve(listener: TcpListener, door: ServingTransport, pages: PageHandler) {
    let acceptor = match &door {
        ServingTransport::Plain => None,
        ServingTransport::Tls(current) => match config(current.clone()) {
            Ok(config) => Some((TlsAcceptor::from(Arc::new(config)), current.clone())),
            Err(error) => {
                tracing::error!(%error, "cannot serve over TLS");
                return;
            }
        },
    };
    let mut connections = JoinSet::new();
    let mut oldest: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely out of file descriptors.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        oldest.retain(|connection| !connection.is_finished());
        if oldest.len() >= CONNECTIONS
            && let Some(connection) = oldest.pop_front()
        {
            connection.abort();
        }
        let (acceptor, pages) = (acceptor.clone(), pages.clone());
        oldest.push_back(connections.spawn(async move {
            match acceptor {
                None => serve_connection(stream, pages, std::future::pending()).await,
                Some((acceptor, current)) => serve_tls_connection(stream, acceptor, current, pages).await,
            }
        }));
    }
}

fn config(current: CurrentKeyPair) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_cert_resolver(TlsCertResolver::new(current));
    // A resumed session would keep the certificate it started with.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

async fn serve_tls_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    mut current: CurrentKeyPair,
    pages: PageHandler,
) {
    // Later changes concern certificates that this connection does not have.
    current.mark_unchanged();
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let changed = async move {
        if current.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    serve_connection(stream, pages, changed).await;
}

/// Serves a connection; after `enough`, only one more response.
async fn serve_connection<S>(stream: S, pages: PageHandler, enough: impl Future<Output = ()>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let last = AtomicBool::new(false);
    let service = service_fn(|request| {
        let mut response = respond(&request, &pages);
        if last.load(Relaxed) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut server = http1::Builder::new();
    let server = server.timer(TokioTimer::new()).header_read_timeout(LIFETIME / 6);
    let mut talk = pin!(server.serve_connection(TokioIo::new(stream), service));
    let whole = async {
        tokio::select! {
            _ = talk.as_mut() => return,
            () = enough => last.store(true, Relaxed),
        }
        if tokio::time::timeout(GRACE, talk.as_mut()).await.is_err() {
            talk.as_mut().graceful_shutdown();
            let _ = talk.await;
        }
    };
    let _ = tokio::time::timeout(LIFETIME, whole).await;
}

fn respond(request: &Request<Incoming>, pages: &PageHandler) -> Response<Full<Bytes>> {
    let page = match *request.method() {
        Method::GET | Method::HEAD => pages(request.uri().path()),
        _ => None,
    };
    let missing = || (StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    let (code, text) = page.unwrap_or_else(missing);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests;
