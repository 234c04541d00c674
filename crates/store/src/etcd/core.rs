//! What the calls and the feed of one store share: how far the feed is, and reads of history.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, RwLock, oneshot};

use super::client::{Client, Failure};
use super::keys::Keys;
use super::position::Position;
use super::watcher::{End, News, Watcher, compacted_at};
use super::wire::{PutRequest, RangeRequest, Request, TxnRequest};
use crate::embedded::Fuse;
use crate::{Error, Event, Revision};

/// How long the feed may take before it is suspected that nothing of ours is on its way.
const QUIET: Duration = Duration::from_millis(250);

/// Whether a listener wants more of the history.
pub(super) enum Go {
    On,
    Enough,
}

/// Receives history in pieces.
pub(super) type Tell<'a> = &'a mut (dyn FnMut(&[Event]) -> Result<Go, Error> + Send);

/// Somebody who wants to know when the sinks have caught up.
pub(super) type CatchingUp = oneshot::Sender<Result<Revision, Error>>;

/// Rounds of catching up, one at a time.
#[derive(Default)]
struct Rounds {
    /// Whether one is under way.
    going: bool,
    /// Those whom the next is for.
    waiting: Vec<CatchingUp>,
}

pub(super) struct Core {
    pub(super) client: Client,
    pub(super) keys: Keys,
    pub(super) fuse: Fuse,
    /// The newest revision all sinks have seen.
    position: Position,
    floor: AtomicU64,
    /// Where the feed began: the store's revision when it was opened, or began anew.
    opened: AtomicU64,
    /// The newest change of the store's keys within `position`; `opened` if there was none since.
    pub(super) last: AtomicU64,
    /// Asks the feed for another stream.
    pub(super) stalled: Notify,
    /// Since when the feed has had no stream.
    lost: Mutex<Option<Instant>>,
    /// One mark at a time serves all who wait.
    marking: tokio::sync::Mutex<()>,
    rounds: Mutex<Rounds>,
    pub(super) closed: AtomicBool,
    /// Commits share it; closing waits for it.
    pub(super) gate: RwLock<()>,
}

impl Core {
    /// Finds out where the cluster is.
    pub(super) async fn open(client: Client, keys: Keys, fuse: Fuse) -> Result<Self, Error> {
        let fail = |failure: Failure| failure.into_error(&client.name);
        let opened = client.revision(keys.mark()).await.map_err(fail)?;
        let first = RangeRequest {
            key: keys.mark(),
            revision: 1,
            count_only: true,
            ..RangeRequest::default()
        };
        let floor = match client.range(first).await {
            Ok(_) => 1,
            Err(Failure::Compacted) => compacted_at(&client, &keys).await.map_err(fail)?,
            Err(failure) => return Err(fail(failure)),
        };
        Ok(Self {
            client,
            keys,
            fuse,
            position: Position::new(opened),
            floor: AtomicU64::new(floor),
            opened: AtomicU64::new(opened),
            last: AtomicU64::new(opened),
            stalled: Notify::new(),
            lost: Mutex::new(None),
            marking: tokio::sync::Mutex::new(()),
            rounds: Mutex::default(),
            closed: AtomicBool::new(false),
            gate: RwLock::new(()),
        })
    }

    pub(super) fn position(&self) -> Revision {
        self.position.get()
    }

    pub(super) fn floor(&self) -> Revision {
        self.floor.load(Ordering::Acquire)
    }

    pub(super) fn raise_floor(&self, floor: Revision) {
        self.floor.fetch_max(floor, Ordering::AcqRel);
    }

    /// Notes that all sinks have seen the news.
    pub(super) fn advance(&self, news: &News) {
        // A mark is a change too: it proves that nothing else came before it.
        if news.changed {
            self.last.fetch_max(news.upto, Ordering::AcqRel);
        }
        self.position.advance(news.upto);
    }

    /// Notes that all sinks have been given the whole state at a revision.
    pub(super) fn begin_anew(&self, revision: Revision) {
        self.last.store(revision, Ordering::Release);
        self.opened.store(revision, Ordering::Release);
        self.advance(&News { events: Vec::new(), upto: revision, changed: false });
    }

    pub(super) fn heard(&self) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn lost(&self) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.get_or_insert_with(Instant::now);
    }

    pub(super) fn lost_since(&self) -> Option<Instant> {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all sinks have seen a change that is in the feed's way.
    pub(super) async fn await_feed(&self, target: Revision) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let reached = self.position.wait(target);
            if tokio::time::timeout(self.client.attempt, reached).await.is_ok() {
                return Ok(());
            }
            if begun.elapsed() >= self.client.patience {
                let what = format!(
                    "its changes have arrived up to revision {}, not yet {target}",
                    self.position()
                );
                return Err(self.client.unavailable(&what));
            }
            self.stalled.notify_one();
        }
    }

    /// Waits until all sinks have seen everything up to a revision that may be another's.
    pub(super) async fn reach(&self, target: Revision) -> Result<(), Error> {
        let reached = self.position.wait(target);
        if tokio::time::timeout(QUIET, reached).await.is_ok() {
            return Ok(());
        }
        self.mark(target).await
    }

    /// Makes a change of no meaning, so that the feed shows that it has come past a revision.
    ///
    /// etcd can be asked how far a stream is, but before 3.4.31 and 3.5.13 it answers for changes
    /// that are still on their way.
    async fn mark(&self, target: Revision) -> Result<(), Error> {
        let _one = self.marking.lock().await;
        if self.position() >= target {
            return Ok(());
        }
        let put = PutRequest { key: self.keys.mark(), ..PutRequest::default() };
        let request =
            TxnRequest { success: vec![Request::Put(put).into()], ..TxnRequest::default() };
        let fail = |failure: Failure| failure.into_error(&self.client.name);
        let answer = self.client.txn(request).await.map_err(fail)?;
        self.await_feed(self.client.check(answer.header).map_err(fail)?).await
    }

    /// Takes somebody into the next round of [`Core::go_round`]. Returns whether nobody goes round,
    /// so that the caller has to see to it.
    pub(super) fn join(&self, who: CatchingUp) -> bool {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.waiting.push(who);
        !std::mem::replace(&mut rounds.going, true)
    }

    /// Tells all who have joined when all sinks have seen what was committed before they did; see
    /// [`crate::Store::catch_up`]. Returns when there is nobody left.
    ///
    /// One question to the cluster serves all who came before it was asked.
    pub(super) async fn go_round(&self) {
        loop {
            let waiting = {
                let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
                rounds.going = !rounds.waiting.is_empty();
                if !rounds.going {
                    return;
                }
                std::mem::take(&mut rounds.waiting)
            };
            let outcome = match self.newest().await {
                Ok(newest) => self.reach(newest).await.map(|()| newest),
                Err(error) => Err(error),
            };
            for who in waiting {
                let _ = who.send(outcome.clone());
            }
        }
    }

    /// The newest revision, confirmed by a quorum.
    pub(super) async fn newest(&self) -> Result<Revision, Error> {
        let seen = self.position();
        let revision = self.client.revision(self.keys.mark()).await;
        let revision = revision.map_err(|failure| failure.into_error(&self.client.name))?;
        if revision < seen {
            let name = self.client.name.display();
            let what = format!("{name} is at revision {revision}, but has been at revision {seen}");
            let error = Error::Failed { what };
            self.fuse.blow(&error);
            return Err(error);
        }
        Ok(revision)
    }

    /// The error for a revision that etcd says is compacted.
    pub(super) async fn compacted(&self) -> Error {
        match compacted_at(&self.client, &self.keys).await {
            Ok(floor) => {
                self.raise_floor(floor);
                Error::Compacted { floor: self.floor() }
            }
            Err(failure) => failure.into_error(&self.client.name),
        }
    }

    /// Refuses a revision whose history is not there; else returns the newest.
    pub(super) async fn within(&self, after: Revision) -> Result<Revision, Error> {
        if after < self.floor() {
            return Err(Error::Compacted { floor: self.floor() });
        }
        let revision = self.newest().await?;
        if after > revision { Err(Error::Future { revision }) } else { Ok(revision) }
    }

    /// Makes sure that the feed is past `upto` and that it is known which change is the last.
    pub(super) async fn prepare(&self, after: Revision, upto: Revision) -> Result<(), Error> {
        self.reach(upto).await?;
        let opened = self.opened.load(Ordering::Acquire);
        if after < opened && self.last.load(Ordering::Acquire) == opened {
            // What happened last before the feed began can only be told by what follows.
            self.mark(self.position() + 1).await?;
        }
        Ok(())
    }

    /// Tells the changes after `after` and up to `upto`, which the feed must be past.
    pub(super) async fn replay(
        &self,
        after: Revision,
        upto: Revision,
        tell: Tell<'_>,
    ) -> Result<(), Error> {
        let target = self.last.load(Ordering::Acquire).min(upto);
        let mut told = after;
        let begun = Instant::now();
        while told < target {
            match self.replay_once(&mut told, target, upto, tell).await {
                Ok(()) => {}
                Err(End::Compacted { floor }) => {
                    self.raise_floor(floor);
                    return Err(Error::Compacted { floor: self.floor() });
                }
                Err(End::Broken(error @ Error::Failed { .. })) => return Err(error),
                Err(End::Broken(error)) if begun.elapsed() > self.client.patience => {
                    return Err(error);
                }
                Err(End::Broken(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        Ok(())
    }

    async fn replay_once(
        &self,
        told: &mut Revision,
        target: Revision,
        upto: Revision,
        tell: Tell<'_>,
    ) -> Result<(), End> {
        let broken = |failure: Failure| End::Broken(failure.into_error(&self.client.name));
        let mut watcher = Watcher::start(&self.client, &self.keys, *told).await.map_err(broken)?;
        while *told < target {
            let next = watcher.next(&self.client, &self.keys);
            let news = tokio::time::timeout(self.client.patience, next)
                .await
                .map_err(|_| End::Broken(self.client.unavailable("no answer in time")))??;
            let wanted = news.events.partition_point(|event| event.revision <= upto);
            if let Some(events) = news.events.get(..wanted).filter(|events| !events.is_empty())
                && let Go::Enough = tell(events).map_err(End::Broken)?
            {
                *told = target;
                return Ok(());
            }
            *told = news.upto;
        }
        Ok(())
    }
}
