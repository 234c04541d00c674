//! Decides what is to be written to the ledger about the revocation of one certificate. Pure.

use windlass_ledger::{RevocationInfo, RevocationReason, RevocationRecord};

use super::object::{CertificateKey, KnownRevocation};
use crate::ledger::RecordedRevocation;

/// Who withdrew a revocation, where the ledger names the user: the object is gone, and with it who deleted it.
const UNKNOWN_REQUESTER: &str = "";

/// Entry to be written about one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerChange {
    /// Nothing: the ledger says what the objects say.
    None,
    /// A revocation or, with the reason `removeFromCRL`, a withdrawal.
    Append(RevocationRecord),
    /// Nothing: the object names another signer than the one that issued the certificate.
    ForeignSigner(String),
}

/// Compares the ledger with the objects. `object` is the revocation of the certificate, if there is one, and `is_own`
/// tells whether its authority belongs to the signer that it names.
///
/// A final revocation stays in the ledger when its object is deleted; one with the reason `certificateHold` is withdrawn
/// by a further entry. A hold that becomes final is recorded again.
pub fn plan(
    key: &CertificateKey,
    recorded: &RecordedRevocation,
    object: Option<&KnownRevocation>,
    is_own: impl Fn(&KnownRevocation) -> bool,
    now: i64,
) -> LedgerChange {
    let Some(object) = object else {
        return match recorded.latest {
            Some(latest) if is_hold(latest.reason) && latest.not_after >= now => {
                let reason = RevocationReason::RemoveFromCrl;
                let not_after = latest.not_after;
                append(key, reason, UNKNOWN_REQUESTER, later_than(Some(latest), now), not_after)
            }
            _ => LedgerChange::None,
        };
    };
    if let Some(signer) = recorded.signer.as_ref().filter(|signer| **signer != object.signer)
        && !is_own(object)
    {
        return LedgerChange::ForeignSigner(signer.clone());
    }
    let is_recorded = recorded.latest.is_some_and(|latest| match latest.reason {
        RevocationReason::RemoveFromCrl => false,
        RevocationReason::CertificateHold => is_hold(object.reason),
        _ => true,
    });
    if is_recorded {
        return LedgerChange::None;
    }
    let time = later_than(recorded.latest, object.revoked_at);
    append(key, object.reason, &object.requester, time, object.not_after)
}

/// Whether a revocation can be withdrawn.
pub fn is_hold(reason: RevocationReason) -> bool {
    reason == RevocationReason::CertificateHold
}

/// Whether a revocation is in force and can never be withdrawn.
pub fn is_final(reason: RevocationReason) -> bool {
    !matches!(reason, RevocationReason::CertificateHold | RevocationReason::RemoveFromCrl)
}

/// Of two entries the later one counts, so the times of consecutive entries must differ.
fn later_than(latest: Option<RevocationInfo>, time: i64) -> i64 {
    latest.map_or(time, |latest| time.max(latest.time.saturating_add(1)))
}

fn append(
    (authority, serial): &CertificateKey,
    reason: RevocationReason,
    requester: &str,
    time: i64,
    not_after: i64,
) -> LedgerChange {
    let requester = requester.to_owned();
    let (authority, serial) = (authority.clone(), *serial);
    LedgerChange::Append(RevocationRecord { authority, serial, reason, requester, time, not_after })
}

#[cfg(test)]
mod tests {
    use RevocationReason::{CertificateHold, KeyCompromise, RemoveFromCrl, Superseded};
    use windlass_ledger::{AuthorityId, SerialNumber};

    use super::*;

    /// Returns reason and time of the entry that is appended.
    fn change(latest: Option<(RevocationReason, i64)>, object: Option<RevocationReason>, now: i64) -> String {
        let key = (AuthorityId::from_bytes(&[7; 20]).unwrap(), SerialNumber::from_bytes(&[1]).unwrap());
        let latest = latest.map(|(reason, time)| RevocationInfo { reason, time, not_after: 1000 });
        let recorded = RecordedRevocation { signer: Some("a.b/c".into()), latest };
        let object = object.map(|reason| KnownRevocation {
            signer: "a.b/c".into(),
            reason,
            not_after: 1000,
            revoked_at: 100,
            requester: "alice".into(),
            has_time: true,
        });
        match plan(&key, &recorded, object.as_ref(), |_| false, now) {
            LedgerChange::None => "nothing".to_owned(),
            LedgerChange::Append(record) => {
                assert_eq!((record.authority, record.serial, record.not_after), (key.0, key.1, 1000));
                format!("{} {} {}", record.reason.name(), record.time, record.requester)
            }
            LedgerChange::ForeignSigner(_) => "foreign".to_owned(),
        }
    }

    #[test]
    fn the_ledger_follows_the_objects() {
        let (hold, gone) = (Some((CertificateHold, 100)), Some((RemoveFromCrl, 120)));
        for (latest, object, now, expected) in [
            (None, None, 500, "nothing"),
            (None, Some(KeyCompromise), 500, "keyCompromise 100 alice"),
            (None, Some(KeyCompromise), 2000, "keyCompromise 100 alice"),
            // Recorded already, also with another reason.
            (Some((KeyCompromise, 100)), Some(KeyCompromise), 500, "nothing"),
            (Some((KeyCompromise, 100)), Some(Superseded), 500, "nothing"),
            (Some((KeyCompromise, 100)), Some(CertificateHold), 500, "nothing"),
            // A final revocation stays when its object is gone.
            (Some((KeyCompromise, 100)), None, 500, "nothing"),
            (hold, Some(CertificateHold), 500, "nothing"),
            (hold, Some(KeyCompromise), 500, "keyCompromise 101 alice"),
            (hold, None, 500, "removeFromCRL 500 "),
            (hold, None, 100, "removeFromCRL 101 "),
            (hold, None, 2000, "nothing"),
            (gone, None, 500, "nothing"),
            (gone, Some(CertificateHold), 500, "certificateHold 121 alice"),
        ] {
            assert_eq!(change(latest, object, now), expected, "{latest:?} {object:?} {now}");
        }
    }

    #[test]
    fn nobody_revokes_certificates_of_another_signer() {
        let key = (AuthorityId::from_bytes(&[7; 20]).unwrap(), SerialNumber::from_bytes(&[1]).unwrap());
        let object = KnownRevocation {
            signer: "a.b/other".into(),
            reason: KeyCompromise,
            not_after: 1000,
            revoked_at: 100,
            requester: String::new(),
            has_time: true,
        };
        let recorded = RecordedRevocation { signer: Some("a.b/c".into()), latest: None };
        let change = plan(&key, &recorded, Some(&object), |_| false, 500);
        assert_eq!(change, LedgerChange::ForeignSigner("a.b/c".into()));
        assert!(matches!(plan(&key, &recorded, Some(&object), |_| true, 500), LedgerChange::Append(_)));
        let unknown = RecordedRevocation::default();
        assert!(matches!(plan(&key, &unknown, Some(&object), |_| false, 500), LedgerChange::Append(_)));
    }
}
