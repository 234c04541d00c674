//! Helpers to read and set parts of an object.
//!
//! Objects are in normal form when a kind's functions see them, but nothing here depends on it: a
//! part that is absent or has another type reads as empty.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use windlass_api::field::{FieldErrors, FieldPath};

/// Returns the string at `pointer`; empty if absent.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the integer at the JSON pointer; `None` if absent or of another type.
pub(crate) fn integer(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// Returns the boolean at the JSON pointer; `None` if absent or of another type.
pub(crate) fn bool_at(object: &Value, pointer: &str) -> Option<bool> {
    object.pointer(pointer).and_then(Value::as_bool)
}

/// Returns the list at `pointer`; empty if absent.
pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Iterates over the strings in the list at `pointer`.
pub(crate) fn texts<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    list(object, pointer).iter().map(|element| element.as_str().unwrap_or_default())
}

/// Iterates over the map at `pointer`, sorted by key.
pub(crate) fn entries<'a>(
    object: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value))
}

/// Returns the number of elements or entries at `pointer`.
pub(crate) fn count(object: &Value, pointer: &str) -> usize {
    match object.pointer(pointer) {
        Some(Value::Array(list)) => list.len(),
        Some(Value::Object(map)) => map.len(),
        _ => 0,
    }
}

/// Returns the value at `pointer`, unless it is `null`.
pub(crate) fn non_null<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    object.pointer(pointer).filter(|value| !value.is_null())
}

/// Returns the object under `field`, creating it if absent.
pub(crate) fn part<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let part = map(object).entry(field).or_insert_with(|| Value::Object(Map::new()));
    map(part)
}

/// Returns the value as a map; replaces any other type with an empty map.
pub(crate) fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was just made an object"),
    }
}

/// Sets `field` unless it is already set.
pub(crate) fn default(object: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    let slot = object.entry(field).or_insert(Value::Null);
    if slot.is_null() || *slot == "" {
        *slot = value.into();
    }
}

/// Resets `field` of `new` to the value in `old`.
pub(crate) fn restore_field(new: &mut Value, old: &Value, field: &str) {
    let new = map(new);
    match old.get(field) {
        Some(value) => new.insert(field.to_owned(), value.clone()),
        None => new.remove(field),
    };
}

/// Checks that the value at `pointer` is unchanged; reports violations at `path`.
pub(crate) fn immutable(new: &Value, old: &Value, pointer: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if non_null(new, pointer) != non_null(old, pointer) {
        let shown = non_null(new, pointer).unwrap_or(&Value::Null);
        errors.invalid(path, shown, "field is immutable");
    }
}

/// Returns the decoded bytes at `pointer`; empty if absent.
pub(crate) fn bytes(object: &Value, pointer: &str) -> Vec<u8> {
    STANDARD.decode(text(object, pointer)).unwrap_or_default()
}

/// Returns the decoded length of a base64 text.
pub(crate) fn decoded_len(base64: &str) -> usize {
    base64.bytes().filter(|b| !matches!(b, b'=' | b'\r' | b'\n')).count() * 3 / 4
}

/// Test helpers for the descriptors of all kinds.
#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the texts of all errors, in order.
    pub fn error_texts(errors: &FieldErrors) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    /// Returns the errors of creating an object.
    pub fn refusals(kind: &crate::registry::kind::Kind, object: &Value) -> Vec<String> {
        let mut errors = FieldErrors::new();
        (kind.validate_csr)(object, &Default::default(), &mut errors);
        (kind.validate_create)(object, &mut errors);
        error_texts(&errors)
    }

    /// Returns the errors of an update.
    pub fn change_refusals(kind: &crate::registry::kind::Kind, new: &Value, old: &Value) -> Vec<String> {
        let mut errors = FieldErrors::new();
        (kind.validate_update)(new, old, &mut errors);
        error_texts(&errors)
    }

    /// Returns the object after defaulting and preparation for creation.
    pub fn created(kind: &crate::registry::kind::Kind, mut object: Value) -> Value {
        (kind.defaults)(&mut object);
        (kind.prepare_create)(&mut object);
        object
    }

    /// Returns the cells of a row two hours after the epoch.
    pub fn cells(kind: &crate::registry::kind::Kind, object: &Value) -> Value {
        let now = time::OffsetDateTime::UNIX_EPOCH + time::Duration::hours(2);
        let row = (kind.row)(object, now);
        assert_eq!(row.len(), kind.columns.len());
        Value::Array(row)
    }

    #[test]
    fn absent_values_read_as_empty() {
        let object = json!({"a": {"b": "x", "n": null}, "l": ["y"]});
        assert_eq!(text(&object, "/a/b"), "x");
        assert_eq!(text(&object, "/a/c"), "");
        assert_eq!(non_null(&object, "/a/n"), None);
        assert_eq!(count(&object, "/l"), 1);
        assert_eq!(list(&object, "/a"), &[] as &[Value]);
    }

    #[test]
    fn base64_lengths() {
        for (encoded, len) in [("", 0), ("YQ==", 1), ("YWI=", 2), ("YWJj", 3), ("aGVsbG8=", 5)] {
            assert_eq!(decoded_len(encoded), len, "{encoded}");
        }
    }

    #[test]
    fn parts_that_may_not_change() {
        let (mut new, old) = (json!({"type": "b", "x": 1}), json!({"type": "a"}));
        let mut errors = FieldErrors::new();
        immutable(&new, &old, "/type", &FieldPath::new("type"), &mut errors);
        assert_eq!(error_texts(&errors), ["type: Invalid value: \"b\": field is immutable"]);
        for field in ["type", "x"] {
            restore_field(&mut new, &old, field);
        }
        assert_eq!(new, old);
    }
}
