//! Keeps one certificate good: performs what [`machine`](super::machine) decides.

use std::pin::Pin;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::watch;
use windlass_pki::{ForeignCertificate, leads_to_anchor, parse_certificate_blocks};

use super::Certificates;
use super::machine::{Action, Event, Machine, Notice};
use super::obtain::{Obtained, Obtaining, Progress, save};
use super::source::{Shown, Source};
use super::state::{Current, Kept, Loaded};
use super::tell;
use crate::manager::Pace;
use crate::sources::Wake;
use crate::sources::bundles::View;
use crate::volume::content::{Anchors, Digest};

/// Keeps one certificate good, beginning with what was loaded. Does not end.
pub async fn keep(certificates: Arc<Certificates>, source: Arc<Source>, loaded: Loaded) {
    let (progress, mut told) = mpsc::unbounded_channel();
    let random = (certificates.setup.random)();
    let times = loaded.kept.current.as_ref().map(|current| current.times);
    let machine = Machine::new(Pace::default(), times, loaded.outdated, random);
    let mut keeping = Keeping {
        certificates,
        source,
        machine,
        kept: loaded.kept,
        unsaved: false,
        job: None,
        progress,
        judged: None,
    };
    let mut bundles = keeping.certificates.setup.bundles.clone();
    let look = keeping.certificates.setup.look;
    let mut event = Event::Tick;
    loop {
        keeping.step(event);
        if let Some(event) = keeping.judge() {
            keeping.step(event);
        }
        let pause = keeping.machine.idle_for((keeping.certificates.setup.clock)());
        event = tokio::select! {
            // What a job tells comes before how it ends.
            biased;
            Some(progress) = told.recv() => match progress {
                Progress::Event(event) => event,
                Progress::Begun(begun) => {
                    keeping.kept.begun = Some(begun);
                    Event::Tick
                }
            },
            obtained = under_way(&mut keeping.job) => {
                keeping.job = None;
                keeping.ended(obtained)
            }
            () = changed(&mut bundles) => Event::Tick,
            () = tokio::time::sleep(pause.min(look)) => {
                keeping.save_late().await;
                Event::Tick
            }
        };
    }
}

struct Keeping {
    certificates: Arc<Certificates>,
    source: Arc<Source>,
    machine: Machine,
    kept: Kept,
    /// Whether what is kept is not on the disk yet.
    unsaved: bool,
    /// What is under way.
    job: Option<BoxFuture<'static, Obtained>>,
    progress: UnboundedSender<Progress>,
    /// What was last held against which trust anchors: each pair is looked at once.
    judged: Option<(Arc<Current>, Option<Digest>)>,
}

impl Keeping {
    fn step(&mut self, event: Event) {
        let setup = &self.certificates.setup;
        let actions = self.machine.step(event, (setup.clock)(), (setup.random)());
        for action in actions {
            match action {
                Action::Obtain(key) => {
                    let obtaining = Obtaining {
                        certificates: self.certificates.clone(),
                        source: self.source.clone(),
                        kept: self.kept.clone(),
                        key,
                        progress: self.progress.clone(),
                    };
                    self.job = Some(obtaining.run().boxed());
                }
                Action::Tell(notice) => self.tell(&notice),
            }
        }
        self.show();
    }

    /// Whether what is served was issued under a trust anchor that its signer publishes, if that was
    /// not looked at before.
    fn judge(&mut self) -> Option<Event> {
        let current = self.kept.current.as_ref()?;
        let signer = &self.source.wanted.source.signer;
        let anchors = self.certificates.anchors(signer);
        let digest = anchors.as_ref().map(Anchors::digest);
        let same = |(before, against): &(Arc<Current>, Option<Digest>)| {
            Arc::ptr_eq(before, current) && *against == digest
        };
        if self.judged.as_ref().is_some_and(same) {
            return None;
        }
        self.judged = Some((current.clone(), digest));
        if anchors.is_none_or(|anchors| is_issued_under(&current.chain, &anchors)) {
            return Some(Event::Anchored);
        }
        let volume = self.source.id.volume.to_string();
        tracing::warn!(
            volume,
            signer,
            "certificate was issued under no published trust anchor of its signer; renewing it"
        );
        Some(Event::Orphaned)
    }

    fn ended(&mut self, obtained: Obtained) -> Event {
        match obtained {
            Obtained::Issued { current, saved } => {
                self.kept = Kept { current: Some(current.clone()), begun: None };
                self.unsaved = !saved;
                Event::Issued(current.times)
            }
            Obtained::Not(event) => event,
            Obtained::Taken(event) => {
                self.kept.begun = None;
                event
            }
        }
    }

    /// Shows what is served, and wakes whoever serves it if that is something else.
    fn show(&self) {
        let current = self.kept.current.clone();
        let shown = Shown {
            why: self.machine.why().to_owned(),
            refuser: self.machine.refuser(),
            current,
            off: false,
        };
        if self.source.show(shown) {
            // Whoever is gone needs no waking.
            let wake = Wake::Volume(self.source.id.volume.clone());
            let _ = self.certificates.setup.wakes.send(wake);
        }
    }

    fn tell(&self, notice: &Notice) {
        let all = &self.certificates;
        let happening = tell::happening(&self.source, &all.setup.node, notice);
        let (volume, reason) = (self.source.id.volume.to_string(), happening.reason);
        tracing::warn!(volume, reason, "{}", happening.note);
        // There are more than anybody could read.
        let _ = all.notices.try_send(happening);
    }

    /// Writes what could not be written when it came.
    async fn save_late(&mut self) {
        if self.unsaved && self.job.is_none() {
            let saved = save(&self.certificates, &self.source, self.kept.clone()).await;
            self.unsaved = saved.is_err();
        }
    }
}

/// Whether the signatures of a chain lead to one of these anchors. What cannot be read says nothing.
fn is_issued_under(chain: &str, anchors: &Anchors) -> bool {
    let Ok(chain) = parse_certificate_blocks(chain.as_bytes()) else { return true };
    let anchors = anchors.der().filter_map(|der| ForeignCertificate::from_der(der).ok());
    leads_to_anchor(&chain, &anchors.collect::<Vec<_>>())
}

/// Waits until other bundles are published.
async fn changed(bundles: &mut watch::Receiver<Arc<View>>) {
    if bundles.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// How a job ends, if there is one.
async fn under_way(job: &mut Option<BoxFuture<'static, Obtained>>) -> Obtained {
    match job {
        Some(job) => Pin::new(job).await,
        None => std::future::pending().await,
    }
}
