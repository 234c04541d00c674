//! Events: what happened to an object, in the core group and in `events.k8s.io`.
//!
//! Both groups show the same stored objects under different field names. Writes through
//! `events.k8s.io/v1` meet stricter rules than those through `v1`; which ones apply is told by the
//! `apiVersion` of the object that is validated.

mod validation;

use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::cells;
use super::kind::{Convert, Kind, Selectable, Served};
use super::parts::{given, integer, text};

/// Events.
pub const KIND: Kind = Kind {
    name: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    served: &[
        Served { group: "", version: "v1", type_name: "io.k8s.api.core.v1.Event", convert: None },
        Served {
            group: "events.k8s.io",
            version: "v1",
            type_name: "io.k8s.api.events.v1.Event",
            convert: Some(Convert { to_stored, from_stored }),
        },
    ],
    selectable: SELECTABLE,
    columns: &[
        cells::column(
            "Last Seen",
            "The time at which the most recent occurrence of this event was recorded.",
        ),
        cells::column(
            "Type",
            "Type of this event (Normal, Warning), new types could be added in the future",
        ),
        cells::column(
            "Reason",
            "This should be a short, machine understandable string that gives the reason for the \
             transition into the object's current status.",
        ),
        cells::column("Object", "The object that this event is about."),
        cells::wide(cells::column(
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
        cells::wide(cells::column(
            "Source",
            "The component reporting this event. Should be a short machine understandable string.",
        )),
        cells::column("Message", "A human-readable description of the status of this operation."),
        cells::wide(cells::column(
            "First Seen",
            "The time at which the event was first recorded. (Time of server receipt is in \
             TypeMeta.)",
        )),
        cells::wide(cells::column("Count", "The number of times this event has occurred.")),
        cells::wide(cells::NAME),
    ],
    row,
    create_on_update: true,
    validate_create: validation::create,
    validate_update: validation::update,
    ttl: Some(std::time::Duration::from_secs(60 * 60)),
    ..Kind::DEFAULT
};

/// The `involvedObject` labels are those of `v1`, the `regarding` ones those of `events.k8s.io`.
const SELECTABLE: &[Selectable] = &[
    Selectable { label: "involvedObject.kind", at: &["/involvedObject/kind"], absent: "" },
    Selectable {
        label: "involvedObject.namespace",
        at: &["/involvedObject/namespace"],
        absent: "",
    },
    Selectable { label: "involvedObject.name", at: &["/involvedObject/name"], absent: "" },
    Selectable { label: "involvedObject.uid", at: &["/involvedObject/uid"], absent: "" },
    Selectable {
        label: "involvedObject.apiVersion",
        at: &["/involvedObject/apiVersion"],
        absent: "",
    },
    Selectable {
        label: "involvedObject.resourceVersion",
        at: &["/involvedObject/resourceVersion"],
        absent: "",
    },
    Selectable {
        label: "involvedObject.fieldPath",
        at: &["/involvedObject/fieldPath"],
        absent: "",
    },
    Selectable { label: "reason", at: &["/reason"], absent: "" },
    Selectable { label: "reportingComponent", at: &["/reportingComponent"], absent: "" },
    Selectable { label: "source", at: &["/source/component", "/reportingComponent"], absent: "" },
    Selectable { label: "type", at: &["/type"], absent: "" },
    Selectable { label: "regarding.kind", at: &["/involvedObject/kind"], absent: "" },
    Selectable { label: "regarding.namespace", at: &["/involvedObject/namespace"], absent: "" },
    Selectable { label: "regarding.name", at: &["/involvedObject/name"], absent: "" },
    Selectable { label: "regarding.uid", at: &["/involvedObject/uid"], absent: "" },
    Selectable { label: "regarding.apiVersion", at: &["/involvedObject/apiVersion"], absent: "" },
    Selectable {
        label: "regarding.resourceVersion",
        at: &["/involvedObject/resourceVersion"],
        absent: "",
    },
    Selectable { label: "regarding.fieldPath", at: &["/involvedObject/fieldPath"], absent: "" },
    Selectable { label: "reportingController", at: &["/reportingComponent"], absent: "" },
];

fn row(object: &Value, now: OffsetDateTime) -> Vec<Value> {
    let since = |pointer: &str| cells::since(text(object, pointer), now);
    let absent = |pointer: &str| cells::is_zero_time(text(object, pointer));
    let first = since(if absent("/firstTimestamp") { "/eventTime" } else { "/firstTimestamp" });
    let (last, count) = if given(object, "/series").is_some() {
        (since("/series/lastObservedTime"), integer(object, "/series/count").unwrap_or_default())
    } else {
        let last = if absent("/lastTimestamp") { first.clone() } else { since("/lastTimestamp") };
        (last, integer(object, "/count").filter(|n| *n != 0).unwrap_or(1))
    };
    vec![
        last.into(),
        text(object, "/type").into(),
        text(object, "/reason").into(),
        about(object).into(),
        text(object, "/involvedObject/fieldPath").into(),
        source(object).into(),
        text(object, "/message").trim().into(),
        first.into(),
        count.into(),
        cells::name(object),
    ]
}

fn about(object: &Value) -> String {
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

/// The fields that have another name in `events.k8s.io/v1` (first) than in `v1` (second).
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
    let mut object = renamed(object, |new| {
        RENAMED.iter().find(|(name, _)| *name == new).map(|(_, stored)| *stored)
    });
    // Always written in this version, and left out when empty in the other.
    for field in ["reportingComponent", "reportingInstance"] {
        if let Value::Object(map) = &mut object {
            map.entry(field).or_insert_with(|| "".into());
        }
    }
    object
}

fn from_stored(object: Value) -> Value {
    let mut object = renamed(object, |stored| {
        RENAMED.iter().find(|(_, name)| *name == stored).map(|(new, _)| *new)
    });
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
    let fields: Map<String, Value> = fields
        .into_iter()
        .map(|(field, value)| (name(&field).map_or(field, str::to_owned), value))
        .collect();
    Value::Object(fields)
}

#[cfg(test)]
mod tests;
