//! Events on the Node, shown by `kubectl describe node`.
//!
//! They are best effort: the log and the status contain the same. So there are few of them, and a
//! failed write blocks nothing.

use kube::Client;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use windlass_runtime::events::{AGENT_EVENT_LIMIT, EventRecorder, EventReporter, NewEvent, node_reference};

use crate::clock::Clock;
use crate::node_certificates::RotationNotice;
use crate::node_status::object::timestamp;
use crate::template::CertificatePurpose;

/// Action of events about certificates.
pub(crate) const RENEWING: &str = "RenewingCertificate";

/// Records the notices of one certificate as events on its Node, until the manager is gone.
pub async fn record_notices(
    client: Client,
    node: String,
    purpose: CertificatePurpose,
    mut notices: Receiver<RotationNotice>,
    clock: Clock,
) {
    let reporter = EventReporter::node(&node);
    let recorder = EventRecorder::new(client, reporter, AGENT_EVENT_LIMIT);
    loop {
        let notice = match notices.recv().await {
            Ok(notice) => notice,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        let event = event_from_notice(purpose, &notice);
        recorder.record(node_reference(&node), event, clock().wall).await;
    }
}

fn event_from_notice(purpose: CertificatePurpose, notice: &RotationNotice) -> NewEvent {
    let which = match purpose {
        CertificatePurpose::Client => "client certificate",
        CertificatePurpose::Serving => "serving certificate",
    };
    match notice {
        RotationNotice::Stored { expires, .. } => {
            let time = timestamp(*expires).map(|time| time.to_string()).unwrap_or_default();
            let note = format!("stored a new {which}, valid until {time}");
            NewEvent::normal(RENEWING, "CertificateStored", note)
        }
        RotationNotice::Replaced { serial } => {
            let note = format!(
                "the server rejected the {which} with serial number {serial}, which may be revoked; \
                 replaced it with the bootstrap credential"
            );
            NewEvent::warning(RENEWING, "CertificateReplaced", note)
        }
        RotationNotice::Failed(failure) => {
            let note = format!("cannot renew the {which}: {}", failure.message);
            NewEvent::warning(RENEWING, failure.cause.reason(), note)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_certificates::{CertificateFailure, FailureCause};
    use crate::testing::START;

    #[test]
    fn an_event_says_what_happened_to_which_certificate() {
        let stored = RotationNotice::Stored { expires: START, age: None };
        let trouble = |message: String| {
            RotationNotice::Failed(CertificateFailure { cause: FailureCause::RequestDenied, message })
        };
        let table = [
            (
                stored,
                "Normal",
                "CertificateStored",
                "stored a new client certificate, valid until 2026-03-01T12:00:00Z".to_owned(),
            ),
            (
                RotationNotice::Replaced { serial: "0a1b".into() },
                "Warning",
                "CertificateReplaced",
                "the server rejected the client certificate with serial number 0a1b, which may be revoked; \
                 replaced it with the bootstrap credential"
                    .to_owned(),
            ),
            (
                trouble("x was denied".into()),
                "Warning",
                "RequestDenied",
                "cannot renew the client certificate: x was denied".to_owned(),
            ),
        ];
        for (notice, kind, reason, note) in table {
            let event = event_from_notice(CertificatePurpose::Client, &notice);
            let event = event.build(&EventReporter::node("n1"), node_reference("n1"), START);
            assert_eq!(event.type_.as_deref(), Some(kind));
            assert_eq!(event.reason.as_deref(), Some(reason));
            assert_eq!(event.note, Some(note));
            assert_eq!(event.regarding.unwrap().uid.as_deref(), Some("n1"));
        }
    }
}
