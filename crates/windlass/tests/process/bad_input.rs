//! Hostile input over real sockets.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use windlass_testkit::{HttpClient, MAPS as CONFIG_MAPS};

use crate::server::{ADMIN_TOKEN, PATIENCE, TestServer, long};

/// The request head up to the headers that differ.
fn head(method: &str, target: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n")
}

/// Returns the status line of the response to raw bytes on a new connection; empty if there is
/// none.
async fn send_raw(http: &HttpClient, request: &[u8]) -> String {
    let mut stream = http.connect_tls().await.unwrap();
    // The server may respond and close before it has read everything.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while !answer.windows(2).any(|end| end == b"\r\n") {
        match timeout(PATIENCE, stream.read(&mut buffer)).await.expect("an answer or the end") {
            Ok(0) | Err(_) => break,
            Ok(read) => answer.extend_from_slice(&buffer[..read]),
        }
    }
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

fn status(line: &str) -> u16 {
    line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_with_its_length() {
    let block = vec![b'x'; 64 << 10];
    flood(&format!("Content-Length: {}\r\n", 1_u64 << 30), block.into()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_in_chunks() {
    let mut block = format!("{:x}\r\n", 64 << 10).into_bytes();
    block.resize(block.len() + (64 << 10), b'x');
    block.extend_from_slice(b"\r\n");
    flood("Transfer-Encoding: chunked\r\n", block.into()).await;
}

/// Sends blocks until the server rejects them; it must respond, and must not have buffered them.
async fn flood(framing: &str, block: Bytes) {
    let server = TestServer::start();
    let http = server.http();
    // The first request performs one-time initialization.
    http.request(Method::GET, CONFIG_MAPS, Value::Null).await;
    let before = server.memory_kib("VmHWM");

    let (mut from, mut to) = tokio::io::split(http.connect_tls().await.unwrap());
    let request = head("POST", CONFIG_MAPS) + "Content-Type: application/json\r\n" + framing + "\r\n";
    let sending = tokio::spawn(async move {
        let mut sent = 0_u64;
        if to.write_all(request.as_bytes()).await.is_ok() {
            while sent < 1 << 30 && to.write_all(&block).await.is_ok() {
                sent += block.len() as u64;
            }
        }
        sent
    });
    let mut answer = vec![0; 4096];
    let read = timeout(PATIENCE, from.read(&mut answer)).await.expect("an answer").unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    drop(from);
    sending.abort();
    let sent = sending.await.map_or("aborted".to_owned(), |sent| format!("{sent} bytes sent"));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer:?} ({sent})");

    let grown = server.memory_kib("VmHWM") - before;
    assert!(grown < 24 << 10, "the server grew by {grown} KiB");
    let (alive, _) = http.request(Method::GET, CONFIG_MAPS, Value::Null).await;
    assert_eq!(alive, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn cve_2026_73500_silent_and_slow_connections() {
    const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
    const HEADER_LIMIT: Duration = Duration::from_secs(30);
    const SLACK: Duration = Duration::from_secs(4);
    const GROWTH_KIB: u64 = 64 << 10;
    let silent_ones = if long() { 5_000 } else { 1_000 };
    let server = TestServer::start();
    let http = server.http();
    // The first request performs one-time initialization.
    http.request(Method::GET, CONFIG_MAPS, Value::Null).await;
    let before = server.memory_kib("VmRSS");
    let opened = Instant::now();
    let mut silent = Vec::new();
    let mut slow = Vec::new();
    for _ in 0..silent_ones {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    for _ in 0..50 {
        let mut stream = http.connect_tls().await.unwrap();
        stream.write_all(b"GET /api HTTP/1.1\r\nHost: local").await.unwrap();
        slow.push(stream);
        // These send nothing after the handshake, or only the HTTP/2 preface.
        slow.push(http.connect_tls().await.unwrap());
        let mut stream = http.connect_tls().await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
        slow.push(stream);
    }
    // They do not delay other clients.
    let asked = Instant::now();
    assert_eq!(http.request(Method::GET, CONFIG_MAPS, Value::Null).await.0, 200);
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    let grown = server.memory_kib("VmRSS").saturating_sub(before);
    assert!(grown < GROWTH_KIB, "the server grew by {grown} KiB");

    let ends = silent.iter_mut().map(|stream| async {
        let mut byte = [0];
        timeout(HANDSHAKE_LIMIT + SLACK, stream.read(&mut byte)).await.is_ok()
    });
    let ended = join_all(ends).await.into_iter().filter(|ended| *ended).count();
    assert_eq!(ended, silent_ones, "silent connections closed after {:?}", opened.elapsed());
    assert!(opened.elapsed() >= HANDSHAKE_LIMIT / 2, "{:?}", opened.elapsed());

    if long() {
        let slow_ones = slow.len();
        let ends = slow.iter_mut().map(|stream| async {
            let mut end = Vec::new();
            timeout(HEADER_LIMIT, stream.read_to_end(&mut end)).await.is_ok()
        });
        let ended = join_all(ends).await.into_iter().filter(|ended| *ended).count();
        assert_eq!(ended, slow_ones, "slow connections closed after {:?}", opened.elapsed());
    }
    assert_eq!(http.request(Method::GET, CONFIG_MAPS, Value::Null).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn cve_2022_3162_path_tricks() {
    let server = TestServer::start();
    let http = server.http();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"}});
    http.request(Method::POST, "/api/v1/namespaces/default/secrets", secret).await;
    let targets: &[&[u8]] = &[
        b"/api/v1/../..",
        b"/api/v1/../v1/namespaces",
        b"/api/v1/namespaces/default/configmaps/../secrets/hidden",
        b"/api/v1/namespaces/default/configmaps/..%2fsecrets%2fhidden",
        b"/api/v1/namespaces/default%2fsecrets/hidden",
        b"/api/v1/namespaces/default/configmaps/%2e%2e/secrets/hidden",
        b"/api/v1/namespaces/default/secrets/hidden%00",
        b"/api/v1/namespaces/default/secrets/hid\0den",
        b"/api/v1/namespaces/default/secrets/%ff",
        b"/api/v1/namespaces/default/secrets/%zz",
        b"/api/v1/namespaces/..%2f..%2f..%2fetc%2fpasswd/secrets",
        b"//api/v1/namespaces/default/secrets/hidden/..",
        b"/api/v1/namespaces/default/secrets/hidden/nothing/more",
        b"api/v1/namespaces",
        b"*",
    ];
    for target in targets {
        let target = [b"GET ", *target, b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "].concat();
        let request = [&target, ADMIN_TOKEN.as_bytes(), b"\r\n\r\n"].concat();
        let answer = send_raw(&http, &request).await;
        let shown = target.escape_ascii();
        // A redirect to the clean path or a closed connection is acceptable; the object is not.
        let refused = matches!(status(&answer), 301 | 307 | 308 | 400..=499);
        assert!(refused || answer.is_empty(), "{answer:?} to {shown}");
    }
    assert_eq!(status(&send_raw(&http, (head("GET", "/readyz") + "\r\n").as_bytes()).await), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn cve_2022_23635_broken_requests() {
    let server = TestServer::start();
    let http = server.http();
    let long_target = format!("/api/v1/namespaces?labelSelector={}", "a".repeat(200 << 10));
    let long_header = format!("X-Long: {}\r\n\r\n", "a".repeat(400 << 10));
    let requests = [
        "nonsense\r\n\r\n".to_owned(),
        "GET /api HTTP/9.9\r\n\r\n".to_owned(),
        head("GET", &long_target) + "\r\n",
        head("GET", "/api") + &long_header,
        head("POST", CONFIG_MAPS) + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        head("POST", CONFIG_MAPS) + "Content-Length: -1\r\n\r\n",
        head("POST", CONFIG_MAPS) + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ];
    for request in requests {
        let answer = send_raw(&http, request.as_bytes()).await;
        let shown: String = request.chars().take(80).collect();
        assert!(answer.is_empty() || matches!(status(&answer), 400..=499 | 505), "{answer:?} to {shown:?}");
    }
    assert_eq!(http.request(Method::GET, CONFIG_MAPS, Value::Null).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_bodies() {
    let server = TestServer::start();
    let http = server.http();
    let mut connection = http.connect().await.unwrap();
    let made =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}, "data": {"a": "b"}});
    assert_eq!(http.request(Method::POST, CONFIG_MAPS, made).await.0, 201);

    let (json, yaml) = ("application/json", "application/yaml");
    let deep = "[".repeat(10_000);
    let deep_object = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"d"}},"x":{}{}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    let bomb = (0..40).fold("a0: &a0 [x]\n".to_owned(), |bomb, n| {
        format!("{bomb}a{}: &a{} [*a{n}, *a{n}, *a{n}, *a{n}]\n", n + 1, n + 1)
    });
    let bodies: [(&str, &[u8], u16); 10] = [
        (json, b"{", 400),
        (json, b"", 400),
        (json, b"\xff\xfe", 400),
        (json, deep.as_bytes(), 400),
        (json, deep_object.as_bytes(), 400),
        (json, br#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#, 400),
        (json, br#"{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"a"}}"#, 400),
        (yaml, b"a: [", 400),
        (yaml, bomb.as_bytes(), 400),
        ("application/vnd.kubernetes.protobuf", b"k8s\0\xff\xff\xff", 400),
    ];
    for (content_type, body, expected) in bodies {
        let body = Bytes::copy_from_slice(body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let (status, answer) = connection.send(Method::POST, CONFIG_MAPS, content_type, body).await.unwrap();
        assert_eq!(status, expected, "{answer} to {shown:?}");
        assert_eq!(answer["kind"], "Status", "{answer}");
    }
    let (status, _) = connection.send(Method::POST, CONFIG_MAPS, "text/plain", "a".into()).await.unwrap();
    assert_eq!(status, 415);

    // One more than the limit of Kubernetes.
    let copies: Vec<Value> = (0..10_001)
        .map(|_| json!({"op": "copy", "from": "/data", "path": "/metadata/annotations"}))
        .collect();
    let grow: Vec<Value> =
        (0..64).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/n{n}")})).collect();
    for patch in [copies, grow] {
        let body = Value::Array(patch).to_string().into();
        let (status, answer) = connection
            .send(Method::PATCH, &format!("{CONFIG_MAPS}/there"), "application/json-patch+json", body)
            .await
            .unwrap();
        assert!(matches!(status, 400..=499), "{status}: {answer}");
    }
    assert_eq!(http.request(Method::GET, CONFIG_MAPS, Value::Null).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_parameters() {
    let server = TestServer::start();
    let http = server.http();
    let cases = [
        ("labelSelector=a%20in%20(", 400),
        ("labelSelector=%ff", 400),
        ("fieldSelector=spec.nothing%3Da", 400),
        ("limit=1&continue=nonsense", 400),
        ("resourceVersion=soon", 400),
        ("watch=true&resourceVersion=-1", 400),
        ("resourceVersionMatch=Sometimes&resourceVersion=1", 422),
    ];
    for (query, expected) in cases {
        let (status, answer) =
            http.request(Method::GET, &format!("{CONFIG_MAPS}?{query}"), Value::Null).await;
        assert_eq!(status, expected, "{query}: {answer}");
        assert_eq!(answer["kind"], "Status", "{query}: {answer}");
    }
}
