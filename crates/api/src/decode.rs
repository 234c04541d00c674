//! From the bytes of a body to one JSON value: what all other rules work on.
//!
//! | format | function | read by |
//! |---|---|---|
//! | JSON | [`json`](json()) | `serde_json`, building the value itself so that duplicate keys are seen |
//! | YAML | [`yaml`](yaml()) | `serde-saphyr`, into the same builder |
//! | protobuf | [`protobuf`](protobuf()) | a walk over the schema tables |
//!
//! None of them knows whether a field exists or a value fits: that is checked by the normal form, which
//! comes next. Limits are in [`crate::limits`].

mod json;
mod protobuf;
mod syntax;
mod value_builder;
mod yaml;

pub use json::{json, json_body};
pub use protobuf::protobuf;
pub use yaml::{has_tabbed_block, to_yaml, to_yaml_in_style, yaml, yaml_body, yaml_options};

use serde_json::Value;

/// A decoded body and its duplicate keys.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedBody {
    /// The decoded body, which is always a JSON object.
    pub value: Value,
    /// Paths of duplicate keys (`spec.containers[0].name`), each once, in text order. `value` holds
    /// the last value of such a key.
    pub duplicates: Vec<String>,
}

/// Reason why a body could not be decoded. The messages follow kube-apiserver, which returns them
/// with status 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Invalid JSON, or JSON that is not an object.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(String),
    /// Invalid YAML, or YAML that is not an object.
    #[error("yaml: {0}")]
    Yaml(String),
    /// Not a Kubernetes protobuf message.
    #[error("{0}")]
    Protobuf(String),
    /// A protobuf message of a type that is not served.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// API version named by the message.
        api_version: String,
        /// Kind named by the message; may be unknown.
        kind: String,
    },
}

/// Formats the beginning of a body for an error message: as text if it looks like JSON, otherwise
/// in hexadecimal.
pub fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let head = &body[..body.len().min(SHOWN)];
    let dots = if body.len() > SHOWN { " ..." } else { "" };
    match head.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(head).into_owned() + dots,
        Some(_) => head.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + dots,
    }
}

/// Returns the nesting depth of objects and lists in `value`; 0 for a scalar.
///
/// A value deeper than [`crate::limits::MAX_DEPTH`] can be encoded but not decoded again, so an
/// assembled value must be checked before it is stored.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns the JSON type name as Go's decoder spells it.
pub(crate) fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_shows_json_as_text_and_the_rest_in_hexadecimal() {
        for (body, shown) in [
            (&b""[..], "<empty>"),
            (b"{nope", "{nope"),
            (b"[]", "5b5d"),
            (b"{23456789012345678901234567890", "{23456789012345678901234567890"),
            (b"{234567890123456789012345678901", "{23456789012345678901234567890 ..."),
            (b"k8s\0", "6b387300"),
        ] {
            assert_eq!(summary(body), shown);
        }
    }
}
