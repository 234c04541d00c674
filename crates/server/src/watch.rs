//! Watch streams: the changes of a collection from a revision on, until the watch times out or
//! falls behind.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{FutureExt, Stream};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use crate::cache::{KindCache, ObjectChange, ObjectWatcher, RevisionTooOld, WatchEventType};
use crate::chain::flow_control::RequestSeat;
use crate::chain::flow_control::watch_limiter::OpenWatch;
use crate::chain::watch_access::WatchAccess;
use crate::error::Error;
use crate::metrics::GaugeGuard;
use crate::object::Object;
use crate::registry::kind::ServedVersion;
use crate::request::selection::ObjectSelection;

pub enum EventEncoding {
    /// Encoded once and shared by all watchers.
    Objects,
    /// Encoded for this watcher only: tables or partial metadata.
    Custom(WriteEvent),
}

/// Encodes the object of an event as JSON for one watcher.
pub(crate) type WriteEvent = Box<dyn FnMut(&Object) -> Vec<u8> + Send>;

/// Parameters of a watch stream.
pub struct WatchPlan {
    /// Cache whose changes are watched and whose objects come first.
    pub cache: Arc<KindCache>,
    /// Group and version that events are encoded in.
    pub served: &'static ServedVersion,
    /// Scope and selectors that objects must match to be delivered.
    pub selection: ObjectSelection,
    /// Encoding of the events: shared bytes, or tables and metadata.
    pub shape: EventEncoding,
    /// Initial objects, sent as ADDED events. Each is dropped when it is sent, because it may have
    /// been replaced long ago.
    pub initial: std::vec::IntoIter<Arc<Object>>,
    /// Whether an annotated bookmark ends the initial objects.
    pub initial_end: bool,
    /// Revision after which changes are delivered.
    pub after: u64,
    /// Whether the client accepts periodic bookmark events.
    pub bookmarks: bool,
    /// Duration after which the server ends the watch.
    pub timeout: Duration,
    /// Encoding of an empty object after `"metadata":{…}`, for bookmarks.
    pub empty: Bytes,
    /// Ends the watch when the server shuts down.
    pub shutdown: watch::Receiver<bool>,
    /// Counts the watch as open, by kind and by user.
    pub counted: (GaugeGuard, OpenWatch),
}

/// The stream of a watch's events.
pub struct WatchStream {
    plan: WatchPlan,
    /// Held until the initial objects are sent, because the watch works like a list until then.
    seat: Option<RequestSeat>,
    phase: WatchPhase,
    newest: Pin<Box<dyn Stream<Item = ()> + Send>>,
    timer: Pin<Box<Sleep>>,
    ends: Instant,
    /// Revision up to which the watcher is current.
    at: u64,
    bookmarked: u64,
    reach: WatchScope,
    /// `None` until [`WatchStream::guard`] is called; nothing is delivered before.
    access: Option<Box<WatchAccess>>,
    /// When the next bookmark is due, if bookmarks are sent.
    bookmark_due: Instant,
}

/// Changes that the watcher examines.
enum WatchScope {
    All,
    One(ObjectWatcher),
}

enum WatchPhase {
    /// Initial objects remain to be sent.
    Initial,
    Live,
    Ended,
}

/// Interval of bookmarks to idle watchers. Kubernetes: about a minute.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Changes read from the window under one lock.
const BATCH: usize = 256;
/// Small events are joined into chunks of up to this size, to save frames and system calls.
const CHUNK: usize = 16 * 1024;

impl WatchStream {
    /// Subscribes to changes; objects are read when the stream is polled.
    pub fn new(plan: WatchPlan) -> WatchStream {
        let ends = Instant::now() + plan.timeout;
        let at = plan.after;
        let single = plan.selection.single_key(plan.cache.kind);
        let single = single.map(|key| ObjectWatcher::new(plan.cache.clone(), &key));
        let (receiver, reach) = match single {
            Some(single) => (single.receiver(), WatchScope::One(single)),
            None => (plan.cache.subscribe(), WatchScope::All),
        };
        let newest = Box::pin(wakeups(receiver));
        let bookmark_due = Instant::now() + BOOKMARK_EVERY;
        let timer = Box::pin(tokio::time::sleep_until(ends.min(bookmark_due)));
        WatchStream {
            plan,
            seat: None,
            phase: WatchPhase::Initial,
            newest,
            timer,
            ends,
            at,
            bookmarked: at,
            reach,
            access: None,
            bookmark_due,
        }
    }

    /// Sets the access check that runs before every delivery.
    pub fn guard(&mut self, access: WatchAccess) {
        self.access = Some(Box::new(access));
        self.set_timer();
    }

    /// Holds the seat of the request while initial objects remain.
    pub fn hold_seat(&mut self, seat: RequestSeat) {
        if self.initial_left() > 0 {
            self.seat = Some(seat);
        }
    }

    /// Returns the number of initial objects not sent yet.
    pub fn initial_left(&self) -> usize {
        self.plan.initial.as_slice().len()
    }

    /// Polls the next chunk of events, or the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = ready!(self.poll_chunk(cx));
        // After the events were read: revocations written before them are known by now.
        Poll::Ready(next.map(|chunk| self.verify().err().unwrap_or(chunk)))
    }

    /// Ends the watch if it is no longer allowed; the error is its last event.
    fn verify(&mut self) -> Result<(), Bytes> {
        let allowed = match &mut self.access {
            Some(access) => access.verify(),
            None => Err(Error::Internal("watch without access check".into())),
        };
        if Instant::now() >= self.ends {
            self.phase = WatchPhase::Ended;
        }
        allowed.map_err(|error| {
            self.phase = WatchPhase::Ended;
            error_line(&error)
        })
    }

    /// Checks an idle watch after a revocation, instead of waiting for its next event.
    fn end_if_revoked(&mut self) -> Option<Bytes> {
        let is_due = self.access.as_ref().is_some_and(|access| access.has_new_revocations());
        if is_due { self.verify().err() } else { None }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            match self.phase {
                WatchPhase::Ended => return Poll::Ready(None),
                WatchPhase::Initial => {
                    if let Some(chunk) = self.initial() {
                        return Poll::Ready(Some(chunk));
                    }
                }
                WatchPhase::Live => match self.live() {
                    Some(chunk) => return Poll::Ready(Some(chunk)),
                    None if *self.plan.shutdown.borrow() => self.phase = WatchPhase::Ended,
                    None => {
                        if let Some(last) = self.end_if_revoked() {
                            return Poll::Ready(Some(last));
                        }
                        if let Poll::Ready(due) = self.poll_timer(cx) {
                            match due {
                                Some(chunk) => return Poll::Ready(Some(chunk)),
                                None => continue,
                            }
                        }
                        if ready!(self.newest.as_mut().poll_next(cx)).is_none() {
                            self.phase = WatchPhase::Ended;
                        }
                    }
                },
            }
        }
    }

    fn initial(&mut self) -> Option<Bytes> {
        let mut chunk = EventChunk::default();
        while !chunk.is_full()
            && let Some(object) = self.plan.initial.next()
        {
            chunk.push(self.line_of(&object, WatchEventType::Added));
        }
        if self.plan.initial.as_slice().is_empty() {
            self.phase = WatchPhase::Live;
            self.plan.initial = Vec::new().into_iter();
            self.seat = None;
            if self.plan.initial_end {
                chunk.push(self.bookmark(true));
            }
        }
        chunk.finish()
    }

    fn live(&mut self) -> Option<Bytes> {
        let mut chunk = EventChunk::default();
        loop {
            let (changes, upto) = match self.changes() {
                Ok(found) => found,
                Err(too_old) => {
                    self.phase = WatchPhase::Ended;
                    chunk.push(expired(self.at, too_old.floor));
                    return chunk.finish();
                }
            };
            for change in &changes {
                if let Some(seen_as) = change.event_type_for(|o| self.plan.selection.matches(o)) {
                    chunk.push(self.line(change, seen_as));
                }
                self.at = change.revision;
                if chunk.is_full() {
                    return chunk.finish();
                }
            }
            self.at = upto;
            if changes.len() < BATCH {
                return chunk.finish();
            }
        }
    }

    /// Returns pending changes, and the revision up to which they are complete.
    fn changes(&self) -> Result<(Vec<Arc<ObjectChange>>, u64), RevisionTooOld> {
        match &self.reach {
            WatchScope::One(single) => {
                // In this order: `single` was notified of everything up to this revision.
                let (notified, newest) = (self.plan.cache.notified_revision(), single.newest());
                let changes = self.plan.cache.changes_of_key(single.key(), newest, self.at)?;
                Ok((changes, notified.max(newest).max(self.at)))
            }
            WatchScope::All => self.plan.cache.changes(self.at, BATCH),
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        ready!(self.timer.poll_unpin(cx));
        let now = Instant::now();
        if now >= self.ends {
            self.phase = WatchPhase::Ended;
            let news = self.plan.bookmarks && self.at > self.bookmarked;
            return Poll::Ready(news.then(|| self.bookmark(false)));
        }
        let bookmark = self.plan.bookmarks && now >= self.bookmark_due;
        if bookmark {
            self.bookmark_due = now + BOOKMARK_EVERY;
        } else if let Err(last) = self.verify() {
            return Poll::Ready(Some(last));
        }
        self.set_timer();
        Poll::Ready(bookmark.then(|| self.bookmark(false)))
    }

    fn set_timer(&mut self) {
        let mut next = self.ends;
        if self.plan.bookmarks {
            next = next.min(self.bookmark_due);
        }
        if let Some(access) = &self.access {
            next = next.min(access.next_check_at());
        }
        self.timer.as_mut().reset(next);
    }

    fn line(&mut self, change: &Arc<ObjectChange>, seen_as: WatchEventType) -> Bytes {
        match self.plan.shape {
            EventEncoding::Objects => change.line(self.plan.served, seen_as),
            EventEncoding::Custom(_) => self.line_of(&change.object_for(seen_as), seen_as),
        }
    }

    fn line_of(&mut self, object: &Object, seen_as: WatchEventType) -> Bytes {
        let json = match &mut self.plan.shape {
            EventEncoding::Objects => object.json(self.plan.cache.kind, self.plan.served),
            EventEncoding::Custom(write) => write(object).into(),
        };
        crate::cache::line(seen_as.as_str(), &json)
    }

    fn bookmark(&mut self, initial_end: bool) -> Bytes {
        self.bookmarked = self.at;
        let kind = self.plan.cache.kind;
        let note = if initial_end { "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" } else { "" };
        let tail = String::from_utf8_lossy(&self.plan.empty);
        if let EventEncoding::Custom(write) = &mut self.plan.shape {
            // Such a client can decode only its view, so bookmarks use it too.
            let head = crate::object::head(kind.name, &kind.stored().api_version());
            let stored = format!("{head}\"metadata\":{{{note}}}{tail}");
            let object = Object::new(kind, "", self.at, stored.as_bytes());
            let json = object.map(|object| write(&object)).unwrap_or_default();
            return crate::cache::line("BOOKMARK", &json);
        }
        let head = crate::object::head(kind.name, &self.plan.served.api_version());
        let comma = if note.is_empty() { "" } else { "," };
        let object = format!("{head}\"metadata\":{{\"resourceVersion\":\"{}\"{comma}{note}}}{tail}", self.at);
        crate::cache::line("BOOKMARK", object.as_bytes())
    }
}

/// Returns the final ERROR event of a watch whose revision has expired.
pub(crate) fn expired(asked: u64, floor: u64) -> Bytes {
    let text = format!("too old resource version: {asked} ({floor})");
    error_line(&Error::Expired(text, String::new()))
}

/// Encodes an ERROR event, after which the watch ends.
pub(crate) fn error_line(error: &Error) -> Bytes {
    let status = serde_json::to_vec(&error.status()).unwrap_or_default();
    crate::cache::line("ERROR", &status)
}

/// Yields when the collection changed, or when shutdown wakes all watchers.
fn wakeups(newest: watch::Receiver<u64>) -> impl Stream<Item = ()> + Send {
    futures::stream::unfold(newest, |mut newest| async move {
        newest.changed().await.ok()?;
        Some(((), newest))
    })
}

/// Joins lines into one chunk; a single line is not copied.
#[derive(Default)]
struct EventChunk {
    only: Option<Bytes>,
    joined: BytesMut,
}

impl EventChunk {
    fn push(&mut self, line: Bytes) {
        match self.only.take() {
            None if self.joined.is_empty() => self.only = Some(line),
            first => {
                self.joined.extend_from_slice(first.as_deref().unwrap_or_default());
                self.joined.extend_from_slice(&line);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.only.as_ref().map_or(0, Bytes::len) + self.joined.len() >= CHUNK
    }

    fn finish(self) -> Option<Bytes> {
        self.only.or_else(|| (!self.joined.is_empty()).then(|| self.joined.freeze()))
    }
}
