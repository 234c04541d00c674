//! Volume claims and service account tokens.

use super::*;

#[test]
fn only_the_size_of_a_claim_is_reported() {
    let claim = || {
        json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1",
            "metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "1",
                "labels": {"a": "1"}},
            "spec": {"volumeName": "pv"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
        })
    };
    let refusal = |field: &str| {
        format!(
            "node \"node-1\" is not allowed to update fields other than status.quantity and status.conditions: {field}"
        )
    };
    let old = claim();
    for (pointer, value, field) in [
        ("/status/capacity", json!({"storage": "2Gi"}), ""),
        ("/status/conditions", json!([{"type": "Resizing", "status": "True"}]), ""),
        ("/status/allocatedResources", json!({"storage": "2Gi"}), ""),
        ("/status/allocatedResourceStatuses", json!({"storage": "NodeResizePending"}), ""),
        ("/metadata/resourceVersion", json!("2"), ""),
        ("/metadata/managedFields", json!([{"manager": "kubelet"}]), ""),
        ("/status/phase", json!("Lost"), "status.phase"),
        ("/status/accessModes", json!(["ReadWriteOnce"]), "status.accessModes"),
        ("/metadata/labels", json!({"a": "2"}), "metadata.labels"),
        ("/metadata/annotations", json!({"a": "2"}), "metadata.annotations"),
        ("/metadata/finalizers", json!(["a/b"]), "metadata.finalizers"),
        ("/metadata/ownerReferences", json!([{}]), "metadata.ownerReferences"),
        ("/spec/volumeName", json!("other"), "spec.volumeName"),
        ("/spec/resources", json!({"requests": {}}), "spec.resources"),
        ("/status", json!("odd"), "status.phase, status"),
    ] {
        let mut object = claim();
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[last] = value.clone();
        let operation = AdmissionOperation::Update(&old);
        let at = "/persistentvolumeclaims/status";
        let case = NodeRestrictionCase { at, name: "c", operation, object, ..NodeRestrictionCase::default() };
        let why = if field.is_empty() { String::new() } else { refusal(field) };
        assert_eq!(case.refusal_text(), why, "{pointer}");
    }
    for (at, operation, why) in [
        ("/persistentvolumeclaims", AdmissionOperation::Create, "may only update PVC status"),
        ("/persistentvolumeclaims", AdmissionOperation::Update(&old), "may only update PVC status"),
        ("/persistentvolumeclaims", AdmissionOperation::Delete, "may only update PVC status"),
        ("/persistentvolumeclaims/odd", AdmissionOperation::Update(&old), "may only update PVC status"),
        ("/persistentvolumeclaims/status", AdmissionOperation::Create, "unexpected operation \"CREATE\""),
        ("/persistentvolumeclaims/status", AdmissionOperation::Delete, "unexpected operation \"DELETE\""),
    ] {
        let case = NodeRestrictionCase {
            at,
            name: "c",
            operation,
            object: claim(),
            ..NodeRestrictionCase::default()
        };
        assert_eq!(case.refusal_text(), why, "{at}");
    }
}

fn request_token(bound: Value, audiences: Value, others: &[(&str, Value)], granted: &[&str]) -> String {
    let object = json!({"spec": {"boundObjectRef": bound, "audiences": audiences}});
    let at = "/serviceaccounts/token";
    NodeRestrictionCase {
        at,
        name: "sa",
        object,
        others,
        audiences: granted,
        ..NodeRestrictionCase::default()
    }
    .refusal_text()
}

fn pod(node: &str, volumes: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u1"},
        "spec": {"nodeName": node, "volumes": volumes}})
}

#[test]
fn tokens_are_bound_to_a_pod_on_the_node() {
    let volumes = json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {}}]}}]);
    let others = [
        ("pods/ns/p", pod("node-1", volumes.clone())),
        ("pods/ns/theirs", pod("node-2", volumes.clone())),
        ("pods/other/q", pod("node-1", volumes)),
    ];
    let unbound = "node requested token not bound to a pod";
    for (bound, why) in [
        (json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"}), ""),
        (Value::Null, unbound),
        (json!({}), unbound),
        (json!({"apiVersion": "v2", "kind": "Pod", "name": "p", "uid": "u1"}), unbound),
        (json!({"kind": "Pod", "name": "p", "uid": "u1"}), unbound),
        (json!({"apiVersion": "v1", "kind": "Secret", "name": "p", "uid": "u1"}), unbound),
        (json!({"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "u1"}), unbound),
        (json!({"apiVersion": "v1", "kind": "Pod", "uid": "u1"}), unbound),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "name": "p"}),
            "node requested token with a pod binding without a uid",
        ),
        (json!({"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "u1"}), "404 pod q"),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u2"}),
            "the UID in the bound object reference (u2) does not match the UID in record. The object might have been deleted and then recreated",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "name": "theirs", "uid": "u1"}),
            "node requested token bound to a pod scheduled on a different node",
        ),
    ] {
        assert_eq!(request_token(bound.clone(), Value::Null, &others, &[]), why, "{bound}");
    }
    for (at, operation) in [
        ("/serviceaccounts", AdmissionOperation::Create),
        ("/serviceaccounts", AdmissionOperation::Delete),
        ("/serviceaccounts/token", AdmissionOperation::Update(&Value::Null)),
    ] {
        assert_eq!(
            NodeRestrictionCase { at, operation, ..NodeRestrictionCase::default() }.refusal_text(),
            "",
            "{at}"
        );
    }
}

#[test]
fn audiences_are_those_that_the_pod_requests() {
    let projected = |audience: &str| {
        json!({"name": "t", "projected": {"sources": [
            {"serviceAccountToken": {"audience": audience, "path": "t"}}, {"secret": {"name": "s"}}
        ]}})
    };
    let claim = |name: &str| json!({"name": "c", "persistentVolumeClaim": {"claimName": name}});
    let inline = |driver: &str| json!({"name": "i", "csi": {"driver": driver}});
    let ephemeral = json!({"name": "own", "ephemeral": {"volumeClaimTemplate": {}}});
    let driver = json!({"spec": {"tokenRequests": [{"audience": "vault"}, {"audience": ""}]}});
    let bound = |volume: &str| json!({"spec": {"volumeName": volume}});
    let others = |volumes: Value| {
        [
            ("pods/ns/p", pod("node-1", volumes)),
            ("csidrivers//d", driver.clone()),
            ("persistentvolumeclaims/ns/c", bound("pv")),
            ("persistentvolumeclaims/ns/p-own", bound("pv")),
            ("persistentvolumeclaims/ns/disk", bound("disk")),
            ("persistentvolumeclaims/ns/loose", bound("lost")),
            ("persistentvolumes//pv", json!({"spec": {"csi": {"driver": "d"}}})),
            ("persistentvolumes//disk", json!({"spec": {"hostPath": {"path": "/"}}})),
        ]
    };
    let no = |audience: &str| {
        format!(
            "audience \"{audience}\" not found in pod spec volume, system:node:node-1 is not authorized to request tokens for this audience"
        )
    };
    let broken = |what: &str| format!("error validating audience \"vault\": {what} not found");
    let lost = "csidriver.storage.k8s.io \"x\"";
    for (volumes, audiences, why) in [
        (json!([projected("vault")]), json!(["vault"]), String::new()),
        (json!([projected("vault")]), json!(["other"]), no("other")),
        (json!([projected("vault")]), json!([]), no("")),
        (json!([projected("")]), json!([]), String::new()),
        (json!([projected("")]), json!([""]), String::new()),
        (json!([]), json!([]), no("")),
        (json!([{"name": "e", "emptyDir": {}}]), json!([]), no("")),
        (json!([inline("d")]), json!(["vault"]), String::new()),
        (json!([inline("d")]), json!([]), String::new()),
        (json!([inline("d")]), json!(["other"]), no("other")),
        (json!([inline("x")]), json!(["vault"]), broken(lost)),
        (json!([claim("c")]), json!(["vault"]), String::new()),
        (json!([claim("disk")]), json!(["vault"]), no("vault")),
        (json!([claim("none")]), json!(["vault"]), broken("persistentvolumeclaim \"none\"")),
        (json!([claim("loose")]), json!(["vault"]), broken("persistentvolume \"lost\"")),
        (json!([ephemeral]), json!(["vault"]), String::new()),
        (json!([ephemeral]), json!(["other"]), no("other")),
        // One match suffices, even if other volumes cannot be resolved.
        (json!([inline("x"), projected("vault")]), json!(["vault"]), String::new()),
        (json!([inline("x"), inline("x")]), json!(["vault"]), broken(lost)),
        (
            json!([inline("x"), claim("none")]),
            json!(["vault"]),
            "error validating audience \"vault\": [csidriver.storage.k8s.io \"x\" not found, persistentvolumeclaim \"none\" not found]"
                .to_owned(),
        ),
        (
            json!([projected("a"), projected("b")]),
            json!(["a", "b"]),
            "node may only request 0 or 1 audiences".to_owned(),
        ),
        // Granted by an RBAC role.
        (json!([]), json!(["granted"]), String::new()),
        (json!([]), json!(["granted", "granted"]), "node may only request 0 or 1 audiences".to_owned()),
    ] {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"});
        let reported = request_token(bound, audiences.clone(), &others(volumes.clone()), &["granted"]);
        assert_eq!(reported, why, "{volumes} {audiences}");
    }
}
