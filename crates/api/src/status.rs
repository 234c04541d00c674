//! The `Status` object: Kubernetes' response for failures and some successes.

use serde::{Deserialize, Serialize};

use crate::field::{FieldErrors, quote, truncate, truncate_with_length};
use crate::limits::{MAX_KEY_BYTES, MAX_MESSAGE_BYTES};

/// `Status` of `meta.k8s.io/v1`, with its group and version on the wire (`v1`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Kind of this object, always `Status`.
    pub kind: String,
    /// API version of this object, always `v1`.
    pub api_version: String,
    /// List metadata; only `continue` is ever set, on an expired list.
    pub metadata: StatusMeta,
    /// Outcome of the request: `Success` or `Failure`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Description for people; clients must not parse it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Machine-readable reason: `NotFound`, `Conflict`, …; empty if unclassified.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Object and causes that the status refers to; absent if unclassified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// HTTP status code of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
}

/// List metadata of a `Status` object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusMeta {
    /// Token to continue an expired list.
    #[serde(default, rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_: String,
}

/// Object that a `Status` refers to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    /// Name of the object; empty if the error concerns no single object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group of the object; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Plural resource for most errors, kind for validation errors.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// UID of the object; empty if there is no single object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Individual errors, one per violated rule; may be truncated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Seconds to wait before retrying; 0 means unspecified and is not written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One error among the causes of a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusCause {
    /// Type of the cause, JSON key `reason`.
    #[serde(rename = "reason")]
    pub kind: CauseType,
    /// Description of the cause for people; clients must not parse it.
    pub message: String,
    /// Path of the field; empty if the cause concerns none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// Machine-readable type of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are the documentation: they are the wire values")]
pub enum CauseType {
    FieldValueNotFound,
    FieldValueRequired,
    FieldValueDuplicate,
    FieldValueInvalid,
    FieldValueNotSupported,
    FieldValueForbidden,
    FieldValueTooLong,
    FieldValueTooMany,
    InternalError,
    FieldValueTypeInvalid,
    FieldManagerConflict,
    NamespaceTerminating,
    ResourceVersionTooLarge,
    UnexpectedServerResponse,
}

impl Status {
    /// Creates a failure with the given code, reason and message, without details.
    pub fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Status {
            kind: "Status".into(),
            api_version: "v1".into(),
            metadata: StatusMeta::default(),
            status: Some("Failure".into()),
            message: truncate_message(message.into()),
            reason: reason.into(),
            details: None,
            code: Some(code),
        }
    }

    /// Creates a success with the given `details`.
    pub fn success(details: StatusDetails) -> Self {
        Status {
            kind: "Status".into(),
            api_version: "v1".into(),
            metadata: StatusMeta::default(),
            status: Some("Success".into()),
            message: String::new(),
            reason: String::new(),
            details: Some(details),
            code: None,
        }
    }

    /// Returns the status with its details replaced by `details`.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(details);
        self
    }

    /// Creates a 422 for an invalid object of `kind` (qualified by `group`) and `name`.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: FieldErrors) -> Self {
        let (qualified, name) = (qualified_kind(group, kind), truncate(name, MAX_KEY_BYTES));
        let message = format!("{qualified} {} is invalid: {}", quote(name), errors.joined());
        let more = errors.omitted_message().map(|message| StatusCause {
            kind: CauseType::FieldValueInvalid,
            message,
            field: String::new(),
        });
        Status::failure(422, "Invalid", message).with_details(StatusDetails {
            name: name.into(),
            group: group.into(),
            kind: kind.into(),
            causes: errors.into_vec().into_iter().map(StatusCause::from).chain(more).collect(),
            ..StatusDetails::default()
        })
    }
}

/// Returns `kind.group`, or `kind` alone for the core group.
pub fn qualified_kind(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

fn truncate_message(message: String) -> String {
    if message.len() <= MAX_MESSAGE_BYTES {
        return message;
    }
    truncate_with_length(&message, MAX_MESSAGE_BYTES).into_owned()
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FieldPath;

    #[test]
    fn several_errors_are_listed_once_each_and_all_are_causes() {
        let mut errors = FieldErrors::new();
        errors.required(&FieldPath::new("a"), "");
        errors.required(&FieldPath::new("a"), "");
        errors.required(&FieldPath::new("b"), "");
        let status = Status::invalid("g", "K", "n", errors);
        assert_eq!(status.message, "K.g \"n\" is invalid: [a: Required value, b: Required value]");
        assert_eq!(status.details.unwrap().causes.len(), 3);
    }

    #[test]
    fn very_many_errors_are_counted() {
        let mut errors = FieldErrors::new();
        for i in 0..100_000 {
            errors.not_supported(&FieldPath::new("usages").index(i), "!", &["any", "cert sign"]);
        }
        let status = Status::invalid("g", "K", &"n".repeat(1 << 20), errors);
        assert!(status.message.ends_with(", … and 99900 more]"), "{}", status.message);
        let details = status.details.unwrap();
        assert_eq!(details.causes.len(), 101);
        assert_eq!(details.causes[100].message, "… and 99900 more");
        assert!(status.message.len() + details.name.len() < 64 * 1024);
        let text = "x".repeat(1 << 20);
        assert!(Status::failure(500, "", text).message.ends_with("x… (1048576 bytes)"));
    }
}
