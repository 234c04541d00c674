//! Watches that survive errors and relist.
//!
//! - [`ObjectWatch`]: pull-based. [`ObjectWatch::next`] yields events and classified errors, and the watch continues by itself.
//! - [`watch_objects`], [`watch_metadata`]: callback-based, for controllers, with throttled logging and an error counter.
//! - [`ListTracker`], [`RelistBuffer`]: replace the handling of `Init`, `InitApply` and `InitDone` at the call sites.
//!   The tracker delivers objects as they arrive and, after a list, the keys that are left: nothing is buffered, which
//!   matters for lists of which most objects are of no interest. The buffer delivers the list as a whole, for caches
//!   that are read while a relist is under way.

mod controller;
mod relist;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _, stream};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::runtime::watcher::{self, Config, Event, InitialListStrategy, watcher};
use kube::{Api, Resource};
use tokio::time::{Instant, sleep, timeout};

use crate::backoff::Backoff;
use crate::client_error::describe;

pub use controller::{ObjectMetadata, watch_metadata, watch_objects};
pub use relist::{ListTracker, RelistBuffer, SnapshotEvent, TrackedEvent};

/// Delay before a watch is restarted after an error.
const RESTART_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// A watch that worked this long resets its backoff.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// Silence after which a streaming list is given up. Servers that ignore `sendInitialEvents` send the
/// objects and never the bookmark that ends the list.
const LIST_SILENCE: Duration = Duration::from_secs(20);
/// Range of the server-side timeout of a watch, in seconds. It is random, so that watches that start
/// together do not end together. kube allows less than 295.
const WATCH_SECONDS: (u32, u32) = (200, 290);
/// Largest number of events in a batch, so that a batch always ends.
const BATCH_SIZE: usize = 1000;

/// A watch that never ends: it relists, resumes, backs off and falls back from streaming lists by itself.
pub struct ObjectWatch<K> {
    events: BoxStream<'static, Result<Event<K>, WatchError>>,
}

/// Reason for which a watch does not work at the moment. It is retried with backoff whatever the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WatchError {
    /// What a caller may want to do about it.
    pub kind: WatchErrorKind,
    /// HTTP status of the server's response; `None` if there was none.
    pub status: Option<u16>,
    /// Whether the watch worked before. Established watches end all the time and are resumed.
    pub was_established: bool,
    /// One line, in the server's words if it sent any.
    pub message: String,
}

/// Classification of watch errors by their remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchErrorKind {
    /// The server rejects the credentials or does not grant access (401, 403).
    Refused,
    /// The server does not have this kind or version (404): discover it again.
    NotServed,
    /// Anything that passes by itself: network, restarts, expired resource versions.
    Broken,
}

impl<K> ObjectWatch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Watches the objects that `config` selects. Nothing is sent before the first [`ObjectWatch::next`].
    ///
    /// The initial list strategy of `config` is ignored: lists are streamed where the server can. A timeout in it is kept.
    pub fn new(api: Api<K>, config: Config) -> Self {
        let mut config = config.streaming_lists();
        config.timeout.get_or_insert_with(|| rand::random_range(WATCH_SECONDS.0..=WATCH_SECONDS.1));
        let state = WatchState {
            api,
            config,
            events: None,
            is_listing: false,
            pause: None,
            failures: 0,
            stable_since: None,
        };
        let events = stream::unfold(state, |mut state| async {
            let event = state.next().await;
            Some((event, state))
        });
        Self { events: events.boxed() }
    }

    /// Watches the objects that a field selector selects, or all.
    pub fn with_fields(api: Api<K>, field_selector: Option<&str>) -> Self {
        let field_selector = field_selector.map(str::to_owned);
        Self::new(api, Config { field_selector, ..Config::default() })
    }

    /// Waits for the next event or error. After an error the watch continues, after its backoff, with the
    /// next call. The future can be dropped without losing an event.
    pub async fn next(&mut self) -> Result<Event<K>, WatchError> {
        match self.events.next().await {
            Some(event) => event,
            // `unfold` above never ends.
            None => std::future::pending().await,
        }
    }

    /// Waits for the next event and handles it together with all that have arrived already, so that a
    /// burst of changes is acted on once.
    pub async fn next_batch(&mut self, mut handle: impl FnMut(Result<Event<K>, WatchError>)) {
        handle(self.next().await);
        for _ in 1..BATCH_SIZE {
            match self.next().now_or_never() {
                Some(event) => handle(event),
                None => return,
            }
        }
    }
}

struct WatchState<K> {
    api: Api<K>,
    config: Config,
    events: Option<BoxStream<'static, watcher::Result<Event<K>>>>,
    /// A list has begun and not ended.
    is_listing: bool,
    /// Delay before the next request.
    pause: Option<Duration>,
    failures: u32,
    /// Time of the first event since the last error.
    stable_since: Option<Instant>,
}

impl<K> WatchState<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn next(&mut self) -> Result<Event<K>, WatchError> {
        loop {
            if let Some(pause) = self.pause.take() {
                sleep(pause).await;
            }
            match self.next_event().await {
                Some(Ok(event)) => {
                    self.observe(&event);
                    return Ok(event);
                }
                Some(Err(error)) if self.is_streaming() && rejects_streaming(&error) => {
                    self.fall_back_to_list();
                }
                Some(Err(error)) => return Err(self.fail(&error)),
                None => self.fall_back_to_list(),
            }
        }
    }

    /// Waits for the next event; `None` if a streaming list is silent for too long.
    async fn next_event(&mut self) -> Option<watcher::Result<Event<K>>> {
        let is_bounded = self.is_listing && self.is_streaming();
        let (api, config) = (&self.api, &self.config);
        let events = self.events.get_or_insert_with(|| watcher(api.clone(), config.clone()).boxed());
        if !is_bounded {
            return events.next().await;
        }
        timeout(LIST_SILENCE, events.next()).await.ok().flatten()
    }

    fn observe(&mut self, event: &Event<K>) {
        match event {
            // The list before this one ended incomplete and without an error.
            Event::Init if self.is_listing => self.back_off(),
            Event::Init => self.is_listing = true,
            Event::InitApply(_) => {}
            Event::InitDone | Event::Apply(_) | Event::Delete(_) => {
                self.is_listing = false;
                self.stable_since.get_or_insert_with(Instant::now);
            }
        }
    }

    fn back_off(&mut self) {
        self.pause = Some(RESTART_BACKOFF.delay(self.failures, rand::random()));
        self.failures = self.failures.saturating_add(1);
    }

    fn is_streaming(&self) -> bool {
        self.config.initial_list_strategy == InitialListStrategy::StreamingList
    }

    /// Restarts with a list followed by a watch, and keeps doing so.
    fn fall_back_to_list(&mut self) {
        self.config.initial_list_strategy = InitialListStrategy::ListWatch;
        (self.events, self.is_listing) = (None, false);
    }

    fn fail(&mut self, error: &watcher::Error) -> WatchError {
        if self.stable_since.take().is_some_and(|since| since.elapsed() >= STABLE_AFTER) {
            self.failures = 0;
        }
        self.is_listing = false;
        self.back_off();
        let error = WatchError::from(error);
        if error.status == Some(410) {
            // The resource version is gone. kube would ask for it forever if the server says so instead of starting the watch.
            self.events = None;
        }
        error
    }
}

/// Whether the server rejects streaming lists, which not every version supports.
fn rejects_streaming(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(_)) && matches!(status_code(error), Some(400 | 422))
}

fn status_code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

impl From<&watcher::Error> for WatchError {
    fn from(error: &watcher::Error) -> Self {
        let status = status_code(error);
        let kind = match status {
            Some(401 | 403) => WatchErrorKind::Refused,
            Some(404) => WatchErrorKind::NotServed,
            _ => WatchErrorKind::Broken,
        };
        let was_established = matches!(error, watcher::Error::WatchFailed(_) | watcher::Error::WatchError(_));
        Self { kind, status, was_established, message: describe(error) }
    }
}
