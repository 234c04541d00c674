//! JSON, merge and strategic patches.

use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use windlass_testkit::{MAPS, PODS, TestServer, config_map, pod, version};

#[tokio::test]
async fn each_type_changes_an_object() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    for (how, patch, want) in [
        ("json", json!([{"op": "add", "path": "/data/j", "value": "1"}]), json!({"k": "v", "j": "1"})),
        (
            "json",
            json!([
                {"op": "test", "path": "/data/j", "value": "1"},
                {"op": "replace", "path": "/data/j", "value": "2"},
                {"op": "copy", "from": "/data/j", "path": "/data/c"},
                {"op": "move", "from": "/data/c", "path": "/data/m"},
                {"op": "remove", "path": "/data/k"},
            ]),
            json!({"j": "2", "m": "2"}),
        ),
        ("merge", json!({"data": {"j": null, "x~/y": "3"}}), json!(null)),
        ("merge", json!({"data": {"x": "3"}}), json!({"j": "2", "m": "2", "x": "3"})),
        ("strategic", json!({"data": {"j": null, "s": "4"}}), json!({"m": "2", "x": "3", "s": "4"})),
        ("strategic", json!({"data": {"$patch": "replace", "t": "5"}}), json!({"t": "5"})),
        ("merge", json!({"data": null}), json!(null)),
    ] {
        let answer = server.patch(&path, how, &patch).await;
        if want.is_null() && patch["data"].is_object() {
            // `x~/y` is no valid ConfigMap key.
            answer.fails(422, "Invalid");
            continue;
        }
        assert_eq!(answer.expect(200)["data"], want, "{how} {patch}");
    }
}

#[tokio::test]
async fn lists_of_a_pod_are_merged_by_their_keys() {
    let server = TestServer::start().await;
    let mut body = pod("p");
    body["spec"]["containers"] = json!([
        {"name": "a", "image": "a:1"},
        {"name": "b", "image": "b:1", "env": [{"name": "E", "value": "1"}]},
    ]);
    body["spec"]["tolerations"] = json!([{"key": "t", "operator": "Exists"}]);
    body["metadata"]["finalizers"] = json!(["example.com/a"]);
    server.post(PODS, &body).await.expect(201);
    let path = format!("{PODS}/p");
    let image = |pod: &Value, i: usize| pod["spec"]["containers"][i]["image"].clone();
    // Merged by name; the other container stays.
    let patch = json!({"spec": {"containers": [{"name": "b", "image": "b:2"}]}});
    let changed = server.patch(&path, "strategic", &patch).await.expect(200);
    assert_eq!((image(&changed, 0), image(&changed, 1)), (json!("a:1"), json!("b:2")));
    assert_eq!(changed["spec"]["containers"][1]["env"], json!([{"name": "E", "value": "1"}]));
    // A merge patch replaces the list, which then lacks a container: containers of a pod cannot be
    // removed.
    server.patch(&path, "merge", &patch).await.fails(422, "Invalid");
    // `$patch: delete` removes an element, with the same result.
    let patch = json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}});
    server.patch(&path, "strategic", &patch).await.fails(422, "Invalid");
    // A list of primitives is merged as a set; elements are deleted by value.
    let patch = json!({"metadata": {"finalizers": ["example.com/b"]}});
    let changed = server.patch(&path, "strategic", &patch).await.expect(200);
    // Without an order in the patch, its elements come first.
    assert_eq!(changed["metadata"]["finalizers"], json!(["example.com/b", "example.com/a"]));
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}});
    let changed = server.patch(&path, "strategic", &patch).await.expect(200);
    assert_eq!(changed["metadata"]["finalizers"], json!(["example.com/b"]));
    let patch = json!({"metadata": {
        "$setElementOrder/finalizers": ["example.com/c", "example.com/b"],
        "finalizers": ["example.com/c"],
    }});
    let changed = server.patch(&path, "strategic", &patch).await.expect(200);
    assert_eq!(changed["metadata"]["finalizers"], json!(["example.com/c", "example.com/b"]));
}

#[tokio::test]
async fn conditions_of_a_node_are_merged_by_type() {
    let server = TestServer::start().await;
    server.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.expect(201);
    let path = "/api/v1/nodes/n/status";
    for (patch, want) in [
        (json!([{"type": "Ready", "status": "False"}]), vec!["Ready=False"]),
        (json!([{"type": "DiskPressure", "status": "False"}]), vec!["DiskPressure=False", "Ready=False"]),
        (json!([{"type": "Ready", "status": "True"}]), vec!["DiskPressure=False", "Ready=True"]),
        (json!([{"type": "DiskPressure", "$patch": "delete"}]), vec!["Ready=True"]),
        (json!([{"$patch": "replace"}, {"type": "New", "status": "True"}]), vec!["New=True"]),
    ] {
        let body = json!({"status": {"conditions": patch}});
        let node = server.patch(path, "strategic", &body).await.expect(200);
        let conditions = node["status"]["conditions"].as_array().unwrap().iter();
        let mut have: Vec<String> = conditions
            .map(|c| format!("{}={}", c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
            .collect();
        have.sort();
        assert_eq!(have, want, "{patch}");
    }
    let taints = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let node = server.patch("/api/v1/nodes/n", "strategic", &taints).await.expect(200);
    assert_eq!(node["spec"]["taints"], taints["spec"]["taints"]);
}

#[tokio::test]
async fn patches_that_cannot_be() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let many: Vec<Value> =
        (0..10_001).map(|_| json!({"op": "test", "path": "/data/k", "value": "v"})).collect();
    let deep = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
    let types = [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ];
    let [json_, merge, strategic] = types;
    for (media, body, code, reason) in [
        (json_, "{".to_owned(), 400, "BadRequest"),
        (json_, "{}".to_owned(), 400, "BadRequest"),
        (json_, "".to_owned(), 400, "BadRequest"),
        (json_, deep.clone(), 400, "BadRequest"),
        (json_, json!([{"op": "remove", "path": "/data/none"}]).to_string(), 422, "Invalid"),
        (json_, json!([{"op": "test", "path": "/data/k", "value": "x"}]).to_string(), 422, "Invalid"),
        (json_, json!([{"op": "replace", "path": "/none/x", "value": 1}]).to_string(), 422, "Invalid"),
        (json_, json!([{"op": "add", "path": "/data/k", "value": 7}]).to_string(), 422, "Invalid"),
        (
            json_,
            json!([{"op": "replace", "path": "/kind", "value": "Secret"}]).to_string(),
            400,
            "BadRequest",
        ),
        (
            json_,
            json!([{"op": "replace", "path": "/metadata/name", "value": "b"}]).to_string(),
            400,
            "BadRequest",
        ),
        (json_, Value::Array(many).to_string(), 413, "RequestEntityTooLarge"),
        (merge, "{".to_owned(), 400, "BadRequest"),
        (merge, "[]".to_owned(), 400, "BadRequest"),
        (merge, "null".to_owned(), 400, "BadRequest"),
        (merge, "7".to_owned(), 400, "BadRequest"),
        (merge, deep.clone(), 400, "BadRequest"),
        (merge, json!({"metadata": {"name": "b"}}).to_string(), 400, "BadRequest"),
        (merge, json!({"metadata": {"namespace": "b"}}).to_string(), 400, "BadRequest"),
        (merge, json!({"metadata": {"uid": "b"}}).to_string(), 422, "Invalid"),
        (merge, json!({"metadata": 7}).to_string(), 422, "Invalid"),
        (merge, json!({"data": {"k": 7}}).to_string(), 422, "Invalid"),
        (merge, json!({"metadata": {"resourceVersion": "1"}}).to_string(), 409, "Conflict"),
        (strategic, "{".to_owned(), 400, "BadRequest"),
        (strategic, "[]".to_owned(), 400, "BadRequest"),
        (strategic, deep, 400, "BadRequest"),
        (strategic, json!({"data": {"$patch": "dance"}}).to_string(), 500, ""),
        ("application/json", "{}".to_owned(), 415, "UnsupportedMediaType"),
        ("", "{}".to_owned(), 415, "UnsupportedMediaType"),
    ] {
        let shown = body.chars().take(120).collect::<String>();
        let asked = server.request(Method::PATCH, &path).header("content-type", media).raw_body(body);
        let answer = asked.send().await;
        let status = answer.json();
        assert_eq!(answer.status, code, "{media} {shown}: {status}");
        assert_eq!(status["reason"].as_str().unwrap_or_default(), reason, "{media} {shown}");
    }
    for how in ["json", "merge", "strategic"] {
        let body = if how == "json" { json!([]) } else { json!({}) };
        server.patch(&format!("{MAPS}/none"), how, &body).await.fails(404, "NotFound");
    }
    assert_eq!(server.get(&path).await.expect(200), made);
    assert_eq!(server.revision(), version(&made));
}

/// Each step doubles a value: 2^40 bytes if executed.
#[tokio::test]
async fn cve_2019_1002100_a_patch_that_would_grow_without_end_is_refused() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    let mut steps = vec![json!({"op": "add", "path": "/data/l", "value": ["x".repeat(1024)]})];
    for _ in 0..40 {
        steps.push(json!({"op": "copy", "from": "/data/l", "path": "/data/l/-"}));
    }
    let started = Instant::now();
    let answer = server.patch(&format!("{MAPS}/a"), "json", &Value::Array(steps)).await;
    assert!(answer.status.is_client_error(), "{}", answer.json());
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(server.get(&format!("{MAPS}/a")).await.expect(200), made);
}

#[tokio::test]
async fn a_patch_can_name_the_version_it_is_for() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let at = |v: u64, k: &str| json!({"metadata": {"resourceVersion": v.to_string()}, "data": {"k": k}});
    let changed = server.patch(&path, "merge", &at(version(&made), "w")).await.expect(200);
    server.patch(&path, "merge", &at(version(&made), "x")).await.fails(409, "Conflict");
    server.patch(&path, "strategic", &at(version(&changed), "x")).await.expect(200);
}

#[tokio::test]
async fn patches_of_leases_need_no_version() {
    let server = TestServer::start().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    server.post(leases, &lease).await.expect(201);
    let patch = json!({"spec": {"holderIdentity": "b"}});
    let changed = server.patch(&format!("{leases}/l"), "merge", &patch).await.expect(200);
    assert_eq!(changed["spec"]["holderIdentity"], "b");
}

#[tokio::test]
async fn a_patch_that_makes_no_object_is_shown() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a?fieldValidation=Strict");
    let odd = json!({"odd": {"b": [1, "x"], "a": null}});
    let answer = server.patch(&path, "strategic", &odd).await;
    assert_eq!(
        answer.fails(422, "Invalid"),
        " \"\" is invalid: patch: Invalid value: \"map[odd:map[a:<nil> b:[1 x]]]\": \
         strict decoding error: unknown field \"odd\""
    );
    for how in ["strategic", "merge"] {
        let answer = server.patch(&path, how, &json!({"data": {"k": 1}})).await;
        answer.fails(422, "Invalid");
        assert_eq!(answer.json()["details"]["causes"][0]["field"], "patch", "{how}");
    }
}
