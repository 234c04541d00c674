//! Clients that watch: continuously, at random, or to approve requests.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::canonical::content;
use crate::check::{BY_HAND, CONFIG_MAPS, REQUESTS, request_content};
use crate::client::{RecordingClient, collection, version};
use crate::history::{
    ObservedEvent, OperationOutcome, OperationRequest, ReadVersion, RecordedWatch, RequestRoute, Revision,
    WatchEnd, WatchEventKind, WatchStart,
};
use crate::http;
use crate::traffic::TrafficState;

/// Time without events after which a continuous watcher tries another server.
const SILENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

struct OpenWatch {
    events: windlass_testkit::WatchStream,
    watch: RecordedWatch,
}

enum WatchStep {
    /// An event with this object was received.
    Event(Value),
    Silence,
    End,
}

impl OpenWatch {
    async fn start(
        client: &RecordingClient,
        resource: &str,
        from: WatchStart,
        follows: bool,
    ) -> Option<Self> {
        let start = client.recorder.now();
        // The server ends watches at their timeout, after a bookmark with the revision.
        let seconds = rand::random_range(2..8);
        let version = match from {
            WatchStart::Revision(from) => format!("resourceVersion={from}"),
            WatchStart::State => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        };
        let path = format!(
            "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&{version}",
            collection(resource)
        );
        let mut watch = RecordedWatch {
            client: client.number,
            via: client.via,
            start,
            resource: resource.to_owned(),
            from,
            follows,
            received: Vec::new(),
            end: WatchEnd::Closed,
        };
        let address = client.addresses.for_route(client.via);
        let mut connection = http::connect(&client.addresses.http, address).await?;
        match http::watch(&mut connection, &path).await {
            Ok(events) => Some(Self { events, watch }),
            Err(410) => {
                watch.end = WatchEnd::Gone;
                client.recorder.with(|history| history.watches.push(watch));
                None
            }
            Err(_) => None,
        }
    }

    /// Receives and records the next event.
    async fn next(&mut self, client: &RecordingClient, patience: Duration) -> WatchStep {
        let event = match timeout(patience, self.events.next()).await {
            Ok(Ok(Some(event))) => event,
            Ok(_) => return WatchStep::End,
            Err(_) => return WatchStep::Silence,
        };
        let (object, resource) = (&event["object"], &self.watch.resource);
        let key = || format!("{resource}/{}", object["metadata"]["name"].as_str().unwrap());
        let content = || content(resource, object);
        let news = match event["type"].as_str() {
            Some("ADDED") => WatchEventKind::Added { key: key(), content: content() },
            Some("MODIFIED") => WatchEventKind::Modified { key: key(), content: content() },
            Some("DELETED") => WatchEventKind::Deleted { key: key(), content: content() },
            Some("BOOKMARK") => match &object["metadata"]["annotations"]["k8s.io/initial-events-end"] {
                Value::Null => WatchEventKind::Bookmark,
                _ => WatchEventKind::InitialEnd,
            },
            _ => {
                assert_eq!(event["object"]["code"], 410, "a watch ends in {event}");
                self.watch.end = WatchEnd::Gone;
                return WatchStep::End;
            }
        };
        let received = ObservedEvent { at: client.recorder.now(), version: version(object).unwrap(), news };
        self.watch.received.push(received);
        WatchStep::Event(event["object"].clone())
    }

    /// Closes the watch and records its events; returns the revision that it reached, `None` after
    /// a 410.
    fn close(self, client: &RecordingClient) -> Option<Revision> {
        let gone = self.watch.end == WatchEnd::Gone;
        let received = &self.watch.received;
        let begun = received.iter().any(|received| received.news == WatchEventKind::InitialEnd);
        let from = match self.watch.from {
            WatchStart::Revision(from) => Some(received.last().map_or(from, |received| received.version)),
            // Until the initial objects are complete, the last version has no meaning.
            WatchStart::State => received.last().map(|received| received.version).filter(|_| begun),
        };
        client.recorder.with(|history| history.watches.push(self.watch));
        from.filter(|_| !gone)
    }
}

/// Observes every change of a resource, through changing servers.
pub struct ContinuousWatcher {
    client: RecordingClient,
    resource: &'static str,
    shared: TrafficState,
    position: Option<Revision>,
}

impl ContinuousWatcher {
    pub fn new(client: RecordingClient, resource: &'static str, shared: TrafficState) -> Self {
        Self { client, resource, shared, position: None }
    }

    /// Runs until it reaches the final revision, once that is known.
    pub async fn run(mut self, end: watch::Receiver<Option<[Revision; 2]>>) {
        let of_requests = self.resource == REQUESTS;
        let over = |position: Option<Revision>| {
            let end = end.borrow().map(|[maps, requests]| if of_requests { requests } else { maps });
            end.zip(position).is_some_and(|(end, position)| position >= end)
        };
        while !over(self.position) {
            if let Some(mut open) = self.open().await {
                while let WatchStep::Event(object) = open.next(&self.client, SILENCE).await {
                    let at = version(&object);
                    self.record_object(&object);
                    if over(at) {
                        break;
                    }
                }
                self.position = open.close(&self.client);
            } else {
                sleep(PAUSE).await;
            }
            self.client.switch_route(next_route(self.client.via));
        }
    }

    /// Opens a watch where the previous one ended, or after a list if that is unknown.
    async fn open(&mut self) -> Option<OpenWatch> {
        if self.position.is_none() {
            let listed = self.client.list(self.resource, ReadVersion::Newest).await;
            let OperationOutcome::Listed { version, .. } = listed else { return None };
            self.position = Some(version);
        }
        let from = WatchStart::Revision(self.position?);
        OpenWatch::start(&self.client, self.resource, from, true).await
    }

    fn record_object(&self, object: &Value) {
        self.shared.observe_revision(version(object).unwrap_or_default());
        if !object["status"]["certificate"].is_null() {
            self.shared.issued.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn next_route(via: RequestRoute) -> RequestRoute {
    match via {
        RequestRoute::Server(0) => RequestRoute::Server(1),
        RequestRoute::Server(_) => RequestRoute::Balancer,
        RequestRoute::Balancer => RequestRoute::Server(0),
    }
}

/// Watches briefly, from the current state or from some revision.
pub struct RandomWatcher {
    client: RecordingClient,
    shared: TrafficState,
}

impl RandomWatcher {
    pub fn new(client: RecordingClient, shared: TrafficState) -> Self {
        Self { client, shared }
    }

    pub async fn run(mut self) {
        while !self.shared.stopped() {
            sleep(PAUSE * 2).await;
            let newest = self.shared.newest();
            let from = match rand::random_range(0..4) {
                0 => WatchStart::State,
                // Watches can also start at a future revision.
                1 => WatchStart::Revision(newest + rand::random_range(1..5)),
                _ => WatchStart::Revision(newest.saturating_sub(rand::random_range(0..200)).max(1)),
            };
            if let Some(mut open) = OpenWatch::start(&self.client, CONFIG_MAPS, from, false).await {
                let upto = newest + 20;
                while let WatchStep::Event(object) = open.next(&self.client, SILENCE / 6).await {
                    if version(&object).is_some_and(|version| version >= upto) {
                        break;
                    }
                }
                open.close(&self.client);
            }
            self.client.switch_route(next_route(self.client.via));
        }
    }
}

/// Approves the requests that need manual approval.
pub struct CsrApprover {
    eyes: ContinuousWatcher,
    hands: RecordingClient,
    /// Pending requests by name, as last observed.
    waiting: BTreeMap<String, Value>,
}

impl CsrApprover {
    pub fn new(eyes: RecordingClient, hands: RecordingClient, shared: TrafficState) -> Self {
        let eyes = ContinuousWatcher::new(eyes, REQUESTS, shared);
        Self { eyes, hands, waiting: BTreeMap::new() }
    }

    pub async fn run(mut self) {
        loop {
            let Some(mut open) = self.open().await else {
                sleep(PAUSE).await;
                self.eyes.client.switch_route(next_route(self.eyes.client.via));
                continue;
            };
            loop {
                match open.next(&self.eyes.client, PAUSE * 4).await {
                    WatchStep::Event(object) => self.record_request(&object),
                    WatchStep::Silence => {}
                    WatchStep::End => break,
                }
                self.approve().await;
            }
            self.eyes.position = open.close(&self.eyes.client);
            self.eyes.client.switch_route(next_route(self.eyes.client.via));
        }
    }

    /// Not a resuming watch for the history: it is cancelled when everything is issued.
    async fn open(&mut self) -> Option<OpenWatch> {
        let from = match self.eyes.position {
            Some(position) => WatchStart::Revision(position),
            None => WatchStart::State,
        };
        OpenWatch::start(&self.eyes.client, REQUESTS, from, false).await
    }

    fn record_request(&mut self, object: &Value) {
        let Some(name) = object["metadata"]["name"].as_str() else { return };
        let key = format!("{REQUESTS}/{name}");
        let waits = content(REQUESTS, object) == request_content(false, None);
        if waits && key.starts_with(BY_HAND) {
            self.waiting.insert(key, object.clone());
        } else {
            self.waiting.remove(&key);
        }
    }

    async fn approve(&mut self) {
        for (key, mut object) in std::mem::take(&mut self.waiting) {
            let condition = json!({"type": "Approved", "status": "True", "reason": "Chaos"});
            object["status"]["conditions"] = json!([condition]);
            let expect = version(&object).unwrap();
            let content = request_content(true, None);
            let request = OperationRequest::Update { key: key.clone(), content, expect };
            let outcome = self.hands.request(request, &object).await;
            let again =
                matches!(outcome, OperationOutcome::Refused { .. } | OperationOutcome::Unknown { .. });
            if again {
                self.hands.switch_route(next_route(self.hands.via));
                self.waiting.insert(key, object);
            }
        }
    }
}
