//! Objects as a `Table`: what `kubectl get` shows.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::object::Object;
use crate::registry::cells;
use crate::registry::kind::{Column, Kind};
use crate::request::negotiate::MetaVersion;
use crate::respond::{list_meta, partial};
use crate::verbs::Call;

/// For kinds without columns of their own.
const DEFAULT_COLUMNS: &[Column] =
    &[cells::NAME, Column { name: "Created At", kind: "date", ..cells::AGE }];

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
    let conditions = (call.kind.row_conditions)(&value);
    if !conditions.is_empty() {
        row["conditions"] = conditions.into();
    }
    match call.query.first("includeObject").unwrap_or("Metadata") {
        "None" => row["object"] = Value::Null,
        "Object" => row["object"] = object.value(call.kind, call.served),
        _ => row["object"] = partial(call, version, object),
    }
    row
}
