//! Server-side apply: an object that says what its manager wants, laid over the live one.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::FieldManager;
use super::conflict::ApplyConflicts;
use super::field_walk::{FieldDelta, compare, field_set};
use super::managed_fields::{ManagedFieldsEntry, ManagedFieldsOperation, encode, parse_trusted};
use super::merge::{include_key_fields, merge_applied, remove_fields};
use super::set::FieldSet;
use super::update::{
    MANAGED_FIELDS, assign_ownership, managed_fields, metadata_mut, set_managed_fields,
};
use super::validate::validate;
use crate::schema::{Schema, TypeId};

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The applied object cannot be merged: a field nobody declared, a wrong type, two list elements
    /// of one key. The text is `.path: what`, or `errors:` and a line for each.
    #[error("{0}")]
    Invalid(String),
    /// Others own fields that would change.
    #[error("conflicts with {} fields", .0.total)]
    Conflicts(ApplyConflicts),
}

/// Who owns what an object had before anyone applied to it.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Applies an object, as it was sent, to the live one (`None`: there is none yet). `Ok(None)`:
/// nothing changes, neither the object nor who owns what.
///
/// What this manager applied before and no longer applies is removed, unless someone else owns it.
/// A field that someone else owns and whose value would change is a conflict, unless `force`; fields
/// with the same value are shared. Fields in `reset` (and below) are never owned.
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
        // kubectl may take over from itself what it applied on the client's side.
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
    /// The entries of the live object. If there are none, what it has belongs to "before".
    fn managers_before(&self, live: Option<&Value>, bare: &Value) -> Vec<ManagedFieldsEntry> {
        let managers =
            live.and_then(managed_fields).cloned().map(parse_trusted).unwrap_or_default();
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

    /// Merges, prunes and hands over ownership. Fields in `own` are no conflict, whoever owns them.
    fn run(
        &self,
        live: &Value,
        mut managers: Vec<ManagedFieldsEntry>,
        force: bool,
        own: &FieldSet,
    ) -> Result<(Value, Vec<ManagedFieldsEntry>), ApplyConflicts> {
        let mut fields = field_set(self.schema, self.of, self.applied);
        fields.recursive_difference(self.reset);
        let entry =
            managers.iter().position(|m| m.belongs_to(self.who, ManagedFieldsOperation::Apply));
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

    /// Removes what was applied last time and is not now, except what somebody owns: removes it all,
    /// then sees what of that has to come back.
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
        // An object that lost its last field is gone; if it was applied as `{}`, it is wanted.
        merge_applied(schema, of, &pruned, self.applied)
    }

    /// The fields that kubectl applied on the client's side and that still have those values.
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

    /// Keeps kubectl's record of what it applied true, if the object has one, so that it may go back
    /// to applying on the client's side.
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
/// What all annotations of an object may take; a longer record is not kept.
const MAX_ANNOTATIONS: usize = 256 << 10;
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const LAST_APPLIED_POINTER: &str =
    "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// The live object without its `managedFields`.
fn without_managed_fields(live: Option<&Value>) -> Value {
    let mut bare = live.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata_mut(&mut bare) {
        metadata.remove(MANAGED_FIELDS);
    }
    bare
}

/// Whether the same managers own the same fields at the same versions, whenever they took them.
fn same_managers(a: &[ManagedFieldsEntry], b: &[ManagedFieldsEntry]) -> bool {
    let known: HashMap<_, _> = b.iter().map(|b| (b.identity(), b)).collect();
    let same = |a: &ManagedFieldsEntry, b: &ManagedFieldsEntry| {
        a.api_version == b.api_version && a.fields == b.fields
    };
    a.len() == b.len() && a.iter().all(|a| known.get(&a.identity()).is_some_and(|b| same(a, b)))
}
