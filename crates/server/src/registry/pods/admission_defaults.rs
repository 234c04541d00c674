//! Additions of the default admission plugins to a pod: tolerations for failing nodes, and its
//! priority.

use serde_json::{Value, json};

use super::fields::{int, list, part, part_mut, set, spec, text};

/// How long a pod stays on a node that is not ready or unreachable, unless it sets its own
/// toleration.
const STAY_SECONDS: i64 = 300;

/// Sets the additions of a new pod.
pub(super) fn on_create(pod: &mut Value) {
    default_tolerations(pod);
    default_priority(pod);
}

/// Sets the additions of a changed pod: a client that omits these fields keeps them.
pub(super) fn on_update(new: &mut Value, old: &Value) {
    default_tolerations(new);
    for field in ["priority", "preemptionPolicy"] {
        if part(spec(new), field).is_none() {
            let kept = spec(old).get(field).cloned();
            if let Some(spec) = part_mut(new, "spec") {
                set(spec, field, kept);
            }
        }
    }
}

fn default_tolerations(pod: &mut Value) {
    let missing: Vec<Value> = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        .into_iter()
        .filter(|taint| !list(spec(pod), "tolerations").iter().any(|t| tolerates(t, taint)))
        .map(|taint| {
            json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": STAY_SECONDS
            })
        })
        .collect();
    if missing.is_empty() {
        return;
    }
    let Some(spec) = part_mut(pod, "spec") else { return };
    let mut tolerations = list(spec, "tolerations").to_vec();
    tolerations.extend(missing);
    set(spec, "tolerations", Some(Value::Array(tolerations)));
}

fn tolerates(toleration: &Value, taint: &str) -> bool {
    matches!(text(toleration, "effect"), "" | "NoExecute")
        && (text(toleration, "key").is_empty() || text(toleration, "key") == taint)
}

/// Only the two built-in priority classes exist here; a pod of another class keeps the priority
/// that the client set.
fn default_priority(pod: &mut Value) {
    let Some(spec) = part_mut(pod, "spec") else { return };
    let priority = match text(spec, "priorityClassName") {
        "" => 0,
        "system-cluster-critical" => 2_000_000_000,
        "system-node-critical" => 2_000_001_000,
        _ => return,
    };
    if int(spec, "priority").is_none() {
        set(spec, "priority", Some(json!(priority)));
    }
    if text(spec, "preemptionPolicy").is_empty() {
        set(spec, "preemptionPolicy", Some(json!("PreemptLowerPriority")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_tolerates_the_taints_gets_no_more_tolerations() {
        let mut pod = json!({"spec": {"tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            {"key": "other", "operator": "Exists"}
        ]}});
        on_create(&mut pod);
        let keys: Vec<&str> = list(spec(&pod), "tolerations").iter().map(|t| text(t, "key")).collect();
        assert_eq!(keys, ["node.kubernetes.io/not-ready", "other", "node.kubernetes.io/unreachable"]);
        let mut all = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        on_create(&mut all);
        assert_eq!(all["spec"]["tolerations"], json!([{"operator": "Exists"}]));
    }

    #[test]
    fn priority_is_set_at_creation_and_kept_afterwards() {
        let mut pod = json!({"spec": {"priorityClassName": "system-node-critical"}});
        on_create(&mut pod);
        assert_eq!(pod["spec"]["priority"], 2_000_001_000);
        let mut new = json!({"spec": {}});
        on_update(&mut new, &pod);
        assert_eq!(new["spec"]["priority"], 2_000_001_000);
        assert_eq!(new["spec"]["preemptionPolicy"], "PreemptLowerPriority");
    }
}
