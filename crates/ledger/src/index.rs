//! Certificates in memory: their state, who holds them, which one superseded which.
//!
//! Built incrementally from segments, in any order. A record takes less than 200 bytes, so that the records of 150,000
//! pods fit into the memory of a command; the whole record stays in its segment, of which the index knows the place.

mod filter;
mod interner;
mod totals;
mod view;

use std::collections::HashMap;

use crate::chain::LedgerChain;
use crate::identity::{AuthorityId, ObjectUid, SerialNumber, sha256};
use crate::record::{EntryPosition, IssuanceRecord, LedgerEntry, RevocationReason, RevocationRecord};
use crate::retention::RETENTION;
use crate::segment::SegmentHeader;

use interner::{HashIndex, Interner};

pub use filter::CertificateFilter;
pub use totals::AuthorityTotals;
pub use view::{CertificateHolder, CertificateView};

/// State of a certificate as far as the ledger tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CertificateState {
    /// About to be signed. Whether it was is not known yet.
    Recorded,
    /// The certificate was written to its request.
    Issued,
    /// Never written to its request.
    Abandoned,
    /// Issued or recorded, and revoked.
    Revoked,
}

impl CertificateState {
    /// Returns the name that commands print.
    pub const fn name(self) -> &'static str {
        match self {
            CertificateState::Recorded => "Recorded",
            CertificateState::Issued => "Issued",
            CertificateState::Abandoned => "Abandoned",
            CertificateState::Revoked => "Revoked",
        }
    }
}

/// When and why a certificate was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevocationInfo {
    /// Reason that the revocation states.
    pub reason: RevocationReason,
    /// Time of the revocation in seconds since 1970.
    pub time: i64,
    /// When the certificate expires, in seconds since 1970.
    pub not_after: i64,
}

/// No certificate: numbers stay far below it.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    Recorded,
    Issued,
    Abandoned,
}

#[derive(Clone, Debug)]
struct CompactRecord {
    serial: SerialNumber,
    state: RecordState,
    chain: LedgerChain,
    /// Index of the signer and authority.
    issuer: u32,
    group: u32,
    /// Alternative names, as one string.
    names: u32,
    subject: u32,
    position: EntryPosition,
    /// Beginning of the hash of the key. Compared only among certificates of one holder.
    key: u64,
    recorded: i64,
    not_before: i64,
    not_after: i64,
}

/// Certificates of one signer that replace each other, because they have the same holder.
#[derive(Clone, Debug)]
struct HolderGroup {
    identity: [u8; 16],
    /// Index of the newest issued certificate.
    newest: u32,
    /// Newest issued certificate with another key than `newest`. The two decide whether any other is superseded.
    newest_other_key: u32,
    node: u32,
    namespace: u32,
    pod: u32,
    service_account: u32,
}

#[derive(Clone, Debug, Default)]
struct IndexedSegment {
    /// Number of entries that were added.
    entries: u32,
    /// Index in the segment and number of every record, in order.
    records: Vec<(u32, u32)>,
}

/// All certificates of the ledger.
#[derive(Clone, Debug, Default)]
pub struct CertificateIndex {
    records: Vec<CompactRecord>,
    by_serial: HashIndex,
    groups: Vec<HolderGroup>,
    by_holder: HashIndex,
    strings: Interner,
    /// Signers and authorities by number, as numbers of strings.
    issuers: Vec<(u32, u32)>,
    segments: HashMap<(LedgerChain, u64), IndexedSegment>,
    revocations: HashMap<(AuthorityId, SerialNumber), RevocationInfo>,
    /// Confirmations that arrived before their records.
    early: HashMap<(LedgerChain, EntryPosition), RecordState>,
    /// Number of certificates per issuer that were removed after they had expired.
    expired: HashMap<u32, u64>,
}

impl CertificateIndex {
    /// Creates an index without certificates.
    pub fn new() -> CertificateIndex {
        CertificateIndex::default()
    }

    /// Adds the entries of a segment that were not added before. Segments may be added in any order and repeatedly.
    pub fn add_segment(&mut self, header: &SegmentHeader, entries: &[LedgerEntry]) {
        self.add_entries(header, 0, entries);
    }

    /// Adds entries of a segment from index `first` on. Those before it must have been added.
    pub fn add_entries(&mut self, header: &SegmentHeader, first: u32, entries: &[LedgerEntry]) {
        let key = (header.chain, header.sequence);
        let known = self.segments.entry(key).or_default().entries;
        for (index, entry) in (first..).zip(entries) {
            if index >= known {
                let position = EntryPosition { sequence: header.sequence, index };
                self.add_entry(header.chain, position, entry);
            }
        }
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let segment = self.segments.entry(key).or_default();
        segment.entries = segment.entries.max(first.saturating_add(count));
    }

    fn add_entry(&mut self, chain: LedgerChain, position: EntryPosition, entry: &LedgerEntry) {
        match entry {
            LedgerEntry::Issuance(record) => self.add_record(chain, position, record),
            LedgerEntry::Issued(of) => self.set_state(chain, *of, RecordState::Issued),
            LedgerEntry::Abandoned(of) => self.set_state(chain, *of, RecordState::Abandoned),
            LedgerEntry::Revoked(record) => self.add_revocation(record),
            LedgerEntry::Pruned { .. } => {}
        }
    }

    fn add_record(&mut self, chain: LedgerChain, position: EntryPosition, record: &IssuanceRecord) {
        let issuer = self.intern_issuer(record.signer.as_bytes(), record.authority.as_bytes());
        let group = self.group(record);
        let names = self.strings.intern(view::join_names(record).as_bytes());
        let subject = self.strings.intern(record.subject.as_bytes());
        let [key, ..] = record.key_hash.0.as_chunks().0 else { return };
        let state = self.early.remove(&(chain, position)).unwrap_or(RecordState::Recorded);
        self.insert(CompactRecord {
            serial: record.serial,
            state,
            chain,
            issuer,
            group,
            names,
            subject,
            position,
            key: u64::from_le_bytes(*key),
            recorded: record.recorded,
            not_before: record.not_before,
            not_after: record.not_after,
        });
    }

    fn insert(&mut self, record: CompactRecord) {
        let number = u32::try_from(self.records.len()).unwrap_or(NONE);
        let (key, position) = ((record.chain, record.position.sequence), record.position);
        self.segments.entry(key).or_default().records.push((position.index, number));
        self.by_serial.insert(record.serial.as_bytes(), number);
        let is_issued = record.state == RecordState::Issued;
        self.records.push(record);
        if is_issued {
            self.update_group(number);
        }
    }

    fn set_state(&mut self, chain: LedgerChain, position: EntryPosition, state: RecordState) {
        let segment = self.segments.get(&(chain, position.sequence));
        let found = segment.and_then(|segment| {
            let at = segment.records.binary_search_by_key(&position.index, |(index, _)| *index).ok()?;
            segment.records.get(at).map(|(_, number)| *number)
        });
        let Some(number) = found else {
            let is_known = segment.is_some_and(|segment| segment.entries > position.index);
            if !is_known {
                self.early.insert((chain, position), state);
            }
            return;
        };
        if let Some(record) = self.record_mut(number) {
            record.state = state;
        }
        if state == RecordState::Issued {
            self.update_group(number);
        }
    }

    fn add_revocation(&mut self, record: &RevocationRecord) {
        let key = (record.authority.clone(), record.serial);
        let RevocationRecord { reason, time, not_after, .. } = *record;
        let info = RevocationInfo { reason, time, not_after };
        // Chains are read in any order; the latest entry counts.
        if self.revocations.get(&key).is_none_or(|known| known.time <= info.time) {
            self.revocations.insert(key, info);
        }
    }

    /// Updates the newest certificates of a holder when one of them turns out to be issued.
    fn update_group(&mut self, number: u32) {
        let Some(record) = self.record(number) else { return };
        let Some(group) = self.groups.get(usize_of(record.group)) else { return };
        let (newest, other) = (group.newest, group.newest_other_key);
        let has_same_key = |than: u32| self.record(than).is_some_and(|than| than.key == record.key);
        let is_newer = |than: u32| self.record(than).is_none_or(|than| record.age_key() > than.age_key());
        let (newest, other) = match (is_newer(newest), has_same_key(newest)) {
            (true, true) => (number, other),
            (true, false) => (number, newest),
            (false, false) if is_newer(other) => (newest, number),
            (false, _) => (newest, other),
        };
        let group = record.group;
        if let Some(group) = self.groups.get_mut(usize_of(group)) {
            (group.newest, group.newest_other_key) = (newest, other);
        }
    }

    fn group(&mut self, record: &IssuanceRecord) -> u32 {
        let identity = holder_identity(record);
        let is_same = |number: u32| self.groups.get(usize_of(number)).is_some_and(|g| g.identity == identity);
        if let Some(number) = self.by_holder.find(&identity, is_same) {
            return number;
        }
        let mut intern = |text: &str| self.strings.intern(text.as_bytes());
        let pod = record.pod.as_ref();
        let group = HolderGroup {
            identity,
            newest: NONE,
            newest_other_key: NONE,
            node: intern(record.node.as_deref().unwrap_or_default()),
            namespace: intern(&record.request.namespace),
            pod: intern(pod.map_or("", |pod| &pod.name)),
            service_account: intern(pod.map_or("", |pod| &pod.service_account)),
        };
        let number = u32::try_from(self.groups.len()).unwrap_or(NONE);
        self.by_holder.insert(&group.identity, number);
        self.groups.push(group);
        number
    }

    fn intern_issuer(&mut self, signer: &[u8], authority: &[u8]) -> u32 {
        let pair = (self.strings.intern(signer), self.strings.intern(authority));
        // There are few, and the newest are the most frequent.
        let at = self.issuers.iter().rposition(|known| *known == pair).unwrap_or_else(|| {
            self.issuers.push(pair);
            self.issuers.len() - 1
        });
        u32::try_from(at).unwrap_or(NONE)
    }

    fn issuer(&self, number: u32) -> (&str, &[u8]) {
        let (signer, authority) = self.issuers.get(usize_of(number)).copied().unwrap_or((NONE, NONE));
        (self.strings.text(signer), self.strings.get(authority))
    }

    fn record(&self, number: u32) -> Option<&CompactRecord> {
        self.records.get(usize_of(number))
    }

    fn record_mut(&mut self, number: u32) -> Option<&mut CompactRecord> {
        self.records.get_mut(usize_of(number))
    }

    /// Returns the number of certificates.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no certificates.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Lists all certificates in the order in which they were added.
    pub fn certificates(&self) -> impl Iterator<Item = CertificateView<'_>> {
        self.records.iter().map(|record| CertificateView::new(self, record))
    }

    /// Lists the certificates that match a filter at `now`.
    pub fn select<'a>(
        &'a self,
        filter: &'a CertificateFilter,
        now: i64,
    ) -> impl Iterator<Item = CertificateView<'a>> {
        self.certificates().filter(move |certificate| filter.matches(certificate, now))
    }

    /// Finds a certificate by its serial number.
    pub fn find(&self, authority: &AuthorityId, serial: SerialNumber) -> Option<CertificateView<'_>> {
        let is_same = |number: u32| {
            self.record(number).is_some_and(|record| {
                record.serial == serial && self.issuer(record.issuer).1 == authority.as_bytes()
            })
        };
        let number = self.by_serial.find(serial.as_bytes(), is_same)?;
        self.record(number).map(|record| CertificateView::new(self, record))
    }

    /// Returns the latest revocation of a certificate, which is its withdrawal if the reason is
    /// [`RevocationReason::RemoveFromCrl`]. The certificate need not have a record.
    pub fn revocation(&self, authority: &AuthorityId, serial: SerialNumber) -> Option<RevocationInfo> {
        self.revocations.get(&(authority.clone(), serial)).copied()
    }

    /// Lists the latest revocation of every certificate, in no particular order, withdrawals included.
    pub fn revocations(&self) -> impl Iterator<Item = (&AuthorityId, SerialNumber, RevocationInfo)> {
        self.revocations.iter().map(|((authority, serial), info)| (authority, *serial, *info))
    }

    /// Removes the certificates that have expired before `now`; they still count as issued. For processes that run long.
    /// A certificate that outlives the one that superseded it counts as outstanding from then on.
    pub fn remove_expired(&mut self, now: i64) {
        let mut rest = CertificateIndex::new();
        for (issuer, expired) in &self.expired {
            let (signer, authority) = self.issuer(*issuer);
            let issuer = rest.intern_issuer(signer.as_bytes(), authority);
            rest.expired.insert(issuer, *expired);
        }
        for record in &self.records {
            self.copy_record(&mut rest, record, now);
        }
        for (key, segment) in &self.segments {
            rest.segments.entry(*key).or_default().entries = segment.entries;
        }
        rest.early = std::mem::take(&mut self.early);
        let revocations = std::mem::take(&mut self.revocations).into_iter();
        // Not those whose certificate has a record: one that was issued before there was a ledger has none.
        let is_retained = |info: &RevocationInfo| info.not_after.saturating_add(RETENTION) >= now;
        rest.revocations = revocations.filter(|(_, info)| is_retained(info)).collect();
        rest.shrink_to_fit();
        *self = rest;
    }

    fn copy_record(&self, rest: &mut CertificateIndex, record: &CompactRecord, now: i64) {
        let (signer, authority) = self.issuer(record.issuer);
        let issuer = rest.intern_issuer(signer.as_bytes(), authority);
        if record.not_after < now {
            if record.state != RecordState::Abandoned {
                *rest.expired.entry(issuer).or_default() += 1;
            }
            return;
        }
        let Some(group) = self.groups.get(usize_of(record.group)) else { return };
        let is_same =
            |number: u32| rest.groups.get(usize_of(number)).is_some_and(|g| g.identity == group.identity);
        let group = rest.by_holder.find(&group.identity, is_same).unwrap_or_else(|| {
            let number = u32::try_from(rest.groups.len()).unwrap_or(NONE);
            rest.by_holder.insert(&group.identity, number);
            let mut copy = |string: u32| rest.strings.intern(self.strings.get(string));
            rest.groups.push(HolderGroup {
                identity: group.identity,
                newest: NONE,
                newest_other_key: NONE,
                node: copy(group.node),
                namespace: copy(group.namespace),
                pod: copy(group.pod),
                service_account: copy(group.service_account),
            });
            number
        });
        let names = rest.strings.intern(self.strings.get(record.names));
        let subject = rest.strings.intern(self.strings.get(record.subject));
        rest.insert(CompactRecord { issuer, group, names, subject, ..record.clone() });
    }

    /// Forgets segments that were deleted, once [`CertificateIndex::remove_expired`] has removed their certificates.
    pub fn forget_segments(&mut self, chain: LedgerChain, through: u64) {
        self.segments.retain(|(of, sequence), segment| {
            *of != chain || *sequence > through || !segment.records.is_empty()
        });
        self.early.retain(|(of, position), _| *of != chain || position.sequence > through);
    }

    /// Frees memory that was reserved for more certificates.
    pub fn shrink_to_fit(&mut self) {
        self.records.shrink_to_fit();
        self.groups.shrink_to_fit();
        self.by_serial.shrink_to_fit();
        self.by_holder.shrink_to_fit();
        self.strings.shrink_to_fit();
        self.segments.values_mut().for_each(|segment| segment.records.shrink_to_fit());
    }

    /// Estimates the memory that the index occupies, in bytes.
    pub fn memory_size(&self) -> usize {
        let segments: usize = self.segments.values().map(|segment| 64 + segment.records.capacity() * 8).sum();
        self.records.capacity() * size_of::<CompactRecord>()
            + self.groups.capacity() * size_of::<HolderGroup>()
            + self.by_serial.memory_size()
            + self.by_holder.memory_size()
            + self.strings.memory_size()
            + segments
            + self.revocations.len() * 128
    }
}

impl CompactRecord {
    /// Orders certificates by age. The order does not depend on the order in which segments are added.
    fn age_key(&self) -> (i64, LedgerChain, EntryPosition) {
        (self.recorded, self.chain, self.position)
    }
}

/// Identifies who holds a certificate of a signer: a pod by its UID, a node by its name if the certificate is its own, and
/// otherwise the requester and all names in the certificate. A node also requests for services on its host, which have
/// names of their own and are renewed one by one.
fn holder_identity(record: &IssuanceRecord) -> [u8; 16] {
    let mut parts = vec![record.signer.as_str()];
    let (uid, names);
    match (&record.pod, &record.node) {
        (Some(pod), _) => {
            uid = match &pod.uid {
                ObjectUid::Text(text) if text.is_empty() => pod.name.clone(),
                uid => uid.to_string(),
            };
            parts.extend(["pod", &record.request.namespace, &uid]);
        }
        (None, Some(node)) if is_of_node(record, node) => parts.extend(["node", node]),
        (None, _) => {
            names = view::join_names(record);
            parts.extend(["names", &record.requester, &record.subject, &names]);
        }
    }
    let [first, _] = *sha256(parts.join("\0").as_bytes()).as_chunks().0 else { return [0; 16] };
    first
}

/// Whether the subject is the node itself.
fn is_of_node(record: &IssuanceRecord, node: &str) -> bool {
    let rest = record.subject.strip_prefix("CN=system:node:").and_then(|rest| rest.strip_prefix(node));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
}

fn usize_of(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
