//! Selection of the signing CA during a rotation: the new CA as soon as its trust anchor is published and delivered to
//! nodes, and the previous one until then.
//!
//! The anchor publisher reports here what is published. A CA signs only if its anchor is published, and a replaced CA
//! only if its anchor stays until the certificates that it signs now have expired.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;
use windlass_api::timestamp;

use crate::ca::{self, CaSource, SigningCa};
use crate::publisher::anchors::{AnchorRecords, TrustAnchor};

/// Selects the CA with which a signer signs.
pub struct CaRollout {
    signer: String,
    state: Mutex<RolloutState>,
    changes: watch::Sender<u64>,
}

struct RolloutState {
    source: Arc<CaSource>,
    /// Longest lifetime that the signer grants.
    max_duration: Duration,
    publication: PublicationState,
    /// Longest time for which a CA waits until its anchor is published.
    timeout: Duration,
    /// Fingerprint of the newest anchor, and when it was first seen.
    newest: Option<(String, OffsetDateTime)>,
    signing: Option<Arc<SigningCa>>,
    /// Reason for which the newest CA does not sign.
    held: Option<RolloutHold>,
    /// Anchors in the bundle.
    anchors: Vec<TrustAnchor>,
}

/// Publication state of a signer's anchors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicationState {
    /// Anchors are not published, so no CA waits for that.
    None,
    /// Anchors are to be published, and the bundle was not read yet.
    Unknown,
    /// The bundle contains the anchors with these records.
    Known(AnchorRecords),
    /// The bundle contains these anchors and has no room for another.
    Full(AnchorRecords),
}

/// Reason for which a CA does not sign yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutHold {
    /// Reason of the hold, in CamelCase.
    pub reason: &'static str,
    /// Cause of the hold, and when it ends.
    pub message: String,
}

impl CaRollout {
    /// Creates the state of a signer whose anchors are not published.
    pub fn new(signer: &str, source: Arc<CaSource>, max_duration: Duration) -> Arc<CaRollout> {
        let state = RolloutState {
            source,
            max_duration,
            publication: PublicationState::None,
            timeout: Duration::ZERO,
            newest: None,
            signing: None,
            held: None,
            anchors: Vec::new(),
        };
        Arc::new(CaRollout {
            signer: signer.to_owned(),
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
        })
    }

    /// Makes new CAs wait until their anchors are published, for `timeout` at most. What is known about the publication
    /// stays known.
    pub fn require_publication(&self, timeout: Duration) {
        let mut state = self.lock();
        state.timeout = timeout;
        if state.publication == PublicationState::None {
            state.publication = PublicationState::Unknown;
        }
    }

    /// Continues with another configuration of the signer. The CA that signs goes on until one of a new source may sign.
    pub fn reconfigure(&self, source: Arc<CaSource>, max_duration: Duration) {
        let mut state = self.lock();
        (state.source, state.max_duration) = (source, max_duration);
    }

    /// Returns the publication state, as the anchor publisher last set it.
    pub fn publication(&self) -> PublicationState {
        self.lock().publication.clone()
    }

    /// Returns why the newest CA does not sign; `None` if it does.
    pub fn hold(&self) -> Option<RolloutHold> {
        self.lock().held.clone()
    }

    /// Sets the anchors in the bundle, for the status of the signer.
    pub(crate) fn set_published_anchors(&self, anchors: Vec<TrustAnchor>) {
        self.lock().anchors = anchors;
    }

    /// Returns the anchors that were in the bundle when it was last read or written.
    pub(crate) fn published_anchors(&self) -> Vec<TrustAnchor> {
        self.lock().anchors.clone()
    }

    /// Sets the publication state; notifies those that wait if another CA may sign.
    pub fn set_publication(&self, publication: PublicationState, now: OffsetDateTime) {
        self.lock().publication = publication;
        // Notifies those that wait, if the selection changes.
        let _ = self.select_ca(now);
    }

    /// Returns the CA that signs now, or why there is none.
    pub fn select_ca(&self, now: OffsetDateTime) -> Result<Arc<SigningCa>, RolloutHold> {
        let mut state = self.lock();
        let newest = state.source.current().ok_or_else(|| RolloutHold {
            reason: ca::UNAVAILABLE,
            message: state.source.unavailable_message(),
        })?;
        let held = state.hold_reason(&newest, now);
        let before = state.signing.clone();
        let chosen = match &held {
            None => Ok(newest),
            Some(held) => before
                .clone()
                .filter(|before| state.can_keep_signing(before, state.max_duration, now))
                .ok_or_else(|| held.clone()),
        };
        if let Ok(chosen) = &chosen {
            state.signing = Some(chosen.clone());
        }
        let switched = match (&before, &chosen) {
            (Some(before), Ok(chosen)) => !Arc::ptr_eq(before, chosen),
            (None, Ok(_)) => true,
            (_, Err(_)) => false,
        };
        let news = state.held != held;
        if news {
            self.log_transition(held.as_ref(), chosen.is_ok());
            state.held = held;
        }
        drop(state);
        if switched || news {
            self.changes.send_modify(|count| *count += 1);
        }
        chosen
    }

    /// Returns the fingerprint of the anchor whose CA was selected last.
    pub fn signing_fingerprint(&self) -> Option<String> {
        self.lock().signing.as_ref().map(|ca| TrustAnchor::from_certificate(ca.anchor()).fingerprint())
    }

    /// Returns a receiver of the number of changes of the selection.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn log_transition(&self, held: Option<&RolloutHold>, old_signs: bool) {
        let signer = &self.signer;
        match held {
            Some(RolloutHold { reason, message }) if old_signs => {
                tracing::info!(
                    signer,
                    reason,
                    "new CA on hold; still signing with the previous CA: {message}"
                );
            }
            Some(RolloutHold { reason, message }) => {
                tracing::warn!(signer, reason, "CA on hold; requests stay pending: {message}");
            }
            None => tracing::info!(signer, "signing with the newest CA"),
        }
    }

    /// Whether the newest CA waits for its trust anchor.
    pub(crate) fn is_held(&self) -> bool {
        self.lock().held.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, RolloutState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RolloutState {
    /// Returns why the newest CA must not sign yet.
    fn hold_reason(&mut self, newest: &SigningCa, now: OffsetDateTime) -> Option<RolloutHold> {
        let name = TrustAnchor::from_certificate(newest.anchor()).fingerprint();
        let first_seen = match &self.newest {
            Some((known, since)) if *known == name => *since,
            Some(_) | None => {
                self.newest = Some((name.clone(), now));
                now
            }
        };
        let deadline = first_seen + self.timeout;
        let unpublished = || (now < deadline).then(|| not_published(deadline));
        match &self.publication {
            PublicationState::None => None,
            PublicationState::Unknown => unpublished(),
            PublicationState::Known(records) | PublicationState::Full(records) => {
                match (records.get(&name), &self.publication) {
                    (Some(record), _) => record.hold_until.filter(|until| *until > now).map(not_delivered),
                    (None, PublicationState::Full(_)) => Some(bundle_full()),
                    (None, _) => unpublished(),
                }
            }
        }
    }

    /// Whether a replaced CA may continue to sign: if its anchor stays published until the certificates that it signs
    /// now have expired.
    fn can_keep_signing(&self, ca: &SigningCa, max_duration: Duration, now: OffsetDateTime) -> bool {
        let (PublicationState::Known(records) | PublicationState::Full(records)) = &self.publication else {
            return false;
        };
        let Some(record) = records.get(&TrustAnchor::from_certificate(ca.anchor()).fingerprint()) else {
            return false;
        };
        let max_lifetime = time::Duration::try_from(max_duration).unwrap_or(time::Duration::MAX);
        let validity = ca.validity();
        let expires = now.saturating_add(max_lifetime).min(validity.not_after());
        validity.contains(now) && record.retain_until.is_none_or(|until| until >= expires)
    }
}

fn not_published(deadline: OffsetDateTime) -> RolloutHold {
    let deadline = timestamp::format(deadline);
    RolloutHold {
        reason: "CaNotPublished",
        message: format!(
            "the trust anchor of the signer's CA is not published yet; the CA signs when it is, at the latest at {deadline}"
        ),
    }
}

fn not_delivered(deadline: OffsetDateTime) -> RolloutHold {
    let deadline = timestamp::format(deadline);
    RolloutHold {
        reason: "CaNotDelivered",
        message: format!(
            "not every node has the trust anchor of the signer's new CA yet; the CA signs when they have, at the latest at {deadline}"
        ),
    }
}

fn bundle_full() -> RolloutHold {
    RolloutHold {
        reason: "TrustBundleFull",
        message: "the signer's trust bundle has no room for the trust anchor of its new CA; the CA signs when an older anchor is not needed any more".into(),
    }
}
