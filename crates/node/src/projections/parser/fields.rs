//! Takes a map apart, field by field, and says of everything that is wrong where it is. What has
//! not been taken in the end is what nobody knows.

use serde_json::{Map, Value};
use windlass_api::field::{FieldErrors, FieldPath};

/// The fields of a map that have not been taken yet.
pub struct FieldReader {
    map: Map<String, Value>,
    at: FieldPath,
}

impl FieldReader {
    /// The fields of a map.
    pub fn from_value(value: Value, at: &FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        match value {
            Value::Object(map) => Some(Self { map, at: at.clone() }),
            other => {
                mistyped(&other, at, "object", errors);
                None
            }
        }
    }

    /// Returns the field path of the map itself, for error messages.
    pub fn path(&self) -> &FieldPath {
        &self.at
    }

    /// Returns the field path of a member of the map.
    pub fn child(&self, name: &str) -> FieldPath {
        self.at.child(name)
    }

    /// Whether a field is there.
    pub fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// A field; `null` is none.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// A field that must be there.
    pub fn require(&mut self, name: &str, errors: &mut FieldErrors) -> Option<Value> {
        let value = self.take(name);
        if value.is_none() {
            errors.required(&self.child(name), "");
        }
        value
    }

    /// Takes a string field; records an error if it has another type.
    pub fn text(&mut self, name: &str, errors: &mut FieldErrors) -> Option<String> {
        let value = self.take(name)?;
        text(value, &self.child(name), errors)
    }

    /// A text that must be there, and not be empty.
    pub fn require_text(&mut self, name: &str, errors: &mut FieldErrors) -> Option<String> {
        let value = self.require(name, errors)?;
        let found = text(value, &self.child(name), errors)?;
        if found.is_empty() {
            errors.required(&self.child(name), "");
            return None;
        }
        Some(found)
    }

    /// Takes an integer field; records an error if it has another type.
    pub fn integer(&mut self, name: &str, errors: &mut FieldErrors) -> Option<i64> {
        let value = self.take(name)?;
        let number = value.as_i64();
        if number.is_none() {
            mistyped(&value, &self.child(name), "integer", errors);
        }
        number
    }

    /// The elements of a list, each with its place. None if there is no list.
    pub fn items(&mut self, name: &str, errors: &mut FieldErrors) -> Vec<(FieldPath, Value)> {
        let Some(value) = self.take(name) else { return Vec::new() };
        items(value, &self.child(name), errors)
    }

    /// The texts of a list, each with its place.
    pub fn texts(&mut self, name: &str, errors: &mut FieldErrors) -> Vec<(FieldPath, String)> {
        let items = self.items(name, errors).into_iter();
        items.filter_map(|(at, value)| text(value, &at, errors).map(|text| (at, text))).collect()
    }

    /// A map below this one.
    pub fn section(&mut self, name: &str, errors: &mut FieldErrors) -> Option<Self> {
        let value = self.take(name)?;
        Self::from_value(value, &self.child(name), errors)
    }

    /// Everything that is left, for a map whose keys are not known.
    pub fn rest(self) -> (FieldPath, Map<String, Value>) {
        (self.at, self.map)
    }

    /// Nothing else may be there.
    pub fn end(self, errors: &mut FieldErrors) {
        for name in self.map.keys() {
            errors.forbidden(&self.at.child(name), "unknown field");
        }
    }
}

/// Converts a value to a string; records an error if it is none.
pub fn text(value: Value, at: &FieldPath, errors: &mut FieldErrors) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        other => {
            mistyped(&other, at, "string", errors);
            None
        }
    }
}

/// The elements of a list, each with its place.
pub fn items(value: Value, at: &FieldPath, errors: &mut FieldErrors) -> Vec<(FieldPath, Value)> {
    match value {
        Value::Array(list) => {
            let places = list.into_iter().enumerate();
            places.map(|(index, value)| (at.index(index), value)).collect()
        }
        other => {
            mistyped(&other, at, "array", errors);
            Vec::new()
        }
    }
}

/// Names what is there and does not show it: it may be a password that is in the wrong place.
fn mistyped(found: &Value, at: &FieldPath, wanted: &str, errors: &mut FieldErrors) {
    let sort = match found {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    errors.invalid_str(at, sort, &format!("must be of type {wanted}"));
}
