//! Certificates in virtual time: a scripted server, and processes that are started and killed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tempfile::TempDir;
use time::{Duration as Span, OffsetDateTime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use windlass_pki::{AltNames, CertificateAuthority};
use windlass_testkit::{ScriptedApi, SigningPolicy};

use super::managed_certificate::{ManagedCertificate, PublishedCertificate};
use super::state_file::StateFile;
use super::{CertificateSpec, CertificateSubject, VolumeCertificateConfig, VolumeCertificateManager};
use crate::clock::{Clock, ClockReading};
use crate::feature_gates::FeatureGates;
use crate::sources::SourceChange;
use crate::sources::bundles::{self, BundleView};
use crate::testing::{AUTHORITY, START};
use crate::volume::definition::CertificateSource;
use crate::volume::id::{SourceId, VolumeId, VolumeOwner};
use crate::volume::plan::{CredentialBundle, CredentialState, OptionalApi};
use crate::volume::tainted_authority::TaintedAuthority;
use crate::volume::trust_anchors::{TrustBundle, TrustBundleIndex};
use windlass_runtime::durable::FileSystem;

pub const SIGNER: &str = "example.com/workloads";
pub const PATIENCE: Duration = Duration::from_secs(40 * 86_400);

/// A node: a disk, a clock and a server.
pub struct IssuanceTestNode {
    pub server: ScriptedApi,
    pub gates: FeatureGates,
    pub bundles: watch::Sender<Arc<BundleView>>,
    dir: TempDir,
    began: Instant,
}

/// A running certificate manager, until it is killed.
pub struct RunningCertificates {
    pub certificates: Arc<VolumeCertificateManager>,
    pub wakes: mpsc::UnboundedReceiver<SourceChange>,
    task: JoinHandle<()>,
}

impl IssuanceTestNode {
    pub fn new(policy: SigningPolicy) -> Self {
        let server = ScriptedApi::new(policy).with_latency(Duration::from_millis(50));
        let (began, dir) = (server.began(), tempfile::tempdir().unwrap());
        let bundles = watch::Sender::new(bundles::initial_view(FeatureGates::default()));
        Self { server, gates: FeatureGates::default(), bundles, dir, began }
    }

    /// Makes the signer publish these anchors.
    pub fn publish(&self, anchors: &[&CertificateAuthority]) {
        let text: String = anchors.iter().map(|each| each.certificate().to_pem()).collect();
        let mut bundles = TrustBundleIndex::default();
        if !anchors.is_empty() {
            bundles.set(TrustBundle::new("b", 1, SIGNER, BTreeMap::new(), &text));
        }
        let view = BundleView { bundles: OptionalApi::Synced(bundles), arrivals: BTreeMap::new() };
        self.bundles.send_replace(Arc::new(view));
    }

    /// Makes the signer publish the issuing authority as tainted, from now on.
    pub fn taint(&self, window: Span) {
        let since = self.now();
        let issuer = AUTHORITY.certificate();
        let tainted = [(issuer.authority_id(), TaintedAuthority { since, window })].into();
        let bundle = TrustBundle::new("b", 1, SIGNER, BTreeMap::new(), &issuer.to_pem());
        let mut bundles = TrustBundleIndex::default();
        bundles.set(TrustBundle { tainted, ..bundle });
        let view = BundleView { bundles: OptionalApi::Synced(bundles), arrivals: BTreeMap::new() };
        self.bundles.send_replace(Arc::new(view));
    }

    pub fn clock(&self) -> Clock {
        let began = self.began;
        Arc::new(move || ClockReading { wall: START + began.elapsed(), since: began.elapsed() })
    }

    pub fn now(&self) -> OffsetDateTime {
        (self.clock())().wall
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("certificates")
    }

    pub fn pod_spec(&self) -> CertificateSpec {
        CertificateSpec {
            source: source("ECDSAP256"),
            subject: CertificateSubject::Pod { service_account: "frontend".into() },
            state: self.state(),
        }
    }

    pub fn host_spec(&self) -> CertificateSpec {
        let names = AltNames { dns_names: vec!["edge.example".into()], ..AltNames::default() };
        CertificateSpec { subject: CertificateSubject::Host { common_name: None, names }, ..self.pod_spec() }
    }

    /// Returns the source of a host projection or of a pod, and what it requests.
    pub fn source_of(&self, is_host: bool) -> (SourceId, CertificateSpec) {
        match is_host {
            false => (id("web", 0), self.pod_spec()),
            true => (host_id("edge"), self.host_spec()),
        }
    }

    pub fn start(&self) -> RunningCertificates {
        self.start_on(FileSystem::default())
    }

    pub fn start_on(&self, files: FileSystem) -> RunningCertificates {
        let (wake, wakes) = mpsc::unbounded_channel();
        let setup = VolumeCertificateConfig {
            client: self.server.client(),
            node: "n1".into(),
            files,
            clock: self.clock(),
            random: sequence(),
            gates: self.gates,
            wakes: wake,
            look: Duration::from_secs(60),
            bundles: self.bundles.subscribe(),
        };
        let certificates = VolumeCertificateManager::new(setup);
        let task = tokio::spawn(certificates.clone().run());
        RunningCertificates { certificates, wakes, task }
    }
}

impl RunningCertificates {
    /// Kills the manager without a shutdown.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub fn reason(&self, id: &SourceId) -> String {
        match self.certificates.get(id) {
            CredentialState::Unavailable(why) => why,
            CredentialState::Available(_) => panic!("there is one"),
        }
    }

    pub fn credential(&self, id: &SourceId) -> Option<CredentialBundle> {
        match self.certificates.get(id) {
            CredentialState::Unavailable(_) => None,
            CredentialState::Available(credential) => Some(credential),
        }
    }

    /// Waits until the served state satisfies the condition, checking at every wake-up.
    pub async fn until(&mut self, id: &SourceId, good: impl Fn(&CredentialState<CredentialBundle>) -> bool) {
        let certificates = self.certificates.clone();
        let waiting = async {
            while !good(&certificates.get(id)) {
                self.wakes.recv().await.unwrap();
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("it is {:?}", self.certificates.get(id));
        }
    }

    /// Waits until there is a certificate.
    pub async fn ready(&mut self, id: &SourceId) -> CredentialBundle {
        self.until(id, |got| matches!(got, CredentialState::Available(_))).await;
        self.credential(id).unwrap()
    }

    /// Waits until another certificate than this is served.
    pub async fn after(&mut self, id: &SourceId, before: &CredentialBundle) -> CredentialBundle {
        let other = |got: &CredentialState<CredentialBundle>| matches!(got, CredentialState::Available(now) if now.chain != before.chain);
        self.until(id, other).await;
        self.credential(id).unwrap()
    }

    /// Returns the number of certificates by state.
    pub fn states(&self) -> BTreeMap<&'static str, u64> {
        let states = self.certificates.states().into_iter();
        states.map(|((_, state), count)| (state, count)).collect()
    }
}

/// Returns a source of a pod in `default`.
pub fn id(pod: &str, index: usize) -> SourceId {
    let uid = format!("{pod}-uid");
    let owner = VolumeOwner::Pod { namespace: "default".into(), name: pod.into(), uid };
    SourceId { volume: VolumeId { owner, name: "tls".into() }, index }
}

pub fn host_id(name: &str) -> SourceId {
    SourceId { volume: VolumeId { owner: VolumeOwner::Host, name: name.into() }, index: 0 }
}

pub fn source(key_type: &str) -> CertificateSource {
    CertificateSource {
        signer: SIGNER.into(),
        key_type: key_type.into(),
        max_expiration_seconds: None,
        user_annotations: BTreeMap::new(),
        bundle: None,
        key: None,
        chain: None,
        owner: None,
    }
}

/// Returns a pod's certificate without published state.
pub fn pod(name: &str, index: usize) -> ManagedCertificate {
    let subject = CertificateSubject::Pod { service_account: "frontend".into() };
    shown(id(name, index), subject)
}

pub fn host(name: &str) -> ManagedCertificate {
    shown(host_id(name), CertificateSubject::Host { common_name: None, names: AltNames::default() })
}

fn shown(id: SourceId, subject: CertificateSubject) -> ManagedCertificate {
    let wanted = CertificateSpec { source: source("ECDSAP256"), subject, state: "nowhere".into() };
    let place = StateFile::for_source(&id, &wanted);
    ManagedCertificate::new(id, wanted, place, PublishedCertificate::default())
}

pub fn minutes(minutes: i64) -> Span {
    Span::minutes(minutes)
}

/// Returns a deterministic sequence of numbers from 0 to 1 without repeats in a row.
fn sequence() -> crate::node_certificates::RandomSource {
    let step = AtomicU64::new(0);
    Arc::new(move || {
        let number = step.fetch_add(1, SeqCst);
        // The golden ratio spreads them evenly.
        (0.5 + number as f64 * 0.618_033_988_749_895).fract()
    })
}
