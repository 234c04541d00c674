//! Nodes that kubelets register.

mod row;
mod validate;

use serde_json::{Value, json};

use super::kind::{Kind, Scope, SelectableField, ServedVersion, Subresource};
use super::table_cells::{self, column, wide};

/// Descriptor of Node in the core group.
pub(crate) const KIND: Kind = Kind {
    name: "Node",
    plural: "nodes",
    short_names: &["no"],
    scope: Scope::Cluster,
    served: &[ServedVersion::new("", "v1", "io.k8s.api.core.v1.Node")],
    subresources: &[Subresource::status(
        |new, old, _| update_status(new, old),
        |new, old, _, errors| validate::update(new, old, errors),
    )],
    selectable: &[SelectableField {
        label: "spec.unschedulable",
        pointers: &["/spec/unschedulable"],
        absent: "false",
    }],
    columns: &[
        table_cells::NAME,
        column("Status"),
        column("Roles"),
        table_cells::AGE,
        column("Version"),
        wide(column("Internal-IP")),
        wide(column("External-IP")),
        wide(column("OS-Image")),
        wide(column("Kernel-Version")),
        wide(column("Container-Runtime")),
    ],
    row: row::row,
    defaults,
    prepare_create: create,
    prepare_update: update,
    validate_create: validate::create,
    validate_update: validate::update,
    ..Kind::DEFAULT
};

/// Allocatable defaults to capacity; `podCIDR` is the old name of the first of `podCIDRs` and wins
/// if they differ.
fn defaults(node: &mut Value) {
    if let Some(status) = node.get_mut("status").and_then(Value::as_object_mut)
        && !status.contains_key("allocatable")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        status.insert("allocatable".to_owned(), capacity);
    }
    let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let first = spec.get("podCIDRs").and_then(|all| all.get(0)).cloned();
    let alone = spec.get("podCIDR").filter(|cidr| **cidr != json!("")).cloned();
    match (alone, first) {
        (None, Some(first)) => {
            spec.insert("podCIDR".to_owned(), first);
        }
        (Some(alone), first) if first.as_ref() != Some(&alone) => {
            spec.insert("podCIDRs".to_owned(), json!([alone]));
        }
        _ => {}
    }
}

fn create(node: &mut Value) {
    taint_as_not_ready(node);
    drop_config_source(node, None);
}

/// Does what the TaintNodesByCondition admission plugin does: no pod is scheduled before the node
/// is ready. The controller that finds it ready removes the taint.
fn taint_as_not_ready(node: &mut Value) {
    let taint = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" });
    let Some(node) = node.as_object_mut() else { return };
    let spec = node.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else { return };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    let Some(taints) = taints.as_array_mut() else { return };
    let same = |other: &Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
    if !taints.iter().any(same) {
        taints.push(taint);
    }
}

fn update(new: &mut Value, old: &Value) {
    restore_field(new, old, "status");
    drop_config_source(new, Some(old));
}

fn update_status(new: &mut Value, old: &Value) {
    restore_field(new, old, "spec");
}

fn restore_field(new: &mut Value, old: &Value, field: &str) {
    let Some(new) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => new.insert(field.to_owned(), value.clone()),
        None => new.remove(field),
    };
}

/// Dynamic kubelet configuration was removed; only an old node may still have the field.
fn drop_config_source(new: &mut Value, old: Option<&Value>) {
    let had_one = old.is_some_and(|old| old.pointer("/spec/configSource").is_some());
    if !had_one && let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("configSource");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_node_is_tainted_once() {
        let mut node = json!({"metadata": {"name": "n"}, "spec": {}});
        create(&mut node);
        create(&mut node);
        assert_eq!(
            node["spec"]["taints"],
            json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
        );
    }

    #[test]
    fn defaults_fill_what_follows_from_the_rest() {
        let mut node = json!({
            "spec": {"podCIDRs": ["10.0.0.0/24"]},
            "status": {"capacity": {"cpu": "2"}}
        });
        defaults(&mut node);
        assert_eq!(node["spec"]["podCIDR"], "10.0.0.0/24");
        assert_eq!(node["status"]["allocatable"], json!({"cpu": "2"}));
        let mut node = json!({"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.0.0.0/24"]}});
        defaults(&mut node);
        assert_eq!(node["spec"]["podCIDRs"], json!(["10.1.0.0/24"]));
    }

    #[test]
    fn each_endpoint_changes_spec_or_status_only() {
        let old = json!({"spec": {"unschedulable": true}, "status": {"phase": "a"}});
        let sent = json!({"spec": {}, "status": {"phase": "b"}});
        let mut new = sent.clone();
        update(&mut new, &old);
        assert_eq!(new, json!({"spec": {}, "status": {"phase": "a"}}));
        let mut new = sent;
        update_status(&mut new, &old);
        assert_eq!(new, json!({"spec": {"unschedulable": true}, "status": {"phase": "b"}}));
    }
}
