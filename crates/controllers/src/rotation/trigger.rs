//! Decides whether a signer without a rotation needs one: its generated CA expires soon, or its files or Secret contain
//! another CA. Pure.

use windlass_api::ca_rotation::{RotationPhase, RotationTrigger};
use windlass_api::signer_name::SignerName;
use windlass_pki::fingerprint;

use crate::signers::object_name;

/// What is known about a signer without a rotation that runs.
#[derive(Clone, Debug, Default)]
pub struct TriggerFacts {
    /// Fingerprint of the anchor of its CA: of the newest content of a source, or of the active one in a Secret.
    pub anchor: String,
    /// Whether the controllers generate the CA.
    pub is_generated: bool,
    /// Whether a generated CA is to be replaced.
    pub is_renewal_due: bool,
    /// Fingerprint of the anchor that the signer's bundle names as the active one; `None` without such a bundle.
    pub active: Option<String>,
    /// The rotation that ended last.
    pub last: Option<EndedRotation>,
}

/// A rotation that has ended.
#[derive(Clone, Debug, Default)]
pub struct EndedRotation {
    pub uid: String,
    pub phase: Option<RotationPhase>,
    /// Fingerprint of the anchor that it introduced.
    pub new_anchor: Option<String>,
}

/// A rotation to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRotation {
    /// Name of the object. Every controller derives the same, so one rotation is created.
    pub name: String,
    pub trigger: RotationTrigger,
}

/// Decides whether a rotation is to be created.
pub fn plan(signer: &SignerName, facts: &TriggerFacts) -> Option<PlannedRotation> {
    let trigger = match (&facts.active, facts.is_generated) {
        (_, true) if facts.is_renewal_due => RotationTrigger::Expiry,
        (Some(active), false) if *active != facts.anchor => RotationTrigger::SourceChanged,
        _ => return None,
    };
    let last = facts.last.as_ref();
    // Somebody decided against this CA. It is tried again when it is replaced, or when that rotation is deleted.
    let is_rejected = last.is_some_and(|last| {
        last.phase == Some(RotationPhase::RolledBack)
            && (facts.is_generated || last.new_anchor.as_ref() == Some(&facts.anchor))
    });
    if is_rejected {
        return None;
    }
    let last = last.map(|last| last.uid.as_str()).unwrap_or_default();
    let active = facts.active.as_deref().unwrap_or_default();
    let identity = [signer.as_str(), active, &facts.anchor, last].join("\0");
    let suffix: String =
        fingerprint(identity.as_bytes()).iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    Some(PlannedRotation { name: format!("{}-{suffix}", object_name(signer)), trigger })
}

#[cfg(test)]
mod tests {
    use windlass_api::field::{FieldErrors, FieldPath};

    use super::*;

    fn facts() -> TriggerFacts {
        TriggerFacts { anchor: "b".into(), active: Some("a".into()), ..TriggerFacts::default() }
    }

    #[test]
    fn a_rotation_is_created_once_for_each_cause() {
        let name = SignerName::parse(&FieldPath::new("name"), "a.b/c", &mut FieldErrors::new()).unwrap();
        let planned = plan(&name, &facts()).unwrap();
        assert_eq!(planned.trigger, RotationTrigger::SourceChanged);
        assert!(planned.name.starts_with("c.a.b-"), "{}", planned.name);
        assert_eq!(plan(&name, &facts()), Some(planned.clone()));
        let ended = |phase, anchor: &str| EndedRotation {
            uid: "1".into(),
            phase: Some(phase),
            new_anchor: Some(anchor.to_owned()),
        };
        let after = |ended| TriggerFacts { last: Some(ended), ..facts() };
        let again = plan(&name, &after(ended(RotationPhase::Completed, "b"))).unwrap();
        assert_ne!(again.name, planned.name, "another rotation to the same CA");
        assert_eq!(plan(&name, &after(ended(RotationPhase::RolledBack, "b"))), None);
        assert!(plan(&name, &after(ended(RotationPhase::RolledBack, "c"))).is_some());
        let none = [
            TriggerFacts { anchor: "a".into(), ..facts() },
            TriggerFacts { active: None, ..facts() },
            TriggerFacts { is_generated: true, ..facts() },
        ];
        for facts in none {
            assert_eq!(plan(&name, &facts), None, "{facts:?}");
        }
        let due = TriggerFacts { is_generated: true, is_renewal_due: true, ..facts() };
        assert_eq!(plan(&name, &due).unwrap().trigger, RotationTrigger::Expiry);
    }
}
