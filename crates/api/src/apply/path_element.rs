//! Path elements in FieldsV1 and display notation.
//!
//! `f:name` is a field or map key, `k:{"name":"c"}` a list element by its keys, `v:"a"` an element
//! of a set, `i:0` an element by index. Every path element has exactly one encoding (sorted keys,
//! no spaces), so encodings can be compared as strings.

use std::collections::BTreeMap;

use serde_json::Value;

/// Encodes a field or map key.
pub(super) fn field(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 2);
    text.push_str("f:");
    text.push_str(name);
    text
}

/// Encodes an element of a set.
pub(super) fn value(value: &Value) -> String {
    format!("v:{value}")
}

/// Encodes a list element by its keys.
pub(super) fn keys(keys: &BTreeMap<&str, &Value>) -> String {
    let mut text = String::from("k:{");
    for (i, (name, value)) in keys.iter().enumerate() {
        if i > 0 {
            text.push(',');
        }
        text.push_str(&Value::from(*name).to_string());
        text.push(':');
        text.push_str(&value.to_string());
    }
    text.push('}');
    text
}

/// Validates a path element from a client and returns its canonical encoding.
pub(super) fn canonical(text: &str) -> Result<String, String> {
    let wrong = |e: serde_json::Error| format!("{text:?}: {e}");
    match text.split_at_checked(2) {
        Some(("f:", _)) => Ok(text.to_owned()),
        Some(("v:", json)) => {
            let parsed: Value = serde_json::from_str(json).map_err(wrong)?;
            Ok(value(&parsed))
        }
        Some(("k:", json)) => {
            let parsed: BTreeMap<String, Value> = serde_json::from_str(json).map_err(wrong)?;
            Ok(keys(&parsed.iter().map(|(k, v)| (k.as_str(), v)).collect()))
        }
        Some(("i:", number)) => {
            let parsed: i64 = number.parse().map_err(|e| format!("{text:?}: {e}"))?;
            Ok(format!("i:{parsed}"))
        }
        _ => Err(format!("{text:?} is no path element")),
    }
}

/// Formats a path element for display: `.name`, `[name="c"]`, `[="a"]`, `[0]`.
pub(super) fn display(text: &str) -> String {
    match text.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("v:", json)) => format!("[={json}]"),
        Some(("i:", number)) => format!("[{number}]"),
        Some(("k:", json)) => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(json).unwrap_or_default();
            let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => text.to_owned(),
    }
}
