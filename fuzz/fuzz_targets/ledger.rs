//! Fuzzes segments of the ledger; what decodes can be appended to and decoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_fuzz::run_with_time_limit;
use windlass_ledger::{
    CertificateIndex, LedgerChain, LedgerEntry, SegmentBuilder, SegmentHash, SegmentHeader, SegmentSummary,
};

fuzz_target!(|data: &[u8]| {
    run_with_time_limit(data, || {
        let header = SegmentHeader { sequence: 3, ..SegmentHeader::first(LedgerChain::Short) };
        let summary = SegmentSummary::decode(&header, data);
        let Ok((mut builder, entries)) = SegmentBuilder::resume(header, data) else {
            assert!(summary.is_err(), "only the summary decodes");
            return;
        };
        let (mut index, mut same) = (CertificateIndex::new(), CertificateIndex::new());
        index.add_segment(&header, &entries);
        same.add_summary(&summary.expect("the entries decode"));
        assert_eq!(index.totals(0), same.totals(0));
        let _ = index.totals(0);
        index.remove_expired(0);
        let mut entry = LedgerEntry::Pruned { through: 1, hash: SegmentHash::NONE };
        if builder.append(&mut entry).is_ok() {
            let (_, again) = SegmentBuilder::resume(header, builder.data()).expect("it was just encoded");
            assert_eq!(again.len(), entries.len() + 1);
        }
    });
});
