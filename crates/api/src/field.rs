//! Where in an object something is wrong, and how Kubernetes words it.
//!
//! The texts are part of the interface: clients and their users read them, and the recorded
//! answers compare them byte for byte.

use std::fmt;

use serde_json::Value;

use crate::status::{Cause, CauseType};

/// A path to a field, as it stands in an error: `spec.volumes[0].projected`, `data[a b]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// The path of one top-level field; an empty name is the object itself.
    pub fn new(name: &str) -> Self {
        Path(name.to_owned())
    }

    /// The field `name` below this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Path(name.to_owned()) } else { Path(format!("{}.{name}", self.0)) }
    }

    /// The list element at `index`.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Path(format!("{}[{index}]", self.0))
    }

    /// The map entry under `key`.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Path(format!("{}[{key}]", self.0))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One broken rule: where, which kind of rule, and the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Which field.
    pub path: Path,
    /// The machine-readable kind of error.
    pub kind: CauseType,
    /// The words after the path, in Kubernetes' form (`Invalid value: "x": must be …`).
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}",
            if self.path.0.is_empty() { "<nil>" } else { &self.path.0 },
            self.message
        )
    }
}

impl From<FieldError> for Cause {
    fn from(error: FieldError) -> Self {
        Cause { kind: error.kind, message: error.message, field: error.path.0 }
    }
}

/// The errors found in one object, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors(Vec<FieldError>);

impl Errors {
    /// No errors yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether every rule held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many errors there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The errors, in order.
    pub fn iter(&self) -> impl Iterator<Item = &FieldError> {
        self.0.iter()
    }

    /// The errors, in order.
    pub fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: Errors) {
        self.0.extend(other.0);
    }

    /// A value that is required is absent; `detail` may be empty.
    pub fn required(&mut self, path: &Path, detail: &str) {
        self.push(path, CauseType::FieldValueRequired, with_detail("Required value", detail));
    }

    /// The value breaks a rule. Strings are quoted, other values are shown as JSON.
    pub fn invalid(&mut self, path: &Path, value: &Value, detail: &str) {
        let text = format!("Invalid value: {}", shown(value));
        self.push(path, CauseType::FieldValueInvalid, with_detail(&text, detail));
    }

    /// The string value breaks a rule.
    pub fn invalid_str(&mut self, path: &Path, value: &str, detail: &str) {
        self.invalid(path, &Value::String(value.to_owned()), detail);
    }

    /// The value breaks a rule and is shown as `shown`, for JSON whose fields have their own order.
    pub fn invalid_shown(&mut self, path: &Path, shown: &str, detail: &str) {
        let text = format!("Invalid value: {shown}");
        self.push(path, CauseType::FieldValueInvalid, with_detail(&text, detail));
    }

    /// The value breaks a rule and is too large or too secret to repeat.
    pub fn invalid_omitted(&mut self, path: &Path, detail: &str) {
        self.invalid_str(path, "<value omitted>", detail);
    }

    /// The value is not one of `supported`.
    pub fn not_supported(&mut self, path: &Path, value: &str, supported: &[&str]) {
        self.not_supported_raw(path, &quote(value), supported);
    }

    /// The value, already written out, is not one of `supported`.
    pub fn not_supported_raw(&mut self, path: &Path, shown: &str, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|s| quote(s)).collect();
        let text = format!("Unsupported value: {shown}: supported values: {}", quoted.join(", "));
        self.push(path, CauseType::FieldValueNotSupported, text);
    }

    /// The field may not be set, or not be changed.
    pub fn forbidden(&mut self, path: &Path, detail: &str) {
        self.push(path, CauseType::FieldValueForbidden, with_detail("Forbidden", detail));
    }

    /// The value stands twice in a list or map that holds each once.
    pub fn duplicate(&mut self, path: &Path, value: &Value) {
        let text = format!("Duplicate value: {}", shown(value));
        self.push(path, CauseType::FieldValueDuplicate, text);
    }

    /// The value stands twice and is shown as `shown`, as it stands; `detail` may be empty.
    pub fn duplicate_shown(&mut self, path: &Path, shown: &str, detail: &str) {
        let text = format!("Duplicate value: {shown}");
        self.push(path, CauseType::FieldValueDuplicate, with_detail(&text, detail));
    }

    /// The value names something that is not there, and `detail` says where it should be.
    pub fn not_found_because(&mut self, path: &Path, value: &str, detail: &str) {
        let text = format!("Not found: {}", quote(value));
        self.push(path, CauseType::FieldValueNotFound, with_detail(&text, detail));
    }

    /// The value names something that is not there.
    pub fn not_found(&mut self, path: &Path, value: &str) {
        let text = format!("Not found: {}", quote(value));
        self.push(path, CauseType::FieldValueNotFound, text);
    }

    /// The text has more than `max` bytes.
    pub fn too_long(&mut self, path: &Path, max: usize) {
        let text = format!("Too long: may not be more than {max} bytes");
        self.push(path, CauseType::FieldValueTooLong, text);
    }

    /// The list has more than `max` elements.
    pub fn too_many(&mut self, path: &Path, actual: usize, max: usize) {
        let text = format!("Too many: {actual}: must have at most {max} items");
        self.push(path, CauseType::FieldValueTooMany, text);
    }

    fn push(&mut self, path: &Path, kind: CauseType, message: String) {
        self.0.push(FieldError { path: path.clone(), kind, message });
    }
}

fn with_detail(text: &str, detail: &str) -> String {
    if detail.is_empty() { text.to_owned() } else { format!("{text}: {detail}") }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        other => other.to_string(),
    }
}

/// Quotes a string as Go's `%q` does for the strings that occur in names and values.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                out.push_str(&format!("\\x{:02x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_kubernetes_writes_them() {
        let path = Path::new("spec").child("volumes").index(0).child("items").key("a b");
        assert_eq!(path.as_str(), "spec.volumes[0].items[a b]");
    }

    #[test]
    fn messages_read_as_kubernetes_writes_them() {
        let mut errors = Errors::new();
        let at = Path::new("x");
        errors.required(&at, "");
        errors.invalid(&at, &serde_json::json!(60), "too small");
        errors.invalid_str(&at, "a\"b", "");
        errors.not_supported(&at, "c", &["a", "b"]);
        errors.forbidden(&at, "field is immutable");
        errors.too_long(&at, 3);
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            words,
            [
                "x: Required value",
                "x: Invalid value: 60: too small",
                "x: Invalid value: \"a\\\"b\"",
                "x: Unsupported value: \"c\": supported values: \"a\", \"b\"",
                "x: Forbidden: field is immutable",
                "x: Too long: may not be more than 3 bytes",
            ]
        );
    }
}
