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
    singular: "event",
    short_names: &["ev"],
    served: &[
        ServedVersion { group: "", version: "v1", type_name: "io.k8s.api.core.v1.Event", convert: None },
        ServedVersion {
            group: "events.k8s.io",
            version: "v1",
            type_name: "io.k8s.api.events.v1.Event",
            convert: Some(VersionConversion { to_stored, from_stored }),
        },
    ],
    selectable: SELECTABLE,
    columns: &[
        table_cells::column(
            "Last Seen",
            "The time at which the most recent occurrence of this event was recorded.",
        ),
        table_cells::column(
            "Type",
            "Type of this event (Normal, Warning), new types could be added in the future",
        ),
        table_cells::column(
            "Reason",
            "This should be a short, machine understandable string that gives the reason for the \
             transition into the object's current status.",
        ),
        table_cells::column("Object", "The object that this event is about."),
        table_cells::wide(table_cells::column(
            "Subobject",
            "If referring to a piece of an object instead of an entire object, this string should \
             contain a valid JSON/Go field access statement, such as \
             desiredState.manifest.containers[2]. For example, if the object reference is to a \
             container within a pod, this would take on a value like: \"spec.containers{name}\" \
             (where \"name\" refers to the name of the container that triggered the event) or if \
             no container name is specified \"spec.containers[2]\" (container with index 2 in this \
             pod). This syntax is chosen only to have some well-defined way of referencing a part \
             of an object.",
        )),
        table_cells::wide(table_cells::column(
            "Source",
            "The component reporting this event. Should be a short machine understandable string.",
        )),
        table_cells::column("Message", "A human-readable description of the status of this operation."),
        table_cells::wide(table_cells::column(
            "First Seen",
            "The time at which the event was first recorded. (Time of server receipt is in \
             TypeMeta.)",
        )),
        table_cells::wide(table_cells::column("Count", "The number of times this event has occurred.")),
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
    SelectableField { label: "involvedObject.kind", pointers: &["/involvedObject/kind"], absent: "" },
    SelectableField {
        label: "involvedObject.namespace",
        pointers: &["/involvedObject/namespace"],
        absent: "",
    },
    SelectableField { label: "involvedObject.name", pointers: &["/involvedObject/name"], absent: "" },
    SelectableField { label: "involvedObject.uid", pointers: &["/involvedObject/uid"], absent: "" },
    SelectableField {
        label: "involvedObject.apiVersion",
        pointers: &["/involvedObject/apiVersion"],
        absent: "",
    },
    SelectableField {
        label: "involvedObject.resourceVersion",
        pointers: &["/involvedObject/resourceVersion"],
        absent: "",
    },
    SelectableField {
        label: "involvedObject.fieldPath",
        pointers: &["/involvedObject/fieldPath"],
        absent: "",
    },
    SelectableField { label: "reason", pointers: &["/reason"], absent: "" },
    SelectableField { label: "reportingComponent", pointers: &["/reportingComponent"], absent: "" },
    SelectableField { label: "source", pointers: &["/source/component", "/reportingComponent"], absent: "" },
    SelectableField { label: "type", pointers: &["/type"], absent: "" },
    SelectableField { label: "regarding.kind", pointers: &["/involvedObject/kind"], absent: "" },
    SelectableField { label: "regarding.namespace", pointers: &["/involvedObject/namespace"], absent: "" },
    SelectableField { label: "regarding.name", pointers: &["/involvedObject/name"], absent: "" },
    SelectableField { label: "regarding.uid", pointers: &["/involvedObject/uid"], absent: "" },
    SelectableField { label: "regarding.apiVersion", pointers: &["/involvedObject/apiVersion"], absent: "" },
    SelectableField {
        label: "regarding.resourceVersion",
        pointers: &["/involvedObject/resourceVersion"],
        absent: "",
    },
    SelectableField { label: "regarding.fieldPath", pointers: &["/involvedObject/fieldPath"], absent: "" },
    SelectableField { label: "reportingController", pointers: &["/reportingComponent"], absent: "" },
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
