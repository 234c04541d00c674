//! What the segments of all chains contain, as far as they have been read or written.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use windlass_ledger::{
    AuthorityId, AuthorityTotals, CertificateIndex, CertificateState, EntryPosition, LedgerChain,
    LedgerEntry, RevocationInfo, SegmentExpiry, SegmentHash, SegmentHeader, SerialNumber,
};

use super::metrics::LedgerMetrics;
use crate::metrics::MetricFamilies;
use crate::signers::SignerStatistics;

/// Contents of the ledger in memory, shared by writers and maintenance.
pub struct LedgerState {
    contents: Mutex<LedgerContents>,
    metrics: LedgerMetrics,
    statistics: Arc<SignerStatistics>,
    /// Turns true when all segments have been read.
    loaded: watch::Sender<bool>,
}

#[derive(Default)]
struct LedgerContents {
    index: CertificateIndex,
    segments: BTreeMap<(LedgerChain, u64), KnownSegment>,
    /// Last segment of each chain that was announced to be deleted.
    pruned: HashMap<LedgerChain, u64>,
    /// Deviations from the hash chain that were found when the segments were read.
    problems: HashMap<LedgerChain, usize>,
    /// Whether all segments have been read.
    is_loaded: bool,
}

#[derive(Clone, Copy)]
struct KnownSegment {
    previous_hash: SegmentHash,
    latest_expiry: i64,
    bytes: usize,
}

/// A segment that was read or written.
pub struct ObservedSegment<'a> {
    /// Chain, sequence number and predecessor.
    pub header: &'a SegmentHeader,
    /// Index of the first of `entries` in the segment.
    pub first: u32,
    /// Entries of the segment, from the one at `first` on.
    pub entries: &'a [LedgerEntry],
    /// Latest expiry of the whole segment, in seconds since 1970.
    pub latest_expiry: i64,
    /// Size of all entries of the segment.
    pub bytes: usize,
}

/// What the ledger knows of the revocation of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedRevocation {
    /// Signer that issued the certificate; `None` if it has no record.
    pub signer: Option<String>,
    /// Latest revocation or withdrawal; `None` if it was never revoked.
    pub latest: Option<RevocationInfo>,
}

/// Segments of a chain that may be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunableSegments {
    /// Sequence number of the last segment to delete.
    pub through: u64,
    /// Hash of the last segment to delete.
    pub hash: SegmentHash,
    /// Sequence numbers of all that exist, ascending.
    pub sequences: Vec<u64>,
    /// Whether the deletion was announced before.
    pub is_announced: bool,
}

impl LedgerState {
    pub fn new(metrics: &MetricFamilies) -> LedgerState {
        LedgerState {
            contents: Mutex::default(),
            metrics: metrics.ledger.clone(),
            statistics: metrics.statistics.clone(),
            loaded: watch::Sender::new(false),
        }
    }

    pub fn metrics(&self) -> &LedgerMetrics {
        &self.metrics
    }

    fn lock(&self) -> MutexGuard<'_, LedgerContents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what is new in a segment.
    pub fn observe(&self, segment: &ObservedSegment<'_>) {
        let mut contents = self.lock();
        let ObservedSegment { header, first, entries, latest_expiry, bytes } = *segment;
        contents.index.add_entries(header, first, entries);
        for entry in entries {
            if let LedgerEntry::Pruned { through, .. } = entry {
                let pruned = contents.pruned.entry(header.chain).or_default();
                *pruned = (*pruned).max(*through);
            }
        }
        let known = KnownSegment { previous_hash: header.previous_hash, latest_expiry, bytes };
        contents.segments.insert((header.chain, header.sequence), known);
        let of_chain = contents.segments.range((header.chain, 0)..=(header.chain, u64::MAX));
        let (count, bytes) = of_chain.fold((0, 0), |(count, sum), (_, each)| (count + 1, sum + each.bytes));
        self.metrics.set_size(header.chain, count, bytes);
    }

    /// Notes how many deviations from the hash chain were found when the segments were read.
    pub fn set_problems(&self, chain: LedgerChain, count: usize) {
        self.lock().problems.insert(chain, count);
        self.metrics.set_problems(chain, count);
    }

    /// Reports how many segments of a chain have been deleted since they were read or written.
    pub fn report_missing(&self, chain: LedgerChain, count: usize) {
        let problems = self.lock().problems.get(&chain).copied().unwrap_or(0);
        self.metrics.set_problems(chain, problems + count);
    }

    /// Lists chain and sequence number of the segments that were read or written and not deleted since.
    pub fn known_segments(&self) -> Vec<(LedgerChain, u64)> {
        self.lock().segments.keys().copied().collect()
    }

    pub fn set_loaded(&self) {
        let mut contents = self.lock();
        contents.index.shrink_to_fit();
        contents.is_loaded = true;
        drop(contents);
        self.loaded.send_replace(true);
    }

    /// Returns a receiver that turns true when all segments have been read.
    pub fn subscribe_loaded(&self) -> watch::Receiver<bool> {
        self.loaded.subscribe()
    }

    /// Returns what is known of the revocation of a certificate.
    pub fn revocation(&self, authority: &AuthorityId, serial: SerialNumber) -> RecordedRevocation {
        let contents = self.lock();
        let certificate = contents.index.find(authority, serial);
        RecordedRevocation {
            signer: certificate.map(|certificate| certificate.signer().to_owned()),
            latest: contents.index.revocation(authority, serial),
        }
    }

    /// Lists the latest revocations of the certificates that `wanted` accepts, withdrawals included.
    pub fn revocations(
        &self,
        wanted: impl Fn(&AuthorityId, RevocationInfo) -> bool,
    ) -> Vec<(AuthorityId, SerialNumber, RevocationInfo)> {
        let contents = self.lock();
        let found = contents.index.revocations().filter(|(authority, _, info)| wanted(authority, *info));
        found.map(|(authority, serial, info)| (authority.clone(), serial, info)).collect()
    }

    /// Whether all segments have been read.
    pub fn is_loaded(&self) -> bool {
        self.lock().is_loaded
    }

    /// Lists outstanding certificates of a signer that other authorities than `active` have signed, at most `limit`:
    /// authority, serial number and expiry.
    pub fn outstanding_of_others(
        &self,
        signer: &str,
        active: &str,
        limit: usize,
        now: i64,
    ) -> Vec<(AuthorityId, SerialNumber, i64)> {
        let contents = self.lock();
        let certificates = contents.index.certificates().filter(|each| each.signer() == signer);
        let outstanding = certificates.filter(|each| each.is_outstanding(now)).filter_map(|each| {
            let authority = each.authority().filter(|authority| authority.to_string() != active)?;
            Some((authority, each.serial(), each.not_after()))
        });
        outstanding.take(limit).collect()
    }

    pub fn totals(&self, now: i64) -> Vec<AuthorityTotals> {
        let contents = self.lock();
        if contents.is_loaded { contents.index.totals(now) } else { Vec::new() }
    }

    /// Counts certificates for the metrics and for the status of signers.
    pub fn publish_totals(&self, now: i64) {
        let totals = self.totals(now);
        self.statistics.set_authorities(&totals);
        self.metrics.set_totals(totals);
    }

    pub fn chain_of(&self, authority: &AuthorityId, serial: SerialNumber) -> Option<LedgerChain> {
        self.lock().index.find(authority, serial).map(|certificate| certificate.position().0)
    }

    /// Lists the records before `recorded` of which it is not known whether their certificates were issued.
    pub fn unresolved(&self, recorded: i64) -> Vec<(LedgerChain, EntryPosition)> {
        let contents = self.lock();
        let is_open = |state| state == CertificateState::Recorded;
        let open = contents.index.certificates().filter(|each| is_open(each.state()));
        open.filter(|each| each.recorded() < recorded).map(|each| each.position()).collect()
    }

    /// Returns the segments of a chain that may be deleted at `now`.
    pub fn prunable(&self, chain: LedgerChain, now: i64) -> Option<PrunableSegments> {
        let contents = self.lock();
        let of_chain = || contents.segments.range((chain, 0)..=(chain, u64::MAX));
        let expiry = |((_, sequence), known): (&(LedgerChain, u64), &KnownSegment)| SegmentExpiry {
            sequence: *sequence,
            latest_expiry: known.latest_expiry,
        };
        let expiries: Vec<SegmentExpiry> = of_chain().map(expiry).collect();
        let through = windlass_ledger::prunable_through(&expiries, now)?;
        let next = contents.segments.get(&(chain, through + 1))?;
        Some(PrunableSegments {
            through,
            hash: next.previous_hash,
            sequences: expiries.iter().map(|each| each.sequence).filter(|each| *each <= through).collect(),
            is_announced: contents.pruned.get(&chain).is_some_and(|pruned| *pruned >= through),
        })
    }

    /// Removes certificates that have expired from memory.
    pub fn remove_expired(&self, now: i64) {
        self.lock().index.remove_expired(now);
    }

    /// Forgets deleted segments and certificates that have expired.
    pub fn forget(&self, chain: LedgerChain, through: u64, now: i64) {
        let mut contents = self.lock();
        contents.segments.retain(|(of, sequence), _| *of != chain || *sequence > through);
        contents.index.remove_expired(now);
        contents.index.forget_segments(chain, through);
    }
}
