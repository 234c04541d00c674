//! Events about certificates of volumes, on their pods, or on the Node for host projections.

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::mpsc;

use super::managed_certificate::{CertificateRequester, ManagedCertificate};
use super::state_machine::{RefusalKind, RenewalNotice, RequestRefusal};
use crate::clock::Clock;
use crate::events::RENEWING;
use windlass_runtime::events::{
    AGENT_EVENT_LIMIT, EventRecorder, EventReporter, NewEvent, node_reference, pod_reference,
};

/// Number of events that may wait to be written; further ones are dropped.
pub const WAITING: usize = 64;

/// An event and the object that it is about.
pub type QueuedEvent = (ObjectReference, NewEvent);

/// Writes events until all senders are gone.
pub async fn write_events(
    client: kube::Client,
    node: String,
    clock: Clock,
    mut events: mpsc::Receiver<QueuedEvent>,
) {
    let recorder = EventRecorder::new(client, EventReporter::node(&node), AGENT_EVENT_LIMIT);
    while let Some((regarding, event)) = events.recv().await {
        recorder.record(regarding, event, clock().wall).await;
    }
}

/// The event that reports a notice, on the pod or, for host projections, on the Node.
pub fn event_from_notice(source: &ManagedCertificate, node: &str, notice: &RenewalNotice) -> QueuedEvent {
    let (reason, note) = match notice {
        RenewalNotice::Refused(RequestRefusal { by: RefusalKind::Denied, message }) => {
            ("Denied", message.clone())
        }
        RenewalNotice::Refused(RequestRefusal { by: RefusalKind::Failed, message }) => {
            ("Failed", message.clone())
        }
        RenewalNotice::Overdue => {
            ("CertificateOverdueForRefresh", "PodCertificate refresh overdue".to_owned())
        }
        RenewalNotice::Expired => ("CertificateExpired", "PodCertificate expired".to_owned()),
    };
    let (regarding, note) = match source.requester() {
        CertificateRequester::Pod(pod) => (pod_reference(pod.namespace, pod.name, pod.uid), note),
        CertificateRequester::Host => {
            (node_reference(node), format!("projection {:?}: {note}", source.id.volume.name))
        }
    };
    (regarding, NewEvent::warning(RENEWING, reason, note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume_certificates::testing::{host, pod};

    #[test]
    fn events_of_pods_and_hosts_have_their_messages() {
        let refused = |by| {
            RenewalNotice::Refused(RequestRefusal {
                by,
                message: "\"a/b\" was denied: No: 100 %s of it".into(),
            })
        };
        let table = [
            (refused(RefusalKind::Denied), "Denied", "\"a/b\" was denied: No: 100 %s of it"),
            (refused(RefusalKind::Failed), "Failed", "\"a/b\" was denied: No: 100 %s of it"),
            (RenewalNotice::Overdue, "CertificateOverdueForRefresh", "PodCertificate refresh overdue"),
            (RenewalNotice::Expired, "CertificateExpired", "PodCertificate expired"),
        ];
        for (notice, reason, note) in table {
            let (regarding, event) = event_from_notice(&pod("web", 0), "n1", &notice);
            assert_eq!(event, NewEvent::warning(RENEWING, reason, note));
            assert_eq!(regarding, pod_reference("default", "web", "web-uid"));
            let (regarding, event) = event_from_notice(&host("edge"), "n1", &notice);
            let note = format!("projection \"edge\": {note}");
            assert_eq!(event, NewEvent::warning(RENEWING, reason, note));
            assert_eq!(regarding, node_reference("n1"));
        }
    }
}
