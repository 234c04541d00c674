//! Updates `managedFields` on every write except apply: the writer owns the fields it changed, and
//! removed fields lose their owners.

use serde_json::Value;

use super::FieldManager;
use super::field_walk::compare;
use super::managed_fields::{
    self, ManagedFieldsEntry, ManagedFieldsOperation, cap_update_entries, encode, parse_trusted,
};
use super::set::FieldSet;
use crate::schema::{Schema, TypeId};

/// Updates the `managedFields` of a new object with the changes from the old one. `old` is `None`
/// on create; both are in canonical form. Fields in `reset` (and below) are never owned, because
/// the server does not take them from this request.
///
/// A client may send `managedFields` with the main resource (not with a subresource): a valid list
/// replaces the old one, `[]` and `[{}]` clear it, anything else is ignored. An existing object
/// without `managedFields` stays without.
pub fn on_update(
    schema: &Schema,
    of: TypeId,
    old: Option<&Value>,
    new: &mut Value,
    who: &FieldManager<'_>,
    reset: &FieldSet,
) {
    let given = metadata_mut(new).and_then(|metadata| metadata.remove(MANAGED_FIELDS));
    let live = old.and_then(managed_fields);
    let source = source(given, live, who);
    let empty = match &source {
        ManagedFieldsSource::Stored(kept) => kept.as_array().is_none_or(Vec::is_empty),
        ManagedFieldsSource::Sent(sent) => sent.is_empty(),
    };
    if empty && old.is_some() {
        return;
    }
    let nothing = Value::Object(serde_json::Map::new());
    let mut delta = compare(schema, of, old.unwrap_or(&nothing), new);
    delta.changed.recursive_difference(reset);
    delta.removed.recursive_difference(reset);
    let managers = match source {
        ManagedFieldsSource::Stored(kept) if delta.changed.is_empty() && delta.removed.is_empty() => {
            return set_managed_fields(new, kept);
        }
        ManagedFieldsSource::Stored(kept) => parse_trusted(kept),
        ManagedFieldsSource::Sent(sent) => sent,
    };
    let mut managers = assign_ownership(managers, &delta.changed, &delta.removed, who);
    cap_update_entries(&mut managers);
    if !managers.is_empty() {
        set_managed_fields(new, encode(managers));
    }
}

/// Assigns changed fields to the writer, and removes changed and removed fields from all other
/// managers.
pub(super) fn assign_ownership(
    mut managers: Vec<ManagedFieldsEntry>,
    changed: &FieldSet,
    removed: &FieldSet,
    who: &FieldManager<'_>,
) -> Vec<ManagedFieldsEntry> {
    let mut own = None;
    for (i, manager) in managers.iter_mut().enumerate() {
        manager.fields.difference(removed);
        if manager.belongs_to(who, ManagedFieldsOperation::Update) {
            own = Some(i);
        } else {
            manager.fields.difference(changed);
        }
    }
    match own {
        _ if changed.is_empty() => {}
        Some(i) => {
            managers[i].fields.union(changed);
            managers[i].time = Some(who.time.into());
        }
        None => managers.push(ManagedFieldsEntry::new(who, ManagedFieldsOperation::Update, changed.clone())),
    }
    managers.retain(|manager| !manager.fields.is_empty());
    managers
}

/// Origin of the entries to update.
enum ManagedFieldsSource {
    Stored(Value),
    /// Entries sent by the client, replacing the stored ones.
    Sent(Vec<ManagedFieldsEntry>),
}

fn source(given: Option<Value>, live: Option<&Value>, who: &FieldManager<'_>) -> ManagedFieldsSource {
    let kept = || ManagedFieldsSource::Stored(live.cloned().unwrap_or_default());
    match given {
        // The client returned the list unchanged: use it without a copy.
        Some(given) if Some(&given) == live => ManagedFieldsSource::Stored(given),
        None | Some(Value::Null) => kept(),
        Some(_) if !who.subresource.is_empty() => kept(),
        Some(given) if is_reset_request(&given) => ManagedFieldsSource::Sent(Vec::new()),
        Some(given) => match managed_fields::parse(&given) {
            Ok(sent) => ManagedFieldsSource::Sent(sent),
            Err(_) => kept(),
        },
    }
}

fn is_reset_request(given: &Value) -> bool {
    match given.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}

pub(super) const MANAGED_FIELDS: &str = "managedFields";

pub(super) fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get(MANAGED_FIELDS)
}

pub(super) fn metadata_mut(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

/// Sets `managedFields`; does nothing for an object without metadata.
pub(super) fn set_managed_fields(object: &mut Value, list: Value) {
    let empty = list.as_array().is_none_or(Vec::is_empty);
    if let Some(metadata) = metadata_mut(object).filter(|_| !empty) {
        metadata.insert(MANAGED_FIELDS.into(), list);
    }
}
