//! Fields that the server sets and resets on pods before validation, and deletion grace periods.

use serde_json::{Value, json};

use super::fields::{
    first_by, int, list, list_mut, metadata, part, part_mut, restore, set, spec, status, text,
};
use super::{admission_defaults, qos};

/// A new pod: phase Pending, with its QoS class, and an otherwise empty status.
pub(super) fn create(pod: &mut Value) {
    admission_defaults::on_create(pod);
    drop_switched_off_fields(pod);
    let mut status = json!({ "phase": "Pending", "qosClass": qos::class(pod) });
    if !list(spec(pod), "schedulingGates").is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates"
        }]);
    }
    set(pod, "status", Some(status));
}

/// An update keeps the status.
pub(super) fn update(new: &mut Value, old: &Value) {
    admission_defaults::on_update(new, old);
    drop_switched_off_fields(new);
    restore(new, old, "status");
}

/// A status update: spec and owner references stay; labels, annotations and finalizers may change.
pub(super) fn update_status(new: &mut Value, old: &Value) {
    restore(new, old, "spec");
    if let Some(new) = part_mut(new, "metadata") {
        restore(new, metadata(old), "ownerReferences");
        restore(new, metadata(old), "deletionTimestamp");
    }
    let Some(new) = part_mut(new, "status") else { return };
    if text(new, "qosClass").is_empty() {
        restore(new, status(old), "qosClass");
    }
    restore_observed_generations(new, status(old));
}

/// Kubelets that do not know `observedGeneration` must not remove it.
fn restore_observed_generations(new: &mut Value, old: &Value) {
    if int(new, "observedGeneration").unwrap_or_default() == 0 {
        restore(new, old, "observedGeneration");
    }
    let known = first_by(list(old, "conditions"), "type");
    for condition in list_mut(new, "conditions") {
        if int(condition, "observedGeneration").unwrap_or_default() != 0 {
            continue;
        }
        let Some(before) = known.get(text(condition, "type")) else { continue };
        restore(condition, before, "observedGeneration");
    }
}

/// An update of ephemeral containers: everything else stays.
pub(super) fn update_ephemeral_containers(new: &mut Value, old: &Value) {
    let wanted = spec(new).get("ephemeralContainers").cloned();
    restore_except(new, old, |spec| set(spec, "ephemeralContainers", wanted));
}

/// A resize: in the spec, only the containers' resources and resize policies change.
pub(super) fn resize(new: &mut Value, old: &Value) {
    let wanted = spec(new).clone();
    restore_except(new, old, |spec| {
        for field in ["containers", "initContainers"] {
            let wanted = first_by(list(&wanted, field), "name");
            for container in list_mut(spec, field) {
                let Some(asked) = wanted.get(text(container, "name")) else { continue };
                restore(container, asked, "resources");
                restore(container, asked, "resizePolicy");
            }
        }
    });
}

/// Resets `new` to `old` except for resourceVersion and managedFields, then lets `change` modify
/// the spec.
fn restore_except(new: &mut Value, old: &Value, change: impl FnOnce(&mut Value)) {
    let sent = metadata(new).clone();
    *new = old.clone();
    if let Some(kept) = part_mut(new, "metadata") {
        for field in ["resourceVersion", "managedFields"] {
            restore(kept, &sent, field);
        }
    }
    if let Some(spec) = part_mut(new, "spec") {
        change(spec);
    }
}

/// Drops fields behind disabled feature gates: the owners of projected files, and two that only an
/// alpha scheduler and an alpha eviction API would read.
fn drop_switched_off_fields(pod: &mut Value) {
    let Some(spec) = part_mut(pod, "spec") else { return };
    set(spec, "evictionResponders", None);
    set(spec, "schedulingGroup", None);
    for volume in list_mut(spec, "volumes") {
        for source in ["secret", "configMap", "downwardAPI", "projected"] {
            let Some(source) = volume.get_mut(source) else { continue };
            set(source, "defaultUser", None);
            drop_users(source, "items");
            for projection in list_mut(source, "sources") {
                let Some(fields) = projection.as_object_mut() else { continue };
                for part in fields.values_mut() {
                    set(part, "user", None);
                    drop_users(part, "items");
                }
            }
        }
    }
}

fn drop_users(source: &mut Value, field: &str) {
    for item in list_mut(source, field) {
        set(item, "user", None);
    }
}

/// Returns the grace period in seconds: zero for a pod that is not on a node or has terminated,
/// otherwise the client's value, otherwise the pod's.
pub(super) fn grace(pod: &Value, asked: Option<i64>) -> i64 {
    let unbound = text(spec(pod), "nodeName").is_empty();
    let ended = matches!(text(status(pod), "phase"), "Failed" | "Succeeded");
    if unbound || ended {
        return 0;
    }
    let own = part(spec(pod), "terminationGracePeriodSeconds").and_then(Value::as_i64);
    let period = asked.or(own).unwrap_or_default();
    // A negative period means immediately, but through the kubelet.
    if period < 0 { 1 } else { period }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_is_for_pods_that_may_run() {
        let pod = |node: &str, phase: &str| {
            json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": 30},
                   "status": {"phase": phase}})
        };
        for (pod, asked, expected) in [
            (pod("", "Pending"), None, 0),
            (pod("", "Pending"), Some(5), 0),
            (pod("n", "Running"), None, 30),
            (pod("n", "Running"), Some(5), 5),
            (pod("n", "Running"), Some(0), 0),
            (pod("n", "Running"), Some(-1), 1),
            (pod("n", "Succeeded"), None, 0),
            (pod("n", "Failed"), Some(9), 0),
        ] {
            assert_eq!(grace(&pod, asked), expected, "{pod} {asked:?}");
        }
    }

    #[test]
    fn a_status_change_keeps_the_spec_and_the_class() {
        let old = json!({
            "metadata": {"name": "p", "ownerReferences": [{"name": "o"}]},
            "spec": {"nodeName": "n"},
            "status": {"qosClass": "BestEffort", "phase": "Pending", "observedGeneration": 2}
        });
        let mut new = json!({
            "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {"nodeName": "other"},
            "status": {"phase": "Running"}
        });
        update_status(&mut new, &old);
        assert_eq!(
            new,
            json!({
                "metadata": {"name": "p", "labels": {"a": "b"}, "ownerReferences": [{"name": "o"}]},
                "spec": {"nodeName": "n"},
                "status": {"qosClass": "BestEffort", "phase": "Running", "observedGeneration": 2}
            })
        );
    }

    #[test]
    fn the_owners_of_projected_files_are_dropped() {
        let mut pod = json!({"spec": {"volumes": [{"name": "v", "projected": {
            "defaultUser": 1,
            "sources": [{"clusterTrustBundle": {"name": "x", "path": "y", "user": 5}},
                        {"secret": {"name": "s", "items": [{"key": "k", "path": "p", "user": 5}]}}]
        }}]}});
        drop_switched_off_fields(&mut pod);
        assert_eq!(
            pod["spec"]["volumes"][0]["projected"],
            json!({"sources": [{"clusterTrustBundle": {"name": "x", "path": "y"}},
                               {"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}}]})
        );
    }

    #[test]
    fn ephemeral_containers_and_resizes_change_nothing_else() {
        let old = json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "1"},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]}, "status": {}});
        let sent = json!({"metadata": {"labels": {"x": "y"}, "resourceVersion": "7"},
            "spec": {"nodeName": "n", "ephemeralContainers": [{"name": "e"}],
                     "containers": [{"name": "c", "image": "j", "resources": {"limits": {"cpu": "1"}}}]}});
        let mut new = sent.clone();
        update_ephemeral_containers(&mut new, &old);
        assert_eq!(new["spec"]["ephemeralContainers"], json!([{"name": "e"}]));
        assert_eq!(new["spec"]["containers"][0]["image"], "i");
        assert_eq!(new["metadata"], json!({"labels": {"a": "b"}, "resourceVersion": "7"}));
        let mut new = sent;
        resize(&mut new, &old);
        assert_eq!(
            new["spec"]["containers"],
            json!([{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}])
        );
        assert!(new["spec"].get("nodeName").is_none());
    }
}
