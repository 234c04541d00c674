//! Writing events, of which there are few: each writer has an allowance.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as ApiEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use time::OffsetDateTime;
use tokio::time::{Instant, timeout};
use windlass_client_error::describe;

use crate::clock::Clock;
use crate::csr::PATIENCE;
use crate::node_status::object::timestamp;

/// Where events of objects without a namespace are.
const NOWHERE: &str = "default";
const REPORTER: &str = "windlass.dev/node";
/// Number of events that may be written at once, before rate limiting.
const BURST: u32 = 10;
/// How long until there may be one more.
const EACH: Duration = Duration::from_secs(60);
/// How many bytes of text an event may have.
pub const LONGEST: usize = 1024;

/// What has happened, and to what.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The object that the event is about.
    pub regarding: ObjectReference,
    /// Event type: `Normal` or `Warning`, as in the Kubernetes API.
    pub kind: &'static str,
    /// The operation during which it happened, in UpperCamelCase.
    pub action: &'static str,
    /// Machine-readable reason in UpperCamelCase, for programs.
    pub reason: &'static str,
    /// Human-readable message; truncated to `LONGEST` bytes when written.
    pub note: String,
}

/// Writes events, as long as there are not too many.
pub struct EventRecorder {
    client: Client,
    node: String,
    clock: Clock,
    allowance: EventRateLimiter,
}

/// The node, as events name it.
pub fn node_reference(node: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(node.to_owned()),
        // As kubelet does it: kubectl looks for the name here.
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    }
}

/// A pod, as events name it.
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

impl EventRecorder {
    /// Creates a recorder that reports as the agent of `node`, with a full allowance.
    pub fn new(client: Client, node: String, clock: Clock) -> Self {
        Self { client, node, clock, allowance: EventRateLimiter::new(Instant::now()) }
    }

    /// Writes that something has happened, which is given the node's name, unless there was too much
    /// of it.
    pub async fn record(&mut self, happened: impl FnOnce(&str) -> Event) {
        if !self.allowance.try_acquire(Instant::now()) {
            return;
        }
        let event = happened(&self.node).into_api_event(&self.node, (self.clock)().wall);
        let namespace = event.metadata.namespace.as_deref().unwrap_or(NOWHERE);
        let events: Api<ApiEvent> = Api::namespaced(self.client.clone(), namespace);
        match timeout(PATIENCE, events.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(error = describe(&error), "cannot write an event"),
            Err(_) => tracing::debug!("cannot write an event: no answer"),
        }
    }
}

impl Event {
    /// The event that tells of it.
    pub(super) fn into_api_event(self, node: &str, now: OffsetDateTime) -> ApiEvent {
        let namespace = self.regarding.namespace.clone().unwrap_or_else(|| NOWHERE.to_owned());
        ApiEvent {
            metadata: ObjectMeta {
                generate_name: Some("windlass-node-".into()),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            regarding: Some(self.regarding),
            type_: Some(self.kind.into()),
            action: Some(self.action.into()),
            reason: Some(self.reason.into()),
            note: Some(truncate_note(self.note)),
            event_time: timestamp(now).map(MicroTime),
            reporting_controller: Some(REPORTER.into()),
            reporting_instance: Some(node.to_owned()),
            ..ApiEvent::default()
        }
    }
}

fn truncate_note(mut note: String) -> String {
    let mut end = LONGEST.min(note.len());
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.truncate(end);
    note
}

struct EventRateLimiter {
    left: u32,
    since: Instant,
}

impl EventRateLimiter {
    fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    fn try_acquire(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_secs() / EACH.as_secs();
        if let Some(earned) = u32::try_from(passed).ok().filter(|earned| *earned > 0) {
            self.left = self.left.saturating_add(earned).min(BURST);
            self.since = now;
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_at_once_and_then_slowly() {
        let mut allowance = EventRateLimiter::new(Instant::now());
        let mut taken = |after: Duration| {
            let now = Instant::now() + after;
            (0..100).filter(|_| allowance.try_acquire(now)).count()
        };
        assert_eq!(taken(Duration::ZERO), 10);
        assert_eq!(taken(EACH), 1);
        assert_eq!(taken(EACH * 3), 2);
        assert_eq!(taken(EACH * 1000), 10);
    }
}
