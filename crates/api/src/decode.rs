//! From the bytes of a body to one JSON value: what all other rules work on.
//!
//! | format | function | read by |
//! |---|---|---|
//! | JSON | [`json`](json()) | `serde_json`, building the value itself so that duplicate keys are seen |
//! | YAML | [`yaml`](yaml()) | `serde-saphyr`, into the same builder |
//! | protobuf | [`protobuf`](protobuf()) | a walk over the schema tables |
//!
//! None of them knows whether a field exists or a value fits: that is told by the normal form, which
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

/// A body that was read, and what was odd about it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedBody {
    /// The decoded body, which is always a JSON object.
    pub value: Value,
    /// The paths of keys that stand more than once in their object (`spec.containers[0].name`), each
    /// once, in the order of the text. The last value of such a key is the one in `value`.
    pub duplicates: Vec<String>,
}

/// Why bytes are no object. The texts follow kube-apiserver's, which puts them into a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON, or JSON that is no object.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(String),
    /// Not YAML, or YAML that is no object.
    #[error("yaml: {0}")]
    Yaml(String),
    /// Not a Kubernetes protobuf message.
    #[error("{0}")]
    Protobuf(String),
    /// A protobuf message of a type that is not served.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The version that the message names.
        api_version: String,
        /// The kind that the message names.
        kind: String,
    },
}

/// The beginning of a body as it is shown at the end of a message about it: as text if it looks like
/// JSON, else in hexadecimal.
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

/// How deep objects and lists are nested in `value`; 0 for a scalar.
///
/// A value deeper than [`crate::limits::MAX_DEPTH`] can be written but not be read again, so what
/// is put together from parts must be measured before it is stored.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// What sort of JSON value it is, in the words of Go's decoder.
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
