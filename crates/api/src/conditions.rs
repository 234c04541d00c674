//! `metav1.Condition`, the condition type that most kinds share: its fields and its validation.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::field::{FieldErrors, FieldPath};
use crate::names;

const REASON_MAX: usize = 1024;
const MESSAGE_MAX: usize = 32 * 1024;

/// One condition of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectCondition {
    /// Type of the condition, unique within an object.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`; nothing else is valid.
    pub status: String,
    /// `metadata.generation` of the object that the condition was determined for; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the status last changed, as RFC 3339.
    pub last_transition_time: String,
    /// Machine-readable reason for the last transition, in CamelCase.
    pub reason: String,
    /// Human-readable details of the last transition.
    pub message: String,
}

/// State of a condition: status, reason and message.
pub type ConditionState<'a> = (&'a str, &'a str, &'a str);

impl ObjectCondition {
    /// Creates the condition that follows on those of `before`: the transition time is kept if the status is the same.
    pub fn following(
        before: &[ObjectCondition],
        kind: &str,
        (status, reason, message): ConditionState<'_>,
        observed_generation: Option<i64>,
        now: &str,
    ) -> ObjectCondition {
        let known = before.iter().find(|known| known.kind == kind && known.status == status);
        ObjectCondition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            observed_generation,
            last_transition_time: known.map_or(now, |known| &known.last_transition_time).to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }
}

/// Validates a list of conditions: each is well formed and each type is unique.
pub fn validate_conditions(path: &FieldPath, conditions: &Value, errors: &mut FieldErrors) {
    let list = conditions.as_array().map_or(&[][..], Vec::as_slice);
    let mut seen = HashSet::new();
    for (i, condition) in list.iter().enumerate() {
        let path = path.index(i);
        let kind = text(condition, "type");
        if !seen.insert(kind) {
            errors.duplicate(&path.child("type"), &Value::from(kind));
        }
        validate_condition(&path, condition, errors);
    }
}

/// Validates one condition and appends every violation to `errors`.
pub fn validate_condition(path: &FieldPath, condition: &Value, errors: &mut FieldErrors) {
    let kind = text(condition, "type");
    errors.invalid_each(&path.child("type"), kind, names::qualified_name(kind));
    let status = text(condition, "status");
    if !matches!(status, "True" | "False" | "Unknown") {
        errors.not_supported(&path.child("status"), status, &["False", "True", "Unknown"]);
    }
    if let Some(generation) = condition.get("observedGeneration")
        && generation.as_i64().is_some_and(|number| number < 0)
    {
        let at = path.child("observedGeneration");
        errors.invalid(&at, generation, "must be greater than or equal to zero");
    }
    if text(condition, "lastTransitionTime").is_empty() {
        errors.required(&path.child("lastTransitionTime"), "must be set");
    }
    validate_reason(&path.child("reason"), text(condition, "reason"), errors);
    if text(condition, "message").len() > MESSAGE_MAX {
        errors.too_long(&path.child("message"), MESSAGE_MAX);
    }
}

fn validate_reason(path: &FieldPath, reason: &str, errors: &mut FieldErrors) {
    if reason.is_empty() {
        return errors.required(path, "must be set");
    }
    if !is_reason(reason.as_bytes()) {
        let words = names::regex_error(
            "a condition reason must start with alphabetic character, optionally followed by a \
             string of alphanumeric characters or '_,:', and must end with an alphanumeric \
             character or '_'",
            "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
            &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
        );
        errors.invalid_str(path, reason, &words);
    }
    if reason.len() > REASON_MAX {
        errors.too_long(path, REASON_MAX);
    }
}

fn is_reason(reason: &[u8]) -> bool {
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':');
    reason.first().is_some_and(u8::is_ascii_alphabetic)
        && reason.last().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
        && reason.iter().all(inner)
}

fn text<'a>(condition: &'a Value, field: &str) -> &'a str {
    condition.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error_messages(conditions: Value) -> Vec<String> {
        let mut errors = FieldErrors::new();
        validate_conditions(&FieldPath::new("c"), &conditions, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_valid_list_passes() {
        let time = "2026-01-01T00:00:00Z";
        let good = json!([
            {"type": "Ready", "status": "True", "reason": "A,B:c_", "lastTransitionTime": time},
            {"type": "x.y/Z", "status": "Unknown", "reason": "a", "lastTransitionTime": time,
             "observedGeneration": 0, "message": "m"},
        ]);
        assert_eq!(error_messages(good), [""; 0]);
        assert_eq!(error_messages(Value::Null), [""; 0]);
    }

    #[test]
    fn each_violated_rule_is_reported() {
        let time = "2026-01-01T00:00:00Z";
        let bad = json!([
            {"type": "A", "status": "yes", "reason": "", "observedGeneration": -1},
            {"type": "A", "status": "True", "reason": "1", "lastTransitionTime": time,
             "message": "m".repeat(MESSAGE_MAX + 1)},
            {"type": "B", "status": "True", "reason": "r".repeat(1025), "lastTransitionTime": time},
        ]);
        assert_eq!(
            error_messages(bad),
            [
                "c[0].status: Unsupported value: \"yes\": supported values: \"False\", \"True\", \"Unknown\"",
                "c[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
                "c[0].lastTransitionTime: Required value: must be set",
                "c[0].reason: Required value: must be set",
                "c[1].type: Duplicate value: \"A\"",
                "c[1].reason: Invalid value: \"1\": a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')",
                "c[1].message: Too long: may not be more than 32768 bytes",
                "c[2].reason: Too long: may not be more than 1024 bytes",
            ]
        );
        assert_eq!(error_messages(json!([{}])).len(), 5);
    }
}
