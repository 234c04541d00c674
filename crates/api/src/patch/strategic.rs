//! Strategic merge patches: merge patches in which the schema defines how lists merge, and
//! directives (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`) define
//! the rest.
//!
//! Directives never appear in a result, not even those inside a value that is new to the object.

mod list;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use serde_json::{Map, Value};

use super::PatchError;
use crate::limits::MAX_PATCHED_ELEMENTS;
use crate::schema::{ObjectType, PatchStrategy, Schema, SchemaField, TypeId, ValueShape};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// Applies a strategic merge patch to an object of the given type.
pub fn strategic(schema: &Schema, of: TypeId, target: &Value, patch: Value) -> Result<Value, PatchError> {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else {
        return Err(PatchError::Malformed("invalid JSON document".into()));
    };
    let work = MergeContext { schema, left: Cell::new(MAX_PATCHED_ELEMENTS) };
    let merged = merge_map(&work, SchemaView::Struct(schema.get_type(of)), target.clone(), patch)?;
    Ok(Value::Object(merged))
}

/// Schema and the remaining budget of list elements to visit: a patch may name one element
/// thousands of times, and the lists inside it are merged each time.
struct MergeContext<'s> {
    schema: &'s Schema,
    left: Cell<usize>,
}

impl MergeContext<'_> {
    fn spend_elements(&self, elements: usize) -> Result<(), PatchError> {
        let left = self
            .left
            .get()
            .checked_sub(elements)
            .ok_or_else(|| PatchError::TooLarge("the patch changes the same lists too often".into()))?;
        self.left.set(left);
        Ok(())
    }
}

/// Schema information about an object.
#[derive(Clone, Copy)]
enum SchemaView<'s> {
    Struct(&'s ObjectType),
    MapOf(&'s ValueShape),
    Unknown,
}

#[derive(Clone, Copy)]
enum ListRule<'s> {
    Replace,
    Scalars,
    ByKey(&'static str, SchemaView<'s>),
}

impl<'s> SchemaView<'s> {
    fn from_shape(schema: &'s Schema, shape: &'s ValueShape) -> Self {
        match shape {
            ValueShape::Object(id) => SchemaView::Struct(schema.get_type(*id)),
            ValueShape::Map(element) => SchemaView::MapOf(element),
            _ => SchemaView::Unknown,
        }
    }

    /// Returns the view of the object and the list rule under a key.
    fn child(self, schema: &'s Schema, key: &str) -> (SchemaView<'s>, ListRule<'s>) {
        match self {
            SchemaView::Struct(of) => match of.field(key) {
                Some(field) => (SchemaView::from_shape(schema, &field.shape), list_rule(schema, field)),
                None => (SchemaView::Unknown, ListRule::Replace),
            },
            SchemaView::MapOf(element) => (SchemaView::from_shape(schema, element), ListRule::Replace),
            SchemaView::Unknown => (SchemaView::Unknown, ListRule::Replace),
        }
    }
}

fn list_rule<'s>(schema: &'s Schema, field: &'s SchemaField) -> ListRule<'s> {
    let element = match &field.shape {
        ValueShape::List(element) => SchemaView::from_shape(schema, element),
        _ => SchemaView::Unknown,
    };
    match field.patch {
        PatchStrategy::Default | PatchStrategy::RetainKeys => ListRule::Replace,
        PatchStrategy::Merge(None) => ListRule::Scalars,
        PatchStrategy::Merge(Some(key)) | PatchStrategy::MergeRetainKeys(key) => {
            ListRule::ByKey(key, element)
        }
    }
}

fn merge_map(
    work: &MergeContext<'_>,
    view: SchemaView<'_>,
    mut target: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<Map<String, Value>, PatchError> {
    match patch.get(PATCH) {
        None => {}
        Some(Value::String(how)) if how == "replace" => return Ok(strip_map(patch)),
        Some(Value::String(how)) if how == "delete" => return Ok(Map::new()),
        Some(how) => return Err(unknown_directive(how, &patch)),
    }
    if let Some(keys) = patch.remove(RETAIN_KEYS) {
        retain_keys(&mut target, &patch, &keys)?;
    }
    let (orders, patch) = split(patch, ELEMENT_ORDER, "invalid patch format of setElementOrder list")?;
    let (deletions, mut patch) = split(patch, DELETE_FROM, "invalid patch format of primitive list")?;
    for (key, order) in orders {
        let (_, rule) = view.child(work.schema, &key);
        let old = target.remove(&key);
        let is_null = old.as_ref().is_some_and(Value::is_null);
        let old = old.filter(|old| !old.is_null());
        match list::merge_ordered(work, rule, old, patch.remove(&key), order)? {
            Some(merged) => target.insert(key, Value::Array(merged)),
            None if is_null => target.insert(key, Value::Null),
            None => None,
        };
    }
    for (key, value) in patch {
        merge_member(work, view, &mut target, key, value)?;
    }
    for (key, doomed) in deletions {
        let Value::Array(doomed) = doomed else {
            return Err(PatchError::Malformed("invalid patch format of primitive list".into()));
        };
        if let Some(Value::Array(list)) = target.get_mut(&key) {
            list::delete_scalars(list, &doomed);
        }
    }
    Ok(target)
}

fn merge_member(
    work: &MergeContext<'_>,
    view: SchemaView<'_>,
    target: &mut Map<String, Value>,
    key: String,
    value: Value,
) -> Result<(), PatchError> {
    if value.is_null() {
        target.remove(&key);
        return Ok(());
    }
    let (inner, rule) = view.child(work.schema, &key);
    let merged = match (target.remove(&key), value) {
        (Some(Value::Object(old)), Value::Object(new)) => Value::Object(merge_map(work, inner, old, new)?),
        (Some(Value::Array(old)), Value::Array(new)) => Value::Array(list::merge(work, rule, old, new)?),
        (_, value) => strip(value),
    };
    target.insert(key, merged);
    Ok(())
}

/// Removes members that the directive does not name. The patch may set only named members.
fn retain_keys(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    keys: &Value,
) -> Result<(), PatchError> {
    let bad = || PatchError::Malformed("invalid patch format of retainKeys".into());
    let keys = keys.as_array().ok_or_else(bad)?;
    let named: std::collections::HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let free = |key: &str| key.starts_with(DELETE_FROM) || key.starts_with(ELEMENT_ORDER);
    if patch.iter().any(|(k, v)| !v.is_null() && !free(k) && !named.contains(k.as_str())) {
        return Err(bad());
    }
    target.retain(|key, _| named.contains(key.as_str()));
    Ok(())
}

type MapMembers = Vec<(String, Value)>;

/// Removes the directives `PREFIX/field` from a patch and returns them as (field, value).
fn split(
    patch: Map<String, Value>,
    prefix: &str,
    bad: &str,
) -> Result<(MapMembers, Map<String, Value>), PatchError> {
    if !patch.keys().any(|key| key.starts_with(prefix)) {
        return Ok((Vec::new(), patch));
    }
    let (directives, rest): (MapMembers, MapMembers) =
        patch.into_iter().partition(|(key, _)| key.starts_with(prefix));
    let mut named = Vec::with_capacity(directives.len());
    for (key, value) in directives {
        let field = key[prefix.len()..].strip_prefix('/');
        let field = field.ok_or_else(|| PatchError::Malformed(bad.into()))?;
        named.push((field.to_owned(), value));
    }
    Ok((named, rest.into_iter().collect()))
}

/// Removes directives and nulls from a value that is new to the object.
fn strip(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(match map.get(PATCH).and_then(Value::as_str) {
            Some("delete") => Map::new(),
            _ => strip_map(map),
        }),
        Value::Array(list) => Value::Array(list.into_iter().filter(|v| !is_special(v)).map(strip).collect()),
        scalar => scalar,
    }
}

fn strip_map(map: Map<String, Value>) -> Map<String, Value> {
    map.into_iter()
        .filter(|(key, value)| !value.is_null() && !is_directive(key))
        .map(|(key, value)| (key, strip(value)))
        .collect()
}

fn is_directive(key: &str) -> bool {
    key == PATCH
        || key == RETAIN_KEYS
        || [ELEMENT_ORDER, DELETE_FROM]
            .iter()
            .any(|prefix| key.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')))
}

/// Returns true if a list element is a directive rather than an element.
fn is_special(element: &Value) -> bool {
    let Value::Object(map) = element else { return false };
    map.get(PATCH).is_some_and(|how| how == "delete" || map.len() == 1)
}

fn unknown_directive(how: &Value, patch: &Map<String, Value>) -> PatchError {
    let map = go_map(patch);
    PatchError::Directive(format!("unknown patch type: {} in map: {map}", go_value(how)))
}

/// Formats a value like Go: clients know these error texts in that form.
fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            format!("[{}]", list.iter().map(go_value).collect::<Vec<_>>().join(" "))
        }
        Value::Object(map) => go_map(map),
        other => other.to_string(),
    }
}

fn go_map(map: &Map<String, Value>) -> String {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by_key(|(key, _)| *key);
    let members: Vec<_> = members.iter().map(|(k, v)| format!("{k}:{}", go_value(v))).collect();
    format!("map[{}]", members.join(" "))
}

fn wrong_type(expected: &str, actual: &Value) -> PatchError {
    let actual = match actual {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    PatchError::Directive(format!("expected a {expected}, but received a {actual}"))
}
