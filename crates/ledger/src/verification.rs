//! Verification of a chain: are all segments there, unmodified and in order?

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::chain::LedgerChain;
use crate::identity::{SegmentHash, sha256};
use crate::record::{EntryPosition, LedgerEntry};
use crate::segment::{SegmentHeader, decode_entries};

/// A segment as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSegment {
    /// Chain, sequence number and hash of the predecessor.
    pub header: SegmentHeader,
    /// Encoded entries, without base64.
    pub data: Vec<u8>,
    /// Number of entries that the object states.
    pub entry_count: u64,
    /// Latest expiry that the object states, in seconds since 1970.
    pub latest_expiry: i64,
}

/// A deviation from the hash chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainProblem {
    /// Segments are missing that no [`LedgerEntry::Pruned`] entry announced.
    Missing {
        /// Sequence number of the first missing segment.
        first: u64,
        /// Sequence number of the last missing segment.
        last: u64,
    },
    /// The segment is not the one whose hash its successor contains.
    Modified {
        /// Sequence number of the segment.
        sequence: u64,
    },
    /// The segment follows another one than its predecessor by number.
    Reordered {
        /// Sequence number of the segment.
        sequence: u64,
        /// Sequence number of the segment whose hash it contains.
        follows: u64,
    },
    /// Several segments have the same sequence number, or the same entries are in two segments.
    Duplicate {
        /// Sequence number of the second one.
        sequence: u64,
    },
    /// The entries cannot be decoded.
    Undecodable {
        /// Sequence number of the segment.
        sequence: u64,
        /// What is wrong with the encoding.
        error: String,
    },
    /// Count or latest expiry of the object do not match its entries, or an entry refers to one that does not exist.
    Inconsistent {
        /// Sequence number of the segment.
        sequence: u64,
        /// Which of its statements is wrong.
        reason: &'static str,
    },
}

impl fmt::Display for ChainProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChainProblem::Missing { first, last } if first == last => {
                write!(formatter, "segment {first} is missing")
            }
            ChainProblem::Missing { first, last } => {
                write!(formatter, "segments {first} to {last} are missing")
            }
            ChainProblem::Modified { sequence } => {
                write!(formatter, "segment {sequence} was modified: its successor has another hash")
            }
            ChainProblem::Reordered { sequence, follows } => {
                write!(formatter, "segment {sequence} follows segment {follows} by its hash")
            }
            ChainProblem::Duplicate { sequence } => write!(formatter, "segment {sequence} is a duplicate"),
            ChainProblem::Undecodable { sequence, error } => {
                write!(formatter, "segment {sequence} cannot be decoded: {error}")
            }
            ChainProblem::Inconsistent { sequence, reason } => {
                write!(formatter, "segment {sequence} is inconsistent: {reason}")
            }
        }
    }
}

/// Result of verifying a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainReport {
    /// Chain that was verified.
    pub chain: LedgerChain,
    /// First sequence number that exists; 0 if the chain is empty.
    pub first: u64,
    /// Last sequence number that exists; 0 if the chain is empty.
    pub last: u64,
    /// Segments up to this one were deleted after their certificates had expired; 0 if none.
    pub pruned_through: u64,
    /// Number of entries in all segments.
    pub entries: u64,
    /// Hash of the last segment. Nothing in the chain vouches for the last segment: compare this hash with one that
    /// was noted before to detect that segments at the end are missing.
    pub head: SegmentHash,
    /// All deviations, by sequence number; empty if the chain verifies.
    pub problems: Vec<ChainProblem>,
}

impl ChainReport {
    /// Whether no deviation was found.
    pub fn is_intact(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Verifies the segments of one chain, which may be in any order. Segments of other chains are ignored.
pub fn verify_chain(chain: LedgerChain, segments: &[StoredSegment]) -> ChainReport {
    let mut verifier = ChainVerifier::default();
    for segment in segments.iter().filter(|segment| segment.header.chain == chain) {
        verifier.add(segment);
    }
    verifier.finish(chain)
}

/// Verifies a chain segment by segment, without holding all of them in memory.
#[derive(Debug, Default)]
pub struct ChainVerifier {
    segments: BTreeMap<u64, CheckedSegment>,
    by_hash: HashMap<SegmentHash, u64>,
    by_data: HashMap<[u8; 32], u64>,
    /// The furthest pruning: the last pruned segment and its hash.
    pruned: (u64, SegmentHash),
    references: Vec<(u64, EntryPosition)>,
    problems: Vec<(u64, ChainProblem)>,
}

#[derive(Debug)]
struct CheckedSegment {
    previous_hash: SegmentHash,
    hash: SegmentHash,
    entries: u64,
    /// Index of every record, in order.
    records: Vec<u32>,
}

impl ChainVerifier {
    /// Reports on the segments that were added, which all belong to `chain`.
    pub fn finish(mut self, chain: LedgerChain) -> ChainReport {
        let first = self.segments.keys().next().copied().unwrap_or_default();
        let last = self.segments.last_key_value();
        let (last, head) = last.map_or((0, SegmentHash::NONE), |(number, checked)| (*number, checked.hash));
        self.check_links();
        self.check_positions();
        let entries = self.segments.values().map(|checked| checked.entries).sum();
        self.problems.sort_by_key(|(sequence, _)| *sequence);
        let problems = self.problems.into_iter().map(|(_, problem)| problem).collect();
        ChainReport { chain, first, last, pruned_through: self.pruned.0, entries, head, problems }
    }

    fn report(&mut self, sequence: u64, problem: ChainProblem) {
        self.problems.push((sequence, problem));
    }

    /// Adds a segment; the order does not matter.
    pub fn add(&mut self, segment: &StoredSegment) {
        let StoredSegment { header, data, .. } = segment;
        let sequence = header.sequence;
        if self.segments.contains_key(&sequence) {
            return self.report(sequence, ChainProblem::Duplicate { sequence });
        }
        let hash = header.hash(data);
        self.by_hash.insert(hash, sequence);
        // Every record has a random serial number, so two segments with records never have the same bytes.
        let has_records = data.len() > 64;
        if has_records && self.by_data.insert(sha256(data), sequence).is_some() {
            self.report(sequence, ChainProblem::Duplicate { sequence });
        }
        let entries = decode_entries(header, data).unwrap_or_else(|error| {
            self.report(sequence, ChainProblem::Undecodable { sequence, error: error.to_string() });
            Vec::new()
        });
        if !entries.is_empty() {
            self.check_statements(segment, &entries);
        }
        let mut records = Vec::new();
        for (index, entry) in (0..).zip(&entries) {
            match entry {
                LedgerEntry::Issuance(_) => records.push(index),
                LedgerEntry::Issued(position) | LedgerEntry::Abandoned(position) => {
                    self.references.push((sequence, *position));
                }
                LedgerEntry::Pruned { through, hash } if *through > self.pruned.0 => {
                    self.pruned = (*through, *hash);
                }
                LedgerEntry::Pruned { .. } | LedgerEntry::Revoked(_) => {}
            }
        }
        let entries = u64::try_from(entries.len()).unwrap_or(u64::MAX);
        let checked = CheckedSegment { previous_hash: header.previous_hash, hash, entries, records };
        self.segments.insert(sequence, checked);
    }

    fn check_statements(&mut self, segment: &StoredSegment, entries: &[LedgerEntry]) {
        let sequence = segment.header.sequence;
        if u64::try_from(entries.len()) != Ok(segment.entry_count) {
            let reason = "entryCount is not the number of entries";
            self.report(sequence, ChainProblem::Inconsistent { sequence, reason });
        }
        let latest = entries.iter().filter_map(LedgerEntry::not_after).max();
        if latest.is_some_and(|latest| latest > segment.latest_expiry) {
            let reason = "latestExpiry is before the expiry of a certificate in it";
            self.report(sequence, ChainProblem::Inconsistent { sequence, reason });
        }
    }

    fn check_links(&mut self) {
        let (mut expected, mut before) = (1, Some(SegmentHash::NONE));
        let mut found = Vec::new();
        for (sequence, segment) in &self.segments {
            let sequence = *sequence;
            if sequence > expected {
                // Deletion goes from old to new, but a retry may leave older ones behind.
                let last = sequence - 1;
                let first = expected.max(self.pruned.0 + 1);
                if first <= last {
                    found.push((first, ChainProblem::Missing { first, last }));
                }
                before = (last == self.pruned.0).then_some(self.pruned.1);
            }
            if before.is_some_and(|before| before != segment.previous_hash) {
                let problem = match self.by_hash.get(&segment.previous_hash) {
                    Some(follows) => ChainProblem::Reordered { sequence, follows: *follows },
                    None => ChainProblem::Modified { sequence: sequence.saturating_sub(1).max(1) },
                };
                found.push((sequence, problem));
            }
            (expected, before) = (sequence.saturating_add(1), Some(segment.hash));
        }
        self.problems.extend(found);
    }

    fn check_positions(&mut self) {
        let is_record = |position: &EntryPosition| match self.segments.get(&position.sequence) {
            Some(segment) => segment.records.binary_search(&position.index).is_ok(),
            // It was pruned, or reported as missing.
            None => true,
        };
        let reason = "an entry refers to a record that does not exist";
        let wrong: Vec<u64> =
            self.references.iter().filter(|(_, p)| !is_record(p)).map(|(sequence, _)| *sequence).collect();
        for sequence in wrong {
            self.report(sequence, ChainProblem::Inconsistent { sequence, reason });
        }
    }
}

#[cfg(test)]
mod tests;
