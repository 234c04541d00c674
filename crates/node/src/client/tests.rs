use std::sync::Mutex as StdMutex;

use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::testing::tls::{authority_der, loopback_identity};

/// A connection number and the client certificate of the connection.
type ConnectionRecord = (usize, Option<Vec<u8>>);

/// A server that records the connection and client certificate of each request.
struct RecordingTlsServer {
    url: String,
    seen: Arc<StdMutex<Vec<ConnectionRecord>>>,
    ended: Arc<StdMutex<Vec<usize>>>,
    /// Releases the responses to requests for `/slow`.
    go_on: Arc<Notify>,
}

fn server_config() -> ServerConfig {
    let identity = loopback_identity();
    let chain = identity.chain().map(|one| CertificateDer::from(one.der().to_vec())).collect();
    let key = identity.key().to_pem().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(authority_der())).unwrap();
    let clients = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated();
    ServerConfig::builder()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap()
}

impl RecordingTlsServer {
    async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let acceptor = TlsAcceptor::from(Arc::new(server_config()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (seen, ended): (Arc<StdMutex<Vec<_>>>, Arc<StdMutex<Vec<_>>>) = Default::default();
        let go_on = Arc::new(Notify::new());
        let server = Self { url, seen: seen.clone(), ended: ended.clone(), go_on: go_on.clone() };
        tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, seen) = (acceptor.clone(), seen.clone());
                let (ended, go_on) = (ended.clone(), go_on.clone());
                tokio::spawn(async move {
                    let stream = acceptor.accept(stream).await.unwrap();
                    let shown = stream.get_ref().1.peer_certificates();
                    let shown = shown.and_then(|chain| chain.first()).map(|leaf| leaf.to_vec());
                    let service = service_fn(|request: http::Request<Incoming>| {
                        seen.lock().unwrap().push((number, shown.clone()));
                        let go_on = go_on.clone();
                        async move {
                            if request.uri().path() == "/slow" {
                                go_on.notified().await;
                            }
                            Ok::<_, kube::Error>(Response::new(Full::new(Bytes::from("{}"))))
                        }
                    });
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                    ended.lock().unwrap().push(number);
                });
            }
        });
        server
    }

    fn client(&self, current: CurrentKeyPair) -> Client {
        let mut config = Config::new(self.url.parse().unwrap());
        config.root_cert = Some(vec![authority_der()]);
        let monitor = CredentialMonitor::new(crate::clock::system());
        connect(&config, current, monitor).unwrap()
    }

    fn last(&self) -> ConnectionRecord {
        self.seen.lock().unwrap().last().unwrap().clone()
    }

    async fn has_ended(&self, number: usize) {
        while !self.ended.lock().unwrap().contains(&number) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn get(client: &Client, path: &str) -> kube::Result<String> {
    client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await
}

fn identity() -> (Arc<CertificateKeyPair>, Option<Vec<u8>>) {
    let from = OffsetDateTime::now_utc() - time::Duration::hours(1);
    let identity = crate::testing::client_identity(from);
    let der = identity.leaf().der().to_vec();
    (Arc::new(identity), Some(der))
}

#[tokio::test]
async fn a_new_certificate_opens_a_new_connection_and_closes_the_old_one() {
    let server = RecordingTlsServer::start().await;
    let (sender, current) = watch::channel(None);
    let client = server.client(current);
    for _ in 0..2 {
        get(&client, "/").await.unwrap();
        assert_eq!(server.last(), (0, None));
    }
    for number in 1..4 {
        let (identity, der) = identity();
        sender.send_replace(Some(identity));
        // No request is needed for this.
        server.has_ended(number - 1).await;
        for _ in 0..2 {
            get(&client, "/").await.unwrap();
            assert_eq!(server.last(), (number, der.clone()));
        }
    }
    drop(client);
    server.has_ended(3).await;
}

#[tokio::test]
async fn in_flight_requests_complete() {
    let server = RecordingTlsServer::start().await;
    let (first, second) = (identity(), identity());
    let (sender, current) = watch::channel(Some(first.0));
    let client = server.client(current);
    let slow = tokio::spawn({
        let client = client.clone();
        async move { get(&client, "/slow").await }
    });
    while server.seen.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    sender.send_replace(Some(second.0));
    get(&client, "/").await.unwrap();
    assert_eq!(server.last(), (1, second.1));
    server.go_on.notify_one();
    slow.await.unwrap().unwrap();
    server.has_ended(0).await;
}

#[tokio::test]
async fn requests_beyond_grace_are_aborted() {
    let server = RecordingTlsServer::start().await;
    let (sender, current) = watch::channel(Some(identity().0));
    let client = server.client(current);
    let slow = tokio::spawn({
        let client = client.clone();
        async move { get(&client, "/slow").await }
    });
    while server.seen.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::pause();
    sender.send_replace(Some(identity().0));
    assert!(slow.await.unwrap().is_err());
    tokio::time::resume();
    server.has_ended(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_change_fails_no_request() {
    let server = RecordingTlsServer::start().await;
    let (sender, current) = watch::channel(Some(identity().0));
    let client = server.client(current);
    let (done, stop) = watch::channel(false);
    let askers = [(); 4].map(|()| {
        let (client, stop) = (client.clone(), stop.clone());
        tokio::spawn(async move {
            while !*stop.borrow() {
                get(&client, "/").await.unwrap();
            }
        })
    });
    for _ in 0..50 {
        let (identity, der) = identity();
        sender.send_replace(Some(identity));
        while server.seen.lock().unwrap().last().is_none_or(|(_, shown)| *shown != der) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    done.send_replace(true);
    for asker in askers {
        asker.await.unwrap();
    }
}
