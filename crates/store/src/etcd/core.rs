//! Shared state of a store's calls and feed: the feed's position, and reads of history.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, RwLock, oneshot, watch};

use super::applied_revision::AppliedRevision;
use super::client::{CallFailure, EtcdClient, ProgressRequester};
use super::keys::KeySpace;
use super::meta_key::{self, MetaKeyValue};
use super::watcher::{EtcdWatcher, WatchBatch, WatchEnd, compacted_at};
use super::wire::RangeRequest;
use crate::fatal_latch::FatalLatch;
use crate::{ChangeEvent, Error, Revision};

/// Delay after which the feed is assumed to have nothing of ours in flight: our changes arrive
/// within a few milliseconds, and where others write to the same etcd, every reader waits this
/// long.
const QUIET: Duration = Duration::from_millis(50);

/// First and longest wait for a progress response of the feed's stream.
const INQUIRIES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// Whether a callback wants more history.
pub(super) enum ReplayControl {
    Continue,
    Stop,
}

/// Callback that receives history in chunks, in revision order.
pub(super) type EventCallback<'a> =
    &'a mut (dyn FnMut(&[ChangeEvent]) -> Result<ReplayControl, Error> + Send);

/// Reply channel of a caller that waits for the sinks to catch up.
type CatchUpWaiter = oneshot::Sender<Result<Revision, Error>>;

/// Catch-up rounds, one at a time.
#[derive(Default)]
struct CatchUpRounds {
    /// Whether a round is in progress.
    running: bool,
    /// Waiters for the next round.
    waiting: Vec<CatchUpWaiter>,
}

pub(super) struct EtcdCore {
    pub(super) client: EtcdClient,
    pub(super) keys: KeySpace,
    pub(super) latch: FatalLatch,
    /// Newest revision that all sinks have received.
    position: AppliedRevision,
    floor: AtomicU64,
    /// Start of the feed: the store's revision when it was opened or resynced.
    opened: AtomicU64,
    /// Newest change of the store's keys within `position`; `opened` if there was none since.
    pub(super) last: AtomicU64,
    /// Requests another stream from the feed.
    pub(super) stalled: Notify,
    /// Requests progress of the feed's stream.
    progress_requester: Mutex<ProgressRequester>,
    /// Time since which the feed has had no stream.
    lost: Mutex<Option<Instant>>,
    /// Serializes meta key writes; each serves all waiters.
    meta_key_write: tokio::sync::Mutex<()>,
    rounds: Mutex<CatchUpRounds>,
    pub(super) closed: AtomicBool,
    /// Signals the store's tasks to stop.
    end: watch::Sender<bool>,
    /// Shared by commits; closing the store acquires it exclusively.
    pub(super) gate: RwLock<()>,
}

impl EtcdCore {
    /// Opens the store and reads the cluster's revision.
    pub(super) async fn open(
        client: EtcdClient,
        mut keys: KeySpace,
        fuse: FatalLatch,
    ) -> Result<Self, Error> {
        let fail = |failure: CallFailure| failure.into_error(&client.name);
        let (newest, found) = client.get_meta_key(&keys).await.map_err(fail)?;
        keys.offset = meta_key::serving_offset(&client, found.as_ref())?;
        let opened = keys.revision(newest);
        let first =
            RangeRequest { key: keys.meta_key(), revision: 1, count_only: true, ..RangeRequest::default() };
        let floor = match client.range(first).await {
            Ok(_) => keys.revision(1),
            Err(CallFailure::Compacted) => compacted_at(&client, &keys).await.map_err(fail)?,
            Err(failure) => return Err(fail(failure)),
        };
        let floor = floor.max(keys.offset.floor);
        Ok(Self {
            client,
            keys,
            latch: fuse,
            position: AppliedRevision::new(opened),
            floor: AtomicU64::new(floor),
            opened: AtomicU64::new(opened),
            last: AtomicU64::new(opened),
            stalled: Notify::new(),
            progress_requester: Mutex::default(),
            lost: Mutex::new(None),
            meta_key_write: tokio::sync::Mutex::new(()),
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

    /// Records that all sinks have received the batch.
    pub(super) fn advance(&self, news: &WatchBatch) {
        // A meta key write is a change too: it proves that nothing else came before it.
        if news.changed {
            self.last.fetch_max(news.upto, Ordering::AcqRel);
        }
        self.position.advance(news.upto);
    }

    /// Records that all sinks have received the whole state at a revision.
    pub(super) fn reset_position(&self, revision: Revision) {
        self.last.store(revision, Ordering::Release);
        self.opened.store(revision, Ordering::Release);
        self.advance(&WatchBatch { events: Vec::new(), upto: revision, changed: false });
    }

    /// Signals the store's tasks to stop.
    pub(super) fn shut_down(&self) {
        self.end.send_replace(true);
    }

    /// Waits until the store's tasks should stop.
    pub(super) async fn wait_for_shutdown(&self) {
        let _ = self.end.subscribe().wait_for(|end| *end).await;
    }

    /// Sets the progress requester of the feed's stream.
    pub(super) fn set_progress_requester(&self, inquiry: ProgressRequester) {
        *self.progress_requester.lock().unwrap_or_else(PoisonError::into_inner) = inquiry;
    }

    pub(super) fn progress_requester(&self) -> ProgressRequester {
        self.progress_requester.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn mark_connected(&self) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn mark_disconnected(&self) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.get_or_insert_with(Instant::now);
    }

    pub(super) fn lost_since(&self) -> Option<Instant> {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all sinks have received a change of this store.
    pub(super) async fn await_feed(&self, target: Revision) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let reached = self.position.wait(target);
            if tokio::time::timeout(self.client.attempt, reached).await.is_ok() {
                return Ok(());
            }
            if begun.elapsed() >= self.client.patience {
                let what = format!(
                    "changes have arrived up to revision {}, but not up to {target}",
                    self.position()
                );
                return Err(self.client.unavailable(&what));
            }
            self.stalled.notify_one();
        }
    }

    /// Waits until all sinks have received everything up to a revision, which may be a change by
    /// another user of etcd.
    pub(super) async fn wait_for_revision(&self, target: Revision) -> Result<(), Error> {
        if self.poll_progress(target).await {
            return Ok(());
        }
        let reached = self.position.wait(target);
        if tokio::time::timeout(QUIET, reached).await.is_ok() {
            return Ok(());
        }
        self.write_meta_key(target).await
    }

    /// Requests progress of the feed's stream until it is past a revision; returns whether it got
    /// there.
    ///
    /// A lagging member reports an older revision, and is asked again.
    async fn poll_progress(&self, target: Revision) -> bool {
        let begun = Instant::now();
        let mut pause = INQUIRIES.0;
        while begun.elapsed() < self.client.attempt {
            let reached = self.position.wait(target);
            if tokio::time::timeout(pause, reached).await.is_ok() {
                return true;
            }
            if !self.progress_requester().request() {
                return false;
            }
            pause = (pause * 2).min(INQUIRIES.1);
        }
        // The response is overdue.
        self.stalled.notify_one();
        false
    }

    /// Writes the meta key unchanged, so that the feed shows that it is past a revision.
    ///
    /// etcd can report the progress of a stream, but before 3.4.31 and 3.5.13 it includes changes
    /// that are still in flight.
    async fn write_meta_key(&self, target: Revision) -> Result<(), Error> {
        let _one = self.meta_key_write.lock().await;
        if self.position() >= target {
            return Ok(());
        }
        let fail = |failure: CallFailure| failure.into_error(&self.client.name);
        for request in meta_key::confirm_requests(&self.keys) {
            let answer = self.client.txn(request).await.map_err(fail)?;
            if answer.succeeded {
                let at = self.client.check(answer.header).map_err(fail)?;
                return self.await_feed(self.keys.revision(at)).await;
            }
        }
        Err(self.client.fail_offset_changed())
    }

    /// Fails the store if its meta key was changed while the feed had no stream.
    pub(super) async fn verify_meta_key(&self) -> Result<(), Error> {
        let found = self.client.get_meta_key(&self.keys).await;
        let (_, found) = found.map_err(|failure| failure.into_error(&self.client.name))?;
        let same = MetaKeyValue::parse(found.as_ref()) == Some(MetaKeyValue::Serving(self.keys.offset));
        if same { Ok(()) } else { Err(self.client.fail_offset_changed()) }
    }

    /// Waits until all sinks have received everything committed before the call; see
    /// [`crate::Store::catch_up`]. A round runs on the runtime, because the caller that starts it
    /// may go away before it ends.
    pub(super) fn catch_up(
        self: &Arc<Self>,
        runtime: &Handle,
    ) -> impl Future<Output = Result<Revision, Error>> + use<> {
        let (who, outcome) = oneshot::channel();
        if self.enqueue_waiter(who) {
            let core = Arc::clone(self);
            runtime.spawn(async move { core.run_catch_up_rounds().await });
        }
        async move { outcome.await.unwrap_or(Err(Error::Closed)) }
    }

    /// Adds a waiter to the next round. Returns true if no round is running, so that the caller
    /// must start one.
    fn enqueue_waiter(&self, who: CatchUpWaiter) -> bool {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.waiting.push(who);
        !std::mem::replace(&mut rounds.running, true)
    }

    /// Runs rounds until there are no waiters. Replies to each waiter when all sinks have received
    /// everything committed before it joined.
    ///
    /// One query to the cluster serves all waiters that joined before it was sent.
    async fn run_catch_up_rounds(&self) {
        loop {
            let waiting = {
                let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
                rounds.running = !rounds.waiting.is_empty();
                if !rounds.running {
                    return;
                }
                std::mem::take(&mut rounds.waiting)
            };
            let outcome = match self.newest_revision().await {
                Ok(newest) => self.wait_for_revision(newest).await.map(|()| newest),
                Err(error) => Err(error),
            };
            for who in waiting {
                let _ = who.send(outcome.clone());
            }
        }
    }

    /// Returns the newest revision by a linearizable read.
    pub(super) async fn newest_revision(&self) -> Result<Revision, Error> {
        let seen = self.position();
        let revision = self.client.revision(self.keys.meta_key()).await;
        let revision = revision.map_err(|failure| failure.into_error(&self.client.name))?;
        let revision = self.keys.revision(revision);
        if revision < seen {
            let name = self.client.name.display();
            let what = format!("{name} is at revision {revision}, but has been at revision {seen}");
            return Err(self.client.fail(what));
        }
        Ok(revision)
    }

    /// Returns the error for a revision that etcd reports as compacted.
    pub(super) async fn compacted_error(&self) -> Error {
        match compacted_at(&self.client, &self.keys).await {
            Ok(floor) => {
                self.raise_floor(floor);
                Error::Compacted { floor: self.floor() }
            }
            Err(failure) => failure.into_error(&self.client.name),
        }
    }

    /// Fails if history after a revision is gone; otherwise returns the newest revision.
    pub(super) async fn check_history(&self, after: Revision) -> Result<Revision, Error> {
        if after < self.floor() {
            return Err(Error::Compacted { floor: self.floor() });
        }
        let revision = self.newest_revision().await?;
        if after > revision { Err(Error::Future { revision }) } else { Ok(revision) }
    }

    /// Ensures that the feed is past `upto` and that the last change is known.
    pub(super) async fn prepare(&self, after: Revision, upto: Revision) -> Result<(), Error> {
        self.wait_for_revision(upto).await?;
        let opened = self.opened.load(Ordering::Acquire);
        if after < opened && self.last.load(Ordering::Acquire) == opened {
            // The last change before the feed started is only known from what follows it.
            self.write_meta_key(self.position() + 1).await?;
        }
        Ok(())
    }

    /// Passes the changes after `after` and up to `upto` to the callback; the feed must be past
    /// `upto`.
    pub(super) async fn replay(
        &self,
        after: Revision,
        upto: Revision,
        deliver: EventCallback<'_>,
    ) -> Result<(), Error> {
        let target = self.last.load(Ordering::Acquire).min(upto);
        let mut delivered = after;
        let mut progress = (after, Instant::now());
        while delivered < target {
            let outcome = self.replay_once(&mut delivered, target, upto, deliver).await;
            if delivered > progress.0 {
                progress = (delivered, Instant::now());
            }
            match outcome {
                Ok(()) => {}
                Err(WatchEnd::Compacted { floor }) => {
                    self.raise_floor(floor);
                    return Err(Error::Compacted { floor: self.floor() });
                }
                Err(WatchEnd::Broken(error @ Error::Failed { .. })) => return Err(error),
                Err(WatchEnd::Broken(error)) if progress.1.elapsed() > self.client.patience => {
                    return Err(error);
                }
                Err(WatchEnd::Broken(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        Ok(())
    }

    async fn replay_once(
        &self,
        delivered: &mut Revision,
        target: Revision,
        upto: Revision,
        deliver: EventCallback<'_>,
    ) -> Result<(), WatchEnd> {
        let broken = |failure: CallFailure| WatchEnd::Broken(failure.into_error(&self.client.name));
        let mut watcher = EtcdWatcher::start(&self.client, &self.keys, *delivered).await.map_err(broken)?;
        while *delivered < target {
            let next = watcher.next(&self.client, &self.keys);
            let news = match tokio::time::timeout(self.client.attempt, next).await {
                Ok(Ok(news)) => news,
                Ok(Err(end)) => return Err(end),
                Err(_) => {
                    watcher.abandon(&self.client);
                    return Err(WatchEnd::Broken(self.client.unavailable("timed out")));
                }
            };
            let wanted = news.events.partition_point(|event| event.revision <= upto);
            if let Some(events) = news.events.get(..wanted).filter(|events| !events.is_empty())
                && let ReplayControl::Stop = deliver(events).map_err(WatchEnd::Broken)?
            {
                *delivered = target;
                return Ok(());
            }
            *delivered = news.upto;
        }
        Ok(())
    }
}
