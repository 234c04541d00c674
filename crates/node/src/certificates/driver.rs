//! Keeps one certificate good: performs what [`machine`](super::machine) decides.

use std::pin::Pin;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::mpsc::{self, UnboundedSender};

use super::Certificates;
use super::machine::{Action, Event, Machine, Notice};
use super::obtain::{Obtained, Obtaining, Progress, save};
use super::source::{Shown, Source};
use super::state::{Kept, Loaded};
use super::tell;
use crate::manager::Pace;
use crate::sources::Wake;

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
    };
    let look = keeping.certificates.setup.look;
    let mut event = Event::Tick;
    loop {
        keeping.step(event);
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

/// How a job ends, if there is one.
async fn under_way(job: &mut Option<BoxFuture<'static, Obtained>>) -> Obtained {
    match job {
        Some(job) => Pin::new(job).await,
        None => std::future::pending().await,
    }
}
