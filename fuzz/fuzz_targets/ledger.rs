//! Fuzzes segments of the ledger; what decodes can be appended to and decoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_fuzz::run_with_time_limit;
use windlass_ledger::{CertificateIndex, LedgerChain, LedgerEntry, SegmentBuilder, SegmentHash, SegmentHeader};

fuzz_target!(|data: &[u8]| {
    run_with_time_limit(data, || {
        let header = SegmentHeader { sequence: 3, ..SegmentHeader::first(LedgerChain::Short) };
        let Ok((mut builder, entries)) = SegmentBuilder::resume(header, data) else { return };
        let mut index = CertificateIndex::new();
        index.add_segment(&header, &entries);
        let _ = index.totals(0);
        index.remove_expired(0);
        let mut entry = LedgerEntry::Pruned { through: 1, hash: SegmentHash::NONE };
        if builder.append(&mut entry).is_ok() {
            let (_, again) = SegmentBuilder::resume(header, builder.data()).expect("it was just encoded");
            assert_eq!(again.len(), entries.len() + 1);
        }
    });
});
