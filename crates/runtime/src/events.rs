//! Recorder of Kubernetes events, so that `kubectl describe` shows why an object waits or failed.
//!
//! An event is a courtesy: the condition of the object says the same and stays. So the rate is limited whatever happens
//! to however many objects, repeats of an event become a series of one object, and a failed write delays nothing.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use time::OffsetDateTime;
use tokio::time::{Instant, timeout};

use crate::client_error::describe;
use crate::rate_limit::{RateLimit, TokenBucket};

pub use kube::runtime::events::EventType;

/// Namespace of events on objects without a namespace.
const CLUSTER_NAMESPACE: &str = "default";
/// Longest note that the API accepts, in bytes.
pub const MAX_NOTE_BYTES: usize = 1024;
/// Time after which a write has failed.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Events that are repeated within this time are counted in a series. API servers delete events after an hour.
const REPEAT_WINDOW: Duration = Duration::from_secs(60 * 60);
/// Largest number of events that are remembered for repeats. Events beyond it are written as new ones.
const REMEMBERED_EVENTS: usize = 1000;

/// Rate limit of controllers: a burst of 25, then five per second.
pub const CONTROLLER_EVENT_LIMIT: RateLimit = RateLimit { burst: 25, refill: Duration::from_millis(200) };
/// Rate limit of node agents, of which there are many: a burst of ten, then one per minute.
pub const AGENT_EVENT_LIMIT: RateLimit = RateLimit { burst: 10, refill: Duration::from_secs(60) };

/// Content of an event. Action and reason are machine-readable UpperCamelCase.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// Severity, which `kubectl get events` shows in the column `TYPE`.
    pub event_type: EventType,
    /// What was attempted, such as `Signing`.
    pub action: String,
    /// Why the event is recorded, such as `UnsupportedKey`.
    pub reason: String,
    /// Text for people; cut off after [`MAX_NOTE_BYTES`].
    pub note: String,
    /// Name of the event object, for events that must exist once whichever process writes them. `None` lets the server choose.
    pub name: Option<String>,
}

/// Component in whose name events are reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventReporter {
    /// Value of `reportingController`, such as `windlass.dev/csrsigning`.
    pub controller: String,
    /// Value of `reportingInstance`, such as the node name.
    pub instance: String,
    /// Prefix of generated event names. Not the name of the object: kubelets choose names for requests that no event may have.
    pub name_prefix: String,
}

/// Result of recording an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// A new event was created.
    Created,
    /// The count of an earlier event was increased.
    Repeated,
    /// An event with the given name exists already.
    Exists,
    /// Nothing was written, because the rate limit is exhausted.
    RateLimited,
}

/// Reason for which an event was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The server rejected the event or could not be reached.
    #[error("{}", describe(.0))]
    Api(#[from] kube::Error),
    /// The server did not respond in time.
    #[error("timed out after {WRITE_TIMEOUT:?}")]
    TimedOut,
}

/// Writes events to the API, within a rate limit.
pub struct EventRecorder {
    client: Client,
    reporter: EventReporter,
    started: Instant,
    limit: Mutex<TokenBucket>,
    recorded: Mutex<HashMap<EventKey, RecordedEvent>>,
}

/// Everything that makes two events repeats of each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventKey {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    is_warning: bool,
    action: String,
    reason: String,
    note: String,
}

#[derive(Clone, Debug)]
struct RecordedEvent {
    name: String,
    count: i32,
    last: Instant,
}

impl NewEvent {
    /// Creates a warning whose event object gets a generated name.
    pub fn warning(action: impl Into<String>, reason: impl Into<String>, note: impl Into<String>) -> Self {
        let (action, reason, note) = (action.into(), reason.into(), note.into());
        Self { event_type: EventType::Warning, action, reason, note, name: None }
    }

    /// Creates an event of type Normal.
    pub fn normal(action: impl Into<String>, reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { event_type: EventType::Normal, ..Self::warning(action, reason, note) }
    }

    /// Sets the name of the event object.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Builds the object that is written, in the namespace of what it regards.
    pub fn build(&self, reporter: &EventReporter, regarding: ObjectReference, now: OffsetDateTime) -> Event {
        let namespace = event_namespace(&regarding).to_owned();
        let prefix = || reporter.name_prefix.clone();
        Event {
            metadata: ObjectMeta {
                name: self.name.clone(),
                generate_name: self.name.is_none().then(prefix),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            regarding: Some(regarding),
            type_: Some(if self.is_warning() { "Warning" } else { "Normal" }.to_owned()),
            action: Some(self.action.clone()),
            reason: Some(self.reason.clone()),
            note: Some(truncate_note(&self.note).to_owned()),
            event_time: micro_time(now),
            reporting_controller: Some(reporter.controller.clone()),
            reporting_instance: Some(reporter.instance.clone()),
            ..Event::default()
        }
    }

    fn is_warning(&self) -> bool {
        matches!(self.event_type, EventType::Warning)
    }
}

impl EventReporter {
    /// Reporter of a controller: `windlass.dev/<name>`.
    pub fn controller(name: &str) -> Self {
        Self {
            controller: format!("windlass.dev/{name}"),
            instance: name.to_owned(),
            name_prefix: format!("{name}-"),
        }
    }

    /// Reporter of the agent on a node.
    pub fn node(node_name: &str) -> Self {
        Self {
            controller: "windlass.dev/node".to_owned(),
            instance: node_name.to_owned(),
            name_prefix: "windlass-node-".to_owned(),
        }
    }
}

impl EventRecorder {
    /// Creates a recorder with a full rate limit.
    pub fn new(client: Client, reporter: EventReporter, limit: RateLimit) -> Self {
        let (started, limit) = (Instant::now(), Mutex::new(TokenBucket::new(limit)));
        Self { client, reporter, started, limit, recorded: Mutex::default() }
    }

    /// Component in whose name events are recorded.
    pub fn reporter(&self) -> &EventReporter {
        &self.reporter
    }

    /// Records an event. Failures are logged at debug level only.
    pub async fn record(&self, regarding: ObjectReference, event: NewEvent, now: OffsetDateTime) {
        let reason = event.reason.clone();
        if let Err(error) = self.try_record(regarding, event, now).await {
            tracing::debug!(error = %error, reason, "cannot record event");
        }
    }

    /// Records a warning and logs it. The rate limit applies to both.
    pub async fn warn(&self, regarding: ObjectReference, event: NewEvent, now: OffsetDateTime) {
        if !self.take_token() {
            return;
        }
        let NewEvent { action, reason, note, .. } = &event;
        let (kind, object) = (regarding.kind.as_deref(), regarding.name.as_deref());
        tracing::warn!(kind, object, action, reason, "{note}");
        if let Err(error) = self.write(regarding, &event, now).await {
            tracing::debug!(error = %error, reason, "cannot record event");
        }
    }

    /// Records an event and returns what became of it, for callers that retry.
    pub async fn try_record(
        &self,
        regarding: ObjectReference,
        event: NewEvent,
        now: OffsetDateTime,
    ) -> Result<RecordOutcome, RecordError> {
        if !self.take_token() {
            return Ok(RecordOutcome::RateLimited);
        }
        self.write(regarding, &event, now).await
    }

    /// Forgets earlier events on an object that is gone, so that they are not remembered for repeats.
    pub fn forget(&self, uid: &str) {
        self.recorded().retain(|key, _| key.uid.as_deref() != Some(uid));
    }

    async fn write(
        &self,
        regarding: ObjectReference,
        event: &NewEvent,
        now: OffsetDateTime,
    ) -> Result<RecordOutcome, RecordError> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), event_namespace(&regarding));
        let key = EventKey::new(&regarding, event);
        if self.repeat(&events, &key, now).await? {
            return Ok(RecordOutcome::Repeated);
        }
        let object = event.build(&self.reporter, regarding, now);
        match within_timeout(events.create(&PostParams::default(), &object)).await {
            Ok(created) => {
                self.remember(key, created.metadata.name);
                Ok(RecordOutcome::Created)
            }
            Err(RecordError::Api(kube::Error::Api(status)))
                if event.name.is_some() && status.is_already_exists() =>
            {
                Ok(RecordOutcome::Exists)
            }
            Err(error) => Err(error),
        }
    }

    /// Increases the count of the same event, if it was recorded not long ago and is still there.
    async fn repeat(
        &self,
        events: &Api<Event>,
        key: &EventKey,
        now: OffsetDateTime,
    ) -> Result<bool, RecordError> {
        let Some(earlier) = self.recorded().get(key).cloned() else { return Ok(false) };
        if earlier.last.elapsed() >= REPEAT_WINDOW {
            return Ok(false);
        }
        let count = earlier.count.saturating_add(1);
        let series = json!({"series": {"count": count, "lastObservedTime": micro_time(now)}});
        let patch = Patch::Merge(series);
        match within_timeout(events.patch(&earlier.name, &PatchParams::default(), &patch)).await {
            Ok(_) => {
                let recorded = RecordedEvent { count, last: Instant::now(), ..earlier };
                self.recorded().insert(key.clone(), recorded);
                Ok(true)
            }
            // The server has deleted it: write a new one.
            Err(RecordError::Api(kube::Error::Api(status))) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remember(&self, key: EventKey, name: Option<String>) {
        let Some(name) = name else { return };
        let mut recorded = self.recorded();
        if recorded.len() >= REMEMBERED_EVENTS {
            recorded.retain(|_, event| event.last.elapsed() < REPEAT_WINDOW);
        }
        if recorded.len() < REMEMBERED_EVENTS {
            recorded.insert(key, RecordedEvent { name, count: 1, last: Instant::now() });
        }
    }

    fn take_token(&self) -> bool {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        limit.take(self.started.elapsed()).is_ok()
    }

    fn recorded(&self) -> std::sync::MutexGuard<'_, HashMap<EventKey, RecordedEvent>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventKey {
    fn new(regarding: &ObjectReference, event: &NewEvent) -> Self {
        Self {
            kind: regarding.kind.clone(),
            namespace: regarding.namespace.clone(),
            name: regarding.name.clone(),
            uid: regarding.uid.clone(),
            is_warning: event.is_warning(),
            action: event.action.clone(),
            reason: event.reason.clone(),
            note: event.note.clone(),
        }
    }
}

/// References a Node as kubelet does: with its name as the UID, which `kubectl describe node` looks for.
pub fn node_reference(node_name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(node_name.to_owned()),
        uid: Some(node_name.to_owned()),
        ..ObjectReference::default()
    }
}

/// References a pod by namespace, name and UID.
pub fn pod_reference(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Cuts a text off at the longest note that the API accepts, between two characters. Conditions have the same limit.
pub fn truncate_note(note: &str) -> &str {
    let mut end = MAX_NOTE_BYTES.min(note.len());
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.get(..end).unwrap_or_default()
}

fn event_namespace(regarding: &ObjectReference) -> &str {
    regarding.namespace.as_deref().unwrap_or(CLUSTER_NAMESPACE)
}

fn micro_time(now: OffsetDateTime) -> Option<MicroTime> {
    let nanoseconds = now.unix_timestamp_nanos();
    Timestamp::from_microsecond(i64::try_from(nanoseconds / 1000).ok()?).ok().map(MicroTime)
}

async fn within_timeout<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, RecordError> {
    match timeout(WRITE_TIMEOUT, call).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(RecordError::TimedOut),
    }
}
