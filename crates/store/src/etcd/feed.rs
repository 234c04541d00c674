//! The feed: one watch stream for all sinks of the store, resumed when it breaks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::core::{EtcdCore, ReplayControl};
use super::reader;
use super::watcher::{EtcdWatcher, WatchBatch, WatchEnd};
use crate::sink::{deliver, deliver_changes};
use crate::{ChangeEvent, Error, FeedMessage, KeyRange, Revision, Sink};

/// First and longest delay before the stream is reopened.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Request to attach a sink that has received everything up to `after`.
pub(super) struct AttachRequest {
    pub(super) after: Revision,
    pub(super) sink: Sink,
    pub(super) done: SyncSender<Result<(), Error>>,
}

/// The task that owns the sinks.
pub(super) struct EventFeed {
    core: Arc<EtcdCore>,
    /// Sinks, each with the newest revision it has received.
    sinks: Vec<(Revision, Sink)>,
    watcher: Option<EtcdWatcher>,
    /// Last retry delay, and the time of the next retry.
    pause: Duration,
    retry: Instant,
    /// Missed history has been compacted, so that the sinks need the whole state.
    needs_resync: bool,
    /// Last field, so that it is dropped after the sinks: closing the store waits for its end.
    inbox: UnboundedReceiver<AttachRequest>,
}

impl EventFeed {
    pub(super) fn new(core: Arc<EtcdCore>, inbox: UnboundedReceiver<AttachRequest>) -> Self {
        let (pause, retry) = (Duration::ZERO, Instant::now());
        Self { core, sinks: Vec::new(), watcher: None, pause, retry, needs_resync: false, inbox }
    }

    /// Feeds the sinks until the store is closed.
    pub(super) async fn run(mut self) {
        let core = Arc::clone(&self.core);
        tokio::select! {
            () = core.wait_for_shutdown() => {}
            () = self.run_once() => {}
        }
    }

    async fn run_once(&mut self) {
        let core = Arc::clone(&self.core);
        loop {
            // Not in the select below, because nothing there may interrupt it.
            if self.needs_resync {
                self.resync().await;
            }
            tokio::select! {
                wanted = self.inbox.recv() => match wanted {
                    Some(AttachRequest { after, sink, done }) => {
                        let _ = done.send(self.attach_sink(after, sink).await);
                    }
                    None => break,
                },
                // Without a stream there is nothing to stall or interrupt.
                () = core.stalled.notified(), if self.watcher.is_some() => {
                    tracing::warn!(etcd = %core.client.name.display(), "watch stalled; opening another");
                    self.drop_stream();
                }
                // A member that calls found unresponsive is unresponsive for the stream too.
                () = core.client.silenced(), if self.watcher.is_some() => {
                    if self.watcher.as_ref().is_some_and(|watcher| watcher.is_silent(&core.client)) {
                        self.drop_stream();
                    }
                }
                () = tokio::time::sleep_until(self.retry), if self.needs_resync => {}
                news = next_batch(&core, &mut self.watcher, self.retry), if !self.needs_resync => self.handle(news),
            }
        }
    }

    fn handle(&mut self, news: Result<Option<WatchBatch>, WatchEnd>) {
        match news {
            Ok(None) => {
                self.core.mark_connected();
                // The notification was about the previous stream.
                let _ = self.core.stalled.notified().now_or_never();
            }
            Ok(Some(news)) => {
                self.pause = Duration::ZERO;
                self.core.mark_connected();
                self.publish(&news);
            }
            Err(WatchEnd::Broken(error)) => {
                tracing::debug!(%error, "watch failed; reopening it");
                self.drop_stream();
                self.schedule_retry();
            }
            Err(WatchEnd::Compacted { floor }) => {
                self.watcher = None;
                self.core.raise_floor(floor);
                let seen = self.core.position();
                tracing::warn!(
                    floor,
                    seen,
                    "history was compacted before it was delivered; listing all keys again"
                );
                self.needs_resync = true;
            }
        }
    }

    /// Records the loss of the stream, and schedules a retry.
    fn schedule_retry(&mut self) {
        self.core.mark_disconnected();
        self.pause = (self.pause * 2).clamp(PAUSES.0, PAUSES.1);
        self.retry = Instant::now() + self.pause;
    }

    /// Drops the stream, and opens the next one on another member.
    fn drop_stream(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.abandon(&self.core.client);
        }
    }

    /// Sends the newest state to all sinks; the stream continues from there.
    async fn resync(&mut self) {
        let state = reader::range(&self.core, &KeyRange::default()).await;
        // The missed changes may include one of the meta key.
        match self.core.verify_meta_key().await.and(state) {
            Ok(page) => {
                let core = &self.core;
                // Applying the whole state takes long, and calls continue meanwhile.
                tokio::task::block_in_place(|| {
                    self.sinks.retain_mut(|(seen, sink)| {
                        *seen = page.revision;
                        deliver(sink, FeedMessage::Reset(&page))
                            .map_err(|error| core.latch.trip(&error))
                            .is_ok()
                    });
                });
                core.reset_position(page.revision);
                core.mark_connected();
                (self.needs_resync, self.pause) = (false, Duration::ZERO);
            }
            Err(error) => {
                tracing::debug!(%error, "cannot list all keys; retrying");
                self.schedule_retry();
            }
        }
    }

    fn publish(&mut self, news: &WatchBatch) {
        let core = &self.core;
        self.sinks.retain_mut(|(seen, sink)| match deliver_new(sink, seen, &news.events) {
            Ok(()) => true,
            Err(error) => {
                core.latch.trip(&error);
                false
            }
        });
        core.advance(news);
    }

    /// Attaches a sink after sending it the changes since its replay.
    async fn attach_sink(&mut self, after: Revision, mut sink: Sink) -> Result<(), Error> {
        let upto = self.core.position();
        let seen = if self.core.last.load(Ordering::Acquire) > after {
            replay(&self.core, after, upto, &mut sink).await?
        } else {
            after
        };
        self.sinks.push((seen.max(upto), sink));
        Ok(())
    }
}

/// Sends a sink the changes after `after` and up to `upto`, which the feed must be past; returns
/// the revision up to which it has received everything.
///
/// If a compaction overtakes the replay, sends the newest state instead.
pub(super) async fn replay(
    core: &EtcdCore,
    after: Revision,
    upto: Revision,
    sink: &mut Sink,
) -> Result<Revision, Error> {
    let mut seen = after;
    let mut tell_changes =
        |events: &[ChangeEvent]| deliver_new(sink, &mut seen, events).map(|()| ReplayControl::Continue);
    match core.replay(after, upto, &mut tell_changes).await {
        Ok(()) => Ok(seen.max(upto)),
        Err(Error::Compacted { floor }) => {
            tracing::warn!(floor, seen, "history was compacted during the replay; listing all keys");
            let page = reader::range(core, &KeyRange::default()).await?;
            deliver(sink, FeedMessage::Reset(&page))?;
            Ok(page.revision)
        }
        Err(error) => Err(error),
    }
}

/// Returns the next batch of the stream; `None` when it has just been opened.
async fn next_batch(
    core: &EtcdCore,
    watcher: &mut Option<EtcdWatcher>,
    retry: Instant,
) -> Result<Option<WatchBatch>, WatchEnd> {
    if let Some(watcher) = watcher {
        return watcher.next(&core.client, &core.keys).await.map(Some);
    }
    tokio::time::sleep_until(retry).await;
    let started = EtcdWatcher::start(&core.client, &core.keys, core.position()).await;
    let started = started.map_err(|failure| WatchEnd::Broken(failure.into_error(&core.client.name)))?;
    core.set_progress_requester(started.progress_requester());
    *watcher = Some(started);
    Ok(None)
}

/// Delivers the events that a sink has not received.
pub(super) fn deliver_new(sink: &mut Sink, seen: &mut Revision, events: &[ChangeEvent]) -> Result<(), Error> {
    let fresh = events.partition_point(|event| event.revision <= *seen);
    let Some(events) = events.get(fresh..) else { return Ok(()) };
    let Some(last) = events.last() else { return Ok(()) };
    *seen = last.revision;
    deliver_changes(sink, events)
}
