//! Watches that go on through errors.

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

use crate::csr::explain;
use crate::node_certificates::Backoff;

/// What comes from a watch.
#[derive(Clone, Debug)]
pub enum WatchItem<K> {
    /// Something happened to an object.
    Event(Event<K>),
    /// The watch cannot begin or has broken off. It goes on by itself after a pause.
    Trouble(WatchFailure),
}

/// Why there is no watch just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchFailure {
    /// The server does not allow it; in its own words.
    Refused(String),
    /// The server does not have what is watched.
    Unserved(String),
    /// A transient error, such as a broken connection.
    Broken(String),
}

/// A watch that does not end.
pub struct ResilientWatch<K> {
    all: BoxStream<'static, WatchItem<K>>,
}

/// How long to pause after trouble.
const PAUSE: Backoff =
    Backoff { initial: Duration::from_millis(200), max: Duration::from_secs(30) };
/// After how long without trouble earlier trouble is forgotten.
const STEADY: Duration = Duration::from_secs(5);
/// How long a list that comes as a watch may be silent. Servers that do not know of such lists send
/// the objects and then never say that these were all.
const SILENCE: Duration = Duration::from_secs(20);
/// How long a watch lasts at least and at most, in seconds, before it is begun anew. They are not
/// all the same, so that those that begin together do not end together.
const LASTS: (u32, u32) = (200, 290);
/// How many events are taken together at most.
const TOGETHER: usize = 1000;

impl WatchFailure {
    /// Returns the error message of the server or the connection.
    pub fn text(&self) -> &str {
        let (Self::Refused(text) | Self::Unserved(text) | Self::Broken(text)) = self;
        text
    }
}

impl<K> ResilientWatch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Watches all objects, or those that a field selector allows. Nothing is asked before `next`.
    pub fn new(api: Api<K>, fields: Option<&str>) -> Self {
        let mut config = Config::default().streaming_lists();
        config.field_selector = fields.map(str::to_owned);
        config.timeout = Some(rand::random_range(LASTS.0..=LASTS.1));
        let begun = WatchState {
            api,
            config,
            events: None,
            listing: false,
            pause: None,
            failures: 0,
            steady: None,
        };
        let all = stream::unfold(begun, |state| async {
            let (fed, state) = state.next().await;
            Some((fed, state))
        });
        Self { all: all.boxed() }
    }

    /// What comes next. If it is not waited for, nothing is lost.
    pub async fn next(&mut self) -> WatchItem<K> {
        match self.all.next().await {
            Some(fed) => fed,
            None => std::future::pending().await,
        }
    }

    /// What comes next, and all that is there already with it.
    pub async fn next_batch(&mut self, mut on: impl FnMut(WatchItem<K>)) {
        on(self.next().await);
        for _ in 1..TOGETHER {
            match self.next().now_or_never() {
                Some(fed) => on(fed),
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
    listing: bool,
    /// Before anything else is asked.
    pause: Option<Duration>,
    failures: u32,
    /// Since when there has been no trouble.
    steady: Option<Instant>,
}

impl<K> WatchState<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn next(mut self) -> (WatchItem<K>, Self) {
        loop {
            if let Some(pause) = self.pause.take() {
                sleep(pause).await;
            }
            match self.event().await {
                Some(Ok(event)) => {
                    self.track_event(&event);
                    return (WatchItem::Event(event), self);
                }
                Some(Err(error)) if self.streams() && cannot_stream(&error) => self.list_first(),
                Some(Err(error)) => return (WatchItem::Trouble(self.handle_error(&error)), self),
                None => self.list_first(),
            }
        }
    }

    /// The next event; none if a list that comes as a watch is silent for too long.
    async fn event(&mut self) -> Option<watcher::Result<Event<K>>> {
        let bounded = self.listing && self.streams();
        let (api, config) = (&self.api, &self.config);
        let events =
            self.events.get_or_insert_with(|| watcher(api.clone(), config.clone()).boxed());
        if !bounded {
            return events.next().await;
        }
        timeout(SILENCE, events.next()).await.ok().flatten()
    }

    fn track_event(&mut self, event: &Event<K>) {
        match event {
            // The list before this one has ended without being whole, and without an error.
            Event::Init if self.listing => self.slow_down(),
            Event::Init => self.listing = true,
            Event::InitApply(_) => {}
            Event::InitDone | Event::Apply(_) | Event::Delete(_) => {
                self.listing = false;
                self.steady.get_or_insert_with(Instant::now);
            }
        }
    }

    fn slow_down(&mut self) {
        self.pause = Some(PAUSE.after(self.failures, rand::random()));
        self.failures = self.failures.saturating_add(1);
    }

    fn streams(&self) -> bool {
        self.config.initial_list_strategy == InitialListStrategy::StreamingList
    }

    /// Begins anew, with a list and then a watch.
    fn list_first(&mut self) {
        self.config.initial_list_strategy = InitialListStrategy::ListWatch;
        (self.events, self.listing) = (None, false);
    }

    fn handle_error(&mut self, error: &watcher::Error) -> WatchFailure {
        if self.steady.take().is_some_and(|since| since.elapsed() >= STEADY) {
            self.failures = 0;
        }
        self.listing = false;
        self.slow_down();
        if code(error) == Some(410) {
            // What a watch was to go on from is no longer there; it would ask for it for ever.
            self.events = None;
        }
        failure_from_error(error)
    }
}

/// Whether the server refuses lists that come as a watch, which not all have.
fn cannot_stream(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(_)) && matches!(code(error), Some(400 | 422))
}

fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

fn failure_from_error(error: &watcher::Error) -> WatchFailure {
    let text = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => match error {
            kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
            error => explain(error),
        },
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => error.to_string(),
    };
    match code(error) {
        Some(401 | 403) => WatchFailure::Refused(text),
        Some(404) => WatchFailure::Unserved(text),
        _ => WatchFailure::Broken(text),
    }
}
