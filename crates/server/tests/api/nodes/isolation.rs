//! A node sees its own objects and those its pods need, and nothing of another node, by get, list
//! and watch.

use super::*;
use windlass_testkit::{PODS, names};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// Two nodes, each with a pod and all objects it references, in the same namespace.
async fn two_nodes() -> TestServer {
    let server = TestServer::start().await;
    for node in ["node-1", "node-2"] {
        let named = json!({"metadata": {"name": node}});
        server.post("/api/v1/nodes", &named).await.expect(201);
        server.post(LEASES, &named).await.expect(201);
        server.post(SECRETS, &named).await.expect(201);
        server.post(MAPS, &named).await.expect(201);
        server.post(ACCOUNTS, &named).await.expect(201);
        let csi = json!({"metadata": {"name": node}, "spec": {"drivers": []}});
        server.post(CSI_NODES, &csi).await.expect(201);
        let slice = json!({"metadata": {"name": node}, "spec": {"driver": "d.example.com",
            "nodeName": node, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}});
        server.post(SLICES, &slice).await.expect(201);
        let claim = json!({"metadata": {"name": node}, "spec": {"accessModes": ["ReadWriteOnce"],
            "volumeName": node, "resources": {"requests": {"storage": "1Gi"}}}});
        server.post(CLAIMS, &claim).await.expect(201);
        let volume = json!({"metadata": {"name": node}, "spec": {"accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"},
            "claimRef": {"namespace": "default", "name": node}}});
        server.post(VOLUMES, &volume).await.expect(201);
        let pod = json!({"metadata": {"name": node}, "spec": {
            "nodeName": node, "serviceAccountName": node,
            "containers": [{"name": "c", "image": "i", "envFrom": [
                {"secretRef": {"name": node}}, {"configMapRef": {"name": node}}]}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": node}}]}});
        server.post(PODS, &pod).await.expect(201);
    }
    server
}

#[tokio::test]
async fn each_node_gets_its_own() {
    let server = two_nodes().await;
    let all = ["/api/v1/nodes", PODS, SECRETS, MAPS, ACCOUNTS, CLAIMS, VOLUMES, LEASES, CSI_NODES, SLICES];
    for (node, other) in [("node-1", "node-2"), ("node-2", "node-1")] {
        for kind in all {
            let mine = NodeClient(&server, node).get(&format!("{kind}/{node}")).await;
            assert_eq!(mine.status.as_u16(), 200, "{node} {kind}: {}", mine.json());
            let theirs = NodeClient(&server, node).get(&format!("{kind}/{other}")).await;
            theirs.fails(403, "Forbidden");
            let missing = NodeClient(&server, node).get(&format!("{kind}/missing")).await;
            let message = missing.fails(403, "Forbidden");
            let shown = theirs.fails(403, "Forbidden");
            // Existing and missing objects are indistinguishable.
            assert_eq!(message.replace("missing", other), shown);
        }
    }
    assert_eq!(
        NodeClient(&server, "node-1").get(&format!("{SECRETS}/node-2")).await.fails(403, "Forbidden"),
        "secrets \"node-2\" is forbidden: User \"system:node:node-1\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\": no relationship found between node 'node-1' and this object"
    );
}

#[tokio::test]
async fn cve_2026_73499_lists_watches_and_gets_of_nodes_agree() {
    let server = two_nodes().await;
    for (node, other) in [("node-1", "node-2"), ("node-2", "node-1")] {
        let caller = NodeClient(&server, node);
        let own = |name: &str| format!("fieldSelector=metadata.name%3D{name}");
        let placed = |name: &str| format!("fieldSelector=spec.nodeName%3D{name}");
        for (kind, mine, theirs) in [
            ("/api/v1/nodes", own(node), own(other)),
            (SECRETS, own(node), own(other)),
            (MAPS, own(node), own(other)),
            (PODS, own(node), own(other)),
            (PODS, placed(node), placed(other)),
            ("/api/v1/pods", placed(node), placed(other)),
            (SLICES, placed(node), placed(other)),
        ] {
            let list = caller.get(&format!("{kind}?{mine}")).await.expect(200);
            assert_eq!(names(&list), [node], "{kind}?{mine}");
            let mut watch = caller.watch(&format!("{kind}?watch=true&{mine}")).await;
            assert_eq!(watch.brief().await, format!("ADDED {node}"), "{kind}?{mine}");
            assert!(watch.has_no_event(), "{kind}?{mine}");
            for query in [theirs, String::new(), placed("")] {
                let path = format!("{kind}?{query}");
                caller.get(&path).await.fails(403, "Forbidden");
                caller.get(&format!("{path}&watch=true")).await.fails(403, "Forbidden");
            }
        }
        for kind in [ACCOUNTS, CLAIMS, VOLUMES, LEASES, CSI_NODES] {
            for query in ["", "?watch=true", &format!("?{}", own(node))] {
                caller.get(&format!("{kind}{query}")).await.fails(403, "Forbidden");
            }
        }
        // Selectors on deprecated watch paths do not count.
        let path = format!("/api/v1/watch/pods?{}", placed(node));
        caller.get(&path).await.fails(403, "Forbidden");
    }
}

#[tokio::test]
async fn nothing_is_written_that_belongs_to_another_node() {
    let server = two_nodes().await;
    let node = NodeClient(&server, "node-1");
    let patch = json!({"metadata": {"annotations": {"a": "b"}}});
    for kind in ["/api/v1/nodes", PODS, SECRETS, MAPS, ACCOUNTS, CLAIMS, VOLUMES, LEASES, CSI_NODES, SLICES] {
        let path = format!("{kind}/node-2");
        let stored = server.get(&path).await.expect(200);
        node.put(&path, &stored).await.fails(403, "Forbidden");
        node.patch(&path, "merge", &patch).await.fails(403, "Forbidden");
        node.patch(&format!("{path}/status"), "merge", &patch).await.fails(403, "Forbidden");
        node.delete(&path).await.fails(403, "Forbidden");
        node.delete(kind).await.fails(403, "Forbidden");
        assert_eq!(server.get(&path).await.expect(200), stored, "{kind}");
    }
    let token = format!("{ACCOUNTS}/node-2/token");
    node.post(&token, &json!({"spec": {"audiences": []}})).await.fails(403, "Forbidden");
}

#[tokio::test]
async fn a_pod_that_moves_in_or_goes_is_noticed_at_once() {
    let server = two_nodes().await;
    let node = NodeClient(&server, "node-1");
    let path = format!("{SECRETS}/late");
    server.post(SECRETS, &json!({"metadata": {"name": "late"}})).await.expect(201);
    for _ in 0..20 {
        node.get(&path).await.fails(403, "Forbidden");
        let pod = json!({"metadata": {"name": "late"}, "spec": {
            "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0,
            "imagePullSecrets": [{"name": "late"}]}});
        server.post(PODS, &pod).await.expect(201);
        node.get(&path).await.fails(403, "Forbidden");
        let binding = json!({"metadata": {"name": "late"}, "target": {"kind": "Node", "name": "node-1"}});
        server.post(&format!("{PODS}/late/binding"), &binding).await.expect(201);
        node.get(&path).await.expect(200);
        server.delete(&format!("{PODS}/late")).await.expect(200);
    }
}
