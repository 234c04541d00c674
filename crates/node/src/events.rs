//! Events on the Node, so that `kubectl describe node` says what is the matter.
//!
//! They are a courtesy: the log and the status say the same. So there are few of them, and one that
//! cannot be written holds up nothing.

pub mod recorder;

use kube::Client;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::clock::Clock;
use crate::node_certificates::RotationNotice;
use crate::node_status::object::timestamp;
use crate::template::CertificatePurpose;

use recorder::{Event, EventRecorder, node_reference};

/// Writes what happens to one certificate on its node, until nothing can happen any more.
pub async fn record_notices(
    client: Client,
    node: String,
    purpose: CertificatePurpose,
    mut notices: Receiver<RotationNotice>,
    clock: Clock,
) {
    let mut recorder = EventRecorder::new(client, node, clock.clone());
    loop {
        let notice = match notices.recv().await {
            Ok(notice) => notice,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        recorder.record(|node| event_from_notice(node, purpose, &notice)).await;
    }
}

fn event_from_notice(node: &str, purpose: CertificatePurpose, notice: &RotationNotice) -> Event {
    let which = match purpose {
        CertificatePurpose::Client => "client certificate",
        CertificatePurpose::Serving => "serving certificate",
    };
    let (kind, reason, note) = match notice {
        RotationNotice::Stored { expires, .. } => {
            let time = timestamp(*expires).map(|time| time.to_string()).unwrap_or_default();
            ("Normal", "CertificateStored", format!("stored a new {which}, good until {time}"))
        }
        RotationNotice::Trouble(trouble) => {
            ("Warning", trouble.cause.reason(), format!("no new {which}: {}", trouble.message))
        }
    };
    Event { regarding: node_reference(node), kind, action: "KeepingCertificate", reason, note }
}

#[cfg(test)]
mod tests {
    use super::recorder::LONGEST;
    use super::*;
    use crate::node_certificates::{CertificateFailure, FailureCause};
    use crate::testing::START;

    #[test]
    fn an_event_says_what_happened_to_which_certificate() {
        let stored = RotationNotice::Stored { expires: START, age: None };
        let trouble = |message: String| {
            RotationNotice::Trouble(CertificateFailure {
                cause: FailureCause::RequestDenied,
                message,
            })
        };
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
            let event = event_from_notice("n1", CertificatePurpose::Client, &notice)
                .into_api_event("n1", START);
            assert_eq!(event.type_.as_deref(), Some(kind));
            assert_eq!(event.reason.as_deref(), Some(reason));
            assert_eq!(event.note, Some(note));
            assert_eq!(event.regarding.unwrap().uid.as_deref(), Some("n1"));
        }
        let long =
            event_from_notice("n1", CertificatePurpose::Serving, &trouble("ü".repeat(LONGEST)));
        assert!(long.into_api_event("n1", START).note.unwrap().len() <= LONGEST);
    }
}
