//! Earlier states of a segment: was a hash that somebody noted ever that of this segment?

use aws_lc_rs::digest::{Context, SHA256};

use crate::decoder::EntryDecoder;
use crate::identity::SegmentHash;
use crate::segment::SegmentHeader;
use crate::wire::DecodeError;

impl SegmentHeader {
    /// Finds the number of entries that the segment had when its hash was `head`; `None` if it never had this hash.
    ///
    /// The hash of the newest segment changes with every append. An append leaves the bytes before it as they are,
    /// so the hash that somebody noted is that of a prefix, unless entries were removed or modified since.
    pub fn find_head(&self, data: &[u8], head: SegmentHash) -> Result<Option<u64>, DecodeError> {
        let mut decoder = EntryDecoder::new(self, data)?;
        let mut hashed = Context::new(&SHA256);
        hashed.update(&self.hash_prefix());
        let (mut done, mut entries) = (0, 0);
        loop {
            let end = data.len() - decoder.remaining();
            hashed.update(data.get(done..end).unwrap_or_default());
            done = end;
            if hashed.clone().finish().as_ref() == head.0 {
                return Ok(Some(entries));
            }
            if decoder.next_entry()?.is_none() {
                return Ok(None);
            }
            entries += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::samples::RecordSource;
    use crate::{LedgerChain, LedgerEntry, SegmentBuilder, SegmentHash, SegmentHeader};

    #[test]
    fn every_earlier_hash_is_found() {
        let mut source = RecordSource::new();
        let mut segment = SegmentBuilder::new(SegmentHeader::first(LedgerChain::Short));
        let mut heads = vec![segment.hash()];
        for _ in 0..20 {
            segment.append(&mut LedgerEntry::Issuance(Box::new(source.pod()))).unwrap();
            heads.push(segment.hash());
        }
        let header = *segment.header();
        for (entries, head) in (0..).zip(heads) {
            assert_eq!(header.find_head(segment.data(), head), Ok(Some(entries)));
        }
        assert_eq!(header.find_head(segment.data(), SegmentHash::NONE), Ok(None));
        let other = SegmentHeader { sequence: 2, ..header };
        assert_eq!(other.find_head(segment.data(), segment.hash()), Ok(None));
        let (cut, _) = segment.data().split_at(segment.data().len() - 1);
        assert!(header.find_head(cut, segment.hash()).is_err());
    }
}
