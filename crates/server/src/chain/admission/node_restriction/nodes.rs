//! Nodes: a node may change only its own Node, and nothing in it that influences scheduling.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_api::field::quote;
use windlass_api::meta::ObjectMetaView;

use super::{AdmissionOperation, AdmissionResult, NodeWrite, forbidden};
use crate::registry::object_fields::{list, non_null};

/// Checks a write to a Node or to its status.
pub(super) fn check(written: &NodeWrite<'_>) -> AdmissionResult {
    let node = written.quoted();
    if written.name != written.node {
        let other = quote(written.name);
        return forbidden(format!("node {node} is not allowed to modify node {other}"));
    }
    match written.operation {
        AdmissionOperation::Create => create(&node, written.object),
        AdmissionOperation::Update(old) => update(&node, written.object, old),
        AdmissionOperation::Delete => Ok(()),
    }
}

fn create(node: &str, new: &Value) -> AdmissionResult {
    if non_null(new, CONFIG_SOURCE).is_some() {
        // The wording is that of Kubernetes.
        return forbidden(format!("node {node} is not allowed to create pods with a non-nil configSource"));
    }
    let labels = forbidden_labels(new, &Value::Null);
    if !labels.is_empty() {
        return forbidden(format!("node {node} is not allowed to set the following labels: {labels}"));
    }
    Ok(())
}

fn update(node: &str, new: &Value, old: &Value) -> AdmissionResult {
    if non_null(new, CONFIG_SOURCE).is_some_and(|source| Some(source) != non_null(old, CONFIG_SOURCE)) {
        return forbidden(format!(
            "node {node} is not allowed to update configSource to a new non-nil configSource"
        ));
    }
    // A node without its taints would attract pods that are not meant for it.
    if list(new, "/spec/taints") != list(old, "/spec/taints") {
        return forbidden(format!("node {node} is not allowed to modify taints"));
    }
    // With a dangling owner reference the Node would be garbage-collected and registered again
    // without its taints.
    if list(new, OWNERS) != list(old, OWNERS) {
        return forbidden(format!("node {node} is not allowed to modify ownerReferences"));
    }
    let labels = forbidden_labels(new, old);
    if !labels.is_empty() {
        return forbidden(format!("is not allowed to modify labels: {labels}"));
    }
    Ok(())
}

const CONFIG_SOURCE: &str = "/spec/configSource";
const OWNERS: &str = "/metadata/ownerReferences";

/// Returns the changed labels that a node may not set, change or remove.
fn forbidden_labels(new: &Value, old: &Value) -> String {
    let labels: [BTreeSet<(&str, &str)>; 2] =
        [new, old].map(|o| ObjectMetaView::from_object(o).labels().collect());
    let changed = labels[0].symmetric_difference(&labels[1]).map(|(key, _)| *key);
    let bad: BTreeSet<&str> = changed.filter(|key| !may_set(key)).collect();
    bad.into_iter().collect::<Vec<_>>().join(", ")
}

fn may_set(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    if is_within(domain, "node-restriction.kubernetes.io") {
        return false;
    }
    let reserved = is_within(domain, "kubernetes.io") || is_within(domain, "k8s.io");
    !reserved || KUBELET_LABELS.contains(&key) || KUBELET_DOMAINS.iter().any(|own| is_within(domain, own))
}

fn is_within(domain: &str, zone: &str) -> bool {
    domain.strip_suffix(zone).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Kubernetes labels that kubelets may set.
const KUBELET_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Domains in which kubelets may set any label.
const KUBELET_DOMAINS: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];
