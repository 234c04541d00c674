//! Merges an applied object into the live one, and removes fields by set.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::field_walk::element_paths;
use super::merge_node::{MergeNode, ObjectLevel, as_list, as_map};
use super::path_element;
use super::set::{FieldSet, FieldSubtree, FieldTree, below, is_member, parts};
use crate::schema::{Schema, TypeId};

/// Merges an applied object into the live one: applied leaves win, list elements merge by key, and
/// nothing is removed.
pub(super) fn merge_applied(schema: &Schema, of: TypeId, live: &Value, applied: &Value) -> Value {
    let node = MergeNode::from_type(schema, of);
    let merged = merge(schema, node, ObjectLevel::Top, Some(live), Some(applied));
    merged.unwrap_or_else(|| Value::Object(Map::new()))
}

fn merge(
    schema: &Schema,
    node: MergeNode<'_>,
    place: ObjectLevel,
    live: Option<&Value>,
    applied: Option<&Value>,
) -> Option<Value> {
    match node {
        MergeNode::Leaf => {}
        MergeNode::Struct(_) | MergeNode::Map(_) => {
            if let (Some(old), Some(new)) = (as_map(live), as_map(applied))
                && !(old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty))
            {
                return Some(Value::Object(merge_maps(schema, node, place, old, new)));
            }
        }
        MergeNode::Set | MergeNode::Keyed(..) => {
            if let (Some(old), Some(new)) = (as_list(live), as_list(applied))
                && !(old.is_empty() && new.is_empty())
                && let Some(merged) = merge_lists(schema, node, old, new)
            {
                return Some(Value::Array(merged));
            }
        }
    }
    applied.or(live).cloned()
}

fn merge_maps(
    schema: &Schema,
    node: MergeNode<'_>,
    place: ObjectLevel,
    live: Option<&Map<String, Value>>,
    applied: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let mut result = live.cloned().unwrap_or_default();
    for (name, new) in applied.into_iter().flatten() {
        let old = live.and_then(|live| live.get(name));
        // Many manifests contain `creationTimestamp: null`; it does not request a change.
        if new.is_null() && place.is_unowned(name) {
            continue;
        }
        let inner = place.child(name);
        match merge(schema, node.child(schema, name), inner, old, Some(new)) {
            Some(Value::Null) if old.is_none_or(|old| !old.is_null()) => {
                result.remove(name);
            }
            Some(merged) => {
                result.insert(name.clone(), merged);
            }
            None => {}
        }
    }
    result
}

/// Merges two lists. Shared elements follow the order of the applied list; the others keep their
/// positions relative to them. Returns `None` if an element has no key.
fn merge_lists(
    schema: &Schema,
    node: MergeNode<'_>,
    live: &[Value],
    applied: &[Value],
) -> Option<Vec<Value>> {
    let (left, right) = (element_paths(node, live)?, element_paths(node, applied)?);
    let theirs: HashSet<&String> = right.iter().collect();
    let mut ours: HashMap<&String, Option<&Value>> = HashMap::new();
    for (part, value) in left.iter().zip(live) {
        // Duplicate keys in the live list are not merged with.
        ours.entry(part).and_modify(|twin| *twin = None).or_insert(Some(value));
    }
    let mut shared = right.iter().filter(|part| ours.contains_key(part)).peekable();
    let mut done: HashSet<&String> = HashSet::new();
    let mut result = Vec::with_capacity(live.len().max(applied.len()));
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() {
            let part = &left[l];
            if !theirs.contains(part) {
                result.push(live[l].clone());
                l += 1;
                continue;
            }
            let next = shared.peek().copied();
            if done.contains(part) || (r < right.len() && next.is_some() && next != Some(part)) {
                l += 1;
                continue;
            }
        }
        if r < right.len() {
            let part = &right[r];
            done.insert(part);
            let old = ours.get(part).copied().flatten();
            result.extend(merge(schema, node.element(), ObjectLevel::Inside, old, Some(&applied[r])));
            shared.next_if_eq(&part);
            r += 1;
        } else {
            l += 1;
        }
    }
    Some(result)
}

/// Removes the members of a set from an object, and containers that become empty.
pub(super) fn remove_fields(schema: &Schema, of: TypeId, object: &Value, doomed: &FieldSet) -> Value {
    let node = MergeNode::from_type(schema, of);
    remove(schema, node, object, &doomed.0).unwrap_or_else(|| Value::Object(Map::new()))
}

fn remove(schema: &Schema, node: MergeNode<'_>, value: &Value, doomed: &FieldTree) -> Option<Value> {
    match (node, value) {
        (MergeNode::Struct(_) | MergeNode::Map(_), Value::Object(map)) => {
            let mut left = Map::new();
            for (name, value) in map {
                let kept = match below(doomed, &path_element::field(name)) {
                    None => Some(value.clone()),
                    Some(tree) if is_member(tree) => None,
                    Some(tree) => remove(schema, node.child(schema, name), value, tree),
                };
                left.extend(kept.map(|value| (name.clone(), value)));
            }
            (!left.is_empty()).then_some(Value::Object(left))
        }
        (MergeNode::Set | MergeNode::Keyed(..), Value::Array(list)) => {
            let kept = list.iter().filter_map(|element| {
                match node.element_path(element).ok().and_then(|part| below(doomed, &part)) {
                    None => Some(element.clone()),
                    Some(tree) if is_member(tree) => None,
                    Some(tree) => remove(schema, node.element(), element, tree),
                }
            });
            let kept: Vec<Value> = kept.collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        (_, value) => Some(value.clone()),
    }
}

/// Adds every declared field that leads to a member: a field set names only leaves, and removal
/// must know the owners of the enclosing objects.
pub(super) fn include_key_fields(schema: &Schema, of: TypeId, set: &FieldSet) -> FieldSet {
    FieldSet(include_keys_below(schema, MergeNode::from_type(schema, of), ObjectLevel::Top, &set.0))
}

fn include_keys_below(
    schema: &Schema,
    node: MergeNode<'_>,
    place: ObjectLevel,
    tree: &FieldTree,
) -> FieldTree {
    let mut result = FieldTree::new();
    for (part, under) in parts(tree) {
        let (inner, at, declared) = match part.strip_prefix("f:") {
            Some(name) => (node.child(schema, name), place.child(name), node.declared(name).is_some()),
            None => (node.element(), ObjectLevel::Inside, false),
        };
        // Metadata contains the name, which is in no set, so it must survive the removal of its
        // last label.
        let member = (is_member(under) || declared) && at != ObjectLevel::Metadata;
        FieldSubtree { member, below: include_keys_below(schema, inner, at, under) }
            .insert_into(&mut result, part.clone());
    }
    result
}
