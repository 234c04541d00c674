//! Connections over TCP and TLS: which are closed, when, and the effect on others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::{Method, Request, StatusCode};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use windlass_pki::{AltName, KeyPurpose, LeafTemplate, PrivateKey, Validity, issue};
use windlass_runtime::metrics::MetricsRegistry;
use windlass_server::{ConnectionDeadlines, ConnectionLimits, ConnectionTracker, serve, tls_config};

use windlass_testkit::{TestServer, ca_with_validity, leaf_template};

/// Longer than any healthy operation, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server that listens on a socket.
struct TransportServer {
    server: TestServer,
    connections: Arc<ConnectionTracker>,
    address: SocketAddr,
    connector: TlsConnector,
    serving: JoinHandle<()>,
}

impl Drop for TransportServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl TransportServer {
    async fn start(limits: ConnectionLimits, deadlines: ConnectionDeadlines) -> TransportServer {
        let server = TestServer::start().await;
        let (config, connector) = certificates();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = ConnectionTracker::new(limits, deadlines);
        let config = Arc::new(ArcSwap::from_pointee(config));
        let shutdown = server.server.shutdown.clone();
        let serving =
            serve(server.server.clone(), listener, config, connections.clone(), shutdown, Duration::ZERO);
        TransportServer { server, connections, address, connector, serving: tokio::spawn(serving) }
    }

    async fn with(change: impl FnOnce(&mut ConnectionDeadlines)) -> TransportServer {
        let mut deadlines = ConnectionDeadlines::default();
        change(&mut deadlines);
        TransportServer::start(ConnectionLimits::default(), deadlines).await
    }

    async fn connect_tls(&self) -> TlsStream<TcpStream> {
        self.tls_over(TcpStream::connect(self.address).await.unwrap()).await
    }

    async fn tls_over(&self, stream: TcpStream) -> TlsStream<TcpStream> {
        let name = self.address.ip().into();
        self.connector.connect(name, stream).await.unwrap()
    }

    /// Opens an HTTP/2 connection with a stream window of `window` bytes.
    async fn http2(&self, window: u32) -> Http2Client {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window);
        let (sender, connection) = builder.handshake(self.connect_tls().await).await.unwrap();
        let ended = tokio::spawn(async move {
            let _ = connection.await;
        });
        Http2Client { sender, ended }
    }

    /// Waits for a line in the connection metrics.
    async fn expect(&self, line: &str) {
        let metrics = MetricsRegistry::new();
        self.connections.register_metrics(&metrics);
        let begun = Instant::now();
        loop {
            let text = metrics.encode();
            if text.lines().any(|found| found == line) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "no {line:?} in\n{text}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

struct Http2Client {
    sender: SendRequest<Bytes>,
    ended: JoinHandle<()>,
}

impl Http2Client {
    async fn get(&mut self, path: &str, token: Option<&str>) -> ResponseFuture {
        let mut request = Request::get(format!("https://localhost{path}"));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut sender = self.sender.clone().ready().await.unwrap();
        sender.send_request(request.body(()).unwrap(), true).unwrap().0
    }

    async fn status(&mut self, path: &str, token: Option<&str>) -> StatusCode {
        with_timeout(self.get(path, token).await).await.unwrap().status()
    }

    /// Waits until the server has closed the connection.
    async fn ended(&mut self) {
        with_timeout(&mut self.ended).await.unwrap();
    }
}

async fn with_timeout<F: IntoFuture>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

/// Returns a serving certificate for the loopback address, and a client that trusts it.
fn certificates() -> (rustls::ServerConfig, TlsConnector) {
    let validity = Validity::lasting(OffsetDateTime::now_utc(), time::Duration::days(1)).unwrap();
    let ca = ca_with_validity("transport-ca", validity);
    let key = PrivateKey::generate().unwrap();
    let leaf = LeafTemplate {
        alt_names: vec![AltName::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST))],
        ..leaf_template("server", &[KeyPurpose::ServerAuth], validity, &key)
    };
    let chain = windlass_pki::pem::encode_certificates([issue(&ca, &leaf).unwrap().as_slice()]);
    let config = tls_config(chain.as_bytes(), key.to_pem().unwrap().as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate().der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (config, TlsConnector::from(Arc::new(client)))
}

async fn send_request(stream: &mut TlsStream<TcpStream>, path: &str, token: Option<&str>) {
    let token = token.map_or(String::new(), |t| format!("Authorization: Bearer {t}\r\n"));
    let text = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{token}\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// Reads everything until the connection ends.
async fn rest(stream: &mut TlsStream<TcpStream>) -> String {
    let mut bytes = Vec::new();
    let _ = with_timeout(stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn an_unauthenticated_request_is_the_last_of_its_connection() {
    let transport = TransportServer::with(|_| {}).await;
    for (path, token, code) in
        [("/version", None, 200), ("/api", None, 403), ("/version", Some("no-such-token"), 401)]
    {
        let mut http = transport.http2(65_535).await;
        assert_eq!(http.status(path, token).await, code, "{path}");
        http.ended().await;
        let mut stream = transport.connect_tls().await;
        send_request(&mut stream, path, token).await;
        let answer = rest(&mut stream).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
    // Also before authentication, while no request of the connection was authenticated.
    let mut http = transport.http2(65_535).await;
    assert_eq!(http.status("/api?timeout=x", None).await, 400);
    http.ended().await;
}

#[tokio::test]
async fn authenticated_requests_keep_their_connection() {
    let transport = TransportServer::with(|_| {}).await;
    let mut http = transport.http2(65_535).await;
    // Also if they are forbidden, or invalid before that.
    for (path, token, code) in [
        ("/version", Some("admin-token"), 200),
        ("/api/v1/secrets", Some("alice-token"), 403),
        ("/api?timeout=x", Some("admin-token"), 400),
        ("/version", Some("admin-token"), 200),
    ] {
        assert_eq!(http.status(path, token).await, code, "{path}");
    }
    transport.expect("windlass_server_connections{authenticated=\"true\"} 1").await;
    assert!(!http.ended.is_finished());
}

#[tokio::test]
async fn a_stream_that_is_not_read_is_reset_and_its_neighbours_stay() {
    let transport = TransportServer::with(|d| d.unread = Duration::from_millis(200)).await;
    let admin = Some("admin-token");
    let mut http = transport.http2(0).await;
    let watch = http.get(&format!("{MAPS}?watch=true"), admin).await;
    let mut events = with_timeout(watch).await.unwrap().into_body();
    for path in ["/version", "/openapi/v2"] {
        let stalled = http.get(path, admin).await;
        let mut body = with_timeout(stalled).await.unwrap().into_body();
        let failed = with_timeout(body.data()).await.unwrap().unwrap_err();
        assert!(failed.is_reset() && failed.is_remote(), "{failed}");
    }
    transport.expect("windlass_server_streams_reset_total 2").await;
    // A watch without events is idle, not blocked: it lasts many times that long.
    let waits = tokio::time::timeout(Duration::from_secs(1), events.data()).await;
    assert!(waits.is_err(), "{waits:?}");
    assert_eq!(http.status("/version", admin).await, 200);
    // With an unread event it is blocked.
    let map = json!({"metadata": {"name": "news"}});
    assert_eq!(transport.server.post(MAPS, &map).await.status, 201);
    assert!(with_timeout(events.data()).await.unwrap().unwrap_err().is_reset());
    assert!(!http.ended.is_finished());
}

#[tokio::test]
async fn a_slowly_read_stream_is_not_reset() {
    let transport = TransportServer::with(|d| d.unread = Duration::from_millis(400)).await;
    for name in 0..4 {
        let map = json!({"metadata": {"name": format!("m-{name}")}, "data": {"k": "x".repeat(100_000)}});
        assert_eq!(transport.server.post(MAPS, &map).await.status, 201);
    }
    let mut http = transport.http2(65_535).await;
    let response = http.get(MAPS, Some("admin-token")).await;
    let mut body = with_timeout(response).await.unwrap().into_body();
    let (mut read, mut paused, begun) = (0, 0, Instant::now());
    // The client reads steadily, over three times the unread timeout.
    while let Some(data) = with_timeout(body.data()).await {
        let data = data.unwrap();
        read += data.len();
        body.flow_control().release_capacity(data.len()).unwrap();
        if read - paused >= 16 * 1024 {
            paused = read;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
    }
    assert!(read > 400_000 && begun.elapsed() > Duration::from_millis(1200), "{read}");
}

/// The HTTP library releases a stream when it starts to write the last chunk.
#[tokio::test]
async fn an_answer_that_is_read_in_part_closes_the_connection() {
    let transport = TransportServer::with(|d| d.unread = Duration::from_millis(200)).await;
    let mut http = transport.http2(1).await;
    let stalled = http.get("/version", Some("admin-token")).await;
    let mut body = with_timeout(stalled).await.unwrap().into_body();
    assert_eq!(with_timeout(body.data()).await.unwrap().unwrap().len(), 1);
    http.ended().await;
    transport.expect("windlass_server_connections_closed_total{reason=\"unread\"} 1").await;
}

#[tokio::test]
async fn an_http1_answer_that_is_not_read_closes_the_connection() {
    let transport = TransportServer::with(|d| d.unread = Duration::from_millis(300)).await;
    // More than the socket's buffers hold.
    for name in 0..16 {
        let data = json!({"k": "x".repeat(1_000_000)});
        let map = json!({"metadata": {"name": format!("m-{name}")}, "data": data});
        assert_eq!(transport.server.post(MAPS, &map).await.status, 201);
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let stream = socket.connect(transport.address).await.unwrap();
    let mut stream = transport.tls_over(stream).await;
    send_request(&mut stream, MAPS, Some("admin-token")).await;
    transport.expect("windlass_server_connections_closed_total{reason=\"unread\"} 1").await;
    transport.expect("windlass_server_connections{authenticated=\"true\"} 0").await;
}

#[tokio::test]
async fn idle_connections_are_closed_and_watches_are_not_idle() {
    let transport = TransportServer::with(|d| d.idle = Duration::from_millis(200)).await;
    let admin = Some("admin-token");
    let mut watching = transport.http2(65_535).await;
    let watch = watching.get(&format!("{MAPS}?watch=true"), admin).await;
    let mut events = with_timeout(watch).await.unwrap().into_body();
    let mut http = transport.http2(65_535).await;
    assert_eq!(http.status("/version", admin).await, 200);
    let mut stream = transport.connect_tls().await;
    send_request(&mut stream, "/version", admin).await;
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    http.ended().await;
    transport.expect("windlass_server_connections{authenticated=\"true\"} 1").await;
    let map = json!({"metadata": {"name": "news"}});
    assert_eq!(transport.server.post(MAPS, &map).await.status, 201);
    let event = with_timeout(events.data()).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&event).contains("\"news\""));
}

#[tokio::test]
async fn silent_connections_are_closed() {
    let transport = TransportServer::with(|d| d.first_request = Duration::from_millis(200)).await;
    let mut silent = transport.connect_tls().await;
    let mut slow = transport.connect_tls().await;
    slow.write_all(b"GET /version HT").await.unwrap();
    let mut http = transport.http2(65_535).await;
    assert_eq!(rest(&mut silent).await, "");
    assert_eq!(rest(&mut slow).await, "");
    http.ended().await;
}

/// Unread responses to anonymous clients are bounded over all connections, without affecting
/// clients that read.
#[tokio::test]
async fn unread_answers_to_unauthenticated_requests_are_bounded_in_total() {
    let limits = ConnectionLimits { unauthenticated_answers: 5, ..ConnectionLimits::default() };
    let transport = TransportServer::start(limits, ConnectionDeadlines::default()).await;
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut http = transport.http2(0).await;
        let response = http.get("/version", None).await;
        stalled.push((http, with_timeout(response).await.unwrap()));
        // A client that reads gets every response.
        let mut probe = transport.http2(65_535).await;
        assert_eq!(probe.status("/version", None).await, 200);
    }
    // The last one may not have noticed its end yet.
    for (http, _) in stalled.iter_mut().take(14) {
        http.ended().await;
    }
    let open = stalled.iter().filter(|(http, _)| !http.ended.is_finished()).count();
    assert!((1..=5).contains(&open), "{open} connections");
}

/// Idle anonymous connections do not keep out authenticated ones.
#[tokio::test]
async fn connections_beyond_the_limit_replace_idle_unauthenticated_ones() {
    let limits = ConnectionLimits { per_address: 8, ..ConnectionLimits::new(8) };
    let transport = TransportServer::start(limits, ConnectionDeadlines::default()).await;
    let admin = Some("admin-token");
    let mut first = transport.http2(65_535).await;
    assert_eq!(first.status("/version", admin).await, 200);
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(transport.connect_tls().await);
        assert_eq!(first.status("/version", admin).await, 200);
    }
    let mut later = transport.http2(65_535).await;
    assert_eq!(later.status("/version", admin).await, 200);
    assert_eq!(rest(&mut idle[0]).await, "");
    transport.expect("windlass_server_connections{authenticated=\"true\"} 2").await;
    transport.expect("windlass_server_connections{authenticated=\"false\"} 6").await;
    transport.expect("windlass_server_connections_refused_total{limit=\"total\"} 0").await;
}

/// A client that ignores the shutdown of its connection is disconnected.
#[tokio::test]
async fn a_client_that_does_not_close_is_disconnected() {
    let transport = TransportServer::with(|d| d.closing = Duration::from_millis(200)).await;
    let mut stream = transport.connect_tls().await;
    // The preface, empty settings, and nothing after the responses: no acknowledgement of a ping.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    // GET / of "x", ending the stream: indexed fields of HPACK's static table.
    let header = [0x82, 0x87, 0x84, 0x41, 0x01, b'x'];
    stream.write_all(&[0, 0, header.len() as u8, 1, 5, 0, 0, 0, 1]).await.unwrap();
    stream.write_all(&header).await.unwrap();
    rest(&mut stream).await;
    transport.expect("windlass_server_connections{authenticated=\"false\"} 0").await;
}

#[tokio::test]
async fn a_large_body_is_answered_before_the_connection_is_closed() {
    let transport = TransportServer::with(|_| {}).await;
    let body = vec![b'x'; 2_000_000];
    let mut stream = transport.connect_tls().await;
    let method = Method::POST;
    let head = format!("{method} {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    // The response may arrive before everything is sent.
    let (mut reader, mut writer) = tokio::io::split(stream);
    let send = tokio::spawn(async move { writer.write_all(&body).await });
    let mut answer = Vec::new();
    let _ = with_timeout(reader.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let _ = send.await;
}
