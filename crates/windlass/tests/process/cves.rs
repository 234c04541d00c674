//! Vulnerabilities of other projects that need a process to reproduce: each test is named after the
//! one that it would have caught. `docs/track-record.md` lists them all.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use windlass_testkit::{HttpClient, MAPS as CONFIG_MAPS};

use crate::server::{PATIENCE, TestServer};

/// Returns the size of a directory in bytes.
fn size(folder: &Path) -> u64 {
    let mut all = 0;
    for entry in fs::read_dir(folder).unwrap().flatten() {
        all += match entry.metadata() {
            Ok(found) if found.is_dir() => size(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        };
    }
    all
}

/// Sends distinct requests without a credential. The server closes the connection after each.
async fn send_anonymous_requests(http: &HttpClient, numbers: std::ops::Range<usize>) {
    const ROUTES: &[&str] = &[
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/secrets/x",
        "/api/v1/namespaces/default/pods/x/status",
        "/api/v1/namespaces/default/pods/x/eviction",
        "/api/v1/namespaces/default/serviceaccounts/x/token",
        "/api/v1/namespaces/default/events",
        "/api/v1/nodes",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/x",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/openapi/v2",
        "/metrics",
        "/readyz",
        "/nothing",
    ];
    let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let body = format!("{{\"metadata\":{{\"name\":\"x\"}},\"data\":{{\"k\":\"{}\"}}}}", "x".repeat(1_000));
    for number in numbers {
        let path = ROUTES[number % ROUTES.len()];
        let method = &methods[number / ROUTES.len() % methods.len()];
        let request = || {
            let request = Request::builder()
                .method(method.clone())
                .uri(format!("https://localhost{path}?fieldManager=m{number}"))
                .header("content-type", "application/json")
                .header("user-agent", format!("agent-{number}"))
                .body(Full::new(Bytes::from(body.clone())));
            request.unwrap()
        };
        // The server ends a connection without a credential after one request. On a busy machine the client may see its
        // GOAWAY before the response, and tries again.
        let mut response = Err(None);
        for _ in 0..5 {
            let mut sender = http.connect_http2().await.unwrap();
            response = sender.send_request(request()).await.map_err(Some);
            if response.is_ok() {
                break;
            }
        }
        let response = response.unwrap();
        let status = response.status().as_u16();
        response.into_body().collect().await.unwrap();
        assert!(matches!(status, 200 | 401 | 403 | 404 | 405), "{method} {path}: {status}");
        assert!(status != 200 || *method == Method::GET, "{method} {path}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cve_2025_0426_anonymous_requests_fill_neither_disk_nor_memory() {
    let server = TestServer::start();
    let http = server.http();
    // The first requests perform one-time initialization.
    send_anonymous_requests(&http, 0..500).await;
    let version = async || {
        let (_, list) = http.request(Method::GET, CONFIG_MAPS, Value::Null).await;
        list["metadata"]["resourceVersion"].clone()
    };
    let before = (version().await, size(server.place().path()), server.memory_kib("VmRSS"));
    send_anonymous_requests(&http, 500..3_000).await;
    assert_eq!(version().await, before.0);
    let written = size(server.place().path()).saturating_sub(before.1);
    assert!(written < 64 << 10, "{written} bytes were written");
    let grown = server.memory_kib("VmRSS").saturating_sub(before.2);
    assert!(grown < 16 << 10, "the server grew by {grown} KiB");
}

/// HTTP/2 frames that floods consist of.
mod frames {
    pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend_from_slice(&[kind, flags]);
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    pub fn settings() -> Vec<u8> {
        frame(4, 0, 0, &[])
    }

    /// Returns headers of `GET /` on `localhost` that end the stream; `flags` may also end the
    /// headers.
    pub fn headers(stream: u32, flags: u8) -> Vec<u8> {
        frame(1, 0x1 | flags, stream, b"\x82\x87\x84\x41\x09localhost")
    }

    pub fn reset(stream: u32) -> Vec<u8> {
        frame(3, 0, stream, &8_u32.to_be_bytes())
    }

    /// Returns 16 KiB of headers without an end.
    pub fn continuation(stream: u32) -> Vec<u8> {
        frame(9, 0, stream, &b"\x00\x01a\x01b".repeat(3_276))
    }
}

/// Sends requests until stopped; returns their number and the longest duration.
fn good_client(http: HttpClient, stop: Arc<AtomicBool>) -> JoinHandle<(usize, Duration)> {
    tokio::spawn(async move {
        let (mut asked, mut longest) = (0, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let started = Instant::now();
            let (status, answer) = http.request(Method::GET, CONFIG_MAPS, Value::Null).await;
            assert_eq!(status, 200, "{answer}");
            (asked, longest) = (asked + 1, longest.max(started.elapsed()));
        }
        (asked, longest)
    })
}

/// Sends the frames of `next` until the server closes the connection or `count` is reached; returns
/// the number sent.
async fn flood(http: &HttpClient, count: u32, next: impl Fn(u32) -> Vec<u8>) -> u32 {
    let (mut from, mut to) = tokio::io::split(http.connect_tls().await.unwrap());
    let reading = tokio::spawn(async move {
        let mut buffer = [0; 16 << 10];
        while matches!(from.read(&mut buffer).await, Ok(read) if read > 0) {}
    });
    let mut sent = 0;
    if to.write_all(&[frames::PREFACE, &frames::settings()].concat()).await.is_ok() {
        while sent < count && !reading.is_finished() && to.write_all(&next(sent)).await.is_ok() {
            sent += 1;
        }
    }
    drop(to);
    reading.abort();
    sent
}

/// Floods several connections at once, while a good client sends requests.
async fn run_flood(count: u32, next: impl Fn(u32) -> Vec<u8>) -> Vec<u32> {
    let server = TestServer::start();
    let http = server.http();
    let stop = Arc::new(AtomicBool::new(false));
    http.request(Method::GET, CONFIG_MAPS, Value::Null).await;
    let before = server.memory_kib("VmHWM");
    let good = good_client(http.clone(), stop.clone());
    let floods = (0..4).map(|_| flood(&http, count, &next));
    let sent = futures::future::join_all(floods).await;
    stop.store(true, Ordering::Relaxed);
    let (asked, longest) = good.await.unwrap();
    assert!(asked > 0, "no request was sent beside the flood");
    assert!(longest < Duration::from_secs(2), "one of {asked} answers took {longest:?}");
    let grown = server.memory_kib("VmHWM") - before;
    assert!(grown < 48 << 10, "the server grew by {grown} KiB");
    assert_eq!(http.request(Method::GET, CONFIG_MAPS, Value::Null).await.0, 200);
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn cve_2023_44487_streams_opened_and_reset() {
    let stream = |number| 2 * number + 1;
    run_flood(25_000, |number| {
        [frames::headers(stream(number), 0x4), frames::reset(stream(number))].concat()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cve_2023_45288_headers_without_an_end() {
    const FRAMES: u32 = 4_096; // 64 MiB
    let sent = run_flood(FRAMES, |number| match number {
        0 => frames::headers(1, 0),
        _ => frames::continuation(1),
    })
    .await;
    assert!(sent.iter().all(|sent| *sent < FRAMES), "all was taken: {sent:?}");
}

/// Sends bytes that are neither a handshake nor a request nor a frame, each on a separate
/// connection.
#[tokio::test(flavor = "multi_thread")]
async fn cve_2022_23635_bytes_that_mean_nothing() {
    let server = TestServer::start();
    let http = server.http();
    let mut state = 0x5eed_0028_u64;
    let mut random = move |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % bound
    };
    for round in 0..200 {
        let length = random(3_000);
        let noise: Vec<u8> = (0..length).map(|_| random(256) as u8).collect();
        // Truncated handshake records; an alert; plain HTTP; random bytes.
        let start: &[u8] = match round % 5 {
            0 => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            1 => b"\x16\x03\x03\xff\xff",
            2 => b"\x15\x03\x03\x00\x02\x02\x28",
            3 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            _ => b"",
        };
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let _ = stream.write_all(&[start, &noise].concat()).await;
        drop(stream);
        let mut stream = http.connect_tls().await.unwrap();
        let frame = frames::frame(random(12) as u8, random(256) as u8, random(4) as u32, &noise);
        let sent = match round % 4 {
            0 => noise,
            1 => [frames::PREFACE, &noise].concat(),
            2 => [frames::PREFACE, &frames::settings(), &frame].concat(),
            _ => [b"GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ", &*noise, b"\r\n\r\n"]
                .concat(),
        };
        let _ = stream.write_all(&sent).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let ended = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "round {round} has no end");
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.starts_with("HTTP/1.1 2") && !answer.starts_with("HTTP/1.1 5"), "{answer}");
    }
    assert_eq!(http.request(Method::GET, CONFIG_MAPS, Value::Null).await.0, 200);
}
