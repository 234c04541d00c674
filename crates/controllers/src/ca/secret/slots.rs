//! Slots of the Secret with a generated CA: the active authority, one that is prepared, and the previous one.
//!
//! The active one is in `tls.crt` and `tls.key`, so whoever reads the Secret sees one authority. A switch is one write of
//! the Secret, which the server rejects if the Secret has changed since it was read: there is one active authority at any
//! time, for all controllers.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use time::OffsetDateTime;
use windlass_api::timestamp;

use super::generation::GeneratedCa;
use super::{CERTIFICATE, CaContext, CaError, KEY, SecretCa};
use crate::ca::SigningCa;

/// Annotation with the UID of the rotation that wrote the slots last.
pub const ROTATION_ANNOTATION: &str = "windlass.dev/rotation";
/// Annotation of a Secret whose prepared authority was withdrawn by a rollback.
pub const WITHDRAWN_ANNOTATION: &str = "windlass.dev/rotation-withdrawn";
/// Annotation with the time since which the rotation that wrote the slots is known to be deleted.
pub const ABANDONED_ANNOTATION: &str = "windlass.dev/rotation-abandoned";
const NEXT: (&str, &str) = ("next.crt", "next.key");
const ACTIVE: (&str, &str) = (CERTIFICATE, KEY);
const PREVIOUS: (&str, &str) = ("previous.crt", "previous.key");

/// The authorities in a Secret, as far as they can be parsed.
pub struct CaSlots {
    pub active: SigningCa,
    /// Authority that a rotation has prepared.
    pub next: Option<SigningCa>,
    /// Authority that was replaced, until its key is destroyed.
    pub previous: Option<SigningCa>,
    /// UID of the rotation that wrote the slots last.
    pub rotation: Option<String>,
    /// Whether a rollback has withdrawn the prepared authority.
    pub is_withdrawn: bool,
    /// Since when the rotation that wrote the slots is known to be deleted; `None` if it is not.
    pub abandoned_since: Option<OffsetDateTime>,
}

/// A write of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// The prepared authority becomes active, and the active one the previous one.
    Switch,
    /// The previous authority becomes active again, and the active one is withdrawn.
    SwitchBack,
    /// The prepared authority is withdrawn: no switch that was decided before succeeds.
    Withdraw,
    /// The prepared authority is removed with its key.
    DiscardNext,
    /// The previous authority is removed with its key.
    DestroyPrevious,
    /// The rotation was deleted: the prepared authority is removed with its key, and the time is recorded.
    Abandon(OffsetDateTime),
}

impl SecretCa {
    /// Reads the Secret and the authorities in it.
    pub(crate) async fn read_slots(&self, context: &CaContext) -> Result<(Secret, CaSlots), CaError> {
        let api: Api<Secret> = Api::namespaced(context.client.clone(), &self.namespace);
        let found = api.get_opt(&self.name).await;
        let found = found.map_err(|error| self.unreadable(&error.to_string()))?;
        let secret = found.ok_or_else(|| self.problem("it does not exist".to_owned()))?;
        let slots = self.parse_slots(&secret)?;
        Ok((secret, slots))
    }

    fn parse_slots(&self, secret: &Secret) -> Result<CaSlots, CaError> {
        let annotation = |name: &str| secret.annotations().get(name).cloned();
        Ok(CaSlots {
            active: self.parse(secret)?,
            next: self.parse_slot(secret, NEXT),
            previous: self.parse_slot(secret, PREVIOUS),
            rotation: annotation(ROTATION_ANNOTATION),
            is_withdrawn: annotation(WITHDRAWN_ANNOTATION).is_some(),
            abandoned_since: annotation(ABANDONED_ANNOTATION).and_then(|time| timestamp::parse(&time).ok()),
        })
    }

    /// Parses the authority that a rotation has replaced.
    pub(super) fn parse_previous(&self, secret: &Secret) -> Option<SigningCa> {
        self.parse_slot(secret, PREVIOUS)
    }

    /// Parses an authority that does not sign. One that cannot be parsed does not exist.
    fn parse_slot(&self, secret: &Secret, slot: (&str, &str)) -> Option<SigningCa> {
        let data = secret.data.as_ref()?;
        let mut of_slot = secret.clone();
        let moved = [(CERTIFICATE, slot.0), (KEY, slot.1)]
            .into_iter()
            .map(|(to, from)| Some((to.to_owned(), data.get(from)?.clone())));
        of_slot.data = Some(moved.collect::<Option<_>>()?);
        self.parse(&of_slot).ok()
    }

    /// Generates an authority and writes it to the slot of the prepared one. Returns whether it was written: not if the
    /// Secret has changed since it was read.
    pub(crate) async fn prepare_next(
        &self,
        secret: &Secret,
        rotation: &str,
        context: &CaContext,
        now: OffsetDateTime,
    ) -> Result<bool, CaError> {
        let generated = self.generate(context, now).await?;
        self.write_slots(&with_next(secret, &generated, rotation), context).await
    }

    /// Writes a change of the slots; returns as [`SecretCa::prepare_next`].
    pub(crate) async fn change_slots(
        &self,
        secret: &Secret,
        change: SlotChange,
        context: &CaContext,
    ) -> Result<bool, CaError> {
        self.write_slots(&changed(secret, change), context).await
    }

    async fn write_slots(&self, secret: &Secret, context: &CaContext) -> Result<bool, CaError> {
        let api: Api<Secret> = Api::namespaced(context.client.clone(), &self.namespace);
        match api.replace(&self.name, &PostParams::default(), secret).await {
            Ok(_) => Ok(true),
            Err(error) if crate::csr::is_conflict(&error) || crate::csr::is_not_found(&error) => Ok(false),
            Err(error) => Err(self.unwritable(&error)),
        }
    }
}

fn with_next(secret: &Secret, generated: &GeneratedCa, rotation: &str) -> Secret {
    let mut prepared = secret.clone();
    let annotations = prepared.metadata.annotations.get_or_insert_default();
    annotations.insert(ROTATION_ANNOTATION.to_owned(), rotation.to_owned());
    annotations.remove(WITHDRAWN_ANNOTATION);
    annotations.remove(ABANDONED_ANNOTATION);
    // That of an earlier rotation would be taken for the authority that this one has replaced.
    remove_slot(&mut prepared, PREVIOUS);
    let data = prepared.data.get_or_insert_default();
    for (name, bytes) in generated.data() {
        let slot = if name == CERTIFICATE { NEXT.0 } else { NEXT.1 };
        data.insert(slot.to_owned(), bytes);
    }
    prepared
}

fn changed(secret: &Secret, change: SlotChange) -> Secret {
    let mut changed = secret.clone();
    match change {
        SlotChange::Switch => {
            move_slot(&mut changed, ACTIVE, PREVIOUS);
            move_slot(&mut changed, NEXT, ACTIVE);
        }
        SlotChange::SwitchBack => {
            move_slot(&mut changed, ACTIVE, NEXT);
            move_slot(&mut changed, PREVIOUS, ACTIVE);
        }
        SlotChange::Withdraw => {}
        SlotChange::DiscardNext => remove_slot(&mut changed, NEXT),
        SlotChange::DestroyPrevious => remove_slot(&mut changed, PREVIOUS),
        SlotChange::Abandon(since) => {
            remove_slot(&mut changed, NEXT);
            let annotations = changed.metadata.annotations.get_or_insert_default();
            annotations.insert(ABANDONED_ANNOTATION.to_owned(), timestamp::format(since));
        }
    }
    if matches!(change, SlotChange::SwitchBack | SlotChange::Withdraw) {
        let annotations = changed.metadata.annotations.get_or_insert_default();
        annotations.insert(WITHDRAWN_ANNOTATION.to_owned(), "true".to_owned());
    }
    changed
}

fn move_slot(secret: &mut Secret, from: (&str, &str), to: (&str, &str)) {
    let data = secret.data.get_or_insert_default();
    for (from, to) in [(from.0, to.0), (from.1, to.1)] {
        let moved: ByteString = data.remove(from).unwrap_or_default();
        data.insert(to.to_owned(), moved);
    }
}

fn remove_slot(secret: &mut Secret, slot: (&str, &str)) {
    let data = secret.data.get_or_insert_default();
    data.remove(slot.0);
    data.remove(slot.1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(entries: &[(&str, &str)]) -> Secret {
        let entry = |(name, text): &(&str, &str)| ((*name).to_owned(), ByteString(text.as_bytes().to_vec()));
        Secret { data: Some(entries.iter().map(entry).collect()), ..Secret::default() }
    }

    fn texts(secret: &Secret) -> Vec<(String, String)> {
        let data = secret.data.clone().unwrap_or_default();
        data.into_iter().map(|(name, bytes)| (name, String::from_utf8(bytes.0).unwrap())).collect()
    }

    #[test]
    fn a_switch_moves_all_slots_and_back() {
        let prepared = secret(&[("tls.crt", "a"), ("tls.key", "A"), ("next.crt", "b"), ("next.key", "B")]);
        let switched = changed(&prepared, SlotChange::Switch);
        let wanted =
            secret(&[("tls.crt", "b"), ("tls.key", "B"), ("previous.crt", "a"), ("previous.key", "A")]);
        assert_eq!(texts(&switched), texts(&wanted));
        let back = changed(&switched, SlotChange::SwitchBack);
        assert_eq!(texts(&back), texts(&prepared));
        assert!(back.annotations().contains_key(WITHDRAWN_ANNOTATION));
        let active = secret(&[("tls.crt", "a"), ("tls.key", "A")]);
        assert_eq!(texts(&changed(&back, SlotChange::DiscardNext)), texts(&active));
        let active = secret(&[("tls.crt", "b"), ("tls.key", "B")]);
        assert_eq!(texts(&changed(&switched, SlotChange::DestroyPrevious)), texts(&active));
    }
}
