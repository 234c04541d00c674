//! Pods of a node: mirror pods, status and evictions.

use super::*;
use windlass_testkit::{PODS, pod};

fn mirror(uid: &str) -> Value {
    let mut object = pod("static-node-1");
    object["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    object["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": uid, "controller": true},
    ]);
    object["spec"]["nodeName"] = json!("node-1");
    object
}

async fn with_node() -> (TestServer, String) {
    let server = permissive_server().await;
    let made = server.post("/api/v1/nodes", &node("node-1")).await.expect(201);
    let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
    (server, uid)
}

/// Each rule on mirror pods, by every method of creation: none leaves a pod behind.
#[tokio::test]
async fn cve_2025_4563_each_rule_on_mirrors_holds_however_they_are_made() {
    let (server, uid) = with_node().await;
    let node = NodeClient(&server, "node-1");
    let volume = |source: Value| json!([{"name": "v", "projected": {"sources": [source]}}]);
    for (pointer, value) in [
        ("/metadata/annotations", json!({})),
        ("/spec/nodeName", json!("node-2")),
        ("/spec/nodeName", json!("")),
        ("/metadata/ownerReferences", json!([])),
        ("/metadata/ownerReferences/0/kind", json!("Pod")),
        ("/metadata/ownerReferences/0/name", json!("node-2")),
        ("/metadata/ownerReferences/0/uid", json!("other")),
        ("/metadata/ownerReferences/0/controller", json!(false)),
        ("/metadata/ownerReferences/0/blockOwnerDeletion", json!(true)),
        ("/spec/serviceAccountName", json!("default")),
        ("/spec/imagePullSecrets", json!([{"name": "s"}])),
        ("/spec/containers/0/envFrom", json!([{"configMapRef": {"name": "c"}}])),
        ("/spec/resourceClaims", json!([{"name": "r", "resourceClaimName": "c"}])),
        ("/spec/volumes", json!([{"name": "v", "secret": {"secretName": "s"}}])),
        ("/spec/volumes", json!([{"name": "v", "configMap": {"name": "c"}}])),
        ("/spec/volumes", json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])),
        ("/spec/volumes", json!([{"name": "v", "csi": {"driver": "d"}}])),
        ("/spec/volumes", volume(json!({"serviceAccountToken": {"path": "t"}}))),
        ("/spec/volumes", volume(json!({"clusterTrustBundle": {"name": "t", "path": "t"}}))),
        ("/spec/volumes", volume(json!({"podCertificate": {"signerName": "a.io/b", "keyType": "ED25519"}}))),
    ] {
        let mut body = mirror(&uid);
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[last] = value.clone();
        (body["kind"], body["apiVersion"]) = (json!("Pod"), json!("v1"));
        let name = format!("{PODS}/static-node-1");
        for dry in ["", "&dryRun=All"] {
            let path = format!("{PODS}?fieldManager=kubelet{dry}");
            node.post(&path, &body).await.fails(403, "Forbidden");
            let path = format!("{name}?fieldManager=kubelet{dry}");
            node.patch(&path, "apply", &body).await.fails(403, "Forbidden");
            let put = node.put(&path, &body).await;
            assert_eq!(put.status.as_u16(), 404, "{pointer} {value}");
        }
        server.get(&name).await.fails(404, "NotFound");
    }
    let mut claims = mirror(&uid);
    claims["spec"]["resourceClaims"] = json!([{"name": "r", "resourceClaimName": "c"}]);
    assert_eq!(
        node.post(PODS, &claims).await.fails(403, "Forbidden"),
        "pods \"static-node-1\" is forbidden: node \"node-1\" can not create pods that reference resourceclaims"
    );
    node.post(PODS, &mirror(&uid)).await.expect(201);
}

/// A node may not change its pods, except for their status.
#[tokio::test]
async fn pods_are_not_changed_by_their_node() {
    let (server, uid) = with_node().await;
    let node = NodeClient(&server, "node-1");
    let mut plain = pod("plain");
    plain["spec"]["nodeName"] = json!("node-1");
    server.post(PODS, &plain).await.expect(201);
    node.post(PODS, &mirror(&uid)).await.expect(201);
    for name in ["plain", "static-node-1"] {
        let path = format!("{PODS}/{name}");
        let stored = server.get(&path).await.expect(200);
        let mut changed = stored.clone();
        changed["metadata"]["annotations"]["note"] = json!("a");
        let patch = json!({"metadata": {"annotations": {"note": "a"}}});
        let json_patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
        let apply =
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "labels": {"a": "b"}}});
        for part in ["", "/ephemeralcontainers", "/resize"] {
            for dry in ["", "&dryRun=All"] {
                let at = format!("{path}{part}?fieldManager=kubelet{dry}");
                node.put(&at, &changed).await.fails(403, "Forbidden");
                node.patch(&at, "json", &json_patch).await.fails(403, "Forbidden");
                node.patch(&at, "merge", &patch).await.fails(403, "Forbidden");
                node.patch(&at, "strategic", &patch).await.fails(403, "Forbidden");
                node.patch(&format!("{at}&force=true"), "apply", &apply).await.fails(403, "Forbidden");
            }
        }
        assert_eq!(server.get(&path).await.expect(200), stored);
    }
}

/// Labels, device claims and other nodes' pods, by every method to write a status.
#[tokio::test]
async fn cve_2025_4563_each_rule_on_reports_holds_however_they_are_sent() {
    let (server, _) = with_node().await;
    let node = NodeClient(&server, "node-1");
    for (name, on) in [("mine", "node-1"), ("theirs", "node-2"), ("free", "")] {
        let mut plain = pod(name);
        plain["spec"]["nodeName"] = json!(on);
        plain["metadata"]["labels"] = json!({"app": "a"});
        server.post(PODS, &plain).await.expect(201);
    }
    let claim = json!({"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "c"}]});
    let extended = json!({"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": []}});
    for (name, metadata, status) in [
        ("mine", json!({"labels": {"app": "b"}}), json!({})),
        ("mine", json!({"labels": {"app": "a", "more": "b"}}), json!({})),
        ("mine", json!({}), claim),
        ("mine", json!({}), extended),
        ("theirs", json!({}), json!({"phase": "Failed"})),
        ("free", json!({}), json!({"phase": "Failed"})),
    ] {
        let path = format!("{PODS}/{name}/status");
        let stored = server.get(&format!("{PODS}/{name}")).await.expect(200);
        let patch = json!({"metadata": metadata, "status": status});
        let mut whole = stored.clone();
        for part in ["metadata", "status"] {
            for (field, value) in patch[part].as_object().unwrap() {
                whole[part][field] = value.clone();
            }
        }
        let mut operations = Vec::new();
        for at in difference(&stored, &whole) {
            let part: Vec<&str> = at.split('/').take(3).collect();
            let at = part.join("/");
            operations.push(json!({"op": "add", "path": at, "value": whole.pointer(&at)}));
        }
        let mut apply = patch.clone();
        apply["metadata"]["name"] = json!(name);
        (apply["kind"], apply["apiVersion"]) = (json!("Pod"), json!("v1"));
        for dry in ["", "&dryRun=All"] {
            let at = format!("{path}?fieldManager=kubelet{dry}");
            node.put(&at, &whole).await.fails(403, "Forbidden");
            node.patch(&at, "json", &json!(operations)).await.fails(403, "Forbidden");
            node.patch(&at, "merge", &patch).await.fails(403, "Forbidden");
            node.patch(&at, "strategic", &patch).await.fails(403, "Forbidden");
            node.patch(&format!("{at}&force=true"), "apply", &apply).await.fails(403, "Forbidden");
        }
        assert_eq!(server.get(&format!("{PODS}/{name}")).await.expect(200), stored, "{patch}");
    }
    let report = json!({"status": {"phase": "Running", "podIP": "10.0.0.1"}});
    let at = format!("{PODS}/mine/status");
    node.patch(&at, "strategic", &report).await.expect(200);
    assert_eq!(server.get(&format!("{PODS}/mine")).await.expect(200)["status"]["phase"], "Running");
}

#[tokio::test]
async fn only_pods_on_the_node_are_deleted_and_evicted() {
    let (server, _) = with_node().await;
    let node = NodeClient(&server, "node-1");
    for (name, on) in [("mine", "node-1"), ("gone", "node-1"), ("theirs", "node-2"), ("free", "")] {
        let mut plain = pod(name);
        plain["spec"]["nodeName"] = json!(on);
        plain["spec"]["terminationGracePeriodSeconds"] = json!(0);
        server.post(PODS, &plain).await.expect(201);
    }
    let eviction = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}});
    for name in ["theirs", "free"] {
        let path = format!("{PODS}/{name}");
        assert_eq!(
            node.delete(&path).await.fails(403, "Forbidden"),
            format!(
                "pods \"{name}\" is forbidden: node \"node-1\" can only delete pods with spec.nodeName set to itself"
            )
        );
        for dry in ["", "?dryRun=All"] {
            let path = format!("{path}/eviction{dry}");
            assert_eq!(
                node.post(&path, &eviction(name)).await.fails(403, "Forbidden"),
                format!(
                    "pods \"{name}\" is forbidden: node node-1 can only evict pods with spec.nodeName set to itself"
                )
            );
        }
        server.get(&path).await.expect(200);
    }
    let missing = node.post(&format!("{PODS}/missing/eviction"), &eviction("missing")).await;
    missing.fails(404, "NotFound");
    node.delete(PODS).await.fails(403, "Forbidden");
    server.get(&format!("{PODS}/theirs")).await.expect(200);
    let dry = format!("{PODS}/mine/eviction?dryRun=All");
    node.post(&dry, &eviction("mine")).await.expect(201);
    if server.get(&format!("{PODS}/mine")).await.status.is_success() {
        node.post(&format!("{PODS}/mine/eviction"), &eviction("mine")).await.expect(201);
    }
    server.get(&format!("{PODS}/mine")).await.fails(404, "NotFound");
    let binding = json!({"metadata": {"name": "free"}, "target": {"kind": "Node", "name": "node-1"}});
    node.post(&format!("{PODS}/free/binding"), &binding).await.fails(403, "Forbidden");
    let free = server.get(&format!("{PODS}/free")).await.expect(200);
    assert_eq!(free["spec"].get("nodeName"), None, "{free}");
    server.post(&format!("{PODS}/free/binding"), &binding).await.expect(201);
    server.post(&format!("{PODS}/theirs/eviction"), &eviction("theirs")).await.expect(201);
}

#[tokio::test]
async fn claims_are_reported_on_and_not_changed() {
    let (server, _) = with_node().await;
    let node = NodeClient(&server, "node-1");
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let stored = server.post(claims, &claim("c")).await.expect(201);
    let (at, status) = (format!("{claims}/c"), format!("{claims}/c/status"));
    node.post(claims, &claim("d")).await.fails(403, "Forbidden");
    node.put(&at, &stored).await.fails(403, "Forbidden");
    node.delete(&at).await.fails(403, "Forbidden");
    for patch in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"finalizers": ["a.io/b"]}}),
        json!({"status": {"phase": "Lost"}}),
    ] {
        for how in ["merge", "strategic"] {
            let message = node.patch(&status, how, &patch).await.fails(403, "Forbidden");
            assert!(message.contains("fields other than status.quantity"), "{message}");
        }
    }
    assert_eq!(server.get(&at).await.expect(200), stored);
    let report = json!({"status": {"capacity": {"storage": "2Gi"}}});
    let after = node.patch(&status, "merge", &report).await.expect(200);
    assert_eq!(after["status"]["capacity"]["storage"], "2Gi");
}
