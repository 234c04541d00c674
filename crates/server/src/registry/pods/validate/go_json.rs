//! Values as Go's encoder shows them in errors: fields in the order of Go's types, not sorted by
//! name, and `<`, `>` and `&` escaped.

use serde_json::Value;

use super::super::fields::{list, part};

/// Encodes an object with these fields, whose values are already encoded.
pub(crate) fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}:{value}", string(name))).collect();
    format!("{{{}}}", fields.join(","))
}

/// Encodes a value as Go's `encoding/json` does; `None` becomes `null`.
pub(crate) fn value(value: Option<&Value>) -> String {
    escaped(&value.unwrap_or(&Value::Null).to_string())
}

/// Encodes a string with the escapes of Go's `encoding/json`.
pub(crate) fn string(text: &str) -> String {
    escaped(&Value::String(text.to_owned()).to_string())
}

/// Encodes a label selector, or `null`.
pub(crate) fn label_selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return "null".to_owned() };
    let mut fields = Vec::new();
    if let Some(labels) = part(selector, "matchLabels").filter(|l| **l != serde_json::json!({})) {
        fields.push(("matchLabels", value(Some(labels))));
    }
    if !list(selector, "matchExpressions").is_empty() {
        // Go declares these fields in alphabetical order, too.
        fields.push(("matchExpressions", value(part(selector, "matchExpressions"))));
    }
    object(&fields)
}

fn escaped(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
