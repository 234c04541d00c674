//! Objects as a `Table`, as `kubectl get` shows them.

use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::object::Object;
use crate::registry::kind::{Kind, ServedVersion, TableColumn};
use crate::registry::{column_descriptions, table_cells};
use crate::request::negotiation::MetaVersion;
use crate::response::{list_meta, partial};
use crate::verbs::RequestContext;

/// For kinds without custom columns.
const DEFAULT_COLUMNS: &[TableColumn] =
    &[table_cells::NAME, TableColumn { name: "Created At", kind: "date", ..table_cells::AGE }];

/// Everything that a row depends on besides its object.
#[derive(Clone, Copy)]
pub struct RowEncoder {
    kind: &'static Kind,
    served: &'static ServedVersion,
    version: MetaVersion,
    include: IncludeObject,
    now: OffsetDateTime,
}

/// `?includeObject=`: how much of its object a row includes.
#[derive(Clone, Copy)]
enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl RowEncoder {
    /// Creates the row encoder of a request, with ages relative to its time.
    pub fn new(call: &RequestContext<'_>, version: MetaVersion) -> RowEncoder {
        let include = match call.query.first("includeObject") {
            Some("None") => IncludeObject::None,
            Some("Object") => IncludeObject::Object,
            _ => IncludeObject::Metadata,
        };
        RowEncoder { kind: call.kind, served: call.served, version, include, now: call.now }
    }

    /// Returns the same encoder with ages relative to `now`.
    #[must_use]
    pub fn with_now(self, now: OffsetDateTime) -> RowEncoder {
        RowEncoder { now, ..self }
    }

    /// Returns the table of these rows, with the metadata of their list or object.
    pub fn table(&self, metadata: Value, rows: Vec<Value>) -> Value {
        json!({
            "kind": "Table",
            "apiVersion": format!("meta.k8s.io/{}", self.version.as_str()),
            "metadata": metadata,
            "columnDefinitions": columns(self.kind),
            "rows": rows,
        })
    }

    /// Returns the table of an object in a watch; only the first includes the columns.
    pub fn watch_event(&self, object: &Object, first: bool) -> Value {
        let mut table = self.table(list_meta(object.revision, "", None), vec![self.row(object)]);
        if !first {
            table["columnDefinitions"] = Value::Null;
        }
        table
    }

    pub fn row(&self, object: &Object) -> Value {
        let value = object.stored_value();
        let cells = if self.kind.columns.is_empty() {
            vec![json!(object.name()), value["metadata"]["creationTimestamp"].clone()]
        } else {
            (self.kind.row)(&value, self.now)
        };
        let mut row = json!({"cells": cells});
        let conditions = (self.kind.row_conditions)(&value);
        if !conditions.is_empty() {
            row["conditions"] = conditions.into();
        }
        row["object"] = match self.include {
            IncludeObject::None => Value::Null,
            IncludeObject::Object => object.value(self.kind, self.served),
            IncludeObject::Metadata => partial(self.kind, self.served, self.version, object),
        };
        row
    }
}

fn columns(kind: &Kind) -> Value {
    let columns = if kind.columns.is_empty() { DEFAULT_COLUMNS } else { kind.columns };
    let all = columns.iter().map(|c| {
        json!({
            "name": c.name,
            "type": c.kind,
            "format": c.format,
            "description": c.description.unwrap_or_else(|| column_descriptions::get(kind.plural, c.name)),
            "priority": c.priority,
        })
    });
    Value::Array(all.collect())
}
