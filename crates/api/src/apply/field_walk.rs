//! Computes the field set of an object and the changes between two objects.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::merge_node::{MergeNode, ObjectLevel, as_list, as_map};
use super::path_element;
use super::set::{FieldSet, FieldSubtree};
use crate::schema::{FieldPresence, Schema, SchemaField, TypeId, ValueShape};

/// Returns all fields of an object: its leaves and every list element and map key. These are the
/// fields that an applier of the object owns.
pub fn field_set(schema: &Schema, of: TypeId, object: &Value) -> FieldSet {
    FieldSet(fields(schema, MergeNode::from_type(schema, of), ObjectLevel::Top, object).below)
}

fn fields(schema: &Schema, node: MergeNode<'_>, place: ObjectLevel, value: &Value) -> FieldSubtree {
    let mut sub = FieldSubtree::default();
    match (node, value) {
        (MergeNode::Struct(_) | MergeNode::Map(_), Value::Object(map)) => {
            for (name, value) in map.iter().filter(|(name, _)| !place.is_unowned(name)) {
                let inner = place.child(name);
                let mut part = fields(schema, node.child(schema, name), inner, value);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                part.member |= empty || node.declared(name).is_none();
                part.member &= inner != ObjectLevel::Metadata;
                part.insert_into(&mut sub.below, path_element::field(name));
            }
        }
        (MergeNode::Set | MergeNode::Keyed(..), Value::Array(list)) => {
            let Some(parts) = element_paths(node, list) else {
                sub.member = true;
                return sub;
            };
            let mut count: HashMap<&str, usize> = HashMap::new();
            for part in &parts {
                *count.entry(part).or_default() += 1;
            }
            for (part, element) in parts.iter().zip(list) {
                // Elements that share a key cannot be attributed to different owners.
                let twins = count.get(part.as_str()).is_some_and(|n| *n > 1);
                let node = if twins { MergeNode::Leaf } else { node.element() };
                let mut one = fields(schema, node, ObjectLevel::Inside, element);
                one.member = true;
                one.insert_into(&mut sub.below, part.clone());
            }
        }
        (MergeNode::Leaf, _) => sub.member = true,
        // A null list or map is owned through its parent.
        _ => sub.member = !value.is_null(),
    }
    sub
}

/// Differences between two objects, as field sets.
pub(super) struct FieldDelta {
    /// Fields that were added or changed.
    pub(super) changed: FieldSet,
    /// Fields that exist only in the old object.
    pub(super) removed: FieldSet,
}

/// Compares two objects in lockstep. Equal parts cause no allocation.
pub(super) fn compare(schema: &Schema, of: TypeId, old: &Value, new: &Value) -> FieldDelta {
    let mut diff = DiffBuilder::default();
    let node = MergeNode::from_type(schema, of);
    diff.compare(schema, node, ObjectLevel::Top, Some(old), Some(new));
    FieldDelta { changed: FieldSet(diff.changed.below), removed: FieldSet(diff.removed.below) }
}

#[derive(Default)]
struct DiffBuilder {
    changed: FieldSubtree,
    removed: FieldSubtree,
}

impl DiffBuilder {
    fn compare(
        &mut self,
        schema: &Schema,
        node: MergeNode<'_>,
        place: ObjectLevel,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        let known = match node {
            MergeNode::Leaf => false,
            MergeNode::Struct(_) | MergeNode::Map(_) => match (as_map(old), as_map(new)) {
                (Some(before), Some(after)) => {
                    self.compare_maps(schema, node, place, (old.is_some(), before), (new.is_some(), after))
                }
                _ => false,
            },
            MergeNode::Set | MergeNode::Keyed(..) => match (as_list(old), as_list(new)) {
                (Some(before), Some(after)) => self.compare_lists(schema, node, before, after),
                _ => false,
            },
        };
        match (old, new) {
            (None, _) => self.changed.member = true,
            (_, None) => self.removed.member = true,
            (Some(old), Some(new)) => self.changed.member = !known && old != new,
        }
    }

    /// Compares the members of two objects or maps. Returns `false` if both are empty and therefore
    /// a leaf.
    fn compare_maps(
        &mut self,
        schema: &Schema,
        node: MergeNode<'_>,
        place: ObjectLevel,
        (was, old): (bool, Option<&Map<String, Value>>),
        (is, new): (bool, Option<&Map<String, Value>>),
    ) -> bool {
        if old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty) {
            return false;
        }
        let empty = Map::new();
        let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
        let mut shared = 0;
        for (name, before) in old {
            let after = new.get(name);
            shared += usize::from(after.is_some());
            let after = after.or_else(|| zero(node.declared(name).filter(|_| is)));
            self.compare_member(schema, node, place, name, Some(before), after);
        }
        if shared < new.len() {
            for (name, after) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                let before = zero(node.declared(name).filter(|_| was));
                self.compare_member(schema, node, place, name, before, Some(after));
            }
        }
        true
    }

    fn compare_member(
        &mut self,
        schema: &Schema,
        node: MergeNode<'_>,
        place: ObjectLevel,
        name: &str,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        if place.is_unowned(name) {
            return;
        }
        let inner = place.child(name);
        let mut diff = DiffBuilder::default();
        diff.compare(schema, node.child(schema, name), inner, old, new);
        if inner == ObjectLevel::Metadata {
            (diff.changed.member, diff.removed.member) = (false, false);
        }
        diff.insert_into(self, || path_element::field(name));
    }

    /// Compares two lists element by element. Returns `false` if they are a leaf because both are
    /// empty or an element has no key.
    fn compare_lists(&mut self, schema: &Schema, node: MergeNode<'_>, old: &[Value], new: &[Value]) -> bool {
        if old.is_empty() && new.is_empty() {
            return false;
        }
        let aligned =
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| node.is_same_element(old, new));
        if aligned {
            for (old, new) in old.iter().zip(new) {
                let mut diff = DiffBuilder::default();
                diff.compare(schema, node.element(), ObjectLevel::Inside, Some(old), Some(new));
                diff.insert_into(self, || node.element_path(new).unwrap_or_default());
            }
            return true;
        }
        let (Some(before), Some(after)) = (element_paths(node, old), element_paths(node, new)) else {
            return false;
        };
        let index: HashMap<&String, &Value> = before.iter().zip(old).collect();
        let known: HashSet<&String> = after.iter().collect();
        for (part, value) in after.iter().zip(new) {
            let mut diff = DiffBuilder::default();
            let old = index.get(part).copied();
            diff.compare(schema, node.element(), ObjectLevel::Inside, old, Some(value));
            diff.insert_into(self, || part.clone());
        }
        for (part, value) in before.iter().zip(old).filter(|(part, _)| !known.contains(part)) {
            let mut diff = DiffBuilder::default();
            diff.compare(schema, node.element(), ObjectLevel::Inside, Some(value), None);
            diff.insert_into(self, || part.clone());
        }
        true
    }

    fn insert_into(self, into: &mut DiffBuilder, part: impl Fn() -> String) {
        if !self.changed.is_empty() {
            self.changed.insert_into(&mut into.changed.below, part());
        }
        if !self.removed.is_empty() {
            self.removed.insert_into(&mut into.removed.below, part());
        }
    }
}

/// Returns the path elements of a list's elements; `None` if an element has none.
pub(super) fn element_paths(node: MergeNode<'_>, list: &[Value]) -> Option<Vec<String>> {
    list.iter().map(|element| node.element_path(element).ok()).collect()
}

/// Returns the canonical form of an absent field. Without it, the creator of an object would own
/// fields that it did not set, such as `spec` itself.
fn zero(field: Option<&SchemaField>) -> Option<&'static Value> {
    static NULL: Value = Value::Null;
    static FALSE: Value = Value::Bool(false);
    static TEXT: Value = Value::String(String::new());
    static NUMBER: LazyLock<Value> = LazyLock::new(|| Value::from(0));
    static OBJECT: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    let field = field.filter(|field| field.presence == FieldPresence::Always)?;
    Some(match field.shape {
        ValueShape::String | ValueShape::Quantity => &TEXT,
        ValueShape::Bool => &FALSE,
        ValueShape::Int32 | ValueShape::Int64 | ValueShape::Float | ValueShape::IntOrString => &NUMBER,
        ValueShape::Object(_) => &OBJECT,
        _ => &NULL,
    })
}
