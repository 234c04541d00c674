//! Events about objects, in the core group and in `events.k8s.io`.
//!
//! Both groups serve the same stored objects under different field names. Writes through
//! `events.k8s.io/v1` have stricter rules than those through `v1`; the `apiVersion` of the
//! validated object selects the rules.

mod validation;

use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::kind::{Kind, SelectableField, ServedVersion, VersionConversion};
use super::object_fields::{integer, non_null, text};
use super::table_cells;

/// Descriptor of Event, served in the core group and in `events.k8s.io`.
pub(crate) const KIND: Kind = Kind {
    name: "Event",
    plural: "events",
    short_names: &["ev"],
    served: &[
        ServedVersion::new("", "v1", "io.k8s.api.core.v1.Event"),
        ServedVersion {
            group: "events.k8s.io",
            version: "v1",
            type_name: "io.k8s.api.events.v1.Event",
            convert: Some(VersionConversion { to_stored, from_stored }),
        },
    ],
    selectable: SELECTABLE,
    columns: &[
        table_cells::column("Last Seen"),
        table_cells::column("Type"),
        table_cells::column("Reason"),
        table_cells::column("Object"),
        table_cells::wide(table_cells::column("Subobject")),
        table_cells::wide(table_cells::column("Source")),
        table_cells::column("Message"),
        table_cells::wide(table_cells::column("First Seen")),
        table_cells::wide(table_cells::column("Count")),
        table_cells::wide(table_cells::NAME),
    ],
    row,
    create_on_update: true,
    validate_create: validation::create,
    validate_update: validation::update,
    ttl: Some(std::time::Duration::from_secs(60 * 60)),
    ..Kind::DEFAULT
};

/// The `involvedObject` selectors belong to `v1`, the `regarding` selectors to `events.k8s.io`.
const SELECTABLE: &[SelectableField] = &[
    SelectableField::new("involvedObject.kind", &["/involvedObject/kind"]),
    SelectableField::new("involvedObject.namespace", &["/involvedObject/namespace"]),
    SelectableField::new("involvedObject.name", &["/involvedObject/name"]),
    SelectableField::new("involvedObject.uid", &["/involvedObject/uid"]),
    SelectableField::new("involvedObject.apiVersion", &["/involvedObject/apiVersion"]),
    SelectableField::new("involvedObject.resourceVersion", &["/involvedObject/resourceVersion"]),
    SelectableField::new("involvedObject.fieldPath", &["/involvedObject/fieldPath"]),
    SelectableField::new("reason", &["/reason"]),
    SelectableField::new("reportingComponent", &["/reportingComponent"]),
    SelectableField::new("source", &["/source/component", "/reportingComponent"]),
    SelectableField::new("type", &["/type"]),
    SelectableField::new("regarding.kind", &["/involvedObject/kind"]),
    SelectableField::new("regarding.namespace", &["/involvedObject/namespace"]),
    SelectableField::new("regarding.name", &["/involvedObject/name"]),
    SelectableField::new("regarding.uid", &["/involvedObject/uid"]),
    SelectableField::new("regarding.apiVersion", &["/involvedObject/apiVersion"]),
    SelectableField::new("regarding.resourceVersion", &["/involvedObject/resourceVersion"]),
    SelectableField::new("regarding.fieldPath", &["/involvedObject/fieldPath"]),
    SelectableField::new("reportingController", &["/reportingComponent"]),
];

fn row(object: &Value, now: OffsetDateTime) -> Vec<Value> {
    let since = |pointer: &str| table_cells::since(text(object, pointer), now);
    let absent = |pointer: &str| table_cells::is_zero_time(text(object, pointer));
    let first = since(if absent("/firstTimestamp") { "/eventTime" } else { "/firstTimestamp" });
    let (last, count) = if non_null(object, "/series").is_some() {
        (since("/series/lastObservedTime"), integer(object, "/series/count").unwrap_or_default())
    } else {
        let last = if absent("/lastTimestamp") { first.clone() } else { since("/lastTimestamp") };
        (last, integer(object, "/count").filter(|n| *n != 0).unwrap_or(1))
    };
    vec![
        last.into(),
        text(object, "/type").into(),
        text(object, "/reason").into(),
        object_text(object).into(),
        text(object, "/involvedObject/fieldPath").into(),
        source(object).into(),
        text(object, "/message").trim().into(),
        first.into(),
        count.into(),
        table_cells::name(object),
    ]
}

fn object_text(object: &Value) -> String {
    let kind = text(object, "/involvedObject/kind").to_lowercase();
    match text(object, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(object: &Value) -> String {
    let either = |one: &str, other: &str| {
        let first = text(object, one);
        if first.is_empty() { text(object, other).to_owned() } else { first.to_owned() }
    };
    let component = either("/source/component", "/reportingComponent");
    match either("/source/host", "/reportingInstance").as_str() {
        "" => component,
        instance => format!("{component}, {instance}"),
    }
}

/// Fields with different names in `events.k8s.io/v1` (first) and `v1` (second).
const RENAMED: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

fn to_stored(object: Value) -> Value {
    let mut object =
        renamed(object, |new| RENAMED.iter().find(|(name, _)| *name == new).map(|(_, stored)| *stored));
    // Always written in this version, and omitted when empty in the other.
    for field in ["reportingComponent", "reportingInstance"] {
        if let Value::Object(map) = &mut object {
            map.entry(field).or_insert_with(|| "".into());
        }
    }
    object
}

fn from_stored(object: Value) -> Value {
    let mut object =
        renamed(object, |stored| RENAMED.iter().find(|(_, name)| *name == stored).map(|(new, _)| *new));
    for field in ["reportingController", "reportingInstance"] {
        if let Value::Object(map) = &mut object
            && map.get(field).is_some_and(|value| value == "")
        {
            map.remove(field);
        }
    }
    object
}

fn renamed(object: Value, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = object else { return object };
    let fields: Map<String, Value> =
        fields.into_iter().map(|(field, value)| (name(&field).map_or(field, str::to_owned), value)).collect();
    Value::Object(fields)
}

#[cfg(test)]
mod tests;
