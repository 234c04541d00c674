//! Keys that are made here and certificates for them: asked for, kept over restarts, and renewed in
//! time, while the old ones go on being served.
//!
//! - [`machine`]: what to do next, from what is known. [`times`]: when to renew.
//! - [`driver`]: does it, for one certificate. [`obtain`]: how one is obtained.
//! - [`pod`], [`host`]: the requests on the server. [`hub`]: what the server says of them.
//! - [`state`]: what is kept on the disk. [`source`]: what is shown to others. [`tell`]: events.

mod driver;
mod host;
mod hub;
mod machine;
mod obtain;
mod pod;
mod source;
mod state;
mod tell;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod times;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use windlass_api::selector::labels::Selector;
use windlass_pki::AltNames;

use crate::clock::Clock;
use crate::events::record::Happening;
use crate::files::Files;
use crate::gates::Gates;
use crate::manager::Random;
use crate::sources::Wakes;
use crate::sources::bundles::View;
use crate::sources::served::{self, Again, POD_REQUESTS, Presence};
use crate::volume::content::{Anchors, Select};
use crate::volume::definition::CertificateSource;
use crate::volume::id::{Owner, SourceId};
use crate::volume::plan::{Credential, Obtained, Served};

use hub::Hub;
use source::{Shown, Source, lock};
use state::{Loaded, Place};

/// What it works with.
pub struct Setup {
    /// The server, as the node.
    pub client: Client,
    /// The node's name.
    pub node: String,
    /// The disk.
    pub files: Files,
    /// What time it is.
    pub clock: Clock,
    /// So that not everything is asked for at once.
    pub random: Random,
    /// What is turned off.
    pub gates: Gates,
    /// Woken when there is another certificate, or another reason why there is none.
    pub wakes: Wakes,
    /// How often the wall clock is looked at, which may jump.
    pub look: Duration,
    /// The trust anchors that signers publish. A certificate that was issued under none of its
    /// signer's is renewed at once.
    pub bundles: watch::Receiver<Arc<View>>,
}

/// What is to be asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// What the volume says.
    pub source: CertificateSource,
    /// For whom.
    pub subject: Subject,
    /// The directory in which state is kept that has to outlive the process. It is private, and
    /// whoever forgets the certificate removes it.
    pub state: PathBuf,
}

/// For whom a certificate is.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A pod: by a PodCertificateRequest.
    Pod {
        /// Whose it is, in the pod's namespace.
        service_account: String,
    },
    /// The machine: by a CertificateSigningRequest, since there is no pod.
    Host {
        /// `CN`; the node's name if there is none.
        common_name: Option<String>,
        /// What it speaks for.
        names: AltNames,
    },
}

/// The certificates that are wanted.
pub struct Certificates {
    setup: Setup,
    sources: Mutex<BTreeMap<SourceId, Arc<Source>>>,
    /// What is to be begun, for whoever runs it.
    begin: mpsc::UnboundedSender<Begin>,
    /// Taken by whoever runs it.
    inbox: Mutex<Option<Inbox>>,
    /// Whether a pod has ever wanted one: before, the server need not be watched.
    pods: watch::Sender<bool>,
    /// Not everybody asks at once.
    turns: Semaphore,
    presence: watch::Sender<Presence>,
    again: Again,
    hub: Hub,
    requests: pod::Requests,
    notices: mpsc::Sender<Happening>,
}

/// What somebody who runs it hears.
struct Inbox {
    begin: mpsc::UnboundedReceiver<Begin>,
    notices: mpsc::Receiver<Happening>,
}

struct Begin {
    source: Arc<Source>,
    loaded: Loaded,
}

/// How many are asked for at the same time. Those that wait for an answer do not count.
const TURNS: usize = 8;

const OFF: &str = "PodCertificate projection: the feature gate PodCertificateRequest is off";
const MISSING: &str = "the server does not serve podcertificaterequests.certificates.k8s.io";
/// What kubelet says of what it does not know.
const UNKNOWN: &str = "no credentials yet";

impl Certificates {
    /// None are wanted yet.
    pub fn new(setup: Setup) -> Arc<Self> {
        let (begin, begins) = mpsc::unbounded_channel();
        let (notices, noticed) = mpsc::channel(tell::WAITING);
        let (client, node, again) = (setup.client.clone(), setup.node.clone(), Again::default());
        Arc::new(Self {
            sources: Mutex::default(),
            begin,
            inbox: Mutex::new(Some(Inbox { begin: begins, notices: noticed })),
            pods: watch::Sender::new(false),
            turns: Semaphore::new(TURNS),
            presence: watch::Sender::new(Presence::Unknown),
            requests: pod::Requests::new(client, node, setup.random.clone(), again.clone()),
            again,
            hub: Hub::default(),
            notices,
            setup,
        })
    }

    /// Asks, waits and renews. Does not end. Runs once: another call does nothing.
    pub async fn run(self: Arc<Self>) {
        let inbox = lock(&self.inbox).take();
        let Some(Inbox { mut begin, notices }) = inbox else { return std::future::pending().await };
        let Setup { client, node, clock, .. } = &self.setup;
        let keeping = async {
            let mut tasks = JoinSet::new();
            loop {
                tokio::select! {
                    Some(Begin { source, loaded }) = begin.recv() => {
                        let keep = driver::keep(self.clone(), source.clone(), loaded);
                        source.begin(|| tasks.spawn(keep));
                    }
                    Some(ended) = tasks.join_next() => if let Err(error) = ended
                        && error.is_panic()
                    {
                        tracing::error!("keeping a certificate broke down");
                    },
                }
            }
        };
        let telling = tell::tell(client.clone(), node.clone(), clock.clone(), notices);
        tokio::join!(keeping, telling, self.follow());
    }

    /// From now on there is to be such a certificate, unless it is wanted already. What an earlier
    /// life of the process has left is gone on with.
    pub fn want(&self, id: &SourceId, wanted: Wanted) {
        let before = lock(&self.sources).get(id).cloned();
        if let Some(before) = before {
            if before.wanted == wanted {
                return;
            }
            before.end();
        }
        let place = Place::of(id, &wanted);
        let is_pod = matches!(wanted.subject, Subject::Pod { .. });
        let off = is_pod && !self.setup.gates.pod_certificate_request;
        let loaded = if off { Loaded::default() } else { place.load(&self.setup.files) };
        if let Some(why) = &loaded.warning {
            tracing::warn!(volume = %id.volume, "a certificate has to be asked for anew: {why}");
        }
        let why = if off { OFF } else { machine::NOT_YET }.to_owned();
        let shown = Shown { current: loaded.kept.current.clone(), why, refuser: None, off };
        let source = Arc::new(Source::new(id.clone(), wanted, place, shown));
        lock(&self.sources).insert(id.clone(), source.clone());
        if !off {
            self.pods.send_if_modified(|pods| is_pod && !std::mem::replace(pods, true));
            // Whoever ran it has ended, and so has everything else.
            let _ = self.begin.send(Begin { source, loaded });
        }
    }

    /// Nothing more is asked for, for any volume of this owner but these.
    pub fn retain(&self, owner: &Owner, wanted: &[SourceId]) {
        let mut forgotten = Vec::new();
        lock(&self.sources).retain(|id, source| {
            let keep = id.volume.owner != *owner || wanted.contains(id);
            if !keep {
                forgotten.push(source.clone());
            }
            keep
        });
        for source in forgotten {
            source.forget(&self.setup.files);
        }
    }

    /// The certificate and its key.
    pub fn get(&self, id: &SourceId) -> Obtained<Credential> {
        let source = lock(&self.sources).get(id).cloned();
        source.map_or_else(|| Obtained::Not(UNKNOWN.into()), |source| source.get())
    }

    /// The trust anchors that a signer publishes, each once; `None` if there are none, or nobody knows.
    fn anchors(&self, signer: &str) -> Option<Anchors> {
        let view = self.setup.bundles.borrow().clone();
        let Served::Synced(bundles) = &view.bundles else { return None };
        let select = Select::Signer(signer.to_owned(), Selector::everything());
        bundles.anchors(&select, false).ok()
    }

    /// How many certificates of which signer are in which state, for `kubelet_podcertificate_states`.
    pub fn states(&self) -> BTreeMap<(String, &'static str), u64> {
        let now = (self.setup.clock)().wall;
        let mut states = BTreeMap::new();
        for source in lock(&self.sources).values() {
            if let Some(state) = source.state(now) {
                let count: &mut u64 =
                    states.entry((source.wanted.source.signer.clone(), state)).or_default();
                *count = count.saturating_add(1);
            }
        }
        states
    }

    /// Follows what the server says of pods' requests, from when there are any. Does not end.
    async fn follow(&self) {
        if self.pods.subscribe().wait_for(|pods| *pods).await.is_err() {
            return std::future::pending().await;
        }
        let (client, again) = (self.setup.client.clone(), self.again.clone());
        let presence = self.presence.subscribe();
        let finding =
            served::follow(client.clone(), POD_REQUESTS, again.clone(), self.presence.clone());
        tokio::join!(finding, self.hub.follow(client, &self.setup.node, presence, again));
    }
}
