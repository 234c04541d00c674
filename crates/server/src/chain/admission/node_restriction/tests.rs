//! Table tests of the NodeRestriction rules.

mod certificate_requests;
mod claims_and_tokens;
mod mirror_pods;

use serde_json::{Value, json};

use super::*;

/// A write of node-1; cases change only the fields that matter.
struct NodeRestrictionCase<'a> {
    node: &'a str,
    at: &'a str,
    namespace: &'a str,
    name: &'a str,
    operation: AdmissionOperation<'a>,
    object: Value,
    others: &'a [(&'a str, Value)],
    audiences: &'a [&'a str],
}

impl Default for NodeRestrictionCase<'_> {
    fn default() -> Self {
        NodeRestrictionCase {
            node: "node-1",
            at: "",
            namespace: "ns",
            name: "",
            operation: AdmissionOperation::Create,
            object: Value::Null,
            others: &[],
            audiences: &[],
        }
    }
}

impl NodeRestrictionCase<'_> {
    fn verdict(&self) -> AdmissionResult {
        let parts: Vec<&str> = self.at.split('/').collect();
        let user = format!("system:node:{}", self.node);
        let written = NodeWrite {
            node: self.node,
            user: &user,
            group: parts[0],
            resource: parts[1],
            subresource: parts.get(2).copied().unwrap_or_default(),
            namespace: self.namespace,
            name: self.name,
            operation: self.operation,
            object: &self.object,
            csr: &CsrParser::default(),
            find: &|_, plural, namespace, name| {
                let at = format!("{plural}/{namespace}/{name}");
                self.others.iter().find(|(other, _)| *other == at).map(|(_, o)| o.clone())
            },
            may_request: &|audience| self.audiences.contains(&audience),
            may_request_from: &|signer, account| {
                self.audiences.contains(&format!("{signer} for {account}").as_str())
            },
        };
        written.check()
    }

    /// Returns the refusal, or an empty string if admitted.
    fn refusal_text(&self) -> String {
        match self.verdict() {
            Ok(()) => String::new(),
            Err(NodeRefusal::Forbidden(why)) => why,
            Err(NodeRefusal::NotFound(kind, name)) => format!("404 {kind} {name}"),
            Err(NodeRefusal::Failed(why)) => format!("500 {why}"),
        }
    }
}

#[test]
fn a_node_without_a_name_writes_nothing() {
    for at in ["/nodes", "/pods", "/pods/status", "/configmaps", "g.io/things"] {
        let case = NodeRestrictionCase { node: "", at, ..NodeRestrictionCase::default() };
        assert_eq!(case.refusal_text(), "could not determine node from user \"system:node:\"", "{at}");
    }
}

#[test]
fn other_kinds_are_left_to_authorization() {
    for at in ["/configmaps", "/events", "/serviceaccounts", "g.io/pods", "/namespaces/status"] {
        for operation in
            [AdmissionOperation::Create, AdmissionOperation::Update(&Value::Null), AdmissionOperation::Delete]
        {
            let case = NodeRestrictionCase { at, operation, ..NodeRestrictionCase::default() };
            assert_eq!(case.refusal_text(), "", "{at}");
        }
    }
}

#[test]
fn a_node_writes_to_its_own_node_only() {
    let old = json!({"metadata": {"name": "node-2"}});
    for operation in
        [AdmissionOperation::Create, AdmissionOperation::Update(&old), AdmissionOperation::Delete]
    {
        for at in ["/nodes", "/nodes/status"] {
            for (name, why) in [
                ("node-1", ""),
                ("node-2", "node \"node-1\" is not allowed to modify node \"node-2\""),
                ("", "node \"node-1\" is not allowed to modify node \"\""),
                ("node-11", "node \"node-1\" is not allowed to modify node \"node-11\""),
            ] {
                let object = json!({"metadata": {"name": name}});
                let case =
                    NodeRestrictionCase { at, name, operation, object, ..NodeRestrictionCase::default() };
                assert_eq!(case.refusal_text(), why, "{at} {name}");
            }
        }
    }
}

/// Tests each label separately: set, changed and removed.
#[test]
fn labels_that_steer_pods_are_not_the_nodes_to_set() {
    let allowed = [
        "plain",
        "example.com/zone",
        "notkubernetes.io/x",
        "k8s.io.example.com/x",
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
        "kubelet.kubernetes.io/any",
        "sub.kubelet.kubernetes.io/any",
        "node.kubernetes.io/any",
        "sub.node.kubernetes.io/any",
    ];
    let refused = [
        "kubernetes.io/role",
        "kubernetes.io/any",
        "k8s.io/any",
        "sub.kubernetes.io/any",
        "sub.k8s.io/any",
        "node-role.kubernetes.io/control-plane",
        "topology.kubernetes.io/rack",
        "beta.kubernetes.io/any",
        "xnode.kubernetes.io/any",
        "node-restriction.kubernetes.io/x",
        "sub.node-restriction.kubernetes.io/x",
        "kubelet.kubernetes.io.node-restriction.kubernetes.io/x",
    ];
    let node = |labels: Value| json!({"metadata": {"name": "node-1", "labels": labels}});
    for (key, may) in allowed.map(|k| (k, true)).into_iter().chain(refused.map(|k| (k, false))) {
        let with = node(json!({"other": "x", key: "a"}));
        let changed = node(json!({"other": "x", key: "b"}));
        let without = node(json!({"other": "x"}));
        let ask = |operation, object: &Value, at| {
            let object = object.clone();
            NodeRestrictionCase { at, name: "node-1", operation, object, ..NodeRestrictionCase::default() }
                .refusal_text()
        };
        let set = format!("node \"node-1\" is not allowed to set the following labels: {key}");
        let change = format!("is not allowed to modify labels: {key}");
        let (set, change) = if may { Default::default() } else { (set, change) };
        assert_eq!(ask(AdmissionOperation::Create, &with, "/nodes"), set, "{key}");
        for at in ["/nodes", "/nodes/status"] {
            assert_eq!(ask(AdmissionOperation::Update(&without), &with, at), change, "{key} added");
            assert_eq!(ask(AdmissionOperation::Update(&with), &changed, at), change, "{key} changed");
            assert_eq!(ask(AdmissionOperation::Update(&with), &without, at), change, "{key} taken");
            assert_eq!(ask(AdmissionOperation::Update(&with), &with, at), "", "{key} kept");
        }
    }
}

#[test]
fn refused_labels_are_named_once_and_in_order() {
    let labels = json!({"k8s.io/b": "1", "a": "1", "kubernetes.io/a": "1", "k8s.io/a": "1"});
    let object = json!({"metadata": {"name": "node-1", "labels": labels}});
    let old = json!({"metadata": {"name": "node-1", "labels": {"k8s.io/a": "0"}}});
    let operation = AdmissionOperation::Update(&old);
    let case = NodeRestrictionCase {
        at: "/nodes",
        name: "node-1",
        operation,
        object,
        ..NodeRestrictionCase::default()
    };
    let why = "is not allowed to modify labels: k8s.io/a, k8s.io/b, kubernetes.io/a";
    assert_eq!(case.refusal_text(), why);
}

#[test]
fn parts_of_a_node_that_stay() {
    let taint = json!({"key": "a", "effect": "NoSchedule"});
    let other = json!({"key": "a", "effect": "NoExecute"});
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"});
    let source = json!({"configMap": {"name": "c"}});
    let node = |pointer: &str, value: &Value| {
        let mut node = json!({"metadata": {"name": "node-1"}, "spec": {}});
        let (part, field) = pointer.split_once('.').unwrap();
        if !value.is_null() {
            node[part][field] = value.clone();
        }
        node
    };
    let taints = "node \"node-1\" is not allowed to modify taints";
    let owners = "node \"node-1\" is not allowed to modify ownerReferences";
    let config = "node \"node-1\" is not allowed to update configSource to a new non-nil configSource";
    let none = Value::Null;
    for (field, old, new, why) in [
        ("spec.taints", &none, &json!([taint]), taints),
        ("spec.taints", &json!([taint]), &none, taints),
        ("spec.taints", &json!([taint]), &json!([]), taints),
        ("spec.taints", &json!([taint]), &json!([other]), taints),
        ("spec.taints", &json!([taint, other]), &json!([other, taint]), taints),
        ("spec.taints", &json!([taint]), &json!([taint]), ""),
        ("spec.taints", &json!([]), &none, ""),
        ("metadata.ownerReferences", &none, &json!([owner]), owners),
        ("metadata.ownerReferences", &json!([owner]), &none, owners),
        ("metadata.ownerReferences", &json!([owner]), &json!([owner, owner]), owners),
        ("metadata.ownerReferences", &json!([owner]), &json!([owner]), ""),
        ("spec.configSource", &none, &source, config),
        ("spec.configSource", &json!({"configMap": {"name": "d"}}), &source, config),
        ("spec.configSource", &source, &source, ""),
        // Old kubelets drop the field.
        ("spec.configSource", &source, &none, ""),
        ("spec.unschedulable", &none, &json!(true), ""),
        ("metadata.annotations", &none, &json!({"a": "b"}), ""),
    ] {
        let (old, object) = (node(field, old), node(field, new));
        for at in ["/nodes", "/nodes/status"] {
            let operation = AdmissionOperation::Update(&old);
            let object = object.clone();
            let case = NodeRestrictionCase {
                at,
                name: "node-1",
                operation,
                object,
                ..NodeRestrictionCase::default()
            };
            assert_eq!(case.refusal_text(), why, "{field}: {old} to {new}");
        }
    }
    let object = node("spec.configSource", &source);
    let case = NodeRestrictionCase { at: "/nodes", name: "node-1", object, ..NodeRestrictionCase::default() };
    let why = "node \"node-1\" is not allowed to create pods with a non-nil configSource";
    assert_eq!(case.refusal_text(), why);
    let object = node("spec.taints", &json!([taint]));
    let case = NodeRestrictionCase { at: "/nodes", name: "node-1", object, ..NodeRestrictionCase::default() };
    assert_eq!(case.refusal_text(), "", "a node may register with taints");
}

#[test]
fn leases_csinodes_and_slices_are_the_nodes_own() {
    let same = "can only access node lease with the same name as the requesting node";
    let place = "can only access leases in the \"kube-node-lease\" system namespace";
    let csi = "can only access CSINode with the same name as the requesting node";
    let trust = "can only access NodeTrust with the same name as the requesting node";
    let old = json!({});
    for operation in
        [AdmissionOperation::Create, AdmissionOperation::Update(&old), AdmissionOperation::Delete]
    {
        for (at, namespace, name, why) in [
            ("coordination.k8s.io/leases", "kube-node-lease", "node-1", ""),
            ("coordination.k8s.io/leases", "kube-node-lease", "node-2", same),
            ("coordination.k8s.io/leases", "kube-node-lease", "", same),
            ("coordination.k8s.io/leases", "ns", "node-1", place),
            ("coordination.k8s.io/leases", "kube-system", "node-2", place),
            ("storage.k8s.io/csinodes", "", "node-1", ""),
            ("storage.k8s.io/csinodes", "", "node-2", csi),
            ("storage.k8s.io/csinodes", "", "", csi),
            ("windlass.dev/nodetrusts", "", "node-1", ""),
            ("windlass.dev/nodetrusts", "", "node-2", trust),
            ("windlass.dev/nodetrusts", "", "", trust),
        ] {
            let case =
                NodeRestrictionCase { at, namespace, name, operation, ..NodeRestrictionCase::default() };
            assert_eq!(case.refusal_text(), why, "{at} {namespace}/{name}");
        }
    }
    let create = "can only create ResourceSlice with the same NodeName as the requesting node";
    let delete = "can only delete ResourceSlice with the same NodeName as the requesting node";
    let (mine, theirs) = (json!({"nodeName": "node-1"}), json!({"nodeName": "node-2"}));
    for (operation, spec, why) in [
        (AdmissionOperation::Create, &mine, ""),
        (AdmissionOperation::Create, &theirs, create),
        (AdmissionOperation::Create, &json!({"allNodes": true}), create),
        (AdmissionOperation::Update(&old), &mine, ""),
        (AdmissionOperation::Delete, &mine, ""),
        (AdmissionOperation::Delete, &theirs, delete),
        (AdmissionOperation::Delete, &json!({}), delete),
    ] {
        let at = "resource.k8s.io/resourceslices";
        let object = json!({"metadata": {"name": "node-1"}, "spec": spec});
        let case =
            NodeRestrictionCase { at, name: "node-1", operation, object, ..NodeRestrictionCase::default() };
        assert_eq!(case.refusal_text(), why, "{spec}");
    }
}
