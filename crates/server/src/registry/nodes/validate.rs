//! Validation of nodes, in Kubernetes' order and wording.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;

use super::super::pods::rules::{go_json, quantity, taint_effect};

pub(super) fn create(node: &Value, errors: &mut FieldErrors) {
    taints(node, errors);
    resources(node, errors);
    pod_cidrs(node, errors);
}

/// Validates an update of a node or its status (new, old).
pub(super) fn update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    resources(new, errors);
    let addresses = list(new, "/status/addresses");
    let path = FieldPath::new("status").child("addresses");
    let mut seen = BTreeSet::new();
    for (index, address) in addresses.iter().enumerate() {
        if !seen.insert((text(address, "/type"), text(address, "/address"))) {
            let shown = go_json::object(&[
                ("Type", go_json::string(text(address, "/type"))),
                ("Address", go_json::string(text(address, "/address"))),
            ]);
            errors.duplicate_shown(&path.index(index), &shown, "");
        }
    }
    let spec = FieldPath::new("spec");
    let (now, before) = (list(new, "/spec/podCIDRs"), list(old, "/spec/podCIDRs"));
    if !before.is_empty() {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        let changes = match now.len() == before.len() {
            true => now.iter().zip(before).filter(|(now, before)| now != before).count(),
            false => 1,
        };
        for _ in 0..changes {
            errors.forbidden(&spec.child("podCIDRs"), detail);
        }
    }
    let before = text(old, "/spec/providerID");
    if !before.is_empty() && before != text(new, "/spec/providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&spec.child("providerID"), detail);
    }
    taints(new, errors);
    if text(new, "/spec/externalID") != text(old, "/spec/externalID") {
        errors.forbidden(&spec.child("externalID"), "may not be updated");
    }
}

/// Validates taints; the error paths are under `metadata`, where taints once were.
fn taints(node: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("metadata").child("taints");
    let mut seen = BTreeSet::new();
    for (index, taint) in list(node, "/spec/taints").iter().enumerate() {
        let at = path.index(index);
        let (key, value, effect) = (text(taint, "/key"), text(taint, "/value"), text(taint, "/effect"));
        for words in names::qualified_name(key) {
            errors.invalid_str(&at.child("key"), key, &words);
        }
        let broken = names::label_value(value);
        if !broken.is_empty() {
            errors.invalid_str(&at.child("value"), value, &broken.join(";"));
        }
        taint_effect(&at.child("effect"), effect, errors);
        if !seen.insert((key, effect)) {
            let shown = go_json::object(&[
                ("Key", go_json::string(key)),
                ("Value", go_json::string(value)),
                ("Effect", go_json::string(effect)),
                ("TimeAdded", go_json::value(taint.get("timeAdded"))),
            ]);
            errors.duplicate_shown(&at, &shown, "taints must be unique by key and effect pair");
        }
    }
}

fn resources(node: &Value, errors: &mut FieldErrors) {
    for field in ["capacity", "allocatable"] {
        let amounts = node.pointer(&format!("/status/{field}")).and_then(Value::as_object);
        for (name, amount) in amounts.into_iter().flatten() {
            let path = FieldPath::new("status").child(field).child(name);
            quantity(name, amount, &path, errors);
        }
    }
}

fn pod_cidrs(node: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec").child("podCIDRs");
    let cidrs = list(node, "/spec/podCIDRs");
    let families: Vec<Option<bool>> =
        cidrs.iter().map(|cidr| is_ipv6_cidr(cidr.as_str().unwrap_or_default())).collect();
    for (index, cidr) in cidrs.iter().enumerate() {
        if families[index].is_none() {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.invalid(&path.index(index), cidr, detail);
        }
    }
    if cidrs.len() < 2 {
        return;
    }
    let both = families.contains(&Some(true)) && families.contains(&Some(false));
    if !both || cidrs.len() > 2 {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.invalid(&path, &cidrs.into(), detail);
    }
    let mut seen = BTreeSet::new();
    for (index, cidr) in cidrs.iter().enumerate() {
        if !seen.insert(cidr.as_str()) {
            errors.duplicate(&path.index(index), cidr);
        }
    }
}

/// Returns true for an IPv6 CIDR; `None` if it is not a CIDR.
fn is_ipv6_cidr(cidr: &str) -> Option<bool> {
    let (address, bits) = cidr.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv6() { 128 } else { 32 };
    let plain = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    (plain && bits.parse::<u8>().ok()? <= most).then_some(address.is_ipv6())
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error_texts(check: impl FnOnce(&mut FieldErrors)) -> Vec<String> {
        let mut errors = FieldErrors::new();
        check(&mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn new_nodes_are_checked() {
        let taint = |value: Value| json!({"spec": {"taints": value}});
        for (node, expected) in [
            (json!({}), vec![]),
            (taint(json!([{"key": "a", "effect": ""}])), vec!["metadata.taints[0].effect: Required value"]),
            (
                taint(json!([{"key": "a", "effect": "Never"}])),
                vec![
                    "metadata.taints[0].effect: Unsupported value: \"Never\": supported values: \
                     \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
                ],
            ),
            (
                taint(
                    json!([{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute", "value": "b"}]),
                ),
                vec![
                    "metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"b\",\
                     \"Effect\":\"NoExecute\",\"TimeAdded\":null}: taints must be unique by key \
                     and effect pair",
                ],
            ),
            (
                json!({"status": {"capacity": {"cpu": "-1", "pods": "1500m"}}}),
                vec![
                    "status.capacity.cpu: Invalid value: \"-1\": must be greater than or equal to 0",
                    "status.capacity.pods: Invalid value: \"1500m\": must be an integer",
                ],
            ),
            (json!({"spec": {"podCIDRs": ["10.0.0.0/24", "2001:db8::/64"]}}), vec![]),
            (
                json!({"spec": {"podCIDRs": ["10.0.0.0/24", "10.0.0.0/24"]}}),
                vec![
                    "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.0.0/24\"]: may specify \
                     no more than one CIDR for each IP family",
                    "spec.podCIDRs[1]: Duplicate value: \"10.0.0.0/24\"",
                ],
            ),
            (
                json!({"spec": {"podCIDRs": ["10.0.0.0/33"]}}),
                vec![
                    "spec.podCIDRs[0]: Invalid value: \"10.0.0.0/33\": must be a valid CIDR value, \
                     (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                ],
            ),
        ] {
            assert_eq!(error_texts(|errors| create(&node, errors)), expected, "{node}");
        }
    }

    #[test]
    fn assigned_node_fields_are_immutable() {
        let old = json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "providerID": "p"}});
        let new = json!({"spec": {"podCIDRs": ["10.0.1.0/24"], "providerID": "q"}});
        assert_eq!(
            error_texts(|errors| update(&new, &old, errors)),
            [
                "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
                "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
            ]
        );
        assert!(error_texts(|errors| update(&new, &json!({}), errors)).is_empty());
        let twice = json!({"status": {"addresses": [
            {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "10.0.0.1"}]}});
        assert_eq!(
            error_texts(|errors| update(&twice, &json!({}), errors)),
            ["status.addresses[1]: Duplicate value: {\"Type\":\"InternalIP\",\"Address\":\"10.0.0.1\"}"]
        );
    }
}
