//! Which authorities a rotation has, and which one is active.
//!
//! A generated CA has slots in its Secret, and the annotation of the Secret says which rotation wrote them. The content of
//! a provided CA is the new authority; the old one is the one that the signer's bundle names as active.

use k8s_openapi::api::core::v1::Secret;
use time::OffsetDateTime;
use windlass_api::ca_rotation::{CaRotationAuthority, CaRotationStatus};
use windlass_api::timestamp;
use windlass_pki::Certificate;

use super::observation::{AuthorityIdentity, AuthorityPosition, NewAuthoritySource};
use super::trust_bundle::SignerBundle;
use crate::ca::SigningCa;
use crate::ca::secret::CaSlots;
use crate::publisher::anchors::TrustAnchor;
use crate::signers::CustomSigner;

/// An authority as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownAuthority {
    pub identity: AuthorityIdentity,
    /// Subject of the CA certificate; empty if it is not known.
    pub subject: String,
    /// Expiry of the CA certificate.
    pub not_after: Option<OffsetDateTime>,
    /// The trust anchor; `None` if only its fingerprint is known.
    pub anchor: Option<TrustAnchor>,
}

/// The authorities of a rotation.
pub struct RotationAuthorities {
    /// What the phase is derived from.
    pub position: AuthorityPosition,
    /// Authority that was active when the rotation began.
    pub old: Option<KnownAuthority>,
    /// Authority that the rotation introduces.
    pub new: Option<KnownAuthority>,
    /// Secret with the slots of a generated CA.
    pub secret: Option<Secret>,
}

impl KnownAuthority {
    pub fn from_ca(ca: &SigningCa) -> KnownAuthority {
        let certificate = ca.certificate();
        let anchor = TrustAnchor::from_certificate(ca.anchor());
        KnownAuthority {
            identity: AuthorityIdentity { id: certificate.authority_id(), anchor: anchor.fingerprint() },
            subject: describe_subject(certificate),
            not_after: Some(certificate.validity().not_after()),
            anchor: Some(anchor),
        }
    }

    /// Describes an authority of which only the anchor is known, which signs itself as a rule.
    fn from_anchor(anchor: &TrustAnchor) -> KnownAuthority {
        let certificate = anchor.certificate();
        KnownAuthority {
            identity: AuthorityIdentity {
                id: certificate.as_ref().map(Certificate::authority_id).unwrap_or_default(),
                anchor: anchor.fingerprint(),
            },
            subject: certificate.as_ref().map(describe_subject).unwrap_or_default(),
            not_after: certificate.map(|certificate| certificate.validity().not_after()),
            anchor: Some(anchor.clone()),
        }
    }

    /// Reads what a status recorded.
    fn from_status(recorded: &CaRotationAuthority, anchors: &[TrustAnchor]) -> KnownAuthority {
        let fingerprint = recorded.anchor_fingerprint.clone().unwrap_or_default();
        KnownAuthority {
            anchor: anchors.iter().find(|anchor| anchor.fingerprint() == fingerprint).cloned(),
            identity: AuthorityIdentity { id: recorded.id.clone(), anchor: fingerprint },
            subject: recorded.subject.clone().unwrap_or_default(),
            not_after: recorded.not_after.as_deref().and_then(|time| timestamp::parse(time).ok()),
        }
    }

    /// Encodes the authority for the status.
    pub fn to_status(&self) -> CaRotationAuthority {
        CaRotationAuthority {
            id: self.identity.id.clone(),
            subject: Some(self.subject.clone()).filter(|subject| !subject.is_empty()),
            not_after: self.not_after.map(timestamp::format),
            anchor_fingerprint: Some(self.identity.anchor.clone()),
        }
    }
}

impl RotationAuthorities {
    /// Creates authorities of a signer that has no usable CA.
    pub fn unavailable(cause: String) -> RotationAuthorities {
        let position = AuthorityPosition::Unavailable(cause);
        RotationAuthorities { position, old: None, new: None, secret: None }
    }

    /// Finds the authorities of a generated CA in its slots.
    pub fn from_slots(
        secret: Secret,
        slots: &CaSlots,
        rotation: &str,
        bundles: &[SignerBundle],
        status: &CaRotationStatus,
    ) -> RotationAuthorities {
        let anchors: Vec<TrustAnchor> = bundles.iter().flat_map(SignerBundle::anchors).collect();
        let active = KnownAuthority::from_ca(&slots.active);
        let is_own = slots.rotation.as_deref() == Some(rotation);
        let (next, previous) =
            (slots.next.as_ref().filter(|_| is_own), slots.previous.as_ref().filter(|_| is_own));
        let next = next.map(KnownAuthority::from_ca);
        let recorded = status.old_authority.as_ref().map(|old| KnownAuthority::from_status(old, &anchors));
        // Somebody may have removed the previous slot.
        let recorded = recorded.filter(|old| is_own && old.identity.id != active.identity.id);
        let is_reversible = previous.is_some();
        let previous = previous.map(KnownAuthority::from_ca).or(recorded);
        let (position, old, new) = match (next, previous) {
            (Some(new), _) => {
                let (old_id, new_id) = (active.identity.clone(), new.identity.clone());
                let is_withdrawn = slots.is_withdrawn;
                let position = AuthorityPosition::Prepared { old: old_id, new: new_id, is_withdrawn };
                (position, active, Some(new))
            }
            (None, Some(old)) if !slots.is_withdrawn => {
                let (old_id, new_id) = (old.identity.clone(), active.identity.clone());
                (AuthorityPosition::Switched { old: old_id, new: new_id, is_reversible }, old, Some(active))
            }
            (None, _) => (AuthorityPosition::Unprepared(NewAuthoritySource::Generated), active, None),
        };
        RotationAuthorities { position, old: Some(old), new, secret: Some(secret) }
    }

    /// Finds the authorities of a CA that somebody else provides.
    pub fn from_source(
        signer: &CustomSigner,
        bundles: &[SignerBundle],
        main: Option<&SignerBundle>,
        status: &CaRotationStatus,
    ) -> RotationAuthorities {
        let Some(source) = signer.ca.current() else {
            return RotationAuthorities::unavailable(signer.ca.unavailable_message());
        };
        let source = KnownAuthority::from_ca(&source);
        let anchors: Vec<TrustAnchor> = bundles.iter().flat_map(SignerBundle::anchors).collect();
        let active = main.and_then(SignerBundle::active);
        let by_anchor = |fingerprint: &str| {
            let in_memory = signer.rollout.find_ca(fingerprint).map(|ca| KnownAuthority::from_ca(&ca));
            let published = || anchors.iter().find(|anchor| anchor.fingerprint() == fingerprint);
            in_memory.or_else(|| published().map(KnownAuthority::from_anchor))
        };
        let recorded = status.old_authority.as_ref();
        let recorded = recorded.map(|old| {
            let known = by_anchor(old.anchor_fingerprint.as_deref().unwrap_or_default());
            KnownAuthority {
                anchor: known.and_then(|known| known.anchor),
                ..KnownAuthority::from_status(old, &anchors)
            }
        });
        let found = recorded.or_else(|| active.and_then(|active| by_anchor(active)));
        let mut old = found.unwrap_or_else(|| source.clone());
        let is_active =
            |authority: &KnownAuthority| active.is_none_or(|active| *active == authority.identity.anchor);
        // After the switch, the source may contain a third authority already, for the next rotation.
        let recorded_new =
            status.new_authority.as_ref().map(|new| KnownAuthority::from_status(new, &anchors));
        let new = match recorded_new {
            Some(new) if !is_active(&source) && is_active(&new) => new,
            _ => source,
        };
        if old.identity == new.identity {
            let how = "put the new CA into the files or the Secret of the signer".to_owned();
            let position = AuthorityPosition::Unprepared(NewAuthoritySource::Provided(how));
            return RotationAuthorities { position, old: Some(old), new: None, secret: None };
        }
        if old.anchor.is_none() {
            // Nobody has it any more, so it is neither published nor removed.
            old.identity.anchor.clone_from(&new.identity.anchor);
        }
        let (old_id, new_id) = (old.identity.clone(), new.identity.clone());
        let position = if is_active(&new) {
            let is_reversible = signer.rollout.find_ca(&old.identity.anchor).is_some();
            AuthorityPosition::Switched { old: old_id, new: new_id, is_reversible }
        } else {
            AuthorityPosition::Prepared { old: old_id, new: new_id, is_withdrawn: false }
        };
        RotationAuthorities { position, old: Some(old), new: Some(new), secret: None }
    }
}

fn describe_subject(certificate: &Certificate) -> String {
    let names = certificate.common_name().map(|name| format!("CN={name}"));
    let organizations = certificate.organizations().iter().map(|each| format!("O={each}"));
    names.into_iter().chain(organizations).collect::<Vec<_>>().join(",")
}
