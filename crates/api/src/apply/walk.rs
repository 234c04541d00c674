//! From objects to field sets: what an object has, and what changed between two.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::element;
use super::node::{Node, Place, as_list, as_map};
use super::set::{FieldSet, Sub};
use crate::schema::{Field, Presence, Schema, Shape, TypeId};

/// The set of all fields that an object has: its leaves, and every list element and map key. This is
/// what someone owns who applies it.
pub fn field_set(schema: &Schema, of: TypeId, object: &Value) -> FieldSet {
    FieldSet(fields(schema, Node::of_type(schema, of), Place::Top, object).below)
}

fn fields(schema: &Schema, node: Node<'_>, place: Place, value: &Value) -> Sub {
    let mut sub = Sub::default();
    match (node, value) {
        (Node::Struct(_) | Node::Map(_), Value::Object(map)) => {
            for (name, value) in map.iter().filter(|(name, _)| !place.is_unowned(name)) {
                let inner = place.under(name);
                let mut part = fields(schema, node.under(schema, name), inner, value);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                part.member |= empty || node.declared(name).is_none();
                part.member &= inner != Place::Metadata;
                part.put(&mut sub.below, element::field(name));
            }
        }
        (Node::Set | Node::Keyed(..), Value::Array(list)) => {
            let Some(parts) = parts_of(node, list) else {
                sub.member = true;
                return sub;
            };
            let mut count: HashMap<&str, usize> = HashMap::new();
            for part in &parts {
                *count.entry(part).or_default() += 1;
            }
            for (part, element) in parts.iter().zip(list) {
                // Of elements that share a key nobody can say whose which part is.
                let twins = count.get(part.as_str()).is_some_and(|n| *n > 1);
                let node = if twins { Node::Leaf } else { node.element() };
                let mut one = fields(schema, node, Place::Inside, element);
                one.member = true;
                one.put(&mut sub.below, part.clone());
            }
        }
        (Node::Leaf, _) => sub.member = true,
        // A list or map that is null: its owner says so, one level up.
        _ => sub.member = !value.is_null(),
    }
    sub
}

/// What differs between two objects.
pub(super) struct Delta {
    /// What was added or has another value.
    pub(super) changed: FieldSet,
    /// What is no longer there.
    pub(super) removed: FieldSet,
}

/// Compares two objects in lockstep. What is equal costs no allocation.
pub(super) fn compare(schema: &Schema, of: TypeId, old: &Value, new: &Value) -> Delta {
    let mut diff = Diff::default();
    let node = Node::of_type(schema, of);
    diff.compare(schema, node, Place::Top, Some(old), Some(new));
    Delta { changed: FieldSet(diff.changed.below), removed: FieldSet(diff.removed.below) }
}

#[derive(Default)]
struct Diff {
    changed: Sub,
    removed: Sub,
}

impl Diff {
    fn compare(
        &mut self,
        schema: &Schema,
        node: Node<'_>,
        place: Place,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        let known = match node {
            Node::Leaf => false,
            Node::Struct(_) | Node::Map(_) => match (as_map(old), as_map(new)) {
                (Some(before), Some(after)) => self.compare_maps(
                    schema,
                    node,
                    place,
                    (old.is_some(), before),
                    (new.is_some(), after),
                ),
                _ => false,
            },
            Node::Set | Node::Keyed(..) => match (as_list(old), as_list(new)) {
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

    /// Compares the members of two objects or maps. `false`: both are empty, so they are a leaf.
    fn compare_maps(
        &mut self,
        schema: &Schema,
        node: Node<'_>,
        place: Place,
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
        node: Node<'_>,
        place: Place,
        name: &str,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        if place.is_unowned(name) {
            return;
        }
        let inner = place.under(name);
        let mut diff = Diff::default();
        diff.compare(schema, node.under(schema, name), inner, old, new);
        if inner == Place::Metadata {
            (diff.changed.member, diff.removed.member) = (false, false);
        }
        diff.put(self, || element::field(name));
    }

    /// Compares two lists element by element. `false`: they are a leaf, because both are empty or
    /// some element has no key.
    fn compare_lists(
        &mut self,
        schema: &Schema,
        node: Node<'_>,
        old: &[Value],
        new: &[Value],
    ) -> bool {
        if old.is_empty() && new.is_empty() {
            return false;
        }
        let aligned = old.len() == new.len()
            && old.iter().zip(new).all(|(old, new)| node.same_part(old, new));
        if aligned {
            for (old, new) in old.iter().zip(new) {
                let mut diff = Diff::default();
                diff.compare(schema, node.element(), Place::Inside, Some(old), Some(new));
                diff.put(self, || node.part_of(new).unwrap_or_default());
            }
            return true;
        }
        let (Some(before), Some(after)) = (parts_of(node, old), parts_of(node, new)) else {
            return false;
        };
        let index: HashMap<&String, &Value> = before.iter().zip(old).collect();
        let known: HashSet<&String> = after.iter().collect();
        for (part, value) in after.iter().zip(new) {
            let mut diff = Diff::default();
            let old = index.get(part).copied();
            diff.compare(schema, node.element(), Place::Inside, old, Some(value));
            diff.put(self, || part.clone());
        }
        for (part, value) in before.iter().zip(old).filter(|(part, _)| !known.contains(part)) {
            let mut diff = Diff::default();
            diff.compare(schema, node.element(), Place::Inside, Some(value), None);
            diff.put(self, || part.clone());
        }
        true
    }

    fn put(self, into: &mut Diff, part: impl Fn() -> String) {
        if !self.changed.is_empty() {
            self.changed.put(&mut into.changed.below, part());
        }
        if !self.removed.is_empty() {
            self.removed.put(&mut into.removed.below, part());
        }
    }
}

/// The path parts of a list's elements; `None` when one has none.
pub(super) fn parts_of(node: Node<'_>, list: &[Value]) -> Option<Vec<String>> {
    list.iter().map(|element| node.part_of(element).ok()).collect()
}

/// What stands in the canonical form for an absent field. Without this, whoever creates an object
/// would own fields that he did not set, such as `spec` itself.
fn zero(field: Option<&Field>) -> Option<&'static Value> {
    static NULL: Value = Value::Null;
    static FALSE: Value = Value::Bool(false);
    static TEXT: Value = Value::String(String::new());
    static NUMBER: LazyLock<Value> = LazyLock::new(|| Value::from(0));
    static OBJECT: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    let field = field.filter(|field| field.presence == Presence::Always)?;
    Some(match field.shape {
        Shape::String | Shape::Quantity => &TEXT,
        Shape::Bool => &FALSE,
        Shape::Int32 | Shape::Int64 | Shape::Float | Shape::IntOrString => &NUMBER,
        Shape::Object(_) => &OBJECT,
        _ => &NULL,
    })
}
