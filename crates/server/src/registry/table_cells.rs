//! Table columns and cells that many kinds share.

use serde_json::Value;
use time::OffsetDateTime;
use windlass_api::timestamp;

use super::kind::TableColumn;
use super::object_fields::text;

/// Column with the object's name.
pub(crate) const NAME: TableColumn = TableColumn {
    name: "Name",
    kind: "string",
    format: "name",
    description: Some(
        "Name must be unique within a namespace. Is required when creating resources, \
         although some resources may allow a client to request the generation of an appropriate \
         name automatically. Name is primarily intended for creation idempotence and configuration \
         definition. Cannot be updated. More info: \
         https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    ),
    priority: 0,
};

/// Column with the object's age.
pub(crate) const AGE: TableColumn = described(
    "Age",
    "CreationTimestamp is a timestamp representing the server time when this object was created. \
     It is not guaranteed to be set in happens-before order across separate operations. Clients \
     may not set this value. It is represented in RFC3339 form and is in UTC.\n\n\
     Populated by the system. Read-only. Null for lists. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
);

/// Creates a string column that is always shown, with the description that Kubernetes has.
pub(crate) const fn column(name: &'static str) -> TableColumn {
    TableColumn { name, kind: "string", format: "", description: None, priority: 0 }
}

/// Creates a string column that is always shown, with its own description.
pub(crate) const fn described(name: &'static str, description: &'static str) -> TableColumn {
    TableColumn { description: Some(description), ..column(name) }
}

/// Returns the column with the priority of `-o wide`.
pub(crate) const fn wide(column: TableColumn) -> TableColumn {
    TableColumn { priority: 1, ..column }
}

/// Returns the column with another cell type (`integer`, `boolean`).
pub(crate) const fn with_type(kind: &'static str, column: TableColumn) -> TableColumn {
    TableColumn { kind, ..column }
}

/// Returns the cell with the object's `metadata.name`.
pub(crate) fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

/// Returns the object's age in human-readable form.
pub(crate) fn age(object: &Value, now: OffsetDateTime) -> Value {
    since(text(object, "/metadata/creationTimestamp"), now).into()
}

/// Formats the time since an RFC 3339 timestamp; `<unknown>` if it is absent.
pub(crate) fn since(timestamp: &str, now: OffsetDateTime) -> String {
    if is_zero_time(timestamp) {
        return "<unknown>".to_owned();
    }
    windlass_api::age::age(timestamp, now)
}

/// Returns true if a time is absent or Go's zero time (year 1).
pub(crate) fn is_zero_time(time: &str) -> bool {
    const ZERO: OffsetDateTime = time::macros::datetime!(0001-01-01 00:00 UTC);
    time.is_empty() || timestamp::parse(time).is_ok_and(|time| time == ZERO)
}
