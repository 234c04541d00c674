//! Columns and cells that the tables of many kinds share.

use serde_json::Value;
use time::OffsetDateTime;
use windlass_api::timestamp;

use super::kind::TableColumn;
use super::object_fields::text;

/// The column with the object's name.
pub(crate) const NAME: TableColumn = TableColumn {
    name: "Name",
    kind: "string",
    format: "name",
    description: "Name must be unique within a namespace. Is required when creating resources, \
        although some resources may allow a client to request the generation of an appropriate \
        name automatically. Name is primarily intended for creation idempotence and configuration \
        definition. Cannot be updated. More info: \
        https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    priority: 0,
};

/// The column with the time since creation.
pub(crate) const AGE: TableColumn = column(
    "Age",
    "CreationTimestamp is a timestamp representing the server time when this object was created. \
     It is not guaranteed to be set in happens-before order across separate operations. Clients \
     may not set this value. It is represented in RFC3339 form and is in UTC.\n\n\
     Populated by the system. Read-only. Null for lists. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
);

/// A column of texts that is always shown.
pub(crate) const fn column(name: &'static str, description: &'static str) -> TableColumn {
    TableColumn { name, kind: "string", format: "", description, priority: 0 }
}

/// The same column for clients that want many.
pub(crate) const fn wide(column: TableColumn) -> TableColumn {
    TableColumn { priority: 1, ..column }
}

/// The same column for cells of another type (`integer`, `boolean`).
pub(crate) const fn with_type(kind: &'static str, column: TableColumn) -> TableColumn {
    TableColumn { kind, ..column }
}

/// Returns the cell with the object's `metadata.name`.
pub(crate) fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

/// How long ago the object was created, for people.
pub(crate) fn age(object: &Value, now: OffsetDateTime) -> Value {
    since(text(object, "/metadata/creationTimestamp"), now).into()
}

/// How long ago an RFC 3339 time was, for people; `<unknown>` if there is none.
pub(crate) fn since(timestamp: &str, now: OffsetDateTime) -> String {
    if is_zero_time(timestamp) {
        return "<unknown>".to_owned();
    }
    windlass_api::age::age(timestamp, now)
}

/// Whether a time is absent, or the year 1 that stands for an absent one.
pub(crate) fn is_zero_time(time: &str) -> bool {
    const ZERO: OffsetDateTime = time::macros::datetime!(0001-01-01 00:00 UTC);
    time.is_empty() || timestamp::parse(time).is_ok_and(|time| time == ZERO)
}
