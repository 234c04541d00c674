//! Certificates in virtual time: a server that does as it is told, and lives that begin and end.

mod server;

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
use windlass_pki::{AltNames, Authority};

use super::source::{Shown, Source};
use super::state::Place;
use super::{Certificates, Setup, Subject, Wanted};
use crate::clock::{Clock, Moment};
use crate::files::Files;
use crate::gates::Gates;
use crate::sources::Wake;
use crate::sources::bundles::{self, View};
use crate::testing::START;
use crate::volume::content::{Bundle, Bundles};
use crate::volume::definition::CertificateSource;
use crate::volume::id::{Owner, SourceId, VolumeId};
use crate::volume::plan::{Credential, Obtained, Served};

pub use server::{Policy, Server};

pub const SIGNER: &str = "example.com/workloads";
/// In virtual time.
pub const PATIENCE: Duration = Duration::from_secs(40 * 86_400);

/// A node: a disk, a clock and a server.
pub struct Node {
    pub server: Server,
    pub gates: Gates,
    pub bundles: watch::Sender<Arc<View>>,
    dir: TempDir,
    began: Instant,
}

/// Certificates that are kept, until they are killed.
pub struct Life {
    pub certificates: Arc<Certificates>,
    pub wakes: mpsc::UnboundedReceiver<Wake>,
    task: JoinHandle<()>,
}

impl Node {
    pub fn new(policy: Policy) -> Self {
        let began = Instant::now();
        let (server, dir) = (Server::new(policy, began), tempfile::tempdir().unwrap());
        let bundles = watch::Sender::new(bundles::unknown(Gates::default()));
        Self { server, gates: Gates::default(), bundles, dir, began }
    }

    /// The signer publishes these anchors from now on.
    pub fn publish(&self, anchors: &[&Authority]) {
        let text: String = anchors.iter().map(|each| each.certificate().to_pem()).collect();
        let mut bundles = Bundles::default();
        if !anchors.is_empty() {
            bundles.set(Bundle::new("b", 1, SIGNER, BTreeMap::new(), &text));
        }
        let view = View { bundles: Served::Synced(bundles), arrivals: BTreeMap::new() };
        self.bundles.send_replace(Arc::new(view));
    }

    pub fn clock(&self) -> Clock {
        let began = self.began;
        Arc::new(move || Moment { wall: START + began.elapsed(), since: began.elapsed() })
    }

    pub fn now(&self) -> OffsetDateTime {
        (self.clock())().wall
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("certificates")
    }

    pub fn wanted(&self) -> Wanted {
        Wanted {
            source: source("ECDSAP256"),
            subject: Subject::Pod { service_account: "frontend".into() },
            state: self.state(),
        }
    }

    pub fn wanted_by_host(&self) -> Wanted {
        let names = AltNames { dns_names: vec!["edge.example".into()], ..AltNames::default() };
        Wanted { subject: Subject::Host { common_name: None, names }, ..self.wanted() }
    }

    pub fn start(&self) -> Life {
        self.start_on(Files::default())
    }

    pub fn start_on(&self, files: Files) -> Life {
        let (wake, wakes) = mpsc::unbounded_channel();
        let setup = Setup {
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
        let certificates = Certificates::new(setup);
        let task = tokio::spawn(certificates.clone().run());
        Life { certificates, wakes, task }
    }
}

impl Life {
    /// Ends it without a word.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub fn why(&self, id: &SourceId) -> String {
        match self.certificates.get(id) {
            Obtained::Not(why) => why,
            Obtained::Is(_) => panic!("there is one"),
        }
    }

    pub fn has(&self, id: &SourceId) -> Option<Credential> {
        match self.certificates.get(id) {
            Obtained::Not(_) => None,
            Obtained::Is(credential) => Some(credential),
        }
    }

    /// Waits until what is served is such, looking whenever somebody is woken.
    pub async fn until(&mut self, id: &SourceId, good: impl Fn(&Obtained<Credential>) -> bool) {
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
    pub async fn ready(&mut self, id: &SourceId) -> Credential {
        self.until(id, |got| matches!(got, Obtained::Is(_))).await;
        self.has(id).unwrap()
    }

    /// Waits until there is another certificate than this.
    pub async fn after(&mut self, id: &SourceId, before: &Credential) -> Credential {
        let other = |got: &Obtained<Credential>| matches!(got, Obtained::Is(now) if now.chain != before.chain);
        self.until(id, other).await;
        self.has(id).unwrap()
    }

    /// How many are in which state.
    pub fn states(&self) -> BTreeMap<&'static str, u64> {
        let states = self.certificates.states().into_iter();
        states.map(|((_, state), count)| (state, count)).collect()
    }
}

/// A source of a pod in `default`.
pub fn id(pod: &str, index: usize) -> SourceId {
    let uid = format!("{pod}-uid");
    let owner = Owner::Pod { namespace: "default".into(), name: pod.into(), uid };
    SourceId { volume: VolumeId { owner, name: "tls".into() }, index }
}

pub fn host_id(name: &str) -> SourceId {
    SourceId { volume: VolumeId { owner: Owner::Host, name: name.into() }, index: 0 }
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

/// A pod's certificate of which nothing is shown.
pub fn pod(name: &str, index: usize) -> Source {
    let subject = Subject::Pod { service_account: "frontend".into() };
    shown(id(name, index), subject)
}

pub fn host(name: &str) -> Source {
    shown(host_id(name), Subject::Host { common_name: None, names: AltNames::default() })
}

fn shown(id: SourceId, subject: Subject) -> Source {
    let wanted = Wanted { source: source("ECDSAP256"), subject, state: "nowhere".into() };
    let place = Place::of(&id, &wanted);
    Source::new(id, wanted, place, Shown::default())
}

pub fn minutes(minutes: i64) -> Span {
    Span::minutes(minutes)
}

/// Numbers from 0 to 1 that are never twice the same in a row, and always the same in all.
fn sequence() -> crate::manager::Random {
    let step = AtomicU64::new(0);
    Arc::new(move || {
        let number = step.fetch_add(1, SeqCst);
        // The golden ratio spreads them evenly.
        (0.5 + number as f64 * 0.618_033_988_749_895).fract()
    })
}
