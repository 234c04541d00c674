//! Mirror pods, pod status and pod deletion.

use super::*;

fn mirror() -> Value {
    json!({
        "metadata": {
            "name": "static-node-1",
            "annotations": {"kubernetes.io/config.mirror": "hash"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "n1", "controller": true},
            ],
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
    })
}

fn create(pod: Value) -> String {
    let others = [("nodes//node-1", json!({"metadata": {"name": "node-1", "uid": "n1"}}))];
    let name = "static-node-1";
    NodeRestrictionCase { at: "/pods", name, object: pod, others: &others, ..NodeRestrictionCase::default() }
        .refusal_text()
}

/// Cases: a JSON pointer, a value (`null` removes) and the expected refusal.
#[test]
fn a_new_pod_is_a_mirror_of_the_nodes_own() {
    assert_eq!(create(mirror()), "");
    let own = "node \"node-1\" can only create pods with an owner reference set to itself";
    let controller = "node \"node-1\" can only create pods with a controller owner reference set to itself";
    let owners = "/metadata/ownerReferences";
    for (pointer, value, why) in [
        (
            "/metadata/annotations",
            json!({"other": "x"}),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"node-1\" can only create mirror pods",
        ),
        (
            "/spec/nodeName",
            json!("node-2"),
            "node \"node-1\" can only create pods with spec.nodeName set to itself",
        ),
        (
            "/spec/nodeName",
            json!(""),
            "node \"node-1\" can only create pods with spec.nodeName set to itself",
        ),
        (owners, json!([]), own),
        (
            owners,
            json!([{"uid": "n1"}, {"uid": "n1"}]),
            "node \"node-1\" can only create pods with a single owner reference set to itself",
        ),
        ("/metadata/ownerReferences/0/apiVersion", json!("v2"), own),
        ("/metadata/ownerReferences/0/kind", json!("Pod"), own),
        ("/metadata/ownerReferences/0/name", json!("node-2"), own),
        ("/metadata/ownerReferences/0/controller", json!(false), controller),
        ("/metadata/ownerReferences/0/controller", Value::Null, controller),
        ("/metadata/ownerReferences/0/uid", json!("n2"), "node node-1 UID mismatch: expected n2 got n1"),
    ] {
        let mut pod = mirror();
        *pod.pointer_mut(pointer).unwrap() = value.clone();
        assert_eq!(create(pod), why, "{pointer} {value}");
    }
    let mut pod = mirror();
    pod["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true);
    let why = "node \"node-1\" must not set blockOwnerDeletion on an owner reference";
    assert_eq!(create(pod), why);
    let case = NodeRestrictionCase {
        at: "/pods",
        name: "static-node-1",
        object: mirror(),
        ..NodeRestrictionCase::default()
    };
    assert_eq!(case.refusal_text(), "404 node node-1", "a mirror before its node");
}

#[test]
fn a_mirror_refers_to_nothing() {
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = json!("v");
        json!({"volumes": [volume]})
    };
    let projected = |source: Value| volume(json!({"projected": {"sources": [source]}}));
    let container =
        |field: &str, value: Value| json!({"containers": [{"name": "c", "image": "i", field: value}]});
    for (spec, what) in [
        (json!({"serviceAccountName": "a"}), "serviceaccounts"),
        (json!({"imagePullSecrets": [{"name": "s"}]}), "secrets"),
        (container("envFrom", json!([{"secretRef": {"name": "s"}}])), "secrets"),
        (container("envFrom", json!([{"configMapRef": {"name": "c"}}])), "configmaps"),
        (container("env", json!([{"name": "e", "valueFrom": {"secretKeyRef": {"name": "s"}}}])), "secrets"),
        (
            container("env", json!([{"name": "e", "valueFrom": {"configMapKeyRef": {"name": "c"}}}])),
            "configmaps",
        ),
        (json!({"initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]}), "secrets"),
        (
            json!({"ephemeralContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]}),
            "secrets",
        ),
        (json!({"resourceClaims": [{"name": "r", "resourceClaimName": "d"}]}), "resourceclaims"),
        (json!({"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "d"}]}), "resourceclaims"),
        (volume(json!({"secret": {"secretName": "s"}})), "secrets"),
        (volume(json!({"secret": {"secretName": ""}})), "secrets (via secret volumes)"),
        (volume(json!({"configMap": {"name": "c"}})), "configmaps"),
        (volume(json!({"configMap": {}})), "configmaps (via configmap volumes)"),
        (volume(json!({"csi": {"driver": "d"}})), "csidrivers (via CSI volumes)"),
        (volume(json!({"glusterfs": {"endpoints": "e"}})), "endpoints (via glusterFS volumes)"),
        (volume(json!({"persistentVolumeClaim": {"claimName": "c"}})), "persistentvolumeclaims"),
        (
            volume(json!({"ephemeral": {"volumeClaimTemplate": {}}})),
            "persistentvolumeclaims (via ephemeral volumes)",
        ),
        (volume(json!({"azureFile": {"secretName": ""}})), "secrets (via azureFile volumes)"),
        (volume(json!({"cephfs": {"secretRef": {"name": "s"}}})), "secrets"),
        (projected(json!({"secret": {"name": "s"}})), "secrets"),
        (projected(json!({"secret": {}})), "secrets (via projected volumes)"),
        (projected(json!({"configMap": {"name": "c"}})), "configmaps"),
        (projected(json!({"configMap": {}})), "configmaps (via projected volumes)"),
        (projected(json!({"serviceAccountToken": {"path": "t"}})), "serviceaccounts (via projected volumes)"),
        (projected(json!({"clusterTrustBundle": {"path": "t"}})), "clustertrustbundles"),
        (projected(json!({"podCertificate": {"signerName": "a/b"}})), "podcertificates"),
    ] {
        let mut pod = mirror();
        for (field, value) in spec.as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
        let why = format!("node \"node-1\" can not create pods that reference {what}");
        assert_eq!(create(pod), why, "{spec}");
    }
    for (spec, why) in [
        (volume(json!({"emptyDir": {}})), ""),
        (volume(json!({"hostPath": {"path": "/"}})), ""),
        (volume(json!({"image": {"reference": "i"}})), ""),
        (projected(json!({"downwardAPI": {"items": []}})), ""),
        (projected(json!({})), "unknown source for projected volume \"v\""),
        (volume(json!({"novel": {}})), "unknown volume type for volume  \"v\""),
        (container("env", json!([{"name": "e", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}])), ""),
    ] {
        let mut pod = mirror();
        for (field, value) in spec.as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
        assert_eq!(create(pod), why, "{spec}");
    }
}

#[test]
fn pods_are_ended_and_reported_on_where_they_run() {
    let pod =
        |node: &str| json!({"metadata": {"name": "p", "labels": {"a": "1"}}, "spec": {"nodeName": node}});
    let (mine, theirs, free) = (pod("node-1"), pod("node-2"), pod(""));
    let delete = "node \"node-1\" can only delete pods with spec.nodeName set to itself";
    let status = "node \"node-1\" can only update pod status for pods with spec.nodeName set to itself";
    let update = "unexpected operation \"UPDATE\", node \"node-1\" can only create and delete mirror pods";
    let claims_mine = AdmissionOperation::Update(&mine);
    for (at, operation, object, why) in [
        ("/pods", AdmissionOperation::Delete, &mine, ""),
        ("/pods", AdmissionOperation::Delete, &theirs, delete),
        ("/pods", AdmissionOperation::Delete, &free, delete),
        ("/pods", claims_mine, &mine, update),
        ("/pods", AdmissionOperation::Update(&theirs), &mine, update),
        ("/pods/status", claims_mine, &mine, ""),
        // The stored object counts, not the submitted one.
        ("/pods/status", claims_mine, &theirs, ""),
        ("/pods/status", AdmissionOperation::Update(&theirs), &mine, status),
        ("/pods/status", AdmissionOperation::Update(&free), &mine, status),
        ("/pods/status", AdmissionOperation::Create, &mine, "unexpected operation \"CREATE\""),
        ("/pods/status", AdmissionOperation::Delete, &mine, "unexpected operation \"DELETE\""),
        ("/pods/eviction", claims_mine, &mine, "unexpected operation UPDATE"),
        ("/pods/eviction", AdmissionOperation::Delete, &mine, "unexpected operation DELETE"),
    ] {
        let object = object.clone();
        let case = NodeRestrictionCase { at, name: "p", operation, object, ..NodeRestrictionCase::default() };
        assert_eq!(case.refusal_text(), why, "{at}");
    }
    for part in ["binding", "ephemeralcontainers", "resize", "log", "exec", "proxy"] {
        for operation in [AdmissionOperation::Create, claims_mine, AdmissionOperation::Delete] {
            let at = format!("/pods/{part}");
            let case = NodeRestrictionCase {
                at: &at,
                name: "p",
                operation,
                object: mine.clone(),
                ..NodeRestrictionCase::default()
            };
            let why =
                format!("unexpected pod subresource \"{part}\", only 'status' and 'eviction' are allowed");
            assert_eq!(case.refusal_text(), why);
        }
    }
}

#[test]
fn evictions_go_by_the_stored_pod() {
    let pod = |node: &str| json!({"metadata": {"name": "p"}, "spec": {"nodeName": node}});
    let why = "node node-1 can only evict pods with spec.nodeName set to itself";
    // The eviction names another pod than the path; the path counts.
    let object = json!({"metadata": {"name": "mine"}});
    let others =
        [("pods/ns/mine", pod("node-1")), ("pods/ns/theirs", pod("node-2")), ("pods/ns/free", pod(""))];
    for (name, why) in [("mine", ""), ("theirs", why), ("free", why), ("missing", "404 pod missing")] {
        let object = object.clone();
        let at = "/pods/eviction";
        let case =
            NodeRestrictionCase { at, name, object, others: &others, ..NodeRestrictionCase::default() };
        assert_eq!(case.refusal_text(), why, "{name}");
    }
}

#[test]
fn parts_of_a_status_that_lead_further() {
    let pod = |labels: Value, status: Value| {
        json!({"metadata": {"name": "p", "labels": labels}, "spec": {"nodeName": "node-1"},
            "status": status})
    };
    let labels = "node \"node-1\" cannot update labels through pod status";
    let claims = "node \"node-1\" cannot update resource claim statues";
    let extended = "node \"node-1\" cannot update extended resource claim status";
    let claim = |name: &str, claim: Value| json!({"resourceClaimStatuses": [{"name": name, "resourceClaimName": claim}]});
    let one = json!({"a": "1"});
    let plain = pod(one.clone(), json!({}));
    let claimed = pod(one.clone(), claim("r", json!("c")));
    for (old, new, why) in [
        (&plain, &pod(one.clone(), json!({"phase": "Running"})), ""),
        (&plain, &pod(json!({"a": "2"}), json!({})), labels),
        (&plain, &pod(json!({}), json!({})), labels),
        (&plain, &pod(json!({"a": "1", "b": "1"}), json!({})), labels),
        (&plain, &claimed, claims),
        (&claimed, &plain, claims),
        (&claimed, &pod(one.clone(), claim("r", json!("d"))), claims),
        (&claimed, &pod(one.clone(), claim("q", json!("c"))), claims),
        (&claimed, &pod(one.clone(), claim("r", Value::Null)), claims),
        (&claimed, &claimed, ""),
        (
            &plain,
            &pod(one.clone(), json!({"extendedResourceClaimStatus": {"resourceClaimName": "c"}})),
            extended,
        ),
    ] {
        let operation = AdmissionOperation::Update(old);
        let object = new.clone();
        let case = NodeRestrictionCase {
            at: "/pods/status",
            name: "p",
            operation,
            object,
            ..NodeRestrictionCase::default()
        };
        assert_eq!(case.refusal_text(), why, "{old} to {new}");
    }
}
