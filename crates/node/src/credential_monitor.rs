//! Detects that the server no longer accepts the node's client certificate, for example because it is revoked.
//!
//! Every response to the node is evidence. A single 401 proves nothing: a server that was restored from a backup or
//! has not loaded its CA yet rejects valid certificates for a moment. So the certificate counts as rejected only after
//! several responses over some seconds, none of which accepted it. Once in doubt, the monitor sends requests itself,
//! because watches wait longer and longer before they retry.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::{Api, Client};
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::clock::{Clock, ClockReading};
use crate::key_pair::CertificateKeyPair;

/// Number of consecutive rejections that prove that the certificate is not accepted.
const ENOUGH_REJECTIONS: u32 = 3;
/// Time between the first and the last of these rejections.
const ENOUGH_TIME: Duration = Duration::from_secs(10);
/// Interval of probes while it is not certain whether the certificate is accepted.
const PROBE_INTERVAL: Duration = Duration::from_secs(3);
/// Interval of probes of a rejected certificate, which the server may accept again.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(30);
/// Time limit of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client certificate that the server does not accept.
#[derive(Clone, Debug)]
pub struct CertificateRejection {
    /// The rejected certificate. A later certificate is not concerned.
    pub identity: Arc<CertificateKeyPair>,
    /// Wall-clock time of the first rejection.
    pub since: OffsetDateTime,
}

/// Whether the current certificate is rejected; `None` while there is no proof of it.
pub type RejectionReceiver = watch::Receiver<Option<CertificateRejection>>;

/// Collects the responses to requests with the node's certificate.
pub struct CredentialMonitor {
    clock: Clock,
    evidence: Mutex<RejectionEvidence>,
    doubt: watch::Sender<CredentialDoubt>,
    rejection: watch::Sender<Option<CertificateRejection>>,
}

impl CredentialMonitor {
    /// Creates a monitor without evidence.
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            evidence: Mutex::default(),
            doubt: watch::Sender::new(CredentialDoubt::None),
            rejection: watch::Sender::new(None),
        })
    }

    /// Subscribes to the proof that the current certificate is rejected.
    pub fn rejections(&self) -> RejectionReceiver {
        self.rejection.subscribe()
    }

    /// Records the status of a response to a request with this certificate, which must be the current one.
    pub fn observe(&self, identity: &Arc<CertificateKeyPair>, status: StatusCode) {
        let Some(is_accepted) = is_accepted(status) else { return };
        let mut evidence = self.evidence.lock().unwrap_or_else(PoisonError::into_inner);
        evidence.record(identity, is_accepted, (self.clock)());
        let doubt = evidence.doubt();
        self.doubt.send_if_modified(|before| std::mem::replace(before, doubt) != doubt);
        let rejection = evidence.proof();
        self.rejection.send_if_modified(|before| {
            let identity =
                |one: &Option<CertificateRejection>| one.as_ref().map(|one| Arc::as_ptr(&one.identity));
            let is_changed = identity(before) != identity(&rejection);
            *before = rejection;
            is_changed
        });
    }

    /// Sends requests as the node while it is in doubt whether its certificate is accepted. The responses come
    /// through [`Self::observe`]. Never returns.
    pub async fn probe(self: Arc<Self>, client: Client) -> std::convert::Infallible {
        let reviews: Api<SelfSubjectReview> = Api::all(client);
        let mut doubt = self.doubt.subscribe();
        loop {
            let interval = match *doubt.borrow_and_update() {
                CredentialDoubt::None => None,
                CredentialDoubt::Suspected => Some(PROBE_INTERVAL),
                CredentialDoubt::Proven => Some(RECOVERY_INTERVAL),
            };
            let Some(interval) = interval else {
                // The sender is a field of this monitor, so that this cannot fail.
                let _ = doubt.changed().await;
                continue;
            };
            tokio::select! {
                _ = doubt.changed() => continue,
                () = tokio::time::sleep(interval) => {}
            }
            let (params, review) = (PostParams::default(), SelfSubjectReview::default());
            let _ = tokio::time::timeout(PROBE_TIMEOUT, reviews.create(&params, &review)).await;
        }
    }
}

/// How certain it is that the certificate is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CredentialDoubt {
    None,
    Suspected,
    Proven,
}

/// Returns whether a response means that the certificate was accepted; `None` if it says nothing about it.
fn is_accepted(status: StatusCode) -> Option<bool> {
    match status {
        StatusCode::UNAUTHORIZED => Some(false),
        // An overloaded or failing server may respond before authentication, and so may a proxy.
        StatusCode::TOO_MANY_REQUESTS => None,
        status if status.is_server_error() || status.is_redirection() => None,
        _ => Some(true),
    }
}

/// Consecutive rejections of one certificate.
#[derive(Default)]
struct RejectionEvidence(Option<RejectionSeries>);

struct RejectionSeries {
    identity: Arc<CertificateKeyPair>,
    first: ClockReading,
    last: ClockReading,
    count: u32,
}

impl RejectionEvidence {
    fn record(&mut self, identity: &Arc<CertificateKeyPair>, is_accepted: bool, now: ClockReading) {
        let series = self.0.take().filter(|series| Arc::ptr_eq(&series.identity, identity));
        if is_accepted {
            return;
        }
        let (first, count) = series.map_or((now, 0), |series| (series.first, series.count));
        let count = count.saturating_add(1);
        self.0 = Some(RejectionSeries { identity: identity.clone(), first, last: now, count });
    }

    fn doubt(&self) -> CredentialDoubt {
        match (&self.0, self.proof()) {
            (None, _) => CredentialDoubt::None,
            (Some(_), None) => CredentialDoubt::Suspected,
            (Some(_), Some(_)) => CredentialDoubt::Proven,
        }
    }

    fn proof(&self) -> Option<CertificateRejection> {
        let series = self.0.as_ref()?;
        let elapsed = series.last.since.saturating_sub(series.first.since);
        (series.count >= ENOUGH_REJECTIONS && elapsed >= ENOUGH_TIME)
            .then(|| CertificateRejection { identity: series.identity.clone(), since: series.first.wall })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{START, client_identity};

    fn reading(seconds: u64) -> ClockReading {
        let since = Duration::from_secs(seconds);
        ClockReading { wall: START + since, since }
    }

    #[test]
    fn a_certificate_is_rejected_after_several_rejections_over_some_seconds() {
        let table: [(&[(u64, u16)], CredentialDoubt); 11] = [
            (&[], CredentialDoubt::None),
            (&[(0, 401)], CredentialDoubt::Suspected),
            // Many at once may come from one moment of confusion.
            (&[(0, 401), (0, 401), (1, 401), (1, 401)], CredentialDoubt::Suspected),
            // Few over a long time may be several moments of it.
            (&[(0, 401), (60, 401)], CredentialDoubt::Suspected),
            (&[(0, 401), (5, 401), (9, 401)], CredentialDoubt::Suspected),
            (&[(0, 401), (5, 401), (10, 401)], CredentialDoubt::Proven),
            (&[(0, 401), (5, 200), (6, 401), (10, 401), (12, 401)], CredentialDoubt::Suspected),
            (&[(0, 401), (5, 401), (10, 401), (11, 200)], CredentialDoubt::None),
            // Authentication succeeded, only authorization or the object failed.
            (&[(0, 401), (5, 401), (7, 403), (10, 401)], CredentialDoubt::Suspected),
            (&[(0, 401), (5, 401), (10, 404)], CredentialDoubt::None),
            // These say nothing.
            (&[(0, 401), (5, 401), (6, 503), (7, 429), (8, 302), (10, 401)], CredentialDoubt::Proven),
        ];
        let identity = Arc::new(client_identity(START));
        for (responses, expected) in table {
            let mut evidence = RejectionEvidence::default();
            for (second, status) in responses {
                if let Some(is_accepted) = is_accepted(StatusCode::from_u16(*status).unwrap()) {
                    evidence.record(&identity, is_accepted, reading(*second));
                }
            }
            assert_eq!(evidence.doubt(), expected, "{responses:?}");
            let since = evidence.proof().map(|proof| proof.since);
            assert_eq!(since, (expected == CredentialDoubt::Proven).then_some(START), "{responses:?}");
        }
    }

    #[test]
    fn evidence_against_a_certificate_does_not_count_against_the_next() {
        let (old, new) = (Arc::new(client_identity(START)), Arc::new(client_identity(START)));
        let mut evidence = RejectionEvidence::default();
        for second in [0, 5, 10] {
            evidence.record(&old, false, reading(second));
        }
        assert!(Arc::ptr_eq(&evidence.proof().unwrap().identity, &old));
        evidence.record(&new, false, reading(11));
        assert_eq!(evidence.doubt(), CredentialDoubt::Suspected);
        for second in [16, 21] {
            evidence.record(&new, false, reading(second));
        }
        assert!(Arc::ptr_eq(&evidence.proof().unwrap().identity, &new));
    }
}
