//! Events on objects that wait or fail, so that `kubectl describe` and the log say why.
//!
//! An event is a courtesy: the condition on the object says the same and stays. So there are a
//! few a second at most, whatever happens to however many objects, and one that cannot be written
//! holds up nothing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, Resource as _};
use time::OffsetDateTime;
use tokio::time::Instant;
use windlass_client_error::describe;

use crate::csr::Csr;

/// Where events of objects without a namespace are.
const NOWHERE: &str = "default";
const BURST: u32 = 25;
/// How long until there may be one more.
const EACH: Duration = Duration::from_millis(200);
/// How many bytes of text an event may have.
const LONGEST: usize = 1024;

/// Writes events, but not too many.
pub struct EventRecorder {
    client: Client,
    controller: &'static str,
    allowance: Mutex<EventBudget>,
}

struct EventBudget {
    left: u32,
    since: Instant,
}

/// Something to be said on a request.
pub struct WarningEvent<'a> {
    /// What was to be done.
    pub action: &'a str,
    /// Why it was not, in one word.
    pub reason: &'a str,
    /// Message for users; truncated to the limit of the API.
    pub note: &'a str,
}

impl EventRecorder {
    /// Events under the name of a controller, in the namespace of what they are about.
    pub fn new(client: Client, controller: &'static str) -> EventRecorder {
        let allowance = Mutex::new(EventBudget { left: BURST, since: Instant::now() });
        EventRecorder { client, controller, allowance }
    }

    /// Warns on a request and in the log.
    pub async fn warn(&self, request: &Csr, notice: WarningEvent<'_>, now: OffsetDateTime) {
        self.warn_about(request.object_ref(&()), notice, now).await;
    }

    /// Publishes a Warning event on any object, within the rate limit.
    pub async fn warn_about(
        &self,
        object: ObjectReference,
        notice: WarningEvent<'_>,
        now: OffsetDateTime,
    ) {
        let moment = Instant::now();
        if !self.allowance.lock().unwrap_or_else(PoisonError::into_inner).try_acquire(moment) {
            return;
        }
        let WarningEvent { action, reason, note } = notice;
        tracing::warn!(object = object.name, action, reason, "{note}");
        let event = build_event(self.controller, object, &notice, now);
        let namespace = event.metadata.namespace.as_deref().unwrap_or(NOWHERE);
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Err(error) = events.create(&PostParams::default(), &event).await {
            tracing::debug!(
                error = describe(&error),
                reason = notice.reason,
                "cannot write an event"
            );
        }
    }
}

/// A warning under the name of a controller, in the namespace of its object.
pub fn build_event(
    controller: &str,
    object: ObjectReference,
    notice: &WarningEvent<'_>,
    now: OffsetDateTime,
) -> Event {
    let mut end = LONGEST.min(notice.note.len());
    while !notice.note.is_char_boundary(end) {
        end -= 1;
    }
    Event {
        metadata: ObjectMeta {
            // Not the object's own name: kubelets choose some for requests that no event may have.
            generate_name: Some(format!("{controller}-")),
            namespace: object.namespace.clone().or_else(|| Some(NOWHERE.into())),
            ..ObjectMeta::default()
        },
        regarding: Some(object),
        type_: Some("Warning".into()),
        action: Some(notice.action.into()),
        reason: Some(notice.reason.into()),
        note: notice.note.get(..end).map(Into::into),
        event_time: Timestamp::from_second(now.unix_timestamp()).ok().map(MicroTime),
        reporting_controller: Some(format!("windlass.dev/{controller}")),
        reporting_instance: Some(controller.into()),
        ..Event::default()
    }
}

impl EventBudget {
    fn try_acquire(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_millis() / EACH.as_millis();
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
        let mut allowance = EventBudget { left: BURST, since: Instant::now() };
        let mut taken = |after: Duration| {
            let now = Instant::now() + after;
            (0..1000).filter(|_| allowance.try_acquire(now)).count()
        };
        assert_eq!(taken(Duration::ZERO), 25);
        assert_eq!(taken(EACH), 1);
        assert_eq!(taken(EACH * 4), 3);
        assert_eq!(taken(Duration::from_secs(3600)), 25);
    }

    #[test]
    fn an_event_fits_whatever_the_request_is_called_and_is_told() {
        let mut request = Csr::default();
        request.metadata.name = Some("node-csr-A_b".into());
        let note = "ü".repeat(LONGEST);
        let notice = WarningEvent { action: "Signing", reason: "Odd", note: &note };
        let event =
            build_event("csrsigning", request.object_ref(&()), &notice, OffsetDateTime::UNIX_EPOCH);
        assert_eq!(event.metadata.name, None);
        assert_eq!(event.note.unwrap().len(), LONGEST);
        assert_eq!(event.regarding.unwrap().name.as_deref(), Some("node-csr-A_b"));
        let odd = WarningEvent { note: &format!("x{note}"), ..notice };
        let event = super::build_event(
            "csrsigning",
            request.object_ref(&()),
            &odd,
            OffsetDateTime::UNIX_EPOCH,
        );
        assert_eq!(event.note.unwrap().len(), LONGEST - 1);
    }
}
