//! What the server fills in, sets and resets on requests before it validates them.

use serde_json::{Map, Value};

use crate::registry::object_fields::{default, map, part, restore_field};

const DEFAULT_SECONDS: i64 = 24 * 60 * 60;

/// How keys were proven before there were stub requests.
pub(super) const OLDER_PROOF: [&str; 2] = ["pkixPublicKey", "proofOfPossession"];

/// Certificates are asked for for a day. An absent proof has its place, empty.
pub(super) fn defaults(request: &mut Value) {
    let spec = part(request, "spec");
    default(spec, "maxExpirationSeconds", DEFAULT_SECONDS);
    for field in OLDER_PROOF {
        spec.entry(field).or_insert(Value::Null);
    }
}

/// A new request has not been answered.
pub(super) fn create(request: &mut Value) {
    map(request).insert("status".into(), Value::Object(Map::new()));
}

/// The answer comes through `/status` only.
pub(super) fn update(new: &mut Value, old: &Value) {
    restore_field(new, old, "status");
}

/// An answer changes nothing else: neither what was asked for nor what people wrote on it.
pub(super) fn status(new: &mut Value, old: &Value) {
    restore_field(new, old, "spec");
    let Some(metadata) = old.get("metadata") else { return };
    let Some(new) = new.get_mut("metadata") else { return };
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"] {
        restore_field(new, metadata, field);
    }
}
