//! Events on the Node, so that `kubectl describe node` says what is the matter.
//!
//! They are a courtesy: the log and the status say the same. So there are few of them, and one that
//! cannot be written holds up nothing.

pub mod record;

use kube::Client;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::clock::Clock;
use crate::manager::Notice;
use crate::register::object::timestamp;
use crate::template::Purpose;

use record::{Happening, Recorder, about_node};

/// Writes what happens to one certificate on its node, until nothing can happen any more.
pub async fn tell(
    client: Client,
    node: String,
    purpose: Purpose,
    mut notices: Receiver<Notice>,
    clock: Clock,
) {
    let mut recorder = Recorder::new(client, node, clock.clone());
    loop {
        let notice = match notices.recv().await {
            Ok(notice) => notice,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        recorder.record(|node| happening(node, purpose, &notice)).await;
    }
}

fn happening(node: &str, purpose: Purpose, notice: &Notice) -> Happening {
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
    Happening { regarding: about_node(node), kind, action: "KeepingCertificate", reason, note }
}

#[cfg(test)]
mod tests {
    use super::record::LONGEST;
    use super::*;
    use crate::manager::{Cause, Trouble};
    use crate::testing::START;

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
            let event = happening("n1", Purpose::Client, &notice).event("n1", START);
            assert_eq!(event.type_.as_deref(), Some(kind));
            assert_eq!(event.reason.as_deref(), Some(reason));
            assert_eq!(event.note, Some(note));
            assert_eq!(event.regarding.unwrap().uid.as_deref(), Some("n1"));
        }
        let long = happening("n1", Purpose::Serving, &trouble("ü".repeat(LONGEST)));
        assert!(long.event("n1", START).note.unwrap().len() <= LONGEST);
    }
}
