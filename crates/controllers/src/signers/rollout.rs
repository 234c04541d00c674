//! Selection of the signing CA during a rotation: the new CA as soon as its trust anchor is published and delivered to
//! nodes, and the previous one until then.
//!
//! The anchor publisher reports here what is published. A CA signs only if its anchor is published, and a replaced CA
//! only if its anchor stays until the certificates that it signs now have expired.
//!
//! Where the server has CARotations, no CA signs after a timeout: a provided CA signs once the signer's bundle names its
//! anchor as the active one, which a rotation writes there. A generated CA is active in its Secret.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
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
    governance: watch::Sender<RolloutGovernance>,
}

/// Who decides when a new CA of a signer signs, and which anchors its bundles have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutGovernance {
    /// Times, because the server has no CARotations: a new CA signs after a timeout at the latest.
    Timed,
    /// It is not known yet whether a rotation runs. Bundles are read, and not written.
    Undecided,
    /// No rotation runs. A CA that is not active waits for one.
    Steady,
    /// A rotation runs, and writes the bundles.
    Rotating,
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
    /// Fingerprint of the anchor that the bundle names as the active one.
    active: Option<String>,
    /// The CA that signed before the present one, for a rollback.
    replaced: Option<Arc<SigningCa>>,
    /// Fingerprint of an anchor, and the time at which leaves below it end at the latest.
    leaf_limit: Option<(String, OffsetDateTime)>,
    /// States of authorities that do not sign, by the fingerprints of their anchors, while a rotation runs.
    states: BTreeMap<String, &'static str>,
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
            active: None,
            replaced: None,
            leaf_limit: None,
            states: BTreeMap::new(),
        };
        Arc::new(CaRollout {
            signer: signer.to_owned(),
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            governance: watch::Sender::new(RolloutGovernance::Timed),
        })
    }

    /// Sets who decides; notifies those that wait if another CA may sign.
    pub fn set_governance(&self, governance: RolloutGovernance, now: OffsetDateTime) {
        let before = self.governance.send_replace(governance);
        if before != governance {
            // Notifies those that wait, if the selection changes.
            let _ = self.select_ca(now);
        }
    }

    /// Returns who decides now.
    pub fn governance(&self) -> RolloutGovernance {
        *self.governance.borrow()
    }

    /// Returns a receiver of who decides.
    pub(crate) fn watch_governance(&self) -> watch::Receiver<RolloutGovernance> {
        self.governance.subscribe()
    }

    /// Sets the fingerprint of the anchor that the bundle names as the active one. A change takes effect with the next
    /// [`CaRollout::set_publication`].
    pub(crate) fn set_active_anchor(&self, active: Option<String>) {
        self.lock().active = active;
    }

    /// Limits leaves of the CA with this anchor to end at a time; `None` removes the limit.
    pub(crate) fn set_leaf_limit(&self, limit: Option<(String, OffsetDateTime)>) {
        self.lock().leaf_limit = limit;
    }

    /// Sets the states of authorities that do not sign, by the fingerprints of their anchors, for the status of the signer.
    pub(crate) fn set_authority_states(&self, states: BTreeMap<String, &'static str>) {
        self.lock().states = states;
    }

    /// Returns the states of authorities that do not sign, as the rotation last set them.
    pub(crate) fn authority_states(&self) -> BTreeMap<String, &'static str> {
        self.lock().states.clone()
    }

    /// Returns when a leaf of this CA ends at the latest; `None` if only signer and CA limit it.
    pub fn leaf_limit(&self, ca: &SigningCa) -> Option<OffsetDateTime> {
        let state = self.lock();
        let (anchor, limit) = state.leaf_limit.as_ref()?;
        (*anchor == TrustAnchor::from_certificate(ca.anchor()).fingerprint()).then_some(*limit)
    }

    /// Whether this CA still signs. Asked after a certificate is recorded and before it is signed: a rotation that has
    /// counted the leaves of a replaced CA misses none then.
    pub fn is_selected(&self, ca: &SigningCa, now: OffsetDateTime) -> bool {
        self.select_ca(now).is_ok_and(|selected| selected.is_same(ca))
    }

    /// Returns the CA with this anchor, if this process has its key: the present one, the newest or the one before.
    pub(crate) fn find_ca(&self, anchor: &str) -> Option<Arc<SigningCa>> {
        let state = self.lock();
        let known = [state.signing.clone(), state.source.current(), state.replaced.clone()];
        known.into_iter().flatten().find(|ca| fingerprint(ca) == anchor)
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
        let governance = self.governance();
        let held = state.hold_reason(&newest, governance, now);
        let before = state.signing.clone();
        let chosen = match &held {
            None => Ok(newest),
            Some(held) => [before.clone(), state.replaced.clone()]
                .into_iter()
                .flatten()
                .find(|known| state.can_keep_signing(known, governance, now))
                .ok_or_else(|| held.clone()),
        };
        if let Ok(chosen) = &chosen {
            state.replaced =
                before.clone().filter(|before| !before.is_same(chosen)).or(state.replaced.take());
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
        self.lock().signing.as_ref().map(|ca| fingerprint(ca))
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
    fn hold_reason(
        &mut self,
        newest: &SigningCa,
        governance: RolloutGovernance,
        now: OffsetDateTime,
    ) -> Option<RolloutHold> {
        let name = fingerprint(newest);
        if self.active_anchor(governance).is_some_and(|active| *active != name) {
            return Some(rotating());
        }
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

    /// Returns the anchor that the bundle names as the active one, if that decides. A generated CA is active in its
    /// Secret.
    fn active_anchor(&self, governance: RolloutGovernance) -> Option<&String> {
        let decides = governance != RolloutGovernance::Timed && !self.source.is_generated();
        self.active.as_ref().filter(|_| decides && self.publication != PublicationState::None)
    }

    /// Whether a replaced CA may continue to sign: if its anchor stays published until the certificates that it signs
    /// now have expired.
    fn can_keep_signing(&self, ca: &SigningCa, governance: RolloutGovernance, now: OffsetDateTime) -> bool {
        let (PublicationState::Known(records) | PublicationState::Full(records)) = &self.publication else {
            return false;
        };
        let name = fingerprint(ca);
        if self.active_anchor(governance).is_some_and(|active| *active != name) {
            return false;
        }
        let Some(record) = records.get(&name) else {
            return false;
        };
        let max_lifetime = time::Duration::try_from(self.max_duration).unwrap_or(time::Duration::MAX);
        let validity = ca.validity();
        let expires = now.saturating_add(max_lifetime).min(validity.not_after());
        validity.contains(now) && record.retain_until.is_none_or(|until| until >= expires)
    }
}

fn fingerprint(ca: &SigningCa) -> String {
    TrustAnchor::from_certificate(ca.anchor()).fingerprint()
}

fn rotating() -> RolloutHold {
    RolloutHold {
        reason: "CaRotating",
        message: "the signer's new CA does not sign before consumers have its trust anchor, and until then only processes that have loaded the previous CA sign; the CARotation of the signer says what is waited for".into(),
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
