//! Segments: the unit in which the ledger is stored, appended to, hashed and pruned.

use crate::chain::LedgerChain;
use crate::codec::{EncodingVersion, EntryContext, write_entry};
use crate::decoder::EntryDecoder;
use crate::identity::{SegmentHash, sha256};
use crate::limits::{FULL_SEGMENT_BYTES, MAX_SEGMENT_BYTES};
use crate::record::{EntryPosition, LedgerEntry, truncate};
use crate::wire::{DecodeError, StringTable, WireWriter};

/// Place of a segment in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Chain that the segment belongs to.
    pub chain: LedgerChain,
    /// Sequence number in the chain, from 1.
    pub sequence: u64,
    /// Hash of the predecessor; [`SegmentHash::NONE`] for the first segment.
    pub previous_hash: SegmentHash,
}

impl SegmentHeader {
    /// Returns the header of the first segment of a chain.
    pub fn first(chain: LedgerChain) -> SegmentHeader {
        SegmentHeader { chain, sequence: 1, previous_hash: SegmentHash::NONE }
    }

    /// Returns the name of the object that stores the segment, such as `short-0000000017`.
    pub fn name(&self) -> String {
        self.chain.segment_name(self.sequence)
    }

    /// Hashes a segment: its place, its predecessor and its encoded entries.
    pub fn hash(&self, data: &[u8]) -> SegmentHash {
        let mut text = self.hash_prefix();
        text.extend_from_slice(data);
        SegmentHash(sha256(&text))
    }

    /// Returns what is hashed before the encoded entries.
    pub(crate) fn hash_prefix(&self) -> Vec<u8> {
        let mut text = b"windlass ledger segment\0".to_vec();
        text.extend_from_slice(self.chain.name().as_bytes());
        text.push(0);
        text.extend_from_slice(&self.sequence.to_be_bytes());
        text.extend_from_slice(&self.previous_hash.0);
        text
    }
}

/// Decodes the entries of a segment.
pub fn decode_entries(header: &SegmentHeader, data: &[u8]) -> Result<Vec<LedgerEntry>, DecodeError> {
    EntryDecoder::new(header, data)?.read_all()
}

/// A segment that is appended to. Its encoding only grows: the bytes before an append are a prefix of those after it.
#[derive(Clone, Debug)]
pub struct SegmentBuilder {
    header: SegmentHeader,
    data: Vec<u8>,
    table: StringTable,
    context: EntryContext,
    entry_count: u32,
    latest_expiry: Option<i64>,
}

/// A segment has no room for an entry: begin the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the segment is full")]
pub struct SegmentFull;

impl SegmentBuilder {
    /// Begins a segment without entries.
    pub fn new(header: SegmentHeader) -> SegmentBuilder {
        SegmentBuilder::with_version(header, EncodingVersion::NEWEST)
    }

    fn with_version(header: SegmentHeader, version: EncodingVersion) -> SegmentBuilder {
        SegmentBuilder {
            header,
            data: vec![version.byte()],
            table: StringTable::default(),
            context: EntryContext::new(version, header.sequence),
            entry_count: 0,
            latest_expiry: None,
        }
    }

    /// Decodes a stored segment, to append to it. Appends have the version of the segment.
    pub fn resume(
        header: SegmentHeader,
        data: &[u8],
    ) -> Result<(SegmentBuilder, Vec<LedgerEntry>), DecodeError> {
        let mut decoder = EntryDecoder::new(&header, data)?;
        let entries = decoder.read_all()?;
        let (context, table) = decoder.into_parts();
        let builder = SegmentBuilder {
            header,
            data: data.to_vec(),
            table,
            context,
            entry_count: u32::try_from(entries.len()).map_err(|_| DecodeError::TooLarge("entries"))?,
            latest_expiry: entries.iter().filter_map(LedgerEntry::not_after).max(),
        };
        Ok((builder, entries))
    }

    /// Begins the segment that follows this one.
    pub fn successor(&self) -> SegmentBuilder {
        let SegmentHeader { chain, sequence, .. } = self.header;
        SegmentBuilder::new(SegmentHeader { chain, sequence: sequence + 1, previous_hash: self.hash() })
    }

    /// Appends an entry and returns its position. Texts and names that exceed the size of a record are shortened in
    /// `entry` as well.
    pub fn append(&mut self, entry: &mut LedgerEntry) -> Result<EntryPosition, SegmentFull> {
        match entry {
            LedgerEntry::Issuance(record) => record.limit_size(),
            LedgerEntry::Revoked(record) => truncate(&mut record.requester),
            LedgerEntry::Issued(_) | LedgerEntry::Abandoned(_) | LedgerEntry::Pruned { .. } => {}
        }
        if self.is_full() {
            return Err(SegmentFull);
        }
        let (length, strings, mark) = (self.data.len(), self.table.len(), self.context.mark());
        write_entry(&mut WireWriter::new(&mut self.data, &mut self.table), &mut self.context, entry);
        if self.data.len() > MAX_SEGMENT_BYTES {
            self.context.reset(mark);
            self.data.truncate(length);
            self.table.truncate(strings);
            return Err(SegmentFull);
        }
        let position = EntryPosition { sequence: self.header.sequence, index: self.entry_count };
        self.entry_count += 1;
        self.latest_expiry = self.latest_expiry.max(entry.not_after());
        Ok(position)
    }

    /// Whether the successor takes the next entry.
    pub fn is_full(&self) -> bool {
        self.data.len() >= FULL_SEGMENT_BYTES
    }

    /// Returns chain, sequence number and predecessor.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Returns the encoded entries, as they are stored.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Returns the number of entries.
    pub fn entry_count(&self) -> u32 {
        self.entry_count
    }

    /// Returns the latest expiry of its certificates in seconds since 1970; `None` if there are none.
    pub fn latest_expiry(&self) -> Option<i64> {
        self.latest_expiry
    }

    /// Hashes the segment as it is now. The hash is final when the successor exists.
    pub fn hash(&self) -> SegmentHash {
        self.header.hash(&self.data)
    }
}

#[cfg(test)]
mod tests;
