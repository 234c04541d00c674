//! Two TLS peers, each with the content of its volume.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::fixture::{FastClock, PodVolumeFiles};

/// A TLS client and a TLS server.
pub struct TlsPeers {
    client: Arc<PodVolumeFiles>,
    server: Arc<PodVolumeFiles>,
    time: Arc<FastTimeProvider>,
    provider: Arc<CryptoProvider>,
    shaken: AtomicUsize,
}

#[derive(Debug)]
struct FastTimeProvider(FastClock);

impl TimeProvider for FastTimeProvider {
    fn current_time(&self) -> Option<UnixTime> {
        let now = self.0.wall().unix_timestamp();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(now.try_into().ok()?)))
    }
}

impl TlsPeers {
    pub fn new(client: Arc<PodVolumeFiles>, server: Arc<PodVolumeFiles>, clock: FastClock) -> Self {
        let (time, provider) = (Arc::new(FastTimeProvider(clock)), Arc::new(aws_lc_rs::default_provider()));
        Self { client, server, time, provider, shaken: AtomicUsize::new(0) }
    }

    /// Performs handshakes until told to stop. Returns their number.
    pub async fn run_handshakes(self: Arc<Self>, stop: Arc<AtomicBool>) -> usize {
        let (mut mine, mut client, mut server) = (0, None, None);
        while !stop.load(SeqCst) {
            // Each peer detects by itself that its files changed.
            let connector = reload(&mut client, &self.client, |read| self.connector(read));
            let acceptor = reload(&mut server, &self.server, |read| self.acceptor(read));
            let (near, far) = tokio::io::duplex(1 << 14);
            let name = ServerName::try_from("server.web.svc").unwrap();
            let connect = async {
                let mut stream = connector.connect(name, near).await?;
                stream.write_all(b"x").await?;
                stream.read_u8().await
            };
            let accept = async {
                let mut stream = acceptor.accept(far).await?;
                stream.read_u8().await?;
                stream.write_all(b"y").await
            };
            let (said, answered) = tokio::join!(connect, accept);
            assert_eq!((said.map_err(text), answered.map_err(text)), (Ok(b'y'), Ok(())));
            mine += 1;
            self.shaken.fetch_add(1, SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        mine
    }

    /// Waits until the running handshakes have ended, and for some more.
    pub async fn finish_handshakes(&self, tasks: &[JoinHandle<usize>]) {
        let wanted = self.shaken.load(SeqCst) + 4 * tasks.len();
        while self.shaken.load(SeqCst) < wanted {
            assert!(tasks.iter().all(|task| !task.is_finished()), "a handshake failed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn connector(&self, read: &LoadedCredentials) -> TlsConnector {
        let builder = ClientConfig::builder_with_details(self.provider.clone(), self.time.clone());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(read.roots.clone());
        let (chain, key) = (read.chain.clone(), read.key.clone_key());
        TlsConnector::from(Arc::new(builder.with_client_auth_cert(chain, key).unwrap()))
    }

    fn acceptor(&self, read: &LoadedCredentials) -> TlsAcceptor {
        let builder = ServerConfig::builder_with_details(self.provider.clone(), self.time.clone());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let (roots, provider) = (Arc::new(read.roots.clone()), self.provider.clone());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
        let builder = builder.with_client_cert_verifier(verifier.unwrap());
        let (chain, key) = (read.chain.clone(), read.key.clone_key());
        TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
    }
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

/// Credentials and anchors read from a volume.
struct LoadedCredentials {
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl LoadedCredentials {
    /// Both are from one generation: the target of `..data`.
    fn from_files(credentials: &[u8], anchors: &[u8]) -> Self {
        let certificates = |pem| CertificateDer::pem_slice_iter(pem).map(Result::unwrap);
        let mut roots = RootCertStore::empty();
        for root in certificates(anchors) {
            roots.add(root).unwrap();
        }
        let key = PrivateKeyDer::from_pem_slice(credentials).unwrap();
        Self { roots, chain: certificates(credentials).collect(), key }
    }
}

/// Returns the cached value, or rebuilds it if the files changed.
fn reload<T: Clone>(
    made: &mut Option<(PathBuf, T)>,
    volume: &PodVolumeFiles,
    make: impl FnOnce(&LoadedCredentials) -> T,
) -> T {
    if let Some((of, made)) = made
        && volume.current().as_ref() == Some(of)
    {
        return made.clone();
    }
    let (of, credentials, anchors) = volume.read().unwrap();
    let new = make(&LoadedCredentials::from_files(&credentials, &anchors));
    *made = Some((of, new.clone()));
    new
}
