//! Access to the metadata of an object that is being written.

use serde_json::{Map, Value, json};

/// Returns the metadata of an object, which is created if it is missing.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    match &mut object["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("set to an object above"),
    }
}
