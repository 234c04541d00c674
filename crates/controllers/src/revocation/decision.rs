//! Decides whether the list of an authority is signed again, and what it contains. Pure.

use std::collections::HashSet;
use std::time::Duration;

use time::OffsetDateTime;
use windlass_pki::{CertificateRevocationList, RevokedCertificate};

use crate::limits::{MAX_CRL_ENTRIES_BYTES, MIN_CRL_INTERVAL};

/// Upper bound of the size of an entry, besides the octets of its serial number: headers, time and reason.
const ENTRY_OVERHEAD: usize = 36;

/// A revoked certificate, and until when a list must have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedEntry {
    pub certificate: RevokedCertificate,
    /// Last second in which the certificate is valid.
    pub not_after: OffsetDateTime,
}

/// What is published for an authority.
#[derive(Debug)]
pub struct PublishedList {
    /// Largest number that was published.
    pub number: u64,
    /// The list; `None` if it is not one that the CA has signed.
    pub list: Option<CertificateRevocationList>,
}

/// What is done about the list of an authority.
#[derive(Debug, PartialEq, Eq)]
pub enum ListDecision {
    /// The published list stays until one of these times.
    Keep(ListTimes),
    /// This list is signed and published.
    Sign(ListDraft),
}

/// When a list is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListTimes {
    /// When the list is due, if nothing changes.
    pub check_at: OffsetDateTime,
    /// Earliest time at which it may be replaced because something changed.
    pub signable_at: OffsetDateTime,
}

/// Contents of a list to be signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListDraft {
    pub number: u64,
    pub this_update: OffsetDateTime,
    pub next_update: OffsetDateTime,
    /// Revoked certificates in the order of their serial numbers.
    pub revoked: Vec<RevokedCertificate>,
    /// Number of revoked certificates for which there is no room.
    pub omitted: usize,
}

/// Decides what is done now. `revoked` has each serial number once, expired certificates included.
pub fn decide(
    published: Option<&PublishedList>,
    revoked: Vec<RevokedEntry>,
    duration: Duration,
    now: OffsetDateTime,
) -> ListDecision {
    let list = published.and_then(|published| published.list.as_ref());
    if let Some(list) = list {
        let times = ListTimes::new(list.this_update(), list.next_update(), list.len(), duration);
        // A clock that was set back must not delay revocations.
        let is_limited = list.this_update() <= now && now < times.signable_at;
        let is_changed = is_changed(list, &revoked);
        if is_changed && is_limited {
            return ListDecision::Keep(ListTimes { check_at: times.signable_at, ..times });
        }
        if !is_changed && now < times.check_at {
            return ListDecision::Keep(times);
        }
    }
    let (revoked, omitted) = select_entries(revoked, list, now);
    let this_update = now.replace_nanosecond(0).unwrap_or(now);
    // The time makes numbers grow even if the object, and with it the last number, was deleted.
    let by_time = u64::try_from(now.unix_timestamp()).unwrap_or(0);
    let successor = published.map_or(1, |published| published.number.saturating_add(1));
    ListDecision::Sign(ListDraft {
        number: successor.max(by_time).min(i64::MAX.unsigned_abs()),
        this_update,
        next_update: this_update.saturating_add(to_signed(duration)),
        revoked,
        omitted,
    })
}

impl ListTimes {
    fn new(
        this_update: OffsetDateTime,
        next_update: OffsetDateTime,
        entries: usize,
        duration: Duration,
    ) -> ListTimes {
        let validity = to_signed(duration).min(next_update - this_update);
        // A long list costs more to sign, to store and to distribute.
        let thousands = u32::try_from(entries / 1000).unwrap_or(u32::MAX);
        let interval = to_signed(MIN_CRL_INTERVAL) + time::Duration::SECOND * f64::from(thousands);
        ListTimes {
            check_at: this_update.saturating_add(validity / 2),
            signable_at: this_update.saturating_add(interval),
        }
    }

    /// Returns the times of a list that was just signed.
    pub fn of_draft(draft: &ListDraft, duration: Duration) -> ListTimes {
        ListTimes::new(draft.this_update, draft.next_update, draft.revoked.len(), duration)
    }
}

/// Whether a revocation is missing in the list, differs in it, or was withdrawn. Expired certificates drop out with the
/// next list, and are no reason to sign it.
fn is_changed(list: &CertificateRevocationList, revoked: &[RevokedEntry]) -> bool {
    let is_missing = |entry: &RevokedEntry| match list.find(&entry.certificate.serial) {
        Some(listed) => {
            listed.reason != entry.certificate.reason || listed.revoked_at != entry.certificate.revoked_at
        }
        None => true,
    };
    let (wanted, _) = fit(revoked.iter().filter(|entry| is_required(entry, list)).collect());
    if wanted.into_iter().any(is_missing) {
        return true;
    }
    let known: HashSet<&[u8]> = revoked.iter().map(|entry| significant(&entry.certificate.serial)).collect();
    list.entries().any(|listed| !known.contains(significant(&listed.serial)))
}

/// RFC 5280 §3.3: an entry is removed once it was in a list that was issued after the certificate had expired.
fn is_required(entry: &RevokedEntry, list: &CertificateRevocationList) -> bool {
    entry.not_after >= list.this_update()
}

fn select_entries(
    revoked: Vec<RevokedEntry>,
    list: Option<&CertificateRevocationList>,
    now: OffsetDateTime,
) -> (Vec<RevokedCertificate>, usize) {
    let is_wanted = |entry: &&RevokedEntry| match list {
        Some(list) => is_required(entry, list),
        None => entry.not_after >= now,
    };
    let (selected, omitted) = fit(revoked.iter().filter(is_wanted).collect());
    let mut selected: Vec<RevokedCertificate> =
        selected.into_iter().map(|entry| entry.certificate.clone()).collect();
    selected.sort_unstable_by(|a, b| a.serial.cmp(&b.serial));
    (selected, omitted)
}

/// Selects entries up to the size of a list. Those that expire first are left out, because they do the least harm.
fn fit(mut entries: Vec<&RevokedEntry>) -> (Vec<&RevokedEntry>, usize) {
    entries.sort_unstable_by(|a, b| {
        b.not_after.cmp(&a.not_after).then_with(|| a.certificate.serial.cmp(&b.certificate.serial))
    });
    let mut bytes = 0;
    let count = entries
        .iter()
        .take_while(|entry| {
            bytes += ENTRY_OVERHEAD + entry.certificate.serial.len();
            bytes <= MAX_CRL_ENTRIES_BYTES
        })
        .count();
    let omitted = entries.len() - count;
    entries.truncate(count);
    (entries, omitted)
}

/// Removes leading zeros, which DER has for the sign.
fn significant(serial: &[u8]) -> &[u8] {
    let zeros = serial.iter().take_while(|octet| **octet == 0).count();
    serial.get(zeros..).unwrap_or_default()
}

fn to_signed(duration: Duration) -> time::Duration {
    time::Duration::try_from(duration).unwrap_or(time::Duration::MAX)
}

#[cfg(test)]
mod tests;
