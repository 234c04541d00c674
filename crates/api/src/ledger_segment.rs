//! `LedgerSegment` of `windlass.dev/v1alpha1`: a part of the ledger of issued certificates.
//!
//! The entries are opaque here. A server enforces that a segment only grows; a reader detects missing
//! and modified segments by the hash that each contains of its predecessor.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::custom_resource::CustomResource;
use crate::field::{FieldErrors, FieldPath};
use crate::schema::{Schema, ValidationStyle};
use crate::timestamp;

/// The names of LedgerSegment and its type in the schema.
pub const RESOURCE: CustomResource = CustomResource {
    group: "windlass.dev",
    version: "v1alpha1",
    api_version: "windlass.dev/v1alpha1",
    kind: "LedgerSegment",
    plural: "ledgersegments",
    singular: "ledgersegment",
    short_names: &[],
    list_kind_override: "",
    type_name: "dev.windlass.v1alpha1.LedgerSegment",
    has_status_subresource: false,
};

/// Most bytes of the encoded entries in one segment.
pub const MAX_ENTRIES_BYTES: usize = 64 * 1024;

/// Entries of the ledger. Updates can only append.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerSegmentSpec {
    /// Class of lifetimes: `short`, `medium` or `long`.
    pub chain: String,
    /// Position in the chain, from 1.
    pub sequence: u64,
    /// `sha256:` and the hash of the segment before; 64 zeros in the first.
    pub previous_hash: String,
    /// The encoded entries as base64; at most [`MAX_ENTRIES_BYTES`] when decoded.
    pub entries: String,
    /// Number of entries, which never decreases.
    pub entry_count: u32,
    /// When the last certificate in it expires, as RFC 3339; never decreases.
    pub latest_expiry: String,
}

/// Returns the name of the object that holds a segment.
pub fn object_name(chain: &str, sequence: u64) -> String {
    format!("{chain}-{sequence:010}")
}

/// Validates a segment: against the schema and, if that passes, its name.
pub fn validate(object: &Value, errors: &mut FieldErrors) {
    Schema::get().validate(RESOURCE.type_id(), ValidationStyle::BuiltIn, object, errors);
    if !errors.is_empty() {
        return;
    }
    let spec = &object["spec"];
    let sequence = spec["sequence"].as_u64().unwrap_or_default();
    let expected = object_name(spec["chain"].as_str().unwrap_or_default(), sequence);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name != expected {
        let detail = format!("must be {expected}: the chain and the sequence with ten digits");
        errors.invalid_str(&FieldPath::new("metadata").child("name"), name, &detail);
    }
}

/// Validates that an update only appends entries. The bytes may differ, because they are compressed.
pub fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(new, errors);
    let (path, new, old) = (FieldPath::new("spec"), &new["spec"], &old["spec"]);
    for field in ["chain", "sequence", "previousHash"] {
        if new[field] != old[field] {
            errors.invalid(&path.child(field), &new[field], "field is immutable");
        }
    }
    if new["entryCount"].as_i64() < old["entryCount"].as_i64() {
        errors.invalid(&path.child("entryCount"), &new["entryCount"], "may not decrease");
    }
    let expiry = |spec: &Value| timestamp::parse(spec["latestExpiry"].as_str().unwrap_or_default()).ok();
    if expiry(new) < expiry(old) {
        errors.invalid(&path.child("latestExpiry"), &new["latestExpiry"], "may not decrease");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn segment(chain: &str, sequence: i64, count: i64) -> Value {
        json!({"metadata": {"name": format!("{chain}-{sequence:010}")}, "spec": {
            "chain": chain, "sequence": sequence, "previousHash": format!("sha256:{}", "0".repeat(64)),
            "entries": "YQ==", "entryCount": count, "latestExpiry": "2026-01-01T00:00:00Z",
        }})
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut object = segment("short", 17, 3);
        *object.pointer_mut(pointer).unwrap() = value;
        object
    }

    fn texts(check: impl Fn(&mut FieldErrors)) -> Vec<String> {
        let mut errors = FieldErrors::new();
        check(&mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_name_is_chain_and_sequence() {
        assert_eq!(object_name("short", 17), "short-0000000017");
        for (object, want) in [
            (segment("short", 17, 0), ""),
            (segment("long", 9_999_999_999, 0), ""),
            (
                with("/metadata/name", json!("short-17")),
                "metadata.name: Invalid value: \"short-17\": must be short-0000000017: the chain and the sequence with ten digits",
            ),
            (segment("short", 0, 0), "spec.sequence: Invalid value: 0: must be greater than or equal to 1"),
            (
                segment("short", 10_000_000_000, 0),
                "spec.sequence: Invalid value: 10000000000: must be less than or equal to 9999999999",
            ),
            (
                segment("tiny", 1, 0),
                "spec.chain: Unsupported value: \"tiny\": supported values: \"short\", \"medium\", \"long\"",
            ),
            (
                with("/spec/entries", json!("A".repeat(87_388))),
                "spec.entries: Too long: may not be more than 87384 bytes",
            ),
        ] {
            let found = texts(|errors| validate(&object, errors));
            assert_eq!(found.join(""), want, "{object}");
        }
    }

    #[test]
    fn updates_append() {
        let old = segment("short", 17, 3);
        let mut appended = segment("short", 17, 4);
        appended["spec"]["entries"] = json!("eA==");
        appended["spec"]["latestExpiry"] = json!("2026-01-02T00:00:00Z");
        for (new, want) in [
            (old.clone(), vec![]),
            (appended, vec![]),
            (segment("short", 17, 2), vec!["spec.entryCount: Invalid value: 2: may not decrease"]),
            (
                with("/spec/latestExpiry", json!("2025-12-31T23:59:59Z")),
                vec!["spec.latestExpiry: Invalid value: \"2025-12-31T23:59:59Z\": may not decrease"],
            ),
            (
                with("/spec/previousHash", json!(format!("sha256:{}", "1".repeat(64)))),
                vec![
                    "spec.previousHash: Invalid value: \"sha256:1111111111111111111111111111111111111111111111111111111111111111\": field is immutable",
                ],
            ),
            (with("/spec/entries", json!("eA==")), vec![]),
        ] {
            assert_eq!(texts(|errors| validate_update(&new, &old, errors)), want, "{new}");
        }
        let other = segment("long", 17, 3);
        assert_eq!(texts(|errors| validate_update(&other, &old, errors)).len(), 1);
    }
}
