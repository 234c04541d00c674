//! A node as a row of `kubectl get nodes`.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_api::age::age;

/// Cells: name, status, roles, age, version; then addresses, image, kernel, runtime.
pub(super) fn row(node: &Value, now: OffsetDateTime) -> Vec<Value> {
    vec![
        json!(text(node, "/metadata/name")),
        json!(status(node)),
        json!(roles(node)),
        json!(age(text(node, "/metadata/creationTimestamp"), now)),
        json!(text(node, "/status/nodeInfo/kubeletVersion")),
        json!(address(node, "InternalIP")),
        json!(address(node, "ExternalIP")),
        json!(info(node, "osImage")),
        json!(info(node, "kernelVersion")),
        json!(info(node, "containerRuntimeVersion")),
    ]
}

fn text<'a>(node: &'a Value, pointer: &str) -> &'a str {
    node.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn status(node: &Value) -> String {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    // The last one wins if there are several.
    let ready = conditions.into_iter().flatten().rev().find(|c| text(c, "/type") == "Ready");
    let ready = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    match node.pointer("/spec/unschedulable") {
        Some(Value::Bool(true)) => format!("{ready},SchedulingDisabled"),
        _ => ready.to_owned(),
    }
}

fn roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    match roles.into_iter().collect::<Vec<_>>().as_slice() {
        [] => "<none>".to_owned(),
        roles => roles.join(","),
    }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
    let found = addresses.into_iter().flatten().find(|address| text(address, "/type") == kind);
    found.map_or("<none>", |address| text(address, "/address"))
}

fn info<'a>(node: &'a Value, field: &str) -> &'a str {
    match text(node, &format!("/status/nodeInfo/{field}")) {
        "" => "<unknown>",
        known => known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-01-01 01:00 UTC);

    #[test]
    fn rows_read_as_kubectl_shows_them() {
        let node = json!({
            "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:59:00Z",
                "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge",
                           "node-role.kubernetes.io/": "x"}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "Hostname", "address": "h"},
                              {"type": "InternalIP", "address": "192.0.2.2"}],
                "nodeInfo": {"kubeletVersion": "v1.37.0", "osImage": "Debian"}}
        });
        let cells = [
            "n",
            "Ready,SchedulingDisabled",
            "edge,worker",
            "60s",
            "v1.37.0",
            "192.0.2.2",
            "<none>",
            "Debian",
            "<unknown>",
            "<unknown>",
        ];
        assert_eq!(row(&node, NOW), cells.map(|cell| json!(cell)));
        let bare = row(&json!({"metadata": {"name": "m"}}), NOW);
        assert_eq!(bare[1..4], ["Unknown", "<none>", "<unknown>"].map(|cell| json!(cell)));
        let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        assert_eq!(row(&unready, NOW)[1], "NotReady");
    }
}
