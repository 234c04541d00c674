//! Admission compares with the object being replaced, also under concurrent writes.

use std::sync::Arc;

use super::*;
use windlass_testkit::version;

const ROUNDS: usize = 150;

fn taint(key: &str) -> Value {
    json!([{"key": key, "effect": "NoSchedule"}])
}

/// An administrator toggles taints and owners while the node sends complete objects that match one
/// of the states. The node's writes must never change a taint or an owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2021_25735_a_node_never_changes_taints_in_a_race() {
    let server = Arc::new(permissive_server().await);
    let mut first = node("node-1");
    first["spec"] = json!({"taints": taint("a")});
    let made = server.post("/api/v1/nodes", &first).await.expect(201);
    let from = version(&made);
    let admin = tokio::spawn({
        let server = server.clone();
        async move {
            for round in 0..ROUNDS {
                let key = if round % 2 == 0 { "b" } else { "a" };
                let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": key, "uid": key});
                let patch = json!({"spec": {"taints": taint(key)},
                    "metadata": {"ownerReferences": [owner], "annotations": {"writer": "admin"}}});
                // Retries after conflicts.
                while server.patch(NODE_1, "merge", &patch).await.status.as_u16() == 409 {}
                tokio::task::yield_now().await;
            }
        }
    });
    let own = tokio::spawn({
        let server = server.clone();
        async move {
            let mut outcomes = [0, 0];
            for round in 0..ROUNDS {
                let node = NodeClient(&server, "node-1");
                let mut object = node.get(NODE_1).await.expect(200);
                object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
                object["metadata"]["annotations"] = json!({"writer": format!("node {round}")});
                // Every second time with the previous object.
                if round % 2 == 0 {
                    tokio::task::yield_now().await;
                }
                let answer = match round % 3 {
                    0 => node.put(&format!("{NODE_1}/status"), &object).await,
                    _ => node.put(NODE_1, &object).await,
                };
                match answer.status.as_u16() {
                    200 => outcomes[0] += 1,
                    403 | 409 => outcomes[1] += 1,
                    other => panic!("{other}: {}", answer.json()),
                }
            }
            outcomes
        }
    });
    admin.await.unwrap();
    let [written, _] = own.await.unwrap();
    let patch = json!({"metadata": {"annotations": {"writer": "node at last"}}});
    NodeClient(&server, "node-1").patch(NODE_1, "merge", &patch).await.expect(200);
    let last = version(&server.get(NODE_1).await.expect(200));
    let mut watch = server.watch(&format!("/api/v1/nodes?watch=true&resourceVersion={from}")).await;
    let mut events = vec![json!({"object": made})];
    while events.last().is_none_or(|event| version(&event["object"]) < last) {
        events.push(watch.next().await);
    }
    let by = |event: &Value| event["object"]["metadata"]["annotations"]["writer"].clone();
    let mut checked = 0;
    for pair in events.windows(2) {
        let [before, after] = pair else { continue };
        if by(after) == by(before) || by(after) == "admin" {
            continue;
        }
        checked += 1;
        for pointer in ["/object/spec/taints", "/object/metadata/ownerReferences"] {
            assert_eq!(before.pointer(pointer), after.pointer(pointer), "{}", by(after));
        }
    }
    assert_eq!(checked, written + 1);
}

/// The node also sends a forged old state: only the stored object counts.
#[tokio::test]
async fn cve_2021_25735_what_is_stored_is_old_and_not_what_the_request_says() {
    let server = permissive_server().await;
    let node = NodeClient(&server, "node-1");
    let mut first = super::node("node-1");
    first["spec"] = json!({"taints": taint("a")});
    let stale = server.post("/api/v1/nodes", &first).await.expect(201);
    let patch = json!({"spec": {"taints": taint("b")}});
    server.patch(NODE_1, "merge", &patch).await.expect(200);
    // With its version it is stale; without, it would restore the old taint.
    node.put(NODE_1, &stale).await.fails(409, "Conflict");
    let mut unversioned = stale.clone();
    unversioned["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    for path in [NODE_1, &format!("{NODE_1}/status")] {
        assert_eq!(
            node.put(path, &unversioned).await.fails(403, "Forbidden"),
            "nodes \"node-1\" is forbidden: node \"node-1\" is not allowed to modify taints"
        );
    }
    let now = server.get(NODE_1).await.expect(200);
    assert_eq!(now["spec"]["taints"], taint("b"));
}
