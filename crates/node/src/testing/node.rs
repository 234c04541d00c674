//! A node in virtual time: a directory, a server, and managers that are started and killed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use tempfile::TempDir;
use time::Duration as Span;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use windlass_pki::AltNames;
use windlass_testkit::{ScriptedApi, Signer, SigningPolicy};

use super::{CertificateFixture, START};
use crate::cert_store::CertStore;
use crate::clock::{Clock, ClockReading};
use crate::credential_monitor::CertificateRejection;
use crate::feature_gates::FeatureGates;
use crate::key_pair::CertificateKeyPair;
use crate::node_certificates::{
    ClientFactory, NodeCertificateConfig, NodeCertificateManager, RequesterCredential, RetryPolicy,
};
use crate::sources::bundles::{self, BundleView};
use crate::template::{CertificatePurpose, CertificateTemplate};
use windlass_runtime::durable::FileSystem;

pub struct RotationTestNode {
    pub server: ScriptedApi,
    pub templates: watch::Sender<Option<CertificateTemplate>>,
    pub rejections: watch::Sender<Option<CertificateRejection>>,
    pub bundles: watch::Sender<Arc<BundleView>>,
    pub purpose: CertificatePurpose,
    /// Why there is no bootstrap credential; `None` if there is one.
    pub no_bootstrap: Arc<Mutex<Option<String>>>,
    dir: TempDir,
    began: Instant,
    skew: Arc<AtomicI64>,
}

pub struct RunningNodeManager {
    pub manager: Arc<NodeCertificateManager>,
    task: JoinHandle<()>,
    _down: watch::Sender<bool>,
}

impl RotationTestNode {
    /// Creates a node whose server issues certificates for a day.
    pub fn new() -> Self {
        let (began, skew) = (Instant::now(), Arc::default());
        let template = Some(CertificateTemplate::client("n1"));
        let node = Self {
            server: ScriptedApi::new(SigningPolicy::Wait),
            templates: watch::Sender::new(template),
            rejections: watch::Sender::new(None),
            bundles: watch::Sender::new(bundles::initial_view(FeatureGates::default())),
            purpose: CertificatePurpose::Client,
            no_bootstrap: Arc::default(),
            dir: tempfile::tempdir().unwrap(),
            began,
            skew,
        };
        node.server.policy(SigningPolicy::Sign(node.signer(Span::DAY)));
        node
    }

    /// Returns a signer that issues certificates valid from the server's current time.
    pub fn signer(&self, lifetime: Span) -> Signer {
        let began = self.began;
        Arc::new(move |request| {
            let from = START + began.elapsed();
            let signed = CertificateFixture {
                common_name: request.subject().common_name(),
                organizations: &request.subject().organizations(),
                names: request.alt_names().clone(),
                from,
                until: from + lifetime,
            };
            signed.pem(&request.public_key().to_public_key().unwrap())
        })
    }

    pub fn forgetful_signer(&self) -> Signer {
        let began = self.began;
        Arc::new(move |request| {
            let from = START + began.elapsed();
            let signed =
                CertificateFixture { names: AltNames::default(), ..CertificateFixture::client(from) };
            signed.pem(&request.public_key().to_public_key().unwrap())
        })
    }

    pub fn clock(&self) -> Clock {
        let (began, skew) = (self.began, self.skew.clone());
        Arc::new(move || {
            let since = began.elapsed();
            ClockReading { wall: START + since + Span::seconds(skew.load(SeqCst)), since }
        })
    }

    pub fn now(&self) -> time::OffsetDateTime {
        (self.clock())().wall
    }

    /// Sets the skew of the node's clock.
    pub fn set_skew(&self, skew: Span) {
        self.skew.store(skew.whole_seconds(), SeqCst);
    }

    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    pub fn store(&self, files: FileSystem) -> CertStore {
        CertStore::new(&self.dir().join("pki"), self.purpose.prefix(), files)
    }

    /// Returns the certificate that a process started now would load.
    pub fn on_disk(&self) -> Option<CertificateKeyPair> {
        self.store(FileSystem::default()).load(self.now()).identity
    }

    pub fn setup(&self, files: FileSystem) -> NodeCertificateConfig {
        let (server, no_bootstrap) = (self.server.clone(), self.no_bootstrap.clone());
        let clients: ClientFactory = Arc::new(move |credential| {
            let client = match credential {
                RequesterCredential::Own => Ok(server.client_of("own")),
                RequesterCredential::Bootstrap => match &*no_bootstrap.lock().unwrap() {
                    None => Ok(server.client_of("bootstrap")),
                    Some(why) => Err(why.clone()),
                },
            };
            async { client }.boxed()
        });
        NodeCertificateConfig {
            purpose: self.purpose,
            store: self.store(files),
            templates: self.templates.subscribe(),
            clients,
            rejections: self.rejections.subscribe(),
            bundles: self.bundles.subscribe(),
            clock: self.clock(),
            random: Arc::new(|| 0.5),
            pace: RetryPolicy::default(),
        }
    }

    pub fn start(&self) -> RunningNodeManager {
        self.start_on(FileSystem::default())
    }

    pub fn start_on(&self, files: FileSystem) -> RunningNodeManager {
        let setup = self.setup(files);
        let loaded = setup.store.load(self.now());
        let manager = Arc::new(NodeCertificateManager::new(setup, loaded));
        let (down, shutdown) = watch::channel(false);
        let running = manager.clone();
        let task = tokio::spawn(async move { running.run(shutdown).await });
        RunningNodeManager { manager, task, _down: down }
    }
}

impl RunningNodeManager {
    /// Kills the manager without a shutdown.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Waits until the report satisfies the condition.
    pub async fn until(&self, good: impl Fn(&crate::node_certificates::NodeCertificateReport) -> bool) {
        let mut reports = self.manager.reports();
        let waiting = reports.wait_for(|report| good(report));
        let waited = tokio::time::timeout(Duration::from_secs(40 * 86_400), waiting).await;
        if waited.is_err() {
            panic!("it is {:?}", self.manager.report());
        }
    }

    /// Waits until there is an unexpired certificate.
    pub async fn ready(&self) -> Arc<CertificateKeyPair> {
        let patience = Duration::from_secs(40 * 86_400);
        self.manager.ready(patience).await.unwrap_or_else(|report| panic!("{report:?}"))
    }

    /// Waits until another certificate than this is in use.
    pub async fn after(&self, before: &CertificateKeyPair) -> Arc<CertificateKeyPair> {
        let mut current = self.manager.current();
        let other = |held: &Option<Arc<CertificateKeyPair>>| {
            held.as_ref().is_some_and(|held| held.leaf().der() != before.leaf().der())
        };
        let patience = Duration::from_secs(40 * 86_400);
        let waited = tokio::time::timeout(patience, current.wait_for(other)).await;
        match waited {
            Ok(held) => held.unwrap().clone().unwrap(),
            Err(_) => panic!("it is {:?}", self.manager.report()),
        }
    }
}
