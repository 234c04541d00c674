//! Segments of the ledger as objects.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use windlass_ledger::SegmentBuilder;

/// Returns the LedgerSegment of a segment. One without certificates expires now.
pub fn ledger_segment(segment: &SegmentBuilder) -> Value {
    let header = segment.header();
    let expiry = segment.latest_expiry().map(|at| OffsetDateTime::from_unix_timestamp(at).unwrap());
    let expiry = expiry.unwrap_or_else(OffsetDateTime::now_utc).replace_nanosecond(0).unwrap();
    json!({
        "apiVersion": "windlass.dev/v1alpha1",
        "kind": "LedgerSegment",
        "metadata": {"name": header.name()},
        "spec": {
            "chain": header.chain.name(),
            "sequence": header.sequence,
            "previousHash": header.previous_hash.to_string(),
            "entries": STANDARD.encode(segment.data()),
            "entryCount": segment.entry_count(),
            "latestExpiry": expiry.format(&Rfc3339).unwrap(),
        },
    })
}
