//! Server-side apply: merges a manager's desired fields into the live object.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::FieldManager;
use super::conflict::ApplyConflicts;
use super::field_walk::{FieldDelta, compare, field_set};
use super::managed_fields::{ManagedFieldsEntry, ManagedFieldsOperation, encode, parse_trusted};
use super::merge::{include_key_fields, merge_applied, remove_fields};
use super::set::FieldSet;
use super::update::{MANAGED_FIELDS, assign_ownership, managed_fields, metadata_mut, set_managed_fields};
use super::validate::validate;
use crate::schema::{Schema, TypeId};

/// Reason for rejecting an apply request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The applied object cannot be merged: an undeclared field, a wrong type, or two list elements
    /// with the same key. The text is `.path: reason`, or `errors:` followed by one line per error.
    #[error("{0}")]
    Invalid(String),
    /// Other managers own fields that would change.
    #[error("conflicts with {} fields", .0.total)]
    Conflicts(ApplyConflicts),
}

/// Manager that owns the fields set before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Applies an object as sent to the live one (`None`: it does not exist yet). Returns `Ok(None)` if
/// neither the object nor field ownership changes.
///
/// Removes fields that this manager applied before and no longer applies, unless another manager
/// owns them. A field that another manager owns and whose value would change is a conflict, unless
/// `force`; fields with equal values are shared. Fields in `reset` (and below) are never owned.
pub fn on_apply(
    schema: &Schema,
    of: TypeId,
    live: Option<&Value>,
    applied: &Value,
    who: &FieldManager<'_>,
    force: bool,
    reset: &FieldSet,
) -> Result<Option<Value>, ApplyError> {
    validate(schema, of, applied).map_err(ApplyError::Invalid)?;
    let apply = ApplyOperation { schema, of, applied, who, reset };
    let bare = without_managed_fields(live);
    let managers = apply.managers_before(live, &bare);
    let result = match apply.run(&bare, managers.clone(), force, &FieldSet::default()) {
        // kubectl may take over fields from its own client-side apply.
        Err(_) if who.manager == KUBECTL => {
            apply.run(&bare, managers.clone(), force, &apply.client_side_applied_fields(&bare))
        }
        result => result,
    };
    let (mut new, mut after) = result.map_err(ApplyError::Conflicts)?;
    if who.manager == KUBECTL {
        apply.refresh_annotation(&mut new);
    }
    let same = new == bare;
    if live.is_some() && same && same_managers(&managers, &after) {
        return Ok(None);
    }
    for manager in after.iter_mut().filter(|m| m.belongs_to(who, ManagedFieldsOperation::Apply)) {
        let last = managers.iter().find(|m| m.belongs_to(who, ManagedFieldsOperation::Apply));
        if let Some(last) = last.filter(|last| same && last.fields == manager.fields) {
            manager.time = last.time.clone();
        }
    }
    set_managed_fields(&mut new, encode(after));
    Ok(Some(new))
}

struct ApplyOperation<'a> {
    schema: &'a Schema,
    of: TypeId,
    applied: &'a Value,
    who: &'a FieldManager<'a>,
    reset: &'a FieldSet,
}

impl ApplyOperation<'_> {
    /// Returns the entries of the live object. If it has none, all its fields belong to
    /// `before-first-apply`.
    fn managers_before(&self, live: Option<&Value>, bare: &Value) -> Vec<ManagedFieldsEntry> {
        let managers = live.and_then(managed_fields).cloned().map(parse_trusted).unwrap_or_default();
        if live.is_none() || !managers.is_empty() {
            return managers;
        }
        let delta = self.compare(&Value::Object(Map::new()), bare);
        let before = FieldManager { manager: BEFORE_FIRST_APPLY, ..*self.who };
        assign_ownership(Vec::new(), &delta.changed, &delta.removed, &before)
    }

    fn compare(&self, old: &Value, new: &Value) -> FieldDelta {
        let mut delta = compare(self.schema, self.of, old, new);
        delta.changed.recursive_difference(self.reset);
        delta.removed.recursive_difference(self.reset);
        delta
    }

    /// Merges, prunes and transfers ownership. Fields in `own` never conflict.
    fn run(
        &self,
        live: &Value,
        mut managers: Vec<ManagedFieldsEntry>,
        force: bool,
        own: &FieldSet,
    ) -> Result<(Value, Vec<ManagedFieldsEntry>), ApplyConflicts> {
        let mut fields = field_set(self.schema, self.of, self.applied);
        fields.recursive_difference(self.reset);
        let entry = managers.iter().position(|m| m.belongs_to(self.who, ManagedFieldsOperation::Apply));
        let last = entry.map(|i| managers.remove(i).fields).unwrap_or_default();
        let merged = merge_applied(self.schema, self.of, live, self.applied);
        let new = self.prune(merged, &managers, &fields, &last);
        let delta = self.compare(live, &new);

        managers.sort_by(|a, b| a.identity().cmp(&b.identity()));
        let mut conflicts = ApplyConflicts::default();
        for manager in &mut managers {
            let mut taken = manager.fields.intersection(&delta.changed);
            manager.fields.difference(&taken);
            manager.fields.difference(&delta.removed);
            taken.difference(own);
            if !force {
                conflicts.add(manager, &taken);
            }
        }
        if conflicts.total > 0 {
            return Err(conflicts);
        }
        managers.push(ManagedFieldsEntry::new(self.who, ManagedFieldsOperation::Apply, fields));
        managers.retain(|manager| !manager.fields.is_empty());
        Ok((new, managers))
    }

    /// Removes fields that were applied before and are no longer applied, unless they have another
    /// owner: removes them all, then restores those still owned.
    fn prune(
        &self,
        merged: Value,
        others: &[ManagedFieldsEntry],
        fields: &FieldSet,
        last: &FieldSet,
    ) -> Value {
        if last.is_empty() {
            return merged;
        }
        let (schema, of) = (self.schema, self.of);
        let all = |object: &Value| include_key_fields(schema, of, &field_set(schema, of, object));
        let last = include_key_fields(schema, of, last);
        let mut owned = fields.clone();
        others.iter().for_each(|other| owned.union(&other.fields));
        let everything = all(&merged);

        let mut kept = all(&remove_fields(schema, of, &merged, &last));
        kept.union(&include_key_fields(schema, of, &owned));
        let mut doomed = everything.clone();
        doomed.difference(&kept);

        let mut doomed_now = everything;
        doomed_now.difference(&all(&remove_fields(schema, of, &merged, &doomed)));
        let pruned = remove_fields(schema, of, &merged, &doomed_now.intersection(&last));
        // Pruning removes an object that lost its last field; merging restores it if it was applied
        // as `{}`.
        merge_applied(schema, of, &pruned, self.applied)
    }

    /// Returns the fields that kubectl applied on the client side and whose values are unchanged.
    fn client_side_applied_fields(&self, live: &Value) -> FieldSet {
        let text = live.pointer(LAST_APPLIED_POINTER).and_then(Value::as_str).unwrap_or_default();
        let Ok(last) = serde_json::from_str::<Value>(text) else { return FieldSet::default() };
        let version = last.get("apiVersion").and_then(Value::as_str);
        if version != Some(self.who.api_version) || validate(self.schema, self.of, &last).is_err() {
            return FieldSet::default();
        }
        let mut set = field_set(self.schema, self.of, &last);
        let delta = compare(self.schema, self.of, &last, live);
        set.difference(&delta.changed);
        set.difference(&delta.removed);
        set
    }

    /// Updates kubectl's last-applied annotation, if present, so that clients can return to
    /// client-side apply.
    fn refresh_annotation(&self, new: &mut Value) {
        let Some(Value::String(record)) = new.pointer_mut(LAST_APPLIED_POINTER) else { return };
        let mut applied = self.applied.clone();
        if let Some(metadata) = metadata_mut(&mut applied) {
            metadata.remove(MANAGED_FIELDS);
            if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                annotations.remove(LAST_APPLIED);
            }
        }
        *record = format!("{applied}\n");
        if record.len() > MAX_ANNOTATIONS {
            record.clear();
        }
    }
}

const KUBECTL: &str = "kubectl";
/// Limit for all annotations of an object; a longer last-applied annotation is dropped.
const MAX_ANNOTATIONS: usize = 256 << 10;
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const LAST_APPLIED_POINTER: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// Returns the live object without its `managedFields`.
fn without_managed_fields(live: Option<&Value>) -> Value {
    let mut bare = live.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata_mut(&mut bare) {
        metadata.remove(MANAGED_FIELDS);
    }
    bare
}

/// Returns true if the same managers own the same fields at the same versions, regardless of time.
fn same_managers(a: &[ManagedFieldsEntry], b: &[ManagedFieldsEntry]) -> bool {
    let known: HashMap<_, _> = b.iter().map(|b| (b.identity(), b)).collect();
    let same = |a: &ManagedFieldsEntry, b: &ManagedFieldsEntry| {
        a.api_version == b.api_version && a.fields == b.fields
    };
    a.len() == b.len() && a.iter().all(|a| known.get(&a.identity()).is_some_and(|b| same(a, b)))
}
