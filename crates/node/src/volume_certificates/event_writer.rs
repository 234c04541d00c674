//! Telling pods, and the node for its own, what is the matter with their certificates.

use tokio::sync::mpsc;

use super::managed_certificate::{CertificateRequester, ManagedCertificate};
use super::state_machine::{RefusalKind, RenewalNotice, RequestRefusal};
use crate::clock::Clock;
use crate::events::recorder::{Event, EventRecorder, node_reference, pod_reference};

/// How many events wait to be written.
pub const WAITING: usize = 64;

/// Writes what it is told as events. Does not end while somebody may tell it something.
pub async fn write_events(
    client: kube::Client,
    node: String,
    clock: Clock,
    mut told: mpsc::Receiver<Event>,
) {
    let mut recorder = EventRecorder::new(client, node, clock);
    while let Some(happening) = told.recv().await {
        recorder.record(|_| happening).await;
    }
}

/// What is told of a notice.
pub fn event_from_notice(source: &ManagedCertificate, node: &str, notice: &RenewalNotice) -> Event {
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
    Event { regarding, kind: "Warning", action: "KeepingCertificate", reason, note }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume_certificates::testing::{host, pod};

    #[test]
    fn pods_are_told_in_words_and_hosts_which_projection() {
        let refused = |by| {
            RenewalNotice::Refused(RequestRefusal {
                by,
                message: "\"a/b\" was denied: No: 100 %s of it".into(),
            })
        };
        let table = [
            (refused(RefusalKind::Denied), "Denied", "\"a/b\" was denied: No: 100 %s of it"),
            (refused(RefusalKind::Failed), "Failed", "\"a/b\" was denied: No: 100 %s of it"),
            (
                RenewalNotice::Overdue,
                "CertificateOverdueForRefresh",
                "PodCertificate refresh overdue",
            ),
            (RenewalNotice::Expired, "CertificateExpired", "PodCertificate expired"),
        ];
        for (notice, reason, note) in table {
            let told = event_from_notice(&pod("web", 0), "n1", &notice);
            assert_eq!((told.kind, told.reason, told.note.as_str()), ("Warning", reason, note));
            assert_eq!(told.regarding, pod_reference("default", "web", "web-uid"));
            let told = event_from_notice(&host("edge"), "n1", &notice);
            assert_eq!((told.reason, told.note), (reason, format!("projection \"edge\": {note}")));
            assert_eq!(told.regarding, node_reference("n1"));
        }
    }
}
