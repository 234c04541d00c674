//! What the calls and the feed of one store share: how far the feed is, and reads of history.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, RwLock, oneshot, watch};

use super::client::{Client, Failure, Inquiry};
use super::keys::Keys;
use super::mark::{self, Mark};
use super::position::Position;
use super::watcher::{End, News, Watcher, compacted_at};
use super::wire::RangeRequest;
use crate::embedded::Fuse;
use crate::{Error, Event, Revision};

/// How long the feed may take before it is suspected that nothing of ours is on its way: what is comes
/// within a few milliseconds, and where others write to the same etcd, every reader waits this long.
const QUIET: Duration = Duration::from_millis(50);

/// The first and the longest time to wait for an answer to how far the feed's stream is.
const INQUIRIES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// Whether a listener wants more of the history.
pub(super) enum Go {
    On,
    Enough,
}

/// Receives history in pieces.
pub(super) type Tell<'a> = &'a mut (dyn FnMut(&[Event]) -> Result<Go, Error> + Send);

/// Somebody who wants to know when the sinks have caught up.
type CatchingUp = oneshot::Sender<Result<Revision, Error>>;

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
    /// Asks the feed's stream how far it is.
    inquiry: Mutex<Inquiry>,
    /// Since when the feed has had no stream.
    lost: Mutex<Option<Instant>>,
    /// One mark at a time serves all who wait.
    marking: tokio::sync::Mutex<()>,
    rounds: Mutex<Rounds>,
    pub(super) closed: AtomicBool,
    /// Ends the tasks of the store.
    end: watch::Sender<bool>,
    /// Commits share it; closing waits for it.
    pub(super) gate: RwLock<()>,
}

impl Core {
    /// Finds out where the cluster is.
    pub(super) async fn open(client: Client, mut keys: Keys, fuse: Fuse) -> Result<Self, Error> {
        let fail = |failure: Failure| failure.into_error(&client.name);
        let (newest, found) = client.mark(&keys).await.map_err(fail)?;
        keys.count = mark::counting(&client, found.as_ref())?;
        let opened = keys.revision(newest);
        let first = RangeRequest {
            key: keys.mark(),
            revision: 1,
            count_only: true,
            ..RangeRequest::default()
        };
        let floor = match client.range(first).await {
            Ok(_) => keys.revision(1),
            Err(Failure::Compacted) => compacted_at(&client, &keys).await.map_err(fail)?,
            Err(failure) => return Err(fail(failure)),
        };
        let floor = floor.max(keys.count.floor);
        Ok(Self {
            client,
            keys,
            fuse,
            position: Position::new(opened),
            floor: AtomicU64::new(floor),
            opened: AtomicU64::new(opened),
            last: AtomicU64::new(opened),
            stalled: Notify::new(),
            inquiry: Mutex::default(),
            lost: Mutex::new(None),
            marking: tokio::sync::Mutex::new(()),
            rounds: Mutex::default(),
            closed: AtomicBool::new(false),
            end: watch::Sender::new(false),
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

    /// Ends the tasks of the store.
    pub(super) fn end(&self) {
        self.end.send_replace(true);
    }

    /// Waits until the tasks of the store are to end.
    pub(super) async fn ended(&self) {
        let _ = self.end.subscribe().wait_for(|end| *end).await;
    }

    /// Notes whom to ask how far the feed's stream is.
    pub(super) fn set_inquiry(&self, inquiry: Inquiry) {
        *self.inquiry.lock().unwrap_or_else(PoisonError::into_inner) = inquiry;
    }

    pub(super) fn inquiry(&self) -> Inquiry {
        self.inquiry.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        if self.inquire(target).await {
            return Ok(());
        }
        let reached = self.position.wait(target);
        if tokio::time::timeout(QUIET, reached).await.is_ok() {
            return Ok(());
        }
        self.mark(target).await
    }

    /// Asks the feed's stream how far it is until it is past a revision; whether that came to pass.
    ///
    /// A member that is behind the others says so, and is asked again.
    async fn inquire(&self, target: Revision) -> bool {
        let begun = Instant::now();
        let mut pause = INQUIRIES.0;
        while begun.elapsed() < self.client.attempt {
            let reached = self.position.wait(target);
            if tokio::time::timeout(pause, reached).await.is_ok() {
                return true;
            }
            if !self.inquiry().ask() {
                return false;
            }
            pause = (pause * 2).min(INQUIRIES.1);
        }
        // It should have answered by now.
        self.stalled.notify_one();
        false
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
        let fail = |failure: Failure| failure.into_error(&self.client.name);
        for request in mark::confirm(&self.keys) {
            let answer = self.client.txn(request).await.map_err(fail)?;
            if answer.succeeded {
                let at = self.client.check(answer.header).map_err(fail)?;
                return self.await_feed(self.keys.revision(at)).await;
            }
        }
        Err(self.client.recounted())
    }

    /// Fails the store if its mark was changed while the feed did not look.
    pub(super) async fn verify_mark(&self) -> Result<(), Error> {
        let found = self.client.mark(&self.keys).await;
        let (_, found) = found.map_err(|failure| failure.into_error(&self.client.name))?;
        let same = Mark::read(found.as_ref()) == Some(Mark::Counting(self.keys.count));
        if same { Ok(()) } else { Err(self.client.recounted()) }
    }

    /// Waits until all sinks have seen what was committed before the call; see
    /// [`crate::Store::catch_up`]. Who begins a round may go away before it ends, so the round is
    /// the runtime's.
    pub(super) fn catch_up(
        self: &Arc<Self>,
        runtime: &Handle,
    ) -> impl Future<Output = Result<Revision, Error>> + use<> {
        let (who, told) = oneshot::channel();
        if self.join(who) {
            let core = Arc::clone(self);
            runtime.spawn(async move { core.go_round().await });
        }
        async move { told.await.unwrap_or(Err(Error::Closed)) }
    }

    /// Takes somebody into the next round. Returns whether nobody goes round, so that the caller has
    /// to see to it.
    fn join(&self, who: CatchingUp) -> bool {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.waiting.push(who);
        !std::mem::replace(&mut rounds.going, true)
    }

    /// Tells all who have joined when all sinks have seen what was committed before they did. Returns
    /// when there is nobody left.
    ///
    /// One question to the cluster serves all who came before it was asked.
    async fn go_round(&self) {
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
        let revision = self.keys.revision(revision);
        if revision < seen {
            let name = self.client.name.display();
            let what = format!("{name} is at revision {revision}, but has been at revision {seen}");
            return Err(self.client.fail(what));
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
        let mut progress = (after, Instant::now());
        while told < target {
            let outcome = self.replay_once(&mut told, target, upto, tell).await;
            if told > progress.0 {
                progress = (told, Instant::now());
            }
            match outcome {
                Ok(()) => {}
                Err(End::Compacted { floor }) => {
                    self.raise_floor(floor);
                    return Err(Error::Compacted { floor: self.floor() });
                }
                Err(End::Broken(error @ Error::Failed { .. })) => return Err(error),
                Err(End::Broken(error)) if progress.1.elapsed() > self.client.patience => {
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
            let news = match tokio::time::timeout(self.client.attempt, next).await {
                Ok(Ok(news)) => news,
                Ok(Err(end)) => return Err(end),
                Err(_) => {
                    watcher.leave(&self.client);
                    return Err(End::Broken(self.client.unavailable("no answer in time")));
                }
            };
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
