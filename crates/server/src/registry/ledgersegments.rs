//! LedgerSegments: the ledger of issued certificates, which only grows.
//!
//! On other servers the kind is a custom resource; `windlass_api::ledger_segment` has its schema and its rules.

use windlass_api::ledger_segment::{RESOURCE, validate, validate_update};

use super::kind::{Kind, ServedVersion};
use super::object_fields::{integer, text};
use super::table_cells::{self, described, with_type};

/// Descriptor of LedgerSegment, a part of the ledger of issued certificates.
pub const LEDGER_SEGMENTS_KIND: Kind = Kind {
    served: &[ServedVersion::new(RESOURCE.group, RESOURCE.version, RESOURCE.type_name)],
    columns: &[
        table_cells::NAME,
        described("Chain", "Lifetime class of the certificates"),
        with_type("integer", described("Sequence", "Position in the chain")),
        with_type("integer", described("Entries", "Number of entries")),
        described("Latest Expiry", "Latest expiry of the certificates"),
        table_cells::AGE,
    ],
    row: |object, now| {
        vec![
            table_cells::name(object),
            text(object, "/spec/chain").into(),
            integer(object, "/spec/sequence").unwrap_or_default().into(),
            integer(object, "/spec/entryCount").unwrap_or_default().into(),
            text(object, "/spec/latestExpiry").into(),
            table_cells::age(object, now),
        ]
    },
    generation: true,
    validate_create: validate,
    validate_update,
    enabled: |features| features.certificate_ledger,
    ..Kind::custom(&RESOURCE)
};

#[cfg(test)]
mod tests {
    use super::super::object_fields::tests::cells;
    use super::*;
    use serde_json::json;

    #[test]
    fn segments_are_shown() {
        let object = json!({
            "metadata": {"name": "short-0000000001", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"chain": "short", "sequence": 1, "entryCount": 5, "latestExpiry": "2027-01-01T00:00:00Z"},
        });
        let row = json!(["short-0000000001", "short", 1, 5, "2027-01-01T00:00:00Z", "120m"]);
        assert_eq!(cells(&LEDGER_SEGMENTS_KIND, &object), row);
    }
}
