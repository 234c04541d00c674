//! Events on the Node, so that `kubectl describe node` says what is the matter.
//!
//! They are a courtesy: the log and the status say the same. So there are few of them, and one that
//! cannot be written holds up nothing.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use time::OffsetDateTime;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout};

use crate::clock::Clock;
use crate::manager::Notice;
use crate::register::object::timestamp;
use crate::request::PATIENCE;
use crate::template::Purpose;

/// Where events of objects without a namespace are.
const NOWHERE: &str = "default";
const REPORTER: &str = "windlass.dev/node";
/// Events at once.
const BURST: u32 = 10;
/// How long until there may be one more.
const EACH: Duration = Duration::from_secs(60);
/// How many bytes of text an event may have.
const LONGEST: usize = 1024;

/// Writes what happens to one certificate on its node, until nothing can happen any more.
pub async fn tell(
    client: Client,
    node: String,
    purpose: Purpose,
    mut notices: Receiver<Notice>,
    clock: Clock,
) {
    let events: Api<Event> = Api::namespaced(client, NOWHERE);
    let mut allowance = Allowance::new(Instant::now());
    loop {
        let notice = match notices.recv().await {
            Ok(notice) => notice,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        if !allowance.take(Instant::now()) {
            continue;
        }
        let event = event(&node, purpose, &notice, (clock)().wall);
        let params = PostParams::default();
        match timeout(PATIENCE, events.create(&params, &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "cannot write an event"),
            Err(_) => tracing::debug!("cannot write an event: no answer"),
        }
    }
}

fn event(node: &str, purpose: Purpose, notice: &Notice, now: OffsetDateTime) -> Event {
    let which = match purpose {
        Purpose::Client => "client certificate",
        Purpose::Serving => "serving certificate",
    };
    let (kind, reason, note) = match notice {
        Notice::Stored { expires, .. } => {
            let time = timestamp(*expires).map(|time| time.to_string()).unwrap_or_default();
            ("Normal", "CertificateStored", format!("stored a new {which}, good until {time}"))
        }
        Notice::Trouble(trouble) => {
            ("Warning", trouble.cause.reason(), format!("no new {which}: {}", trouble.message))
        }
    };
    Event {
        metadata: ObjectMeta {
            generate_name: Some("windlass-node-".into()),
            namespace: Some(NOWHERE.into()),
            ..ObjectMeta::default()
        },
        regarding: Some(ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Node".into()),
            name: Some(node.to_owned()),
            // As kubelet does it: kubectl looks for the name here.
            uid: Some(node.to_owned()),
            ..ObjectReference::default()
        }),
        type_: Some(kind.into()),
        action: Some("KeepingCertificate".into()),
        reason: Some(reason.into()),
        note: Some(cut(note)),
        event_time: timestamp(now).map(MicroTime),
        reporting_controller: Some(REPORTER.into()),
        reporting_instance: Some(node.to_owned()),
        ..Event::default()
    }
}

fn cut(mut note: String) -> String {
    let mut end = LONGEST.min(note.len());
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.truncate(end);
    note
}

struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    fn take(&mut self, now: Instant) -> bool {
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
    use crate::manager::{Cause, Trouble};
    use crate::testing::START;

    #[tokio::test(start_paused = true)]
    async fn a_few_at_once_and_then_slowly() {
        let mut allowance = Allowance::new(Instant::now());
        let mut taken = |after: Duration| {
            let now = Instant::now() + after;
            (0..100).filter(|_| allowance.take(now)).count()
        };
        assert_eq!(taken(Duration::ZERO), 10);
        assert_eq!(taken(EACH), 1);
        assert_eq!(taken(EACH * 3), 2);
        assert_eq!(taken(EACH * 1000), 10);
    }

    #[test]
    fn an_event_says_what_happened_to_which_certificate() {
        let stored = Notice::Stored { expires: START, age: None };
        let trouble =
            |message: String| Notice::Trouble(Trouble { cause: Cause::RequestDenied, message });
        let table = [
            (
                stored,
                "Normal",
                "CertificateStored",
                "stored a new client certificate, good until 2026-03-01T12:00:00Z".to_owned(),
            ),
            (
                trouble("x was denied".into()),
                "Warning",
                "RequestDenied",
                "no new client certificate: x was denied".to_owned(),
            ),
        ];
        for (notice, kind, reason, note) in table {
            let event = event("n1", Purpose::Client, &notice, START);
            assert_eq!(event.type_.as_deref(), Some(kind));
            assert_eq!(event.reason.as_deref(), Some(reason));
            assert_eq!(event.note, Some(note));
            assert_eq!(event.regarding.unwrap().uid.as_deref(), Some("n1"));
        }
        let long = event("n1", Purpose::Serving, &trouble("ü".repeat(LONGEST)), START);
        assert!(long.note.unwrap().len() <= LONGEST);
    }
}
