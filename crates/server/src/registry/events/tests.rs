use serde_json::{Value, json};

use super::super::object_fields::tests::{cells, refusals};
use super::*;

/// An event as served in `events.k8s.io/v1`.
fn shown() -> Value {
    json!({
        "metadata": {"name": "event-test", "namespace": "ns"},
        "eventTime": "2017-09-19T13:49:16.000000Z",
        "series": {"count": 100, "lastObservedTime": "2017-09-19T13:49:16.000000Z"},
        "reportingController": "test-controller",
        "reportingInstance": "test-node",
        "action": "Do",
        "reason": "Test",
        "regarding": {"namespace": "ns"},
        "note": "This is event-test",
        "type": "Normal",
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": null,
        "deprecatedLastTimestamp": null
    })
}

/// The same event as stored.
fn stored() -> Value {
    json!({
        "metadata": {"name": "event-test", "namespace": "ns"},
        "eventTime": "2017-09-19T13:49:16.000000Z",
        "series": {"count": 100, "lastObservedTime": "2017-09-19T13:49:16.000000Z"},
        "reportingComponent": "test-controller",
        "reportingInstance": "test-node",
        "action": "Do",
        "reason": "Test",
        "involvedObject": {"namespace": "ns"},
        "message": "This is event-test",
        "type": "Normal",
        "source": {},
        "firstTimestamp": null,
        "lastTimestamp": null
    })
}

fn with(mut object: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { unreachable!() };
    for (field, value) in changes {
        object[field] = value;
    }
    object
}

#[test]
fn the_groups_name_the_same_fields_differently() {
    assert_eq!(to_stored(shown()), stored());
    assert_eq!(from_stored(stored()), shown());
    let empty = json!({"reportingComponent": "", "reportingInstance": ""});
    assert_eq!(from_stored(empty.clone()), json!({}));
    assert_eq!(to_stored(json!({})), empty);
}

#[test]
fn events_with_a_time_record_controller_and_action() {
    assert_eq!(refusals(&KIND, &stored()), Vec::<String>::new());
    let event = with(
        stored(),
        json!({"reportingInstance": "", "action": "a".repeat(129), "reason": "",
               "message": "m".repeat(1025)}),
    );
    assert_eq!(
        refusals(&KIND, &event),
        [
            "reportingInstance: Required value",
            "action: Invalid value: \"\": can have at most 128 characters",
            "reason: Required value",
            "message: Invalid value: \"\": can have at most 1024 characters",
        ]
    );
    let event = with(stored(), json!({"reportingComponent": "a/"}));
    assert_eq!(
        refusals(&KIND, &event)[0],
        "reportingComponent: Invalid value: \"a/\": name part must be non-empty"
    );
    let event = with(event, json!({"apiVersion": "events.k8s.io/v1"}));
    assert!(refusals(&KIND, &event)[0].starts_with("reportingController: "));
}

#[test]
fn rows() {
    let event = json!({
        "metadata": {"name": "e"}, "type": "Normal", "reason": "R", "message": " hi\n",
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{a}"},
        "source": {"component": "kubelet", "host": "n"},
        "firstTimestamp": "1970-01-01T00:00:00Z", "lastTimestamp": "1970-01-01T01:59:00Z",
        "count": 3
    });
    assert_eq!(
        cells(&KIND, &event),
        json!(["60s", "Normal", "R", "pod/p", "spec.containers{a}", "kubelet, n", "hi", "120m", 3, "e"])
    );
    let event = json!({
        "metadata": {"name": "e"}, "eventTime": "1970-01-01T01:59:58.000000Z",
        "involvedObject": {"kind": "Node"}, "reportingComponent": "c", "reportingInstance": "i"
    });
    assert_eq!(cells(&KIND, &event), json!(["2s", "", "", "node", "", "c, i", "", "2s", 1, "e"]));
    let event =
        with(event, json!({"series": {"count": 7, "lastObservedTime": "1970-01-01T01:59:59.000000Z"}}));
    assert_eq!(cells(&KIND, &event)[0], "1s");
    assert_eq!(cells(&KIND, &event)[8], 7);
    assert_eq!(cells(&KIND, &json!({}))[0], "<unknown>");
}
