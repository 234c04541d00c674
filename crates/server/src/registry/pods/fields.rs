//! Read access to fields of objects in normal form: absent fields read as their zero value.

use std::collections::HashMap;

use serde_json::Value;

/// Returns the field `key`, if present.
pub(super) fn part<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

/// Returns the string field `key`; empty if absent.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the string field `key`, if present.
pub(super) fn optional_text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str)
}

/// Returns the integer field `key`, if present.
pub(super) fn int(object: &Value, key: &str) -> Option<i64> {
    object.get(key).and_then(Value::as_i64)
}

/// Returns true if field `key` is true.
pub(super) fn flag(object: &Value, key: &str) -> bool {
    optional_flag(object, key) == Some(true)
}

/// Returns the boolean field `key`, if present.
pub(super) fn optional_flag(object: &Value, key: &str) -> Option<bool> {
    object.get(key).and_then(Value::as_bool)
}

/// Returns the list field `key`; empty if absent.
pub(super) fn list<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the elements of a string list.
pub(super) fn texts<'a>(object: &'a Value, key: &str) -> Vec<&'a str> {
    list(object, key).iter().map(|item| item.as_str().unwrap_or_default()).collect()
}

/// Returns the entries of map field `key`, sorted by key.
pub(super) fn entries<'a>(object: &'a Value, key: &str) -> Vec<(&'a str, &'a Value)> {
    let Some(map) = object.get(key).and_then(Value::as_object) else { return Vec::new() };
    map.iter().map(|(name, value)| (name.as_str(), value)).collect()
}

/// Indexes the elements by their string field `key`; the first of several equal ones wins.
pub(super) fn first_by<'a>(list: &'a [Value], key: &str) -> HashMap<&'a str, &'a Value> {
    // Later entries replace earlier ones.
    list.iter().rev().map(|element| (text(element, key), element)).collect()
}

/// Returns the field `key` of an optional object.
pub(super) fn below<'a>(object: Option<&'a Value>, key: &str) -> Option<&'a Value> {
    object.and_then(|value| part(value, key))
}

/// Returns the `spec` of an object, or null.
pub(super) fn spec(object: &Value) -> &Value {
    object.get("spec").unwrap_or(&Value::Null)
}

/// Returns the `status` of an object, or null.
pub(super) fn status(object: &Value) -> &Value {
    object.get("status").unwrap_or(&Value::Null)
}

/// Returns the `metadata` of an object, or null.
pub(super) fn metadata(object: &Value) -> &Value {
    object.get("metadata").unwrap_or(&Value::Null)
}

/// Returns the annotation `key`, if present.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    part(metadata(object), "annotations").and_then(|all| optional_text(all, key))
}

/// Sets field `key` to `value`, or removes the field.
pub(super) fn set(object: &mut Value, key: &str, value: Option<Value>) {
    let Some(map) = object.as_object_mut() else { return };
    match value {
        Some(value) => {
            map.insert(key.to_owned(), value);
        }
        None => {
            map.remove(key);
        }
    }
}

/// Copies field `key`, or its absence, from `old` to `new`.
pub(super) fn restore(new: &mut Value, old: &Value, key: &str) {
    set(new, key, old.get(key).cloned());
}

/// Returns the field `key` for writing; creates an empty object if absent.
pub(super) fn part_mut<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let map = object.as_object_mut()?;
    let value = map.entry(key).or_insert_with(|| Value::Object(Default::default()));
    value.is_object().then_some(value)
}

/// Returns the list field `key` for writing; empty if absent.
pub(super) fn list_mut<'a>(object: &'a mut Value, key: &str) -> &'a mut [Value] {
    object.get_mut(key).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}
