//! Clients that open responses without reading them: the server buffers one frame of each, not the
//! whole response.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use windlass_testkit::{HttpClient, MAPS as CONFIG_MAPS};

use crate::server::{ADMIN_TOKEN, TestServer};

const OBJECTS: usize = 150;
const OBJECT_BYTES: usize = 15_000;
/// Number of unread responses on one connection.
const RESPONSES: usize = 50;
/// Maximum growth of the server's memory. 50 assembled lists take at least 110 MiB.
const MOST_KIB: u64 = 24 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn unread_lists_of_one_connection_cost_little_memory() {
    let server = TestServer::start();
    let http = server.http();
    let mut connection = http.connect().await.unwrap();
    for number in 0..OBJECTS {
        let map = json!({
            "metadata": {"name": format!("m{number}"), "annotations": {"a": "a".repeat(OBJECT_BYTES / 2)}},
            "data": {"text": "t".repeat(OBJECT_BYTES / 2)},
        });
        let (code, answer) = connection.request(Method::POST, CONFIG_MAPS, &map).await.unwrap();
        assert_eq!(code, 201, "{answer}");
    }
    for (query, accept) in [
        ("", "application/json"),
        ("?pretty=true", "application/json"),
        ("", "application/yaml"),
        ("?includeObject=Object", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        ("", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
    ] {
        for window in [0, 1, 20_000] {
            let path = format!("{CONFIG_MAPS}{query}");
            let mut sender = connect(&http, window).await;
            let before = server.memory_kib("VmRSS");
            let mut held = Vec::new();
            for _ in 0..RESPONSES {
                held.push(open(&mut sender, &path, accept).await);
            }
            let grown = server.memory_kib("VmRSS").saturating_sub(before);
            assert!(grown < MOST_KIB, "{path} as {accept}, window {window}: {grown} KiB");
            // They occupy seats, and other requests are served.
            let (code, _) = connection.request(Method::GET, CONFIG_MAPS, &json!(null)).await.unwrap();
            assert_eq!(code, 200);
            // A client that reads later gets the complete response.
            if window == 20_000 {
                let body = held.pop().unwrap().into_body().collect().await.unwrap().to_bytes();
                assert!(body.len() > OBJECTS * OBJECT_BYTES / 2, "{path} as {accept}");
            }
        }
    }
}

/// Opens a connection that permits `window` unread bytes per response.
async fn connect(http: &HttpClient, window: u32) -> SendRequest<Full<Bytes>> {
    let stream = TokioIo::new(http.connect_tls().await.unwrap());
    let handshake =
        http2::Builder::new(TokioExecutor::new()).initial_stream_window_size(window).handshake(stream).await;
    let (sender, connection) = handshake.unwrap();
    tokio::spawn(connection);
    sender
}

async fn open(sender: &mut SendRequest<Full<Bytes>>, path: &str, accept: &str) -> Response<Incoming> {
    let request = Request::builder()
        .uri(format!("https://localhost{path}"))
        .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
        .header("accept", accept)
        .body(Full::default());
    sender.ready().await.unwrap();
    let response = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200, "{path} as {accept}");
    response
}
