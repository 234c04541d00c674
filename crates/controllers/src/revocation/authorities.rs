//! CA keys that this process holds, for which it signs lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use windlass_ledger::AuthorityId;

use crate::ca::SigningCa;
use crate::csr_signer::BuiltInSigner;
use crate::limits::MAX_RETAINED_AUTHORITIES;
use crate::signers::CustomSigner;
use crate::signers::config::DEFAULT_CRL_DURATION;

/// A CA key, and the signers that use it.
#[derive(Clone, Debug)]
pub struct HeldAuthority {
    pub id: AuthorityId,
    /// Signer in whose name the list is published: the first one that uses the key.
    pub signer: String,
    /// All signers that use the key.
    pub signers: BTreeSet<String>,
    pub ca: Arc<SigningCa>,
    /// Validity of lists; the shortest that a signer wants.
    pub duration: Duration,
}

/// Held CA keys by their ids.
pub type HeldAuthorities = BTreeMap<String, HeldAuthority>;

/// Returns the CA keys that are held now. Those of `before` that were replaced since are retained while their signer
/// exists and their certificates are valid: the certificates that they signed can still be revoked, and a list must not
/// expire before them.
pub fn collect(
    built_in: &[BuiltInSigner],
    custom: &[CustomSigner],
    before: &HeldAuthorities,
    now: OffsetDateTime,
) -> HeldAuthorities {
    let mut held = HeldAuthorities::new();
    let mut existing: BTreeMap<&str, Duration> = BTreeMap::new();
    for BuiltInSigner { signer, ca } in built_in {
        existing.insert(signer.name(), DEFAULT_CRL_DURATION);
        add(&mut held, signer.name(), ca.current(), DEFAULT_CRL_DURATION, now);
    }
    for signer in custom {
        let name = signer.custom.name.as_str();
        let duration = signer.custom.crl.as_ref().map_or(DEFAULT_CRL_DURATION, |crl| crl.duration);
        existing.insert(name, duration);
        add(&mut held, name, signer.ca.current(), duration, now);
        // During a rollout, the previous CA signs.
        add(&mut held, name, signer.rollout.select_ca(now).ok(), duration, now);
        // A rotation keeps the key of the CA that it has replaced for some time.
        add(&mut held, name, signer.ca.previous(), duration, now);
    }
    let mut retained: BTreeMap<&str, usize> = BTreeMap::new();
    for (id, authority) in before {
        let Some(duration) = existing.get(authority.signer.as_str()) else { continue };
        if held.contains_key(id) || !is_valid(&authority.ca, now) {
            continue;
        }
        let count = retained.entry(authority.signer.as_str()).or_default();
        if *count < MAX_RETAINED_AUTHORITIES {
            *count += 1;
            held.insert(id.clone(), HeldAuthority { duration: *duration, ..authority.clone() });
        }
    }
    held
}

fn add(
    held: &mut HeldAuthorities,
    signer: &str,
    ca: Option<Arc<SigningCa>>,
    duration: Duration,
    now: OffsetDateTime,
) {
    let Some(ca) = ca.filter(|ca| is_valid(ca, now)) else { return };
    let id = ca.certificate().authority_id();
    let Ok(authority) = id.parse::<AuthorityId>() else { return };
    let entry = held.entry(id).or_insert_with(|| HeldAuthority {
        id: authority,
        signer: signer.to_owned(),
        signers: BTreeSet::new(),
        ca,
        duration,
    });
    entry.signers.insert(signer.to_owned());
    entry.duration = entry.duration.min(duration);
}

/// After its expiry a CA has no valid certificates, and verifiers reject its lists.
fn is_valid(ca: &SigningCa, now: OffsetDateTime) -> bool {
    ca.certificate().validity().contains(now)
}
