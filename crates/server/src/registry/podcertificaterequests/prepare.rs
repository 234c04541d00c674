//! Fields that the server defaults, sets and resets on requests before validation.

use serde_json::{Map, Value};

use crate::registry::object_fields::{default, map, part, restore_field};

const DEFAULT_SECONDS: i64 = 24 * 60 * 60;

/// Fields of proofs that predate stub requests.
pub(super) const OLDER_PROOF: [&str; 2] = ["pkixPublicKey", "proofOfPossession"];

/// The default lifetime is one day. An absent proof is an empty field.
pub(super) fn defaults(request: &mut Value) {
    let spec = part(request, "spec");
    default(spec, "maxExpirationSeconds", DEFAULT_SECONDS);
    for field in OLDER_PROOF {
        spec.entry(field).or_insert(Value::Null);
    }
}

/// Clears the status of a new request.
pub(super) fn create(request: &mut Value) {
    map(request).insert("status".into(), Value::Object(Map::new()));
}

/// Only `/status` changes the status.
pub(super) fn update(new: &mut Value, old: &Value) {
    restore_field(new, old, "status");
}

/// A status update changes nothing else: neither the spec nor the metadata that users set.
pub(super) fn status(new: &mut Value, old: &Value) {
    restore_field(new, old, "spec");
    let Some(metadata) = old.get("metadata") else { return };
    let Some(new) = new.get_mut("metadata") else { return };
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"] {
        restore_field(new, metadata, field);
    }
}
