//! PersistentVolumeClaims: a node may report the size of a resized volume and change nothing else.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use windlass_api::field::quote;

use super::{AdmissionOperation, AdmissionResult, NodeWrite, forbidden};

/// Checks a write to a claim or to its status.
pub(super) fn check(written: &NodeWrite<'_>) -> AdmissionResult {
    if written.subresource != "status" {
        return forbidden("may only update PVC status");
    }
    let old = match written.operation {
        AdmissionOperation::Update(old) => old,
        AdmissionOperation::Create | AdmissionOperation::Delete => {
            let operation = quote(written.operation_name());
            return forbidden(format!("unexpected operation {operation}"));
        }
    };
    let changed = changed(old, written.object);
    if changed.is_empty() {
        return Ok(());
    }
    // The list of fields in the last part is worded differently from Kubernetes.
    forbidden(format!(
        "node {} is not allowed to update fields other than status.quantity and status.conditions: {}",
        written.quoted(),
        changed.join(", ")
    ))
}

/// Returns the changed fields that a node may not change.
fn changed(old: &Value, new: &Value) -> Vec<String> {
    let empty = Map::new();
    let mut changed = Vec::new();
    for part in members(old, new, &empty) {
        let ignored: &[&str] = match part.0 {
            "kind" | "apiVersion" => continue,
            "metadata" => &["resourceVersion", "managedFields", "namespace"],
            "status" => STATUS,
            _ => &[],
        };
        let (old, new) = (part.1.unwrap_or(&Value::Null), part.2.unwrap_or(&Value::Null));
        let fields = members(old, new, &empty).into_iter();
        let fields = fields.filter(|(name, old, new)| !ignored.contains(name) && old != new);
        changed.extend(fields.map(|(name, ..)| format!("{}.{name}", part.0)));
        if !(old.is_object() || old.is_null()) || !(new.is_object() || new.is_null()) {
            changed.push(part.0.to_owned());
        }
    }
    changed
}

/// Status fields that a node may report.
const STATUS: &[&str] = &["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"];

type MemberDiff<'a> = (&'a str, Option<&'a Value>, Option<&'a Value>);

fn members<'a>(old: &'a Value, new: &'a Value, empty: &'a Map<String, Value>) -> Vec<MemberDiff<'a>> {
    let [old, new] = [old, new].map(|value| value.as_object().unwrap_or(empty));
    let names: BTreeSet<&str> = old.keys().chain(new.keys()).map(String::as_str).collect();
    names.into_iter().map(|name| (name, old.get(name), new.get(name))).collect()
}
