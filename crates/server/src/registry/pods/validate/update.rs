//! Validation of pod updates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use windlass_api::field::{FieldErrors, FieldPath};

use super::super::fields::{entries, int, list, list_mut, metadata, part, restore, set, spec, text};
use super::{APPARMOR_PREFIX, MIRROR, annotations, metadata_and_spec, scheduling};

const IMMUTABLE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates an update of a pod (new, old).
pub(crate) fn update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    metadata_and_spec(new, errors);
    annotation_changes(new, old, errors);
    let path = FieldPath::new("spec");
    let (new_spec, old_spec) = (spec(new), spec(old));
    for field in ["containers", "initContainers"] {
        let (new, old) = (list(new_spec, field), list(old_spec, field));
        if new.len() != old.len() {
            let detail = "pod updates may not add or remove containers";
            return errors.forbidden(&path.child(field), detail);
        }
        for (index, container) in new.iter().enumerate() {
            let at = path.child(field).index(index);
            super::required(&at, container, "image", errors);
            super::containers::image_is_trimmed(container, &at, errors);
        }
    }
    if !deadline(new_spec, old_spec, &path.child("activeDeadlineSeconds"), errors) {
        return;
    }
    added_tolerations(new_spec, old_spec, &path.child("tolerations"), errors);
    removed_gates(new_spec, old_spec, &path.child("schedulingGates"), errors);
    if new_spec == old_spec {
        return;
    }
    let mut rest = without_mutable_fields(new_spec, old_spec);
    if !list(old_spec, "schedulingGates").is_empty() {
        gated(&mut rest, old_spec, &path, errors);
    }
    if rest != *old_spec {
        errors.forbidden(&path, IMMUTABLE);
    }
}

/// Annotations that record a pod's origin are immutable.
pub(super) fn annotation_changes(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("metadata").child("annotations");
    let all = |pod| -> BTreeMap<&str, &Value> { entries(metadata(pod), "annotations").into_iter().collect() };
    let (new_all, old_all) = (all(new), all(old));
    for (key, value) in &old_all {
        if new_all.get(key) == Some(value) {
            continue;
        }
        if key.starts_with(APPARMOR_PREFIX) {
            let detail = "may not remove or update AppArmor annotations";
            errors.forbidden(&path.key(key), detail);
        }
        if *key == MIRROR {
            let detail = "may not remove or update mirror pod annotation";
            errors.forbidden(&path.key(key), detail);
        }
    }
    for key in new_all.keys().filter(|key| !old_all.contains_key(*key)) {
        if key.starts_with(APPARMOR_PREFIX) {
            errors.forbidden(&path.key(key), "may not add AppArmor annotations");
        }
        if *key == MIRROR {
            errors.forbidden(&path.key(key), "may not add mirror pod annotation");
        }
    }
    annotations(new, errors);
}

/// A deadline may be set and shortened. Returns false if the other checks can be skipped.
fn deadline(new: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let (new, old) = (int(new, "activeDeadlineSeconds"), int(old, "activeDeadlineSeconds"));
    match (new, old) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
            errors.invalid(path, &new.into(), &detail);
            false
        }
        (Some(new), Some(old)) if old < new => {
            let detail = "must be less than or equal to previous value";
            errors.invalid(path, &new.into(), detail);
            false
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.invalid(path, &Value::Null, detail);
            true
        }
        _ => true,
    }
}

fn added_tolerations(new: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    // Compared as text with sorted fields, because values cannot be hashed.
    let untimed = |toleration: &Value| {
        let mut rest = toleration.clone();
        set(&mut rest, "tolerationSeconds", None);
        rest.to_string()
    };
    let kept: BTreeSet<String> = list(new, "tolerations").iter().map(untimed).collect();
    if list(old, "tolerations").iter().any(|toleration| !kept.contains(&untimed(toleration))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        return errors.forbidden(path, detail);
    }
    scheduling::tolerations(list(new, "tolerations"), path, errors);
}

fn removed_gates(new: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let known: BTreeSet<&str> = list(old, "schedulingGates").iter().map(|g| text(g, "name")).collect();
    for (index, gate) in list(new, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !known.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.index(index).child("name"), &detail);
        }
    }
}

/// Returns the new spec with all mutable fields reset; the result must equal the old spec.
fn without_mutable_fields(new: &Value, old: &Value) -> Value {
    let mut rest = new.clone();
    for field in ["containers", "initContainers"] {
        for (container, before) in list_mut(&mut rest, field).iter_mut().zip(list(old, field)) {
            restore(container, before, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(&mut rest, old, field);
    }
    let was_negative = int(old, "terminationGracePeriodSeconds").is_some_and(|grace| grace < 0);
    if was_negative && int(new, "terminationGracePeriodSeconds") == Some(1) {
        restore(&mut rest, old, "terminationGracePeriodSeconds");
    }
    rest
}

/// While scheduling gates hold a pod, its node constraints may be tightened.
fn gated(rest: &mut Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let kept = entries(old, "nodeSelector")
        .into_iter()
        .all(|(key, value)| rest.pointer("/nodeSelector").and_then(|all| all.get(key)) == Some(value));
    if !kept {
        let shown = part(rest, "nodeSelector").cloned().unwrap_or_default();
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(&path.child("nodeSelector"), &shown, detail);
    }
    restore(rest, old, "nodeSelector");
    let (new_nodes, old_nodes) = (node_affinity(rest), node_affinity(old));
    if new_nodes == old_nodes {
        return;
    }
    let at = path.child("affinity").child("nodeAffinity");
    node_affinity_additions(&new_nodes, &old_nodes, &at, errors);
    let mut affinity = part(rest, "affinity").cloned().unwrap_or_else(|| json!({}));
    set(&mut affinity, "nodeAffinity", Some(old_nodes).filter(|nodes| !nodes.is_null()));
    let nothing_else = affinity == json!({}) && part(old, "affinity").is_none();
    set(rest, "affinity", (!nothing_else).then_some(affinity));
}

fn node_affinity(spec: &Value) -> Value {
    spec.pointer("/affinity/nodeAffinity").cloned().unwrap_or_default()
}

fn node_affinity_additions(new: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const TERMS: &str = "/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms =
        |affinity: &Value| affinity.pointer(TERMS).and_then(Value::as_array).cloned().unwrap_or_default();
    let (new, old) = (terms(new), terms(old));
    let at = path.child("requiredDuringSchedulingIgnoredDuringExecution").child("nodeSelectorTerms");
    if !old.is_empty() && new.len() != old.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return errors.invalid(&at, &new.into(), detail);
    }
    for (index, (new, old)) in new.iter().zip(&old).enumerate() {
        let fields = ["matchExpressions", "matchFields"];
        let count = |term, field| list(term, field).len();
        let was_empty = fields.iter().all(|field| count(old, field) == 0);
        let grew_from_nothing = was_empty && fields.iter().any(|field| count(new, field) > 0);
        let kept = fields.iter().all(|field| list(new, field).starts_with(list(old, field)));
        if grew_from_nothing || !kept {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(&at.index(index), new, detail);
        }
    }
}
