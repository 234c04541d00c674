//! Objects as a `Table`: what `kubectl get` shows.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::object::Object;
use crate::registry::kind::{Column, Kind};
use crate::request::negotiate::MetaVersion;
use crate::respond::{list_meta, partial};
use crate::verbs::Call;

/// The texts of the first and the last column, which most kinds share. Clients can show them, and
/// recorded answers of Kubernetes carry exactly these.
pub const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// See [`NAME_DESCRIPTION`].
pub const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

const DEFAULT_COLUMNS: &[Column] = &[
    Column {
        name: "Name",
        kind: "string",
        format: "name",
        description: NAME_DESCRIPTION,
        priority: 0,
    },
    Column {
        name: "Created At",
        kind: "date",
        format: "",
        description: AGE_DESCRIPTION,
        priority: 0,
    },
];

/// A table of objects, with the metadata of the list (or object) they are.
pub fn table(
    call: &Call<'_>,
    version: MetaVersion,
    objects: &[Arc<Object>],
    revision: Option<u64>,
    continue_: &str,
    remaining: Option<usize>,
) -> Value {
    let rows: Vec<Value> = objects.iter().map(|o| row(call, version, o)).collect();
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{}", version.as_str()),
        "metadata": revision.map_or(json!({}), |r| list_meta(r, continue_, remaining)),
        "columnDefinitions": columns(call.kind),
        "rows": rows,
    })
}

/// The event of one object in a watch of tables; only the first carries the columns.
pub fn watch_row(call: &Call<'_>, version: MetaVersion, object: &Object, first: bool) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{}", version.as_str()),
        "metadata": list_meta(object.revision, "", None),
        "columnDefinitions": if first { columns(call.kind) } else { Value::Null },
        "rows": [row(call, version, object)],
    })
}

fn columns(kind: &Kind) -> Value {
    let columns = if kind.columns.is_empty() { DEFAULT_COLUMNS } else { kind.columns };
    let all = columns.iter().map(|c| {
        json!({
            "name": c.name,
            "type": c.kind,
            "format": c.format,
            "description": c.description,
            "priority": c.priority,
        })
    });
    Value::Array(all.collect())
}

fn row(call: &Call<'_>, version: MetaVersion, object: &Object) -> Value {
    let value = object.stored_value();
    let cells = if call.kind.columns.is_empty() {
        vec![json!(object.name()), value["metadata"]["creationTimestamp"].clone()]
    } else {
        (call.kind.row)(&value, call.now)
    };
    let mut row = json!({"cells": cells});
    match call.query.first("includeObject").unwrap_or("Metadata") {
        "None" => {}
        "Object" => row["object"] = object.value(call.kind, call.served),
        _ => row["object"] = partial(call, version, object),
    }
    row
}
