//! Sets of field paths.
//!
//! A set is stored in its wire form, FieldsV1: a tree of objects keyed by path element. An empty
//! object is a member, an object with `.` is a member that has members below it, and any other
//! object only leads to members. Storing and reading a set therefore needs no conversion.

use serde_json::{Map, Value};

use super::path_element;
use crate::field::truncate_with_length;
use crate::limits::MAX_KEY_BYTES;

/// FieldsV1 tree below one path.
pub(super) type FieldTree = Map<String, Value>;

const SELF: &str = ".";

/// A set of field paths. The whole object (the empty path) is never a member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSet(pub(super) FieldTree);

impl FieldSet {
    /// Creates a set of paths through fields and map keys.
    pub fn from_paths(paths: &[&[&str]]) -> Self {
        let mut set = FieldSet::default();
        for path in paths {
            let mut single = FieldSubtree { member: true, below: FieldTree::new() };
            for name in path.iter().rev() {
                let mut above = FieldTree::new();
                single.insert_into(&mut above, path_element::field(name));
                single = FieldSubtree { member: false, below: above };
            }
            union(&mut set.0, &single.below);
        }
        set
    }

    /// Decodes and validates FieldsV1 from a client.
    pub fn decode(fields: &Value) -> Result<Self, String> {
        Ok(FieldSet(decode(fields)?.below))
    }

    /// Encodes the set as FieldsV1 JSON, the form stored in `managedFields`.
    pub fn encode(self) -> Value {
        Value::Object(self.0)
    }

    /// Returns true if the set has no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the members of the other set.
    pub fn union(&mut self, other: &FieldSet) {
        union(&mut self.0, &other.0);
    }

    /// Returns the members that both sets share.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        FieldSet(intersection(&self.0, &other.0))
    }

    /// Removes the members of another set, but not the members below them.
    pub fn difference(&mut self, other: &FieldSet) {
        difference(&mut self.0, &other.0);
    }

    /// Removes the members of another set and everything below them.
    pub fn recursive_difference(&mut self, other: &FieldSet) {
        recursive_difference(&mut self.0, &other.0);
    }

    /// Returns members without members below them.
    pub fn leaves(&self) -> FieldSet {
        FieldSet(leaves(&self.0))
    }

    /// Returns the first `limit` members as display paths (`.spec.containers[name="c"].image`),
    /// those closer to the root first.
    pub fn paths(&self, limit: usize) -> Vec<String> {
        let mut paths = Vec::new();
        collect(&self.0, "", limit, &mut paths);
        paths
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        count(&self.0)
    }
}

/// Membership of one path and the tree below it, while a tree is split or built.
#[derive(Default)]
pub(super) struct FieldSubtree {
    pub(super) member: bool,
    pub(super) below: FieldTree,
}

impl FieldSubtree {
    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    /// Inserts this subtree under a path element.
    pub(super) fn insert_into(self, into: &mut FieldTree, part: String) {
        if self.is_empty() {
            return;
        }
        let node = self.into_tree();
        match into.get_mut(&part) {
            // A list with two elements of the same key.
            Some(Value::Object(old)) => union_nodes(old, &node),
            _ => {
                into.insert(part, Value::Object(node));
            }
        }
    }

    fn into_tree(mut self) -> FieldTree {
        if self.member && !self.below.is_empty() {
            self.below.insert(SELF.into(), Value::Object(FieldTree::new()));
        }
        self.below
    }
}

/// Returns true if the node itself is a member.
pub(super) fn is_member(node: &FieldTree) -> bool {
    node.is_empty() || node.contains_key(SELF)
}

/// Iterates over the child path elements and their nodes.
pub(super) fn parts(node: &FieldTree) -> impl Iterator<Item = (&String, &FieldTree)> {
    node.iter().filter(|(part, _)| *part != SELF).filter_map(|(part, n)| Some((part, n.as_object()?)))
}

/// Returns the child node of a path element.
pub(super) fn below<'t>(tree: &'t FieldTree, part: &str) -> Option<&'t FieldTree> {
    tree.get(part).and_then(Value::as_object)
}

fn decode(fields: &Value) -> Result<FieldSubtree, String> {
    let Value::Object(map) = fields else { return Err(format!("{fields} is no set of fields")) };
    let mut sub = FieldSubtree { member: map.is_empty(), below: FieldTree::new() };
    for (part, node) in map {
        if part == SELF {
            sub.member = true;
        } else {
            decode(node)?.insert_into(&mut sub.below, path_element::canonical(part)?);
        }
    }
    Ok(sub)
}

pub(super) fn union(into: &mut FieldTree, other: &FieldTree) {
    for (part, node) in parts(other) {
        match into.get_mut(part) {
            Some(Value::Object(old)) => union_nodes(old, node),
            _ => {
                into.insert(part.clone(), Value::Object(node.clone()));
            }
        }
    }
}

fn union_nodes(old: &mut FieldTree, node: &FieldTree) {
    let member = is_member(old) || is_member(node);
    union(old, node);
    if member && !old.is_empty() {
        old.insert(SELF.into(), Value::Object(FieldTree::new()));
    }
}

fn intersection(a: &FieldTree, b: &FieldTree) -> FieldTree {
    // Iterates over the smaller tree: an object may have thousands of managers with few fields
    // each.
    let (a, b) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let mut both = FieldTree::new();
    for (part, left) in parts(a) {
        if let Some(right) = below(b, part) {
            let member = is_member(left) && is_member(right);
            FieldSubtree { member, below: intersection(left, right) }.insert_into(&mut both, part.clone());
        }
    }
    both
}

fn difference(from: &mut FieldTree, other: &FieldTree) {
    for (part, gone) in shared(from, other) {
        let part = &part;
        let Some(Value::Object(node)) = from.get_mut(part) else { continue };
        let member = is_member(node) && !is_member(gone);
        node.remove(SELF);
        difference(node, gone);
        set_membership(from, part, member);
    }
}

fn recursive_difference(from: &mut FieldTree, other: &FieldTree) {
    for (part, gone) in shared(from, other) {
        let part = &part;
        if is_member(gone) {
            from.remove(part);
            continue;
        }
        let Some(Value::Object(node)) = from.get_mut(part) else { continue };
        let member = is_member(node);
        node.remove(SELF);
        recursive_difference(node, gone);
        set_membership(from, part, member);
    }
}

/// Returns the path elements common to both trees, with their nodes in `other`; iterates over the
/// smaller tree.
fn shared<'t>(from: &FieldTree, other: &'t FieldTree) -> Vec<(String, &'t FieldTree)> {
    if from.len() < other.len() {
        let found = parts(from).filter_map(|(part, _)| Some((part.clone(), below(other, part)?)));
        return found.collect();
    }
    let found = parts(other).filter(|(part, _)| from.contains_key(*part));
    found.map(|(part, node)| (part.clone(), node)).collect()
}

/// Restores the encoding of a node after members below it were removed.
fn set_membership(tree: &mut FieldTree, part: &str, member: bool) {
    let Some(Value::Object(node)) = tree.get_mut(part) else { return };
    if !node.is_empty() && member {
        node.insert(SELF.into(), Value::Object(FieldTree::new()));
    } else if node.is_empty() && !member {
        tree.remove(part);
    }
}

fn leaves(tree: &FieldTree) -> FieldTree {
    let mut result = FieldTree::new();
    for (part, node) in parts(tree) {
        FieldSubtree { member: node.is_empty(), below: leaves(node) }.insert_into(&mut result, part.clone());
    }
    result
}

fn count(tree: &FieldTree) -> usize {
    parts(tree).map(|(_, node)| usize::from(is_member(node)) + count(node)).sum()
}

fn collect(tree: &FieldTree, prefix: &str, limit: usize, paths: &mut Vec<String>) {
    let path =
        |part: &str| format!("{prefix}{}", truncate_with_length(&path_element::display(part), MAX_KEY_BYTES));
    let members = parts(tree).filter(|(_, node)| is_member(node));
    paths.extend(members.take(limit - paths.len()).map(|(part, _)| path(part)));
    for (part, node) in parts(tree).filter(|(_, node)| !node.is_empty()) {
        if paths.len() == limit {
            return;
        }
        collect(node, &path(part), limit, paths);
    }
}
