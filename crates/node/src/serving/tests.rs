use std::net::SocketAddr;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::testing::tls::{authority_der, loopback_identity};

async fn start(door: ServingTransport) -> SocketAddr {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pages: PageHandler = Arc::new(|path| (path == "/healthz").then(|| (StatusCode::OK, "ok".to_owned())));
    tokio::spawn(serve(listener, door, pages));
    address
}

/// One client, as in one program: it may resume sessions.
fn connector() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority_der())).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn connect_tls(connector: &TlsConnector, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    connector.connect(address.ip().into(), stream).await
}

async fn send_request(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), line: &str) -> String {
    let text = format!("{line} HTTP/1.1\r\nHost: n\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut buffer = [0; 4096];
    let read = stream.read(&mut buffer).await.unwrap();
    String::from_utf8_lossy(&buffer[..read]).into_owned()
}

fn leaf(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn pages_are_read_and_nothing_else() {
    let address = start(ServingTransport::Plain).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    for (line, code) in
        [("GET /healthz", "200"), ("HEAD /healthz", "200"), ("GET /other", "404"), ("POST /healthz", "404")]
    {
        let answer = send_request(&mut stream, line).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{line}: {answer}");
    }
}

/// Idle connections, which anyone can hold open, do not delay a health check.
#[tokio::test]
async fn idle_connections_make_room_for_a_new_one() {
    let address = start(ServingTransport::Plain).await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    // Before the first of them would time out.
    let answer = tokio::time::timeout(LIFETIME / 12, send_request(&mut stream, "GET /healthz"));
    assert!(answer.await.expect("no answer").ends_with("ok"));
    let mut byte = [0; 1];
    assert_eq!(idle[0].read(&mut byte).await.unwrap(), 0, "the oldest is closed");
    assert!(send_request(&mut idle[1], "GET /healthz").await.ends_with("ok"), "the others stay");
}

#[tokio::test]
async fn a_new_certificate_needs_no_restart_and_ends_old_connections() {
    let (sender, current) = watch::channel(None);
    let address = start(ServingTransport::Tls(current)).await;
    let connector = connector();
    assert!(connect_tls(&connector, address).await.is_err(), "there is no certificate yet");
    let mut before: Option<TlsStream<TcpStream>> = None;
    for _ in 0..3 {
        let identity = Arc::new(loopback_identity());
        sender.send_replace(Some(identity.clone()));
        if let Some(mut before) = before.take() {
            let answer = send_request(&mut before, "GET /healthz").await;
            assert!(answer.contains("connection: close") && answer.ends_with("ok"), "{answer}");
            // A clean end of the stream, not an error.
            assert_eq!(before.read(&mut [0; 1]).await.unwrap(), 0);
        }
        let mut stream = connect_tls(&connector, address).await.unwrap();
        assert_eq!(leaf(&stream), identity.leaf().der());
        assert!(send_request(&mut stream, "GET /healthz").await.ends_with("ok"));
        before = Some(stream);
    }
    // An idle connection ends as well.
    let other = Arc::new(loopback_identity());
    tokio::time::pause();
    let since = tokio::time::Instant::now();
    sender.send_replace(Some(other));
    assert_eq!(before.unwrap().read(&mut [0; 1]).await.unwrap(), 0);
    assert!((GRACE..GRACE * 3 / 2).contains(&since.elapsed()), "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_change_fails_no_handshake() {
    let (sender, current) = watch::channel(Some(Arc::new(loopback_identity())));
    let address = start(ServingTransport::Tls(current)).await;
    let (done, stop) = watch::channel(false);
    let callers = [(); 4].map(|()| {
        let (connector, stop) = (connector(), stop.clone());
        tokio::spawn(async move {
            while !*stop.borrow() {
                let mut stream = connect_tls(&connector, address).await.unwrap();
                assert!(send_request(&mut stream, "GET /healthz").await.ends_with("ok"));
            }
        })
    });
    for _ in 0..50 {
        let identity = Arc::new(loopback_identity());
        sender.send_replace(Some(identity.clone()));
        let stream = connect_tls(&connector(), address).await.unwrap();
        assert_eq!(leaf(&stream), identity.leaf().der());
    }
    done.send_replace(true);
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test]
async fn new_connection_is_answered_before_close() {
    let identity = Arc::new(loopback_identity());
    let (sender, current) = watch::channel(Some(identity));
    let address = start(ServingTransport::Tls(current)).await;
    let mut stream = connect_tls(&connector(), address).await.unwrap();
    sender.send_replace(Some(Arc::new(loopback_identity())));
    // A new connection gets the new certificate, so the change has been observed.
    let mut other = connect_tls(&connector(), address).await.unwrap();
    assert!(send_request(&mut other, "GET /healthz").await.ends_with("ok"));
    let answer = send_request(&mut stream, "GET /healthz").await;
    assert!(answer.ends_with("ok") && answer.contains("connection: close"), "{answer}");
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
}
