//! Validation of access reviews.

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;

use super::{text, texts};

/// Requires either resource or non-resource attributes.
pub(super) fn spec(spec: &Value, errors: &mut FieldErrors) {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_null() == path.is_null() {
        let words = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.invalid(&FieldPath::new("spec"), path, words);
    }
}

/// Requires a user or a group.
pub(super) fn subject(spec: &Value, errors: &mut FieldErrors) {
    let user = text(&spec["user"]);
    if user.is_empty() && texts(&spec["groups"]).is_empty() {
        let at = FieldPath::new("spec").child("user");
        errors.invalid_str(&at, user, "at least one of user or group must be specified");
    }
}

/// Validates the selectors in the resource attributes.
pub(super) fn attributes(spec: &Value, errors: &mut FieldErrors) {
    let attributes = &spec["resourceAttributes"];
    let at = FieldPath::new("spec.resourceAttributes");
    selector(&attributes["fieldSelector"], &at.child("fieldSelector"), field, errors);
    selector(&attributes["labelSelector"], &at.child("labelSelector"), label, errors);
}

/// Requires that metadata contains only `allowed` fields. Managed fields are ignored, because the
/// server sets them.
pub(super) fn metadata(metadata: &Value, allowed: &[&str], words: &str, errors: &mut FieldErrors) {
    let fields = metadata.as_object().into_iter().flatten();
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    let mut others = fields.filter(|(name, value)| {
        *name != "managedFields" && !allowed.contains(&name.as_str()) && !empty(value)
    });
    if others.next().is_some() {
        errors.invalid(&FieldPath::new("metadata"), metadata, words);
    }
}

/// Requires resource attributes in the namespace of the review.
pub(super) fn local(question: &Value, errors: &mut FieldErrors) {
    let spec = &question["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let namespace = text(&resource["namespace"]);
    if !resource.is_null() && namespace != text(&question["metadata"]["namespace"]) {
        let at = FieldPath::new("spec.resourceAttributes.namespace");
        errors.invalid_str(&at, namespace, "must match metadata.namespace");
    }
    if !path.is_null() {
        let at = FieldPath::new("spec.nonResourceAttributes");
        errors.invalid(&at, path, "disallowed on this kind of request");
    }
}

fn selector(
    selector: &Value,
    at: &FieldPath,
    check_key: fn(&Value, &FieldPath, &mut FieldErrors),
    errors: &mut FieldErrors,
) {
    if selector.is_null() {
        return;
    }
    let raw = text(&selector["rawSelector"]);
    let requirements = selector["requirements"].as_array().map_or(&[][..], Vec::as_slice);
    if !raw.is_empty() && !requirements.is_empty() {
        let words = "may not specified at the same time as requirements";
        errors.invalid_str(&at.child("rawSelector"), raw, words);
    }
    if raw.is_empty() && requirements.is_empty() {
        let words = format!("when {at} is specified, requirements or rawSelector is required");
        errors.required(&at.child("requirements"), &words);
    }
    for (i, requirement) in requirements.iter().enumerate() {
        let at = at.child("requirements").index(i);
        operator(requirement, &at, errors);
        check_key(requirement, &at, errors);
    }
}

/// Unknown operators are accepted: a client may be newer than this server.
fn operator(requirement: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    let (at, values) = (at.child("values"), texts(&requirement["values"]));
    match text(&requirement["operator"]) {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let words = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(&at, words);
        }
        _ => {}
    }
}

fn field(requirement: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    if text(&requirement["key"]).is_empty() {
        errors.required(&at.child("key"), "must be specified");
    }
}

fn label(requirement: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    let key = text(&requirement["key"]);
    for words in names::qualified_name(key) {
        errors.invalid_str(&at.child("key"), key, &words);
    }
    for (i, value) in texts(&requirement["values"]).iter().enumerate() {
        for words in names::label_value(value) {
            errors.invalid_str(&at.child("values").index(i), value, &words);
        }
    }
}
