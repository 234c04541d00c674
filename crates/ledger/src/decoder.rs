//! Entries of a segment, decoded one by one.

use crate::codec::{EncodedEntry, EncodingVersion, EntryContext, read_entry};
use crate::encoded_record::EncodedRecord;
use crate::limits::{MAX_ENTRIES, MAX_SEGMENT_BYTES};
use crate::record::LedgerEntry;
use crate::segment::SegmentHeader;
use crate::wire::{DecodeError, StringTable, WireReader};

/// Reads a segment from its beginning.
pub struct EntryDecoder<'a> {
    reader: WireReader<'a>,
    context: EntryContext,
    record: EncodedRecord,
    count: usize,
}

impl<'a> EntryDecoder<'a> {
    /// Checks size and version of a segment.
    pub fn new(header: &SegmentHeader, data: &'a [u8]) -> Result<EntryDecoder<'a>, DecodeError> {
        if data.len() > MAX_SEGMENT_BYTES {
            return Err(DecodeError::TooLarge("entries"));
        }
        let mut reader = WireReader::new(data);
        let version = EncodingVersion::from_byte(reader.byte()?)?;
        let context = EntryContext::new(version, header.sequence);
        Ok(EntryDecoder { reader, context, record: EncodedRecord::default(), count: 0 })
    }

    /// Decodes the next entry; `None` at the end of the segment.
    pub fn next_entry(&mut self) -> Result<Option<EncodedEntry>, DecodeError> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        if self.count == MAX_ENTRIES {
            return Err(DecodeError::TooLarge("entries"));
        }
        self.count += 1;
        read_entry(&mut self.reader, &mut self.context, &mut self.record).map(Some)
    }

    /// Decodes the rest of the segment and copies all texts.
    pub fn read_all(&mut self) -> Result<Vec<LedgerEntry>, DecodeError> {
        let mut entries = Vec::new();
        while let Some(entry) = self.next_entry()? {
            entries.push(match entry {
                EncodedEntry::Issuance => {
                    LedgerEntry::Issuance(Box::new(self.record.to_record(self.reader.table())?))
                }
                EncodedEntry::Other(entry) => entry,
            });
        }
        Ok(entries)
    }

    /// Returns the latest record that was decoded.
    pub fn record(&self) -> &EncodedRecord {
        &self.record
    }

    /// Returns the strings that were decoded so far.
    pub fn table(&self) -> &StringTable {
        self.reader.table()
    }

    /// Returns the number of bytes that are not decoded yet.
    pub fn remaining(&self) -> usize {
        self.reader.remaining()
    }

    /// Returns what an append depends on.
    pub fn into_parts(self) -> (EntryContext, StringTable) {
        (self.context, self.reader.into_table())
    }
}
