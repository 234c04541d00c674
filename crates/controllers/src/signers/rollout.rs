//! Which of a signer's CAs signs while its CA is being replaced: the new one as soon as its trust
//! anchor is published and nodes have it, and until then the one before.
//!
//! Whoever publishes the anchors says here what is published. A CA signs only if its anchor is, and
//! one that was replaced only if its anchor stays until what it signs now has expired.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;
use windlass_api::timestamp;

use crate::ca::{self, CaSource, SigningCa};
use crate::publisher::anchors::{AnchorRecords, TrustAnchor};

/// Decides which CA of one signer signs.
pub struct CaRollout {
    signer: String,
    source: Arc<CaSource>,
    /// The longest lifetime that the signer grants.
    max_duration: Duration,
    state: Mutex<RolloutState>,
    changes: watch::Sender<u64>,
}

struct RolloutState {
    publication: PublicationState,
    /// How long a CA waits at most for its anchor to be published.
    timeout: Duration,
    /// The newest anchor, and when it was first seen.
    newest: Option<(String, OffsetDateTime)>,
    signing: Option<Arc<SigningCa>>,
    /// Why the newest does not sign.
    held: Option<RolloutHold>,
}

/// What is known of a signer's anchors on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicationState {
    /// Nobody publishes them, so nobody waits for them.
    None,
    /// They are to be published, and the bundle has not been read yet.
    Unknown,
    /// The bundle contains the anchors with these records.
    Known(AnchorRecords),
    /// These are published, and there is no room for another.
    Full(AnchorRecords),
}

/// Why a CA does not sign yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutHold {
    /// Reason of the hold, in CamelCase.
    pub reason: &'static str,
    /// The cause, and when it ends.
    pub message: String,
}

impl CaRollout {
    /// Begins with a signer that publishes nothing.
    pub fn new(signer: &str, source: Arc<CaSource>, max_duration: Duration) -> Arc<CaRollout> {
        let state = RolloutState {
            publication: PublicationState::None,
            timeout: Duration::ZERO,
            newest: None,
            signing: None,
            held: None,
        };
        Arc::new(CaRollout {
            signer: signer.to_owned(),
            source,
            max_duration,
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
        })
    }

    /// From now on CAs wait until their anchors are published, for `timeout` at most.
    pub fn require_publication(&self, timeout: Duration) {
        let mut state = self.lock();
        (state.publication, state.timeout) = (PublicationState::Unknown, timeout);
    }

    /// Takes note of what is published.
    pub fn set_publication(&self, publication: PublicationState, now: OffsetDateTime) {
        self.lock().publication = publication;
        // What came of it is told to those who wait.
        let _ = self.select_ca(now);
    }

    /// The CA that signs now, or why there is none.
    pub fn select_ca(&self, now: OffsetDateTime) -> Result<Arc<SigningCa>, RolloutHold> {
        let newest = self.source.current().ok_or_else(|| RolloutHold {
            reason: ca::UNAVAILABLE,
            message: self.source.unavailable_message(),
        })?;
        let mut state = self.lock();
        let held = state.hold_reason(&newest, now);
        let before = state.signing.clone();
        let chosen = match &held {
            None => Ok(newest),
            Some(held) => before
                .clone()
                .filter(|before| state.can_keep_signing(before, self.max_duration, now))
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

    /// The fingerprint of the anchor whose CA signed last.
    pub fn signing_fingerprint(&self) -> Option<String> {
        self.lock()
            .signing
            .as_ref()
            .map(|ca| TrustAnchor::from_certificate(ca.anchor()).fingerprint())
    }

    /// Counts changes of what [`CaRollout::select_ca`] says.
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
                    "new CA held back, the previous one signs: {message}"
                );
            }
            Some(RolloutHold { reason, message }) => {
                tracing::warn!(signer, reason, "CA held back, nothing is signed: {message}");
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
    /// Why the newest CA must not sign yet.
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
                    (Some(record), _) => {
                        record.hold_until.filter(|until| *until > now).map(not_delivered)
                    }
                    (None, PublicationState::Full(_)) => Some(bundle_full()),
                    (None, _) => unpublished(),
                }
            }
        }
    }

    /// Whether a CA may go on signing although there is a newer one: if its anchor stays published
    /// until what it signs now has expired.
    fn can_keep_signing(
        &self,
        ca: &SigningCa,
        max_duration: Duration,
        now: OffsetDateTime,
    ) -> bool {
        let (PublicationState::Known(records) | PublicationState::Full(records)) =
            &self.publication
        else {
            return false;
        };
        let Some(record) = records.get(&TrustAnchor::from_certificate(ca.anchor()).fingerprint())
        else {
            return false;
        };
        let longest = time::Duration::try_from(max_duration).unwrap_or(time::Duration::MAX);
        let validity = ca.validity();
        let expires = now.saturating_add(longest).min(validity.not_after());
        validity.contains(now) && record.retain_until.is_none_or(|until| until >= expires)
    }
}

fn not_published(deadline: OffsetDateTime) -> RolloutHold {
    let deadline = timestamp::format(deadline);
    RolloutHold {
        reason: "CaNotPublished",
        message: format!(
            "the trust anchor of the signer's CA is not published yet; it signs when it is, at the latest at {deadline}"
        ),
    }
}

fn not_delivered(deadline: OffsetDateTime) -> RolloutHold {
    let deadline = timestamp::format(deadline);
    RolloutHold {
        reason: "CaNotDelivered",
        message: format!(
            "not every node has the trust anchor of the signer's new CA yet; it signs when they have, at the latest at {deadline}"
        ),
    }
}

fn bundle_full() -> RolloutHold {
    RolloutHold {
        reason: "TrustBundleFull",
        message: "the signer's trust bundle has no room for the trust anchor of its new CA; it signs when an older anchor is not needed any more".into(),
    }
}
