//! The feed: one stream of changes for all sinks of the store, resumed when it breaks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::core::{Core, Go};
use super::reader;
use super::watcher::{End, News, Watcher};
use crate::embedded::{feed, tell};
use crate::{Error, Event, Message, Range, Revision, Sink};

/// The first and the longest pause before the stream is opened again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// What the feed is asked for.
pub(super) enum Command {
    /// Attach a sink that has seen everything up to `after`.
    Follow { after: Revision, sink: Sink, done: SyncSender<Result<(), Error>> },
    /// End.
    Close,
}

/// The task that owns the sinks.
pub(super) struct Feed {
    pub(super) core: Arc<Core>,
    pub(super) inbox: UnboundedReceiver<Command>,
    /// Each with the newest revision it has seen.
    pub(super) sinks: Vec<(Revision, Sink)>,
    pub(super) watcher: Option<Watcher>,
    pub(super) pause: Duration,
    /// History the sinks have not seen is gone: they need the whole state.
    pub(super) anew: bool,
}

impl Feed {
    pub(super) fn new(core: Arc<Core>, inbox: UnboundedReceiver<Command>) -> Self {
        Self { core, inbox, sinks: Vec::new(), watcher: None, pause: Duration::ZERO, anew: false }
    }

    /// Feeds the sinks until the store is closed.
    pub(super) async fn run(mut self) {
        let core = Arc::clone(&self.core);
        loop {
            // Not among what follows, because nothing must interrupt it.
            if self.anew {
                self.begin_anew().await;
            }
            tokio::select! {
                command = self.inbox.recv() => match command {
                    Some(Command::Follow { after, sink, done }) => {
                        let _ = done.send(self.follow(after, sink).await);
                    }
                    Some(Command::Close) | None => break,
                },
                () = core.stalled.notified() => {
                    tracing::warn!(etcd = %core.client.name.display(), "the watch stalls; opening another");
                    core.client.next_member();
                    self.watcher = None;
                }
                () = tokio::time::sleep(self.pause), if self.anew => {}
                news = next(&core, &mut self.watcher, self.pause), if !self.anew => self.take(news),
            }
        }
    }

    fn take(&mut self, news: Result<Option<News>, End>) {
        match news {
            Ok(None) => self.core.heard(),
            Ok(Some(news)) => {
                self.pause = Duration::ZERO;
                self.core.heard();
                self.publish(&news);
            }
            Err(End::Broken(error)) => {
                tracing::debug!(%error, "the watch broke; opening it again");
                self.watcher = None;
                self.core.lost();
                self.pause = (self.pause * 2).clamp(PAUSES.0, PAUSES.1);
            }
            Err(End::Compacted { floor }) => {
                self.watcher = None;
                self.core.raise_floor(floor);
                let seen = self.core.position();
                tracing::warn!(
                    floor,
                    seen,
                    "history was compacted before it was seen; reading everything again"
                );
                self.anew = true;
            }
        }
    }

    /// Gives all sinks the newest state, from which the stream goes on.
    async fn begin_anew(&mut self) {
        match reader::range(&self.core, &Range::default()).await {
            Ok(page) => {
                let core = &self.core;
                // Taking in everything takes long, and the calls go on meanwhile.
                tokio::task::block_in_place(|| {
                    self.sinks.retain_mut(|(seen, sink)| {
                        *seen = page.revision;
                        tell(sink, Message::Reset(&page))
                            .map_err(|error| core.fuse.blow(&error))
                            .is_ok()
                    });
                });
                core.begin_anew(page.revision);
                core.heard();
                (self.anew, self.pause) = (false, Duration::ZERO);
            }
            Err(error) => {
                tracing::debug!(%error, "everything could not be read; trying again");
                self.core.lost();
                self.pause = (self.pause * 2).clamp(PAUSES.0, PAUSES.1);
            }
        }
    }

    fn publish(&mut self, news: &News) {
        let core = &self.core;
        self.sinks.retain_mut(|(seen, sink)| match give(sink, seen, &news.events) {
            Ok(()) => true,
            Err(error) => {
                core.fuse.blow(&error);
                false
            }
        });
        core.advance(news);
    }

    /// Attaches a sink after giving it what came since its replay.
    async fn follow(&mut self, after: Revision, mut sink: Sink) -> Result<(), Error> {
        let mut seen = after;
        let upto = self.core.position();
        if self.core.last.load(Ordering::Acquire) > after {
            let core = Arc::clone(&self.core);
            let mut tell = |events: &[Event]| give(&mut sink, &mut seen, events).map(|()| Go::On);
            core.replay(after, upto, &mut tell).await?;
        }
        self.sinks.push((seen.max(upto), sink));
        Ok(())
    }
}

/// The next news of the stream; nothing when it has just been opened.
async fn next(
    core: &Core,
    watcher: &mut Option<Watcher>,
    pause: Duration,
) -> Result<Option<News>, End> {
    if let Some(watcher) = watcher {
        return watcher.next(&core.client, &core.keys).await.map(Some);
    }
    tokio::time::sleep(pause).await;
    let started = Watcher::start(&core.client, &core.keys, core.position()).await;
    *watcher = Some(started.map_err(|failure| End::Broken(failure.into_error(&core.client.name)))?);
    Ok(None)
}

/// Gives a sink those events it has not seen.
pub(super) fn give(sink: &mut Sink, seen: &mut Revision, events: &[Event]) -> Result<(), Error> {
    let fresh = events.partition_point(|event| event.revision <= *seen);
    let Some(events) = events.get(fresh..) else { return Ok(()) };
    let Some(last) = events.last() else { return Ok(()) };
    *seen = last.revision;
    feed(sink, events)
}
