//! Fields that the server sets and resets on requests before validation.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use windlass_api::timestamp;

use super::{APPROVED, DENIED};
use crate::registry::object_fields::{list, map, part, restore_field, text};
use crate::registry::table_cells::is_zero_time;
use crate::user::User;

/// Clears decision and result of a new request.
pub(super) fn create(request: &mut Value) {
    map(request).insert("status".into(), Value::Object(Map::new()));
}

/// Sets the requester to the authenticated user, whatever the request contains.
pub(super) fn create_as(request: &mut Value, user: &User) {
    let spec = part(request, "spec");
    let mut set = |field: &str, value: Value, is_empty: bool| {
        if is_empty {
            spec.remove(field);
        } else {
            spec.insert(field.into(), value);
        }
    };
    set("username", json!(user.name), user.name.is_empty());
    set("uid", json!(user.uid), user.uid.is_empty());
    set("groups", json!(user.groups), user.groups.is_empty());
    set("extra", json!(user.extra), user.extra.is_empty());
}

/// A plain update changes only metadata; other changes are silently reverted.
pub(super) fn update(new: &mut Value, old: &Value) {
    restore_field(new, old, "spec");
    restore_field(new, old, "status");
}

/// An approval changes only the conditions.
pub(super) fn approval(new: &mut Value, old: &Value, now: OffsetDateTime) {
    fill_times(new, old, now);
    restore_field(new, old, "spec");
    let conditions = new.pointer("/status/conditions").cloned();
    restore_field(new, old, "status");
    let status = part(new, "status");
    match conditions {
        Some(conditions) => status.insert("conditions".into(), conditions),
        None => status.remove("conditions"),
    };
}

/// A status update cannot change the decision.
pub(super) fn status(new: &mut Value, old: &Value, now: OffsetDateTime) {
    restore_field(new, old, "spec");
    for kind in [APPROVED, DENIED] {
        restore_conditions(new, old, kind);
    }
    fill_times(new, old, now);
}

/// Restores the conditions of one type, one by one. If their number changed they stay as sent, and
/// validation rejects them.
fn restore_conditions(new: &mut Value, old: &Value, kind: &str) {
    let before: Vec<&Value> = conditions_of_type(list(old, "/status/conditions"), kind).collect();
    let Some(conditions) = conditions_mut(new) else { return };
    if conditions_of_type(conditions, kind).count() != before.len() {
        return;
    }
    let mut before = before.into_iter();
    for condition in conditions.iter_mut().filter(|c| c["type"] == kind) {
        if let Some(old) = before.next() {
            *condition = old.clone();
        }
    }
}

fn conditions_of_type<'a>(conditions: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    conditions.iter().filter(move |condition| condition["type"] == kind)
}

/// Fills in absent times: a condition was updated now, and its last transition is that of the same
/// condition.
fn fill_times(new: &mut Value, old: &Value, now: OffsetDateTime) {
    let now = timestamp::format(now);
    let mut before: HashMap<(&str, &str), &str> = HashMap::new();
    for old in list(old, "/status/conditions") {
        let changed = text(old, "/lastTransitionTime");
        if !is_zero_time(changed) {
            before.entry((text(old, "/type"), text(old, "/status"))).or_insert(changed);
        }
    }
    for condition in conditions_mut(new).into_iter().flatten() {
        if is_zero_time(text(condition, "/lastUpdateTime")) {
            map(condition).insert("lastUpdateTime".into(), json!(now));
        }
        if is_zero_time(text(condition, "/lastTransitionTime")) {
            let same = before.get(&(text(condition, "/type"), text(condition, "/status")));
            let changed = json!(same.copied().unwrap_or(&now));
            map(condition).insert("lastTransitionTime".into(), changed);
        }
    }
}

fn conditions_mut(request: &mut Value) -> Option<&mut Vec<Value>> {
    request.pointer_mut("/status/conditions").and_then(Value::as_array_mut)
}
