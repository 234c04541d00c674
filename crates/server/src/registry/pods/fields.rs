//! Reading fields of objects that are in normal form: what is absent reads as its zero value.

use std::collections::HashMap;

use serde_json::Value;

/// The field `key`, if it is there.
pub(super) fn part<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

/// The text of field `key`, empty if absent.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The text of field `key`, if it is there.
pub(super) fn optional_text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str)
}

/// The number in field `key`, if it is there.
pub(super) fn int(object: &Value, key: &str) -> Option<i64> {
    object.get(key).and_then(Value::as_i64)
}

/// Whether field `key` is true.
pub(super) fn flag(object: &Value, key: &str) -> bool {
    optional_flag(object, key) == Some(true)
}

/// The truth value of field `key`, if it is there.
pub(super) fn optional_flag(object: &Value, key: &str) -> Option<bool> {
    object.get(key).and_then(Value::as_bool)
}

/// The elements of list field `key`, none if absent.
pub(super) fn list<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The elements of a list of texts.
pub(super) fn texts<'a>(object: &'a Value, key: &str) -> Vec<&'a str> {
    list(object, key).iter().map(|item| item.as_str().unwrap_or_default()).collect()
}

/// The entries of map field `key`, in the order of their keys.
pub(super) fn entries<'a>(object: &'a Value, key: &str) -> Vec<(&'a str, &'a Value)> {
    let Some(map) = object.get(key).and_then(Value::as_object) else { return Vec::new() };
    map.iter().map(|(name, value)| (name.as_str(), value)).collect()
}

/// The elements by the text of their field `key`; of several with the same text, the first.
pub(super) fn first_by<'a>(list: &'a [Value], key: &str) -> HashMap<&'a str, &'a Value> {
    // Later entries replace earlier ones.
    list.iter().rev().map(|element| (text(element, key), element)).collect()
}

/// The field `key` of a missing or present object.
pub(super) fn below<'a>(object: Option<&'a Value>, key: &str) -> Option<&'a Value> {
    object.and_then(|value| part(value, key))
}

/// The `spec` of an object, or nothing at all.
pub(super) fn spec(object: &Value) -> &Value {
    object.get("spec").unwrap_or(&Value::Null)
}

/// The `status` of an object, or nothing at all.
pub(super) fn status(object: &Value) -> &Value {
    object.get("status").unwrap_or(&Value::Null)
}

/// The `metadata` of an object, or nothing at all.
pub(super) fn metadata(object: &Value) -> &Value {
    object.get("metadata").unwrap_or(&Value::Null)
}

/// The annotation `key`, if it is there.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    part(metadata(object), "annotations").and_then(|all| optional_text(all, key))
}

/// Puts `value` in field `key`, or takes the field away.
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

/// Puts field `key` of `old` in `new`, as it is there or is not there.
pub(super) fn restore(new: &mut Value, old: &Value, key: &str) {
    set(new, key, old.get(key).cloned());
}

/// The field `key` for writing, made an empty object if absent.
pub(super) fn part_mut<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let map = object.as_object_mut()?;
    let value = map.entry(key).or_insert_with(|| Value::Object(Default::default()));
    value.is_object().then_some(value)
}

/// The elements of list field `key` for writing, none if absent.
pub(super) fn list_mut<'a>(object: &'a mut Value, key: &str) -> &'a mut [Value] {
    object.get_mut(key).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}
