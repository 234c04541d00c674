//! Destruction of keys that no rotation needs any more: that of a replaced CA after its retention, and those that a deleted
//! CARotation has left behind.

use kube::ResourceExt as _;
use kube::api::ListParams;
use time::OffsetDateTime;
use windlass_api::ca_rotation::{DEFAULT_KEY_RETENTION, RotationPhase};
use windlass_api::timestamp;

use super::controller::{RotationController, RotationObject};
use crate::ca::secret::{CaSlots, SlotChange};
use crate::signers::CustomSigner;

/// The rotation that wrote the slots of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotOwner {
    /// It runs, or has ended without replacing the CA.
    Other,
    /// It has replaced the CA; the old key is kept until this time.
    Completed(OffsetDateTime),
    /// Its object does not exist.
    Deleted,
}

/// What to do with the keys that do not sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyDisposal {
    Keep,
    Wait(OffsetDateTime),
    Change(SlotChange),
}

/// Which keys besides the active one a Secret has.
#[derive(Clone, Copy, Debug)]
struct SpareKeys {
    next: bool,
    previous: bool,
    abandoned_since: Option<OffsetDateTime>,
}

impl RotationController {
    /// Destroys keys of a signer without a rotation that runs; returns when to look again.
    pub(super) async fn dispose_keys(
        &self,
        signer: &CustomSigner,
        ended: &[RotationObject],
        now: OffsetDateTime,
    ) -> anyhow::Result<Option<OffsetDateTime>> {
        let Some(secret_ca) = signer.ca.secret().filter(|_| signer.ca.is_generated()) else {
            return Ok(None);
        };
        let Ok((secret, slots)) = secret_ca.read_slots(&self.context).await else { return Ok(None) };
        let (Some(rotation), Some(spare)) = (&slots.rotation, spare_keys(&slots)) else { return Ok(None) };
        let owner = self.find_owner(rotation, ended).await?;
        match decide(spare, owner, now) {
            KeyDisposal::Keep => Ok(None),
            KeyDisposal::Wait(until) => Ok(Some(until)),
            KeyDisposal::Change(change) => {
                let written = secret_ca.change_slots(&secret, change, &self.context).await;
                let is_written = written.map_err(|error| anyhow::anyhow!(error.detail))?;
                tracing::info!(signer = %signer.custom.name, ?change, is_written, "disposed of keys of a replaced CA");
                // At once, to find out about the rest.
                Ok((change != SlotChange::DestroyPrevious || !is_written).then_some(now))
            }
        }
    }

    /// Finds the rotation that wrote the slots. The watch may not have delivered one that another controller runs.
    async fn find_owner(&self, uid: &str, ended: &[RotationObject]) -> anyhow::Result<SlotOwner> {
        if let Some(known) = ended.iter().find(|each| each.uid() == uid) {
            return Ok(known.slot_owner());
        }
        let all = self.api.list(&ListParams::default()).await?.items;
        let found = all.into_iter().find(|each| each.uid().as_deref() == Some(uid));
        Ok(match found {
            Some(object) => RotationObject::parse(object).map_or(SlotOwner::Other, |each| each.slot_owner()),
            None => SlotOwner::Deleted,
        })
    }
}

impl RotationObject {
    fn slot_owner(&self) -> SlotOwner {
        let end = self.status.completion_time.as_deref().and_then(|time| timestamp::parse(time).ok());
        match (self.status.phase, end) {
            (Some(RotationPhase::Completed), Some(end)) => {
                SlotOwner::Completed(after(end, self.spec.key_retention()))
            }
            _ => SlotOwner::Other,
        }
    }
}

fn spare_keys(slots: &CaSlots) -> Option<SpareKeys> {
    let (next, previous) = (slots.next.is_some(), slots.previous.is_some());
    let abandoned_since = slots.abandoned_since;
    (next || previous).then_some(SpareKeys { next, previous, abandoned_since })
}

/// A key that a deleted rotation has prepared is not used by anybody. The one that it has replaced may be missed, so it is
/// kept as long as that of a rotation that says nothing; the Secret records since when.
fn decide(spare: SpareKeys, owner: SlotOwner, now: OffsetDateTime) -> KeyDisposal {
    let due = match (owner, spare.abandoned_since) {
        (SlotOwner::Other, _) => return KeyDisposal::Keep,
        (SlotOwner::Completed(due), _) => due,
        (SlotOwner::Deleted, Some(since)) if !spare.next => after(since, DEFAULT_KEY_RETENTION),
        (SlotOwner::Deleted, _) => return KeyDisposal::Change(SlotChange::Abandon(now)),
    };
    match spare.previous {
        false => KeyDisposal::Keep,
        true if now < due => KeyDisposal::Wait(due),
        true => KeyDisposal::Change(SlotChange::DestroyPrevious),
    }
}

fn after(time: OffsetDateTime, duration: std::time::Duration) -> OffsetDateTime {
    time.saturating_add(time::Duration::try_from(duration).unwrap_or(time::Duration::MAX))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-18 12:00 UTC);

    #[test]
    fn keys_are_destroyed_when_nobody_needs_them() {
        let week = time::Duration::WEEK;
        let (early, late) = (NOW + time::Duration::SECOND, NOW - time::Duration::SECOND);
        let since = |time| Some(time);
        let abandon = KeyDisposal::Change(SlotChange::Abandon(NOW));
        let destroy = KeyDisposal::Change(SlotChange::DestroyPrevious);
        let table = [
            // Owner, prepared key, previous key, abandoned since.
            (SlotOwner::Other, true, false, None, KeyDisposal::Keep),
            (SlotOwner::Other, false, true, None, KeyDisposal::Keep),
            (SlotOwner::Completed(early), false, true, None, KeyDisposal::Wait(early)),
            (SlotOwner::Completed(late), false, true, None, destroy),
            (SlotOwner::Deleted, true, false, None, abandon),
            (SlotOwner::Deleted, false, true, None, abandon),
            (SlotOwner::Deleted, true, true, since(NOW - week), abandon),
            (SlotOwner::Deleted, false, true, since(NOW), KeyDisposal::Wait(NOW + week)),
            (SlotOwner::Deleted, false, true, since(NOW - week), destroy),
        ];
        for (number, (owner, next, previous, abandoned_since, wanted)) in table.into_iter().enumerate() {
            let spare = SpareKeys { next, previous, abandoned_since };
            assert_eq!(decide(spare, owner, NOW), wanted, "case {number}");
        }
    }
}
