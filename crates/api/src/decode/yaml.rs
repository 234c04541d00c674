//! YAML bodies and responses: the only module that uses the YAML library.
//!
//! Follows YAML 1.1 like Kubernetes' library: `0644` is 420, `yes` and `on` are booleans, and keys
//! become strings. Of several documents the first is decoded, as in kube-apiserver.

use serde::de::DeserializeSeed;
use serde_json::{Map, Value};
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Error, Options};

use super::value_builder::{BuildContext, ValueBuilder};
use super::{DecodeError, DecodedBody, json_type_name};
use crate::limits::{
    MAX_BODY_BYTES, MAX_YAML_ALIASES, MAX_YAML_DEPTH, MAX_YAML_NODES, MAX_YAML_REPLAYED_EVENTS,
    MAX_YAML_TEXT_BYTES,
};

/// Decodes a YAML body: a map in which the last of several equal keys wins.
///
/// A whole number written as a float (`1e3`) becomes an integer, as it does in Kubernetes'
/// conversion through JSON.
pub fn yaml(bytes: &[u8]) -> Result<DecodedBody, DecodeError> {
    object(parse_any(bytes)?)
}

/// Like [`yaml`], for request bodies: an empty document or `null` is an empty object, as in
/// Kubernetes.
pub fn yaml_body(bytes: &[u8]) -> Result<DecodedBody, DecodeError> {
    let decoded = parse_any(bytes)?;
    match decoded.value {
        Value::Null => Ok(DecodedBody { value: Value::Object(Map::new()), ..decoded }),
        _ => object(decoded),
    }
}

fn object(decoded: DecodedBody) -> Result<DecodedBody, DecodeError> {
    match decoded.value {
        Value::Object(_) => Ok(decoded),
        other => Err(DecodeError::Yaml(format!("cannot read {} as an object", json_type_name(&other)))),
    }
}

fn parse_any(bytes: &[u8]) -> Result<DecodedBody, DecodeError> {
    if bytes.len() > MAX_BODY_BYTES {
        return Err(DecodeError::Yaml(format!("the text is longer than {MAX_BODY_BYTES} bytes")));
    }
    let text =
        std::str::from_utf8(bytes).map_err(|_| DecodeError::Yaml("the text is not UTF-8".to_owned()))?;
    let mut build = BuildContext { duplicates: Vec::new(), whole_floats_are_integers: true };
    let mut first = None;
    let whole = serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(), |document| {
        first = Some(ValueBuilder::root(&mut build).deserialize(document)?);
        Ok(())
    });
    let value = match (whole, first) {
        (Ok(()) | Err(Error::MultipleDocuments { .. }), Some(value)) => value,
        (Err(error), _) => return Err(DecodeError::Yaml(error_text(&error))),
        (Ok(()), None) => Value::Null,
    };
    Ok(DecodedBody { value, duplicates: build.duplicates })
}

/// Options with the rules of Kubernetes' YAML and the limits of [`crate::limits`], for readers that build something else
/// than a JSON value.
pub fn yaml_options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: Some(MAX_BODY_BYTES),
            flow_nesting_limit: MAX_YAML_DEPTH,
            max_depth: MAX_YAML_DEPTH,
            max_nodes: MAX_YAML_NODES,
            max_events: 4 * MAX_YAML_NODES,
            max_aliases: MAX_YAML_ALIASES,
            max_anchors: MAX_YAML_ALIASES,
            max_merge_keys: MAX_YAML_ALIASES,
            max_recorded_anchor_events: MAX_YAML_REPLAYED_EVENTS,
            max_recorded_anchor_bytes: MAX_YAML_TEXT_BYTES,
            max_total_scalar_bytes: MAX_YAML_TEXT_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_YAML_REPLAYED_EVENTS,
            max_replay_stack_depth: 8,
        },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        emit_comments: false,
        with_snippet: false,
    }
}

/// Formats the error on one line. The library's text includes the position.
fn error_text(error: &Error) -> String {
    let text = error.without_snippet().to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

/// Encodes a value as a YAML document in block style, with sorted keys and a trailing newline.
///
/// Strings that a YAML 1.1 or 1.2 parser could read as another type are quoted; multi-line text is
/// a literal block.
pub fn to_yaml(value: &Value) -> String {
    to_yaml_in_style(value, !has_tabbed_block(value))
}

/// Like [`to_yaml`], for one part of a document that is written in parts: `block_scalars` must be
/// the same for all parts, and false if [`has_tabbed_block`] returns true for any of them.
pub fn to_yaml_in_style(value: &Value, block_scalars: bool) -> String {
    let options = serde_saphyr::ser_options! {
        // Parsers disagree about folding, so it could change text.
        folded_wrap_chars: usize::MAX,
        prefer_block_scalars: block_scalars,
    };
    let mut text = match serde_saphyr::to_string_with_options(value, options) {
        Ok(text) => text,
        // Every JSON value has a YAML form. If the library fails nevertheless, JSON is valid YAML.
        Err(_) => value.to_string(),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Returns true if a multi-line text begins with a tab, possibly after empty lines. In a block
/// scalar, libyaml and its descendants in Go and Python reject that tab as broken indentation.
pub fn has_tabbed_block(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\n') && text.trim_start_matches('\n').starts_with('\t'),
        Value::Array(list) => list.iter().any(has_tabbed_block),
        Value::Object(object) => object.values().any(has_tabbed_block),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
