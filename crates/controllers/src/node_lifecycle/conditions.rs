//! Conditions of a node that stopped reporting.

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use time::OffsetDateTime;

/// Conditions that a kubelet maintains, and kube-controller-manager when the kubelet does not.
const TYPES: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Sets these conditions to Unknown, as kube-controller-manager does; returns whether any changed.
pub fn set_unknown(node: &mut DynamicObject, now: OffsetDateTime) -> bool {
    let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
    let now = Timestamp::from_second(now.unix_timestamp()).map(|now| now.to_string());
    let Ok(now) = now else { return false };
    let Some(object) = node.data.as_object_mut() else { return false };
    let status = object.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return false };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return false };
    let mut changed = false;
    for type_ in TYPES {
        match conditions.iter_mut().find(|condition| condition["type"] == type_) {
            Some(condition) => changed |= mark_stopped(condition, &now),
            None => {
                conditions.push(never_posted_condition(type_, created.as_deref(), &now));
                changed = true;
            }
        }
    }
    changed
}

fn mark_stopped(condition: &mut Value, now: &str) -> bool {
    if condition["status"] == "Unknown" {
        return false;
    }
    condition["status"] = json!("Unknown");
    condition["reason"] = json!("NodeStatusUnknown");
    condition["message"] = json!("Kubelet stopped posting node status.");
    condition["lastTransitionTime"] = json!(now);
    true
}

fn never_posted_condition(type_: &str, created: Option<&str>, now: &str) -> Value {
    json!({
        "type": type_,
        "status": "Unknown",
        "reason": "NodeStatusNeverUpdated",
        "message": "Kubelet never posted node status.",
        "lastHeartbeatTime": created,
        "lastTransitionTime": now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-03-01 12:05:07.5 UTC);

    fn node(conditions: Value) -> DynamicObject {
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "creationTimestamp": "2026-03-01T11:00:00Z"},
            "spec": {"providerID": "x"},
            "status": {"conditions": conditions, "addresses": [{"type": "Hostname", "address": "n1"}]}});
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn conditions_become_unknown_once() {
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady",
            "message": "ok", "lastHeartbeatTime": "2026-03-01T12:00:00Z",
            "lastTransitionTime": "2026-03-01T11:00:01Z"});
        let other = json!({"type": "Custom", "status": "True"});
        let mut node = node(json!([ready, other.clone()]));
        assert!(set_unknown(&mut node, NOW));
        let conditions = node.data["status"]["conditions"].as_array().unwrap().clone();
        assert_eq!(
            conditions[0],
            json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastHeartbeatTime": "2026-03-01T12:00:00Z",
                "lastTransitionTime": "2026-03-01T12:05:07Z"})
        );
        assert_eq!(conditions[1], other);
        assert_eq!(
            conditions[2],
            json!({"type": "MemoryPressure", "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": "2026-03-01T11:00:00Z",
                "lastTransitionTime": "2026-03-01T12:05:07Z"})
        );
        assert_eq!(conditions.len(), 5);
        assert!(!set_unknown(&mut node, NOW + time::Duration::hours(1)));
        assert_eq!(node.data["status"]["conditions"].as_array(), Some(&conditions));
        assert_eq!(node.data["spec"]["providerID"], "x");
    }

    #[test]
    fn a_node_without_a_status_gets_one() {
        let mut node = node(json!([]));
        node.data.as_object_mut().unwrap().remove("status");
        assert!(set_unknown(&mut node, NOW));
        assert_eq!(node.data["status"]["conditions"].as_array().unwrap().len(), 4);
    }
}
