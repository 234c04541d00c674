//! Telling pods, and the node for its own, what is the matter with their certificates.

use tokio::sync::mpsc;

use super::machine::{Notice, Refusal, Refuser};
use super::source::{Asker, Source};
use crate::clock::Clock;
use crate::events::record::{Happening, Recorder, about_node, about_pod};

/// How many events wait to be written.
pub const WAITING: usize = 64;

/// Writes what it is told as events. Does not end while somebody may tell it something.
pub async fn tell(
    client: kube::Client,
    node: String,
    clock: Clock,
    mut told: mpsc::Receiver<Happening>,
) {
    let mut recorder = Recorder::new(client, node, clock);
    while let Some(happening) = told.recv().await {
        recorder.record(|_| happening).await;
    }
}

/// What is told of a notice.
pub fn happening(source: &Source, node: &str, notice: &Notice) -> Happening {
    let (reason, note) = match notice {
        Notice::Refused(Refusal { by: Refuser::Denied, message }) => ("Denied", message.clone()),
        Notice::Refused(Refusal { by: Refuser::Failed, message }) => ("Failed", message.clone()),
        Notice::Overdue => {
            ("CertificateOverdueForRefresh", "PodCertificate refresh overdue".to_owned())
        }
        Notice::Expired => ("CertificateExpired", "PodCertificate expired".to_owned()),
    };
    let (regarding, note) = match source.asker() {
        Asker::Pod(pod) => (about_pod(pod.namespace, pod.name, pod.uid), note),
        Asker::Host => {
            (about_node(node), format!("projection {:?}: {note}", source.id.volume.name))
        }
    };
    Happening { regarding, kind: "Warning", action: "KeepingCertificate", reason, note }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::testing::{host, pod};

    #[test]
    fn pods_are_told_in_words_and_hosts_which_projection() {
        let refused = |by| {
            Notice::Refused(Refusal { by, message: "\"a/b\" was denied: No: 100 %s of it".into() })
        };
        let table = [
            (refused(Refuser::Denied), "Denied", "\"a/b\" was denied: No: 100 %s of it"),
            (refused(Refuser::Failed), "Failed", "\"a/b\" was denied: No: 100 %s of it"),
            (Notice::Overdue, "CertificateOverdueForRefresh", "PodCertificate refresh overdue"),
            (Notice::Expired, "CertificateExpired", "PodCertificate expired"),
        ];
        for (notice, reason, note) in table {
            let told = happening(&pod("web", 0), "n1", &notice);
            assert_eq!((told.kind, told.reason, told.note.as_str()), ("Warning", reason, note));
            assert_eq!(told.regarding, about_pod("default", "web", "web-uid"));
            let told = happening(&host("edge"), "n1", &notice);
            assert_eq!((told.reason, told.note), (reason, format!("projection \"edge\": {note}")));
            assert_eq!(told.regarding, about_node("n1"));
        }
    }
}
