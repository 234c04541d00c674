//! A node's own Node object: every field, by every write method.

use http_body_util::{BodyExt as _, Full};
use tower::ServiceExt as _;
use windlass_server::LocalClient;
use windlass_server::User;

use super::*;
use windlass_testkit::MAPS;

/// Returns a Node with every stored field set.
fn rich() -> Value {
    json!({
        "metadata": {
            "name": "node-1",
            "labels": {
                "plain": "a", "kubernetes.io/hostname": "a", "node-role.kubernetes.io/worker": "a",
                "node-restriction.kubernetes.io/team": "a",
            },
            "annotations": {"note": "a"},
            "finalizers": ["example.com/hold"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "owner-uid"},
            ],
        },
        "spec": {
            "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": "cloud://1",
            "unschedulable": true,
            "taints": [
                {"key": "dedicated", "value": "a", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
            ],
        },
        "status": {
            "capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}, "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "reason": "a", "message": "a"}],
            "addresses": [{"type": "Hostname", "address": "a"}],
            "images": [{"names": ["a"], "sizeBytes": 1}],
            "nodeInfo": {"kubeletVersion": "a", "architecture": "a"},
        },
    })
}

/// Absent fields, and values that a node might set.
fn additions() -> Vec<(&'static str, Value)> {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone-uid"});
    vec![
        ("/metadata/labels/more", json!("a")),
        ("/metadata/labels/node-role.kubernetes.io~1control-plane", json!("")),
        ("/metadata/labels/node-restriction.kubernetes.io~1other", json!("a")),
        ("/metadata/annotations/more", json!("a")),
        ("/metadata/ownerReferences/1", owner),
        ("/metadata/deletionTimestamp", json!("2020-01-01T00:00:00Z")),
        ("/metadata/deletionGracePeriodSeconds", json!(0)),
        ("/metadata/selfLink", json!("a")),
        ("/metadata/generateName", json!("a")),
        (
            "/spec/configSource",
            json!({"configMap": {"name": "a", "namespace": "b", "kubeletConfigKey": "c"}}),
        ),
        ("/spec/externalID", json!("a")),
        ("/spec/taints/2", json!({"key": "more", "effect": "NoExecute"})),
        ("/status/volumesInUse", json!(["a"])),
        ("/status/config", json!({"error": "a"})),
    ]
}

/// Returns true if a node may change the field, through the main resource or the status.
fn may_change(at: &str, through_status: bool) -> bool {
    let metadata = [
        "/metadata/labels/plain",
        "/metadata/labels/more",
        "/metadata/labels/kubernetes.io~1hostname",
        "/metadata/annotations",
        "/metadata/finalizers",
        "/metadata/generateName",
    ];
    let part: &[&str] = if through_status { &["/status"] } else { &["/spec/unschedulable"] };
    let covers = |field: &&str| at == *field || at.starts_with(&format!("{field}/"));
    metadata.iter().any(&covers) || part.iter().any(&covers)
}

#[derive(Clone, Copy, Debug)]
enum NodeWriteMethod {
    Put,
    Json,
    Merge,
    Strategic,
}

/// Returns all mutations: a leaf changed or removed, or a field added.
fn mutations(stored: &Value) -> Vec<(String, Option<Value>)> {
    let mut all = Vec::new();
    let mut found = Vec::new();
    leaves(stored, "", &mut found);
    found.retain(|at| !at.starts_with("/metadata/managedFields") && at != "/kind" && at != "/apiVersion");
    for at in found {
        let changed = match stored.pointer(&at).unwrap() {
            Value::String(text) if at.contains("odCIDR") => json!(text.replace("10.0", "10.1")),
            Value::String(_) if at.contains("/cpu") => json!("3"),
            Value::String(text) if at.ends_with("effect") => {
                json!(text.replace("Schedule", "Execute"))
            }
            Value::String(text) if at.ends_with("Timestamp") => json!(text.replace("20", "19")),
            Value::String(text) => json!(format!("{text}x")),
            Value::Bool(flag) => json!(!flag),
            Value::Number(number) => json!(number.as_i64().unwrap() + 1),
            other => other.clone(),
        };
        all.push((at.clone(), Some(changed)));
        all.push((at, None));
    }
    all.extend(additions().into_iter().map(|(at, value)| (at.to_owned(), Some(value))));
    all
}

fn mutated(stored: &Value, at: &str, to: Option<&Value>) -> Value {
    let mut object = stored.clone();
    let (parent, last) = at.rsplit_once('/').unwrap();
    let last = last.replace("~1", "/").replace("~0", "~");
    let Some(parent) = object.pointer_mut(parent) else { return object };
    match (parent, to) {
        (Value::Object(map), Some(value)) => {
            map.insert(last, value.clone());
        }
        (Value::Object(map), None) => {
            map.remove(&last);
        }
        (Value::Array(list), Some(value)) => {
            let i: usize = last.parse().unwrap();
            list.truncate(i.max(list.len()));
            if i < list.len() { list[i] = value.clone() } else { list.push(value.clone()) }
        }
        (Value::Array(list), None) => {
            list.remove(last.parse().unwrap());
        }
        _ => panic!("{at} is in no object and no list"),
    }
    object
}

async fn write(
    node: NodeClient<'_>,
    way: NodeWriteMethod,
    path: &str,
    stored: &Value,
    at: &str,
    to: Option<&Value>,
) -> TestResponse {
    let new = mutated(stored, at, to);
    match way {
        NodeWriteMethod::Put => node.put(path, &new).await,
        NodeWriteMethod::Json => {
            let operation = match (stored.pointer(at), to) {
                (Some(_), Some(value)) => json!({"op": "replace", "path": at, "value": value}),
                (None, Some(value)) => json!({"op": "add", "path": at, "value": value}),
                (_, None) => json!({"op": "remove", "path": at}),
            };
            node.patch(path, "json", &json!([operation])).await
        }
        NodeWriteMethod::Merge => node.patch(path, "merge", &merge_patch(stored, &new)).await,
        NodeWriteMethod::Strategic => node.patch(path, "strategic", &merge_patch(stored, &new)).await,
    }
}

/// Removes server-owned fields and those that change with every write.
fn bare(mut object: Value) -> Value {
    for owned in ["resourceVersion", "managedFields"] {
        object["metadata"].as_object_mut().unwrap().remove(owned);
    }
    object
}

#[tokio::test]
async fn cve_2025_5187_only_listed_fields_change_by_any_way_to_write() {
    let server = permissive_server().await;
    let node = NodeClient(&server, "node-1");
    let status = format!("{NODE_1}/status");
    let mut changed: std::collections::BTreeSet<String> = Default::default();
    let mut stored = server.post("/api/v1/nodes", &rich()).await.expect(201);
    for (at, to) in mutations(&stored) {
        for way in
            [NodeWriteMethod::Put, NodeWriteMethod::Json, NodeWriteMethod::Merge, NodeWriteMethod::Strategic]
        {
            for path in [NODE_1, &status] {
                let answer = write(node, way, path, &stored, &at, to.as_ref()).await;
                let said = String::from_utf8_lossy(&answer.body).into_owned();
                let case = format!("{way:?} {path} {at} {to:?}: {said}");
                // A list entry without its merge key is an error that Kubernetes does not classify.
                let keyless = said.contains("does not contain declared merge key");
                assert!(answer.status.as_u16() < 500 || keyless, "{case}");
                let after = server.get(NODE_1).await.expect(200);
                let (before, now) = (bare(stored.clone()), bare(after.clone()));
                for field in difference(&before, &now) {
                    assert!(may_change(&field, path != NODE_1), "{field} changed by {case}");
                    changed.insert(format!("{} {field}", path.trim_start_matches(NODE_1)));
                }
                if before != now {
                    assert!(answer.status.is_success(), "{case}");
                    stored = renew(&server).await;
                }
                if !keyless {
                    steered(&answer, &at, &case);
                }
            }
        }
    }
    for field in [
        " /metadata/annotations/note",
        " /metadata/labels/plain",
        " /metadata/labels/kubernetes.io~1hostname",
        " /spec/unschedulable",
        "/status /status/conditions/0/status",
        "/status /status/capacity/cpu",
        "/status /metadata/annotations/more",
    ] {
        assert!(changed.contains(field), "{field:?} cannot be changed: {changed:#?}");
    }
}

/// Asserts that changes which influence scheduling, or would delete the Node, are explicitly
/// rejected.
fn steered(answer: &TestResponse, at: &str, case: &str) {
    let words = if at.starts_with("/spec/taints") {
        "is not allowed to modify taints"
    } else if at.starts_with("/metadata/ownerReferences") {
        "is not allowed to modify ownerReferences"
    } else if at.contains("node-role") || at.contains("node-restriction") {
        "is not allowed to modify labels"
    } else {
        return;
    };
    // Some changes are no-ops when sent as a patch that merges lists.
    let merged = answer.status.is_success() && case.starts_with("Strategic");
    let refused = answer.status.as_u16() == 403 && case.contains(words);
    let malformed = matches!(answer.status.as_u16(), 400 | 422);
    assert!(refused || merged || malformed, "{case}");
}

/// Restores the Node by deleting and creating it, because some fields cannot be reset.
async fn renew(server: &TestServer) -> Value {
    server.delete(NODE_1).await.expect(200);
    let release = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    if server.get(NODE_1).await.status.is_success() {
        server.patch(NODE_1, "json", &release).await.expect(200);
    }
    server.post("/api/v1/nodes", &rich()).await.expect(201)
}

/// Write methods that describe removals rather than the desired state.
#[tokio::test]
async fn cve_2025_5187_directives_and_apply_do_not_get_around_it() {
    let server = permissive_server().await;
    let node = NodeClient(&server, "node-1");
    let stored = server.post("/api/v1/nodes", &rich()).await.expect(201);
    let status = format!("{NODE_1}/status");
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"});
    let metadata = |field: &str, value: Value| json!({"metadata": {field: value}});
    let strategic = [
        metadata("ownerReferences", json!([{"uid": "owner-uid", "$patch": "delete"}])),
        metadata("ownerReferences", json!([{"$patch": "replace"}, owner])),
        metadata("ownerReferences", json!([owner])),
        metadata("ownerReferences", Value::Null),
        json!({"spec": {"taints": [{"$patch": "replace"}]}}),
        json!({"spec": {"taints": [{"key": "dedicated", "$patch": "delete"}]}}),
        json!({"spec": {"taints": Value::Null}}),
        json!({"spec": {"$patch": "replace", "unschedulable": true}}),
        metadata("labels", json!({"$patch": "replace", "plain": "a"})),
        metadata("labels", json!({"node-restriction.kubernetes.io/team": Value::Null})),
    ];
    for path in [NODE_1, &status] {
        for patch in &strategic {
            let answer = node.patch(path, "strategic", patch).await;
            assert_eq!(answer.status.as_u16(), 403, "{path} {patch}: {:?}", answer.json());
        }
        for fields in [
            json!({"metadata": {"name": "node-1", "ownerReferences": [owner]}}),
            json!({"metadata": {"name": "node-1"}, "spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
            json!({"metadata": {"name": "node-1", "labels": {"node-restriction.kubernetes.io/team": "b"}}}),
        ] {
            let mut body = fields.clone();
            (body["kind"], body["apiVersion"]) = (json!("Node"), json!("v1"));
            for dry in ["", "&dryRun=All"] {
                let path = format!("{path}?fieldManager=kubelet&force=true{dry}");
                let answer = node.patch(&path, "apply", &body).await;
                assert_eq!(answer.status.as_u16(), 403, "{path} {fields}: {:?}", answer.json());
            }
        }
    }
    let after = server.get(NODE_1).await.expect(200);
    assert_eq!(after["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_node_registers_itself_only() {
    let server = permissive_server().await;
    let first = NodeClient(&server, "node-1");
    let made = first.post("/api/v1/nodes", &node("node-1")).await.expect(201);
    assert_eq!(made["spec"]["taints"][0]["key"], "node.kubernetes.io/not-ready");
    let other = first.post("/api/v1/nodes", &node("node-2")).await;
    assert_eq!(
        other.fails(403, "Forbidden"),
        "nodes \"node-2\" is forbidden: node \"node-1\" is not allowed to modify node \"node-2\""
    );
    assert_eq!(other.json()["details"], json!({"name": "node-2", "kind": "nodes"}));
    let unnamed = json!({"metadata": {"generateName": "node-"}});
    assert_eq!(
        first.post("/api/v1/nodes", &unnamed).await.fails(403, "Forbidden"),
        "nodes \"node-\" is forbidden: node \"node-1\" is not allowed to modify node \"\""
    );
    let labelled = json!({"metadata": {"name": "node-2", "labels": {"k8s.io/a": "b"}}});
    assert_eq!(
        NodeClient(&server, "node-2").post("/api/v1/nodes", &labelled).await.fails(403, "Forbidden"),
        "nodes \"node-2\" is forbidden: node \"node-2\" is not allowed to set the following labels: k8s.io/a"
    );
    server.get("/api/v1/nodes/node-2").await.fails(404, "NotFound");
    // Deletions of other nodes are rejected as well.
    server.post("/api/v1/nodes", &node("node-2")).await.expect(201);
    for path in ["/api/v1/nodes/node-2", "/api/v1/nodes"] {
        let answer = first.delete(path).await;
        assert_eq!(answer.status.as_u16(), 403, "{path}");
    }
    server.get("/api/v1/nodes/node-2").await.expect(200);
}

/// `system:node:` is in the right group, but names no node.
#[tokio::test]
async fn a_node_without_a_name_writes_nothing() {
    let server = permissive_server().await;
    let nobody = User::authenticated("system:node:", "", vec!["system:nodes".into()]);
    for (path, resource) in [("/api/v1/nodes", "nodes"), (MAPS, "configmaps")] {
        let request = http::Request::post(path).body(Full::from(node("x").to_string())).unwrap();
        let local = LocalClient::new(server.server.clone(), nobody.clone());
        let response = local.oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 403);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let status: Value = serde_json::from_slice(&body).unwrap();
        let why = "could not determine node from user \"system:node:\"";
        assert_eq!(status["message"], format!("{resource} \"x\" is forbidden: {why}"));
    }
}

#[tokio::test]
async fn leases_csinodes_and_slices_of_other_nodes_are_denied() {
    let server = permissive_server().await;
    let first = NodeClient(&server, "node-1");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let csi = "/apis/storage.k8s.io/v1/csinodes";
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    let slice = |name: &str, node: &str| {
        json!({"metadata": {"name": name}, "spec": {"driver": "d.example.com", "nodeName": node,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}})
    };
    let csi_node = |name: &str| json!({"metadata": {"name": name}, "spec": {"drivers": []}});
    for (path, mine, theirs) in [
        (leases, node("node-1"), node("node-2")),
        (csi, csi_node("node-1"), csi_node("node-2")),
        (slices, slice("mine", "node-1"), slice("theirs", "node-2")),
    ] {
        let made = first.post(path, &mine).await.expect(201);
        first.post(path, &theirs).await.fails(403, "Forbidden");
        let made_by_admin = server.post(path, &theirs).await.expect(201);
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        let at = |object: &Value| format!("{path}/{}", name(object));
        first.put(&at(&made), &made).await.expect(200);
        if path != slices {
            // Authorization separates slices by the stored object.
            first.put(&at(&made_by_admin), &made_by_admin).await.fails(403, "Forbidden");
            let patch = json!({"metadata": {"annotations": {"a": "b"}}});
            first.patch(&at(&made_by_admin), "merge", &patch).await.fails(403, "Forbidden");
        }
        first.delete(&at(&made_by_admin)).await.fails(403, "Forbidden");
        first.delete(path).await.fails(403, "Forbidden");
        server.get(&at(&made_by_admin)).await.expect(200);
    }
    first.post(elsewhere, &node("node-1")).await.fails(403, "Forbidden");
    // A PUT to a missing name is a create operation.
    first.put(&format!("{leases}/node-3"), &node("node-3")).await.fails(403, "Forbidden");
}
