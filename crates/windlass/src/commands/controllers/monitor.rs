//! Metrics and health of the controllers over plain HTTP, for whoever is on this machine.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Connections at a time; more wait to be accepted.
const CONNECTIONS: usize = 32;
/// How long a connection may last: one that is only held open is in the others' way.
const LIFETIME: Duration = Duration::from_secs(60);

/// Serves until what it returns is dropped.
pub async fn serve(address: SocketAddr) -> std::io::Result<JoinSet<()>> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving metrics");
    let mut serving = JoinSet::new();
    serving.spawn(accept(listener));
    Ok(serving)
}

async fn accept(listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        connections.spawn(async move {
            let mut server = http1::Builder::new();
            let server = server.timer(TokioTimer::new()).header_read_timeout(LIFETIME / 6);
            let talk = server.serve_connection(TokioIo::new(stream), service_fn(answer));
            let _ = tokio::time::timeout(LIFETIME, talk).await;
            drop(place);
        });
    }
}

async fn answer<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (code, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "ok".to_owned()),
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let mut text = String::new();
            windlass_controllers::metrics(&mut text);
            (StatusCode::OK, text)
        }
        _ => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}
