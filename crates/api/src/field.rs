//! Field paths and validation errors in Kubernetes' wording.
//!
//! The texts are part of the interface: clients and users read them, and the recorded responses are
//! compared byte for byte.

use std::borrow::Cow;
use std::collections::HashSet;
use std::{fmt, io};

use serde_json::Value;

use crate::limits::{MAX_ERROR_BYTES, MAX_ERRORS, MAX_KEY_BYTES, MAX_SHOWN_BYTES};
use crate::status::{CauseType, StatusCause};

/// Path of a field in error notation: `spec.volumes[0].projected`, `data[a b]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(String);

impl FieldPath {
    /// Creates the path of a top-level field; an empty name is the object itself.
    pub fn new(name: &str) -> Self {
        FieldPath(name.to_owned())
    }

    /// Returns the path of child field `name`.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let name = truncate_with_length(name, MAX_KEY_BYTES);
        if self.0.is_empty() { FieldPath(name.into_owned()) } else { FieldPath(format!("{}.{name}", self.0)) }
    }

    /// Returns the path of the list element at `index`.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        FieldPath(format!("{}[{index}]", self.0))
    }

    /// Returns the path of the map entry under `key`.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        let key = truncate_with_length(key, MAX_KEY_BYTES);
        FieldPath(format!("{}[{key}]", self.0))
    }

    /// Returns the path in the notation of Kubernetes errors, without a leading dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One violated rule: path, kind of error and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field that violates the rule.
    pub path: FieldPath,
    /// Machine-readable kind of the error.
    pub kind: CauseType,
    /// Message after the path, in Kubernetes' form (`Invalid value: "x": must be …`).
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", if self.path.0.is_empty() { "<nil>" } else { &self.path.0 }, self.message)
    }
}

impl From<FieldError> for StatusCause {
    fn from(error: FieldError) -> Self {
        StatusCause { kind: error.kind, message: error.message, field: error.path.0 }
    }
}

/// Errors found in one object, in the order of discovery.
///
/// An object can violate a rule a million times, so only the first errors are kept ([`MAX_ERRORS`]
/// and [`MAX_ERROR_BYTES`]); the others are only counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors {
    listed: Vec<FieldError>,
    bytes: usize,
    total: usize,
}

impl FieldErrors {
    /// Creates an empty list, which means that the object is valid.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns true if no rule was violated, counting unlisted errors too.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the number of errors, including unlisted ones.
    pub fn len(&self) -> usize {
        self.total
    }

    /// Returns true if further errors are only counted, so that their text is not needed.
    pub fn is_full(&self) -> bool {
        self.listed.len() >= MAX_ERRORS || self.bytes >= MAX_ERROR_BYTES
    }

    /// Iterates over the listed errors in order.
    pub fn iter(&self) -> impl Iterator<Item = &FieldError> {
        self.listed.iter()
    }

    /// Returns the listed errors in order.
    pub fn into_vec(self) -> Vec<FieldError> {
        self.listed
    }

    /// Returns a message with the number of unlisted errors, if there are any.
    pub fn omitted_message(&self) -> Option<String> {
        let more = self.total - self.listed.len();
        (more > 0).then(|| format!("… and {more} more"))
    }

    /// Joins all errors as Kubernetes does: each text once, several in brackets.
    pub fn joined(&self) -> String {
        let mut seen = HashSet::new();
        let mut texts: Vec<String> = self.listed.iter().map(ToString::to_string).collect();
        texts.retain(|text| seen.insert(text.clone()));
        texts.extend(self.omitted_message());
        match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        }
    }

    /// Appends the errors of `other`, within the limits of this list; the rest are only counted.
    pub fn extend(&mut self, other: FieldErrors) {
        self.total += other.total - other.listed.len();
        for error in other.listed {
            self.push_bounded(|| error);
        }
    }

    /// Reports a missing required value; `detail` may be empty.
    pub fn required(&mut self, path: &FieldPath, detail: &str) {
        self.push(path, CauseType::FieldValueRequired, || with_detail("Required value", detail));
    }

    /// Reports an invalid value. Strings are quoted, other values are shown as JSON.
    pub fn invalid(&mut self, path: &FieldPath, value: &Value, detail: &str) {
        self.push(path, CauseType::FieldValueInvalid, || {
            with_detail(&format!("Invalid value: {}", shown(value)), detail)
        });
    }

    /// Reports an invalid string value, which is quoted.
    pub fn invalid_str(&mut self, path: &FieldPath, value: &str, detail: &str) {
        self.push(path, CauseType::FieldValueInvalid, || {
            with_detail(&format!("Invalid value: {}", shown_text(value)), detail)
        });
    }

    /// Reports an invalid string value once for each of `details`, such as the violations of a name rule.
    pub fn invalid_each<S: AsRef<str>>(
        &mut self,
        path: &FieldPath,
        value: &str,
        details: impl IntoIterator<Item = S>,
    ) {
        for detail in details {
            self.invalid_str(path, value, detail.as_ref());
        }
    }

    /// Reports an invalid value shown as `shown`, for JSON with a specific field order.
    pub fn invalid_shown(&mut self, path: &FieldPath, shown: &str, detail: &str) {
        self.push(path, CauseType::FieldValueInvalid, || {
            with_detail(&format!("Invalid value: {}", truncate_with_length(shown, MAX_SHOWN_BYTES)), detail)
        });
    }

    /// Reports an invalid value that is too large or too sensitive to include.
    pub fn invalid_omitted(&mut self, path: &FieldPath, detail: &str) {
        self.invalid_str(path, "<value omitted>", detail);
    }

    /// Reports a value that is not one of `supported`.
    pub fn not_supported(&mut self, path: &FieldPath, value: &str, supported: &[&str]) {
        let text = || unsupported(&shown_text(value), supported);
        self.push(path, CauseType::FieldValueNotSupported, text);
    }

    /// Reports a preformatted value that is not one of `supported`.
    pub fn not_supported_raw(&mut self, path: &FieldPath, shown: &str, supported: &[&str]) {
        let text = || unsupported(&truncate_with_length(shown, MAX_SHOWN_BYTES), supported);
        self.push(path, CauseType::FieldValueNotSupported, text);
    }

    /// Reports a field that may not be set or changed.
    pub fn forbidden(&mut self, path: &FieldPath, detail: &str) {
        self.push(path, CauseType::FieldValueForbidden, || with_detail("Forbidden", detail));
    }

    /// Reports a duplicate value in a list or map of unique values.
    pub fn duplicate(&mut self, path: &FieldPath, value: &Value) {
        let text = || format!("Duplicate value: {}", shown(value));
        self.push(path, CauseType::FieldValueDuplicate, text);
    }

    /// Reports a duplicate value shown verbatim as `shown`; `detail` may be empty.
    pub fn duplicate_shown(&mut self, path: &FieldPath, shown: &str, detail: &str) {
        self.push(path, CauseType::FieldValueDuplicate, || {
            with_detail(&format!("Duplicate value: {}", truncate_with_length(shown, MAX_SHOWN_BYTES)), detail)
        });
    }

    /// Reports a reference to something that does not exist; `detail` says where it is expected.
    pub fn not_found_because(&mut self, path: &FieldPath, value: &str, detail: &str) {
        self.push(path, CauseType::FieldValueNotFound, || {
            with_detail(&format!("Not found: {}", shown_text(value)), detail)
        });
    }

    /// Reports a reference to something that does not exist.
    pub fn not_found(&mut self, path: &FieldPath, value: &str) {
        let text = || format!("Not found: {}", shown_text(value));
        self.push(path, CauseType::FieldValueNotFound, text);
    }

    /// Reports a text of more than `max` bytes.
    pub fn too_long(&mut self, path: &FieldPath, max: usize) {
        let text = || format!("Too long: may not be more than {max} bytes");
        self.push(path, CauseType::FieldValueTooLong, text);
    }

    /// Reports a list of more than `max` elements.
    pub fn too_many(&mut self, path: &FieldPath, actual: usize, max: usize) {
        let text = || format!("Too many: {actual}: must have at most {max} items");
        self.push(path, CauseType::FieldValueTooMany, text);
    }

    fn push(&mut self, path: &FieldPath, kind: CauseType, message: impl FnOnce() -> String) {
        self.push_bounded(|| {
            let message = truncate_with_length(&message(), MAX_MESSAGE).into_owned();
            FieldError { path: path.clone(), kind, message }
        });
    }

    fn push_bounded(&mut self, error: impl FnOnce() -> FieldError) {
        self.total += 1;
        if !self.is_full() {
            let error = error();
            self.bytes += error.path.0.len() + error.message.len();
            self.listed.push(error);
        }
    }
}

/// Limit for one error: a value, and a detail that may name other values.
const MAX_MESSAGE: usize = 2 * MAX_SHOWN_BYTES;

fn with_detail(text: &str, detail: &str) -> String {
    if detail.is_empty() { text.to_owned() } else { format!("{text}: {detail}") }
}

fn unsupported(shown: &str, supported: &[&str]) -> String {
    let quoted: Vec<String> = supported.iter().map(|s| quote(s)).collect();
    format!("Unsupported value: {shown}: supported values: {}", quoted.join(", "))
}

/// Formats a value for an error: strings quoted, the rest as JSON, each truncated to
/// [`MAX_SHOWN_BYTES`].
pub(crate) fn shown(value: &Value) -> String {
    if let Value::String(text) = value {
        return shown_text(text);
    }
    let mut beginning = BoundedWriter(Vec::new());
    // Fails when the length limit is reached.
    let whole = serde_json::to_writer(&mut beginning, value).is_ok();
    let text = String::from_utf8_lossy(&beginning.0);
    if whole { text.into_owned() } else { format!("{}…", text.trim_end_matches('\u{fffd}')) }
}

fn shown_text(text: &str) -> String {
    let shown = quote(truncate(text, MAX_SHOWN_BYTES));
    if text.len() > MAX_SHOWN_BYTES { format!("{shown}… ({} bytes)", text.len()) } else { shown }
}

/// Keeps the first [`MAX_SHOWN_BYTES`] written and then fails, so that a large value is not encoded
/// only to be truncated.
struct BoundedWriter(Vec<u8>);

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_SHOWN_BYTES - self.0.len();
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(room);
        self.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Truncates a text to `max` bytes and, if it was longer, appends a note with its length.
pub(crate) fn truncate_with_length(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}… ({} bytes)", truncate(text, max), text.len()))
}

/// Truncates a text to `max` bytes, or slightly fewer to avoid splitting a character.
pub(crate) fn truncate(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Quotes a string like Go's `%q`, for the strings that occur in names and values.
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
        let path = FieldPath::new("spec").child("volumes").index(0).child("items").key("a b");
        assert_eq!(path.as_str(), "spec.volumes[0].items[a b]");
    }

    #[test]
    fn a_hundred_errors_are_listed_and_the_rest_is_counted() {
        let mut errors = FieldErrors::new();
        for i in 0..MAX_ERRORS {
            errors.required(&FieldPath::new("x").index(i), "");
        }
        assert_eq!((errors.len(), errors.omitted_message()), (100, None));
        for i in 0..1000 {
            errors.invalid_str(&FieldPath::new("y").index(i), "v", "d");
        }
        assert_eq!((errors.len(), errors.iter().count()), (1100, 100));
        assert!(errors.joined().ends_with(", x[99]: Required value, … and 1000 more]"));
        let mut all = FieldErrors::new();
        all.required(&FieldPath::new("z"), "");
        all.extend(errors);
        assert_eq!((all.len(), all.iter().count()), (1101, 100));
    }

    #[test]
    fn large_values_and_keys_are_cut() {
        let mut errors = FieldErrors::new();
        let large = "é".repeat(1 << 20);
        let list: Value = (0..1_000_000).collect();
        errors.invalid_str(&FieldPath::new("a").key(&large), &large, "d");
        errors.invalid(&FieldPath::new("b").child(&large), &list, &large);
        errors.duplicate_shown(&FieldPath::new("c"), &large, "");
        errors.not_supported(&FieldPath::new("d"), &large, &["x"]);
        for error in errors.iter() {
            assert!(error.message.len() < 21 * 1024, "{}", error.message.len());
            assert!(error.path.as_str().len() < 1100, "{}", error.path.as_str().len());
        }
        let first = errors.iter().next().unwrap();
        assert!(first.message.ends_with("é\"… (2097152 bytes): d"), "{}", first.message);
        let few = 64 * 1024 / MAX_SHOWN_BYTES;
        for _ in 0..MAX_ERRORS {
            errors.invalid_str(&FieldPath::new("e"), &large, "");
        }
        let listed: usize = errors.iter().map(|e| e.message.len()).sum();
        assert!(errors.iter().count() > few && listed < MAX_ERROR_BYTES + MAX_MESSAGE, "{listed}");
    }

    #[test]
    fn small_values_are_shown_whole() {
        let mut errors = FieldErrors::new();
        let text = "x".repeat(MAX_SHOWN_BYTES);
        errors.invalid_str(&FieldPath::new("a"), &text, "d");
        let list = Value::from(vec!["y"; 2000]);
        errors.invalid(&FieldPath::new("a"), &list, "");
        let said: Vec<&str> = errors.iter().map(|e| e.message.as_str()).collect();
        assert_eq!(said, [format!("Invalid value: \"{text}\": d"), format!("Invalid value: {list}")]);
    }

    #[test]
    fn messages_read_as_kubernetes_writes_them() {
        let mut errors = FieldErrors::new();
        let at = FieldPath::new("x");
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
