//! Deletion: immediate, after finalizers, after a grace period; collections and namespaces.

use http::Method;
use serde_json::{Value, json};

use windlass_testkit::{MAPS, PODS, TestResponse, TestServer, config_map, names, pod, version};

async fn delete(server: &TestServer, path: &str, options: &Value) -> TestResponse {
    server.request(Method::DELETE, path).json(options).send().await
}

#[tokio::test]
async fn a_deleted_object_is_gone_and_the_answer_says_what_it_was() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let status = server.delete(&path).await.expect(200);
    assert_eq!(
        status,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]},
        })
    );
    server.get(&path).await.fails(404, "NotFound");
    server.delete(&path).await.fails(404, "NotFound");
    // Deleting a pod returns the pod.
    let made = server.post(PODS, &pod("p")).await.expect(201);
    let gone = server.delete(&format!("{PODS}/p")).await.expect(200);
    assert_eq!((&gone["kind"], &gone["metadata"]["uid"]), (&json!("Pod"), &made["metadata"]["uid"]));
    server.get(&format!("{PODS}/p")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn preconditions_hold_or_nothing_happens() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let answer = delete(&server, &path, &json!({"preconditions": {"uid": "other"}})).await;
    assert_eq!(
        answer.fails(409, "Conflict"),
        format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        )
    );
    let answer = delete(&server, &path, &json!({"preconditions": {"resourceVersion": "1"}})).await;
    assert!(answer.fails(409, "Conflict").contains("The object might have been modified"));
    assert_eq!(server.revision(), version(&made));
    let rv = made["metadata"]["resourceVersion"].clone();
    let good = json!({"kind": "DeleteOptions", "apiVersion": "v1",
        "preconditions": {"uid": uid, "resourceVersion": rv}});
    delete(&server, &path, &good).await.expect(200);
}

#[tokio::test]
async fn finalizers_are_awaited() {
    let server = TestServer::start().await;
    let mut body = config_map("a");
    body["metadata"]["finalizers"] = json!(["example.com/f"]);
    server.post(MAPS, &body).await.expect(201);
    let path = format!("{MAPS}/a");
    let going = server.delete(&path).await.expect(200);
    assert_eq!(going["kind"], "ConfigMap");
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(server.get(&path).await.expect(200), going);
    // A second deletion changes nothing.
    assert_eq!(server.delete(&path).await.expect(200), going);
    assert_eq!(
        server.post(MAPS, &config_map("a")).await.fails(409, "AlreadyExists"),
        "object is being deleted: configmaps \"a\" already exists"
    );
    // No finalizer can be added any more, and the deletion cannot be revoked.
    let more = json!({"metadata": {"finalizers": ["example.com/f", "example.com/g"]}});
    server.patch(&path, "merge", &more).await.fails(422, "Invalid");
    let back = json!({"metadata": {"deletionTimestamp": null}, "data": {"k": "w"}});
    let still = server.patch(&path, "merge", &back).await.expect(200);
    assert!(still["metadata"]["deletionTimestamp"].is_string());
    // Removing the last finalizer deletes the object; the response is the requested state, and
    // watchers receive the last stored state.
    let query = format!("?watch=1&resourceVersion={}", server.revision());
    let mut watch = server.watch(&format!("{MAPS}{query}")).await;
    let none = json!({"metadata": {"finalizers": null}});
    let end = server.patch(&path, "merge", &none).await.expect(200);
    assert_eq!((&end["kind"], &end["metadata"]["finalizers"]), (&json!("ConfigMap"), &Value::Null));
    server.get(&path).await.fails(404, "NotFound");
    assert_eq!(watch.brief().await, "DELETED a");
    assert!(watch.has_no_event());
}

#[tokio::test]
async fn policies_leave_their_finalizers() {
    let server = TestServer::start().await;
    for (options, finalizers) in [
        (json!({"propagationPolicy": "Foreground"}), Some(json!(["foregroundDeletion"]))),
        (json!({"propagationPolicy": "Orphan"}), Some(json!(["orphan"]))),
        (json!({"orphanDependents": true}), Some(json!(["orphan"]))),
        (json!({"propagationPolicy": "Background"}), None),
        (json!({"orphanDependents": false}), None),
        (json!({}), None),
    ] {
        let made = server.post(MAPS, &json!({"metadata": {"generateName": "x-"}})).await.expect(201);
        let path = format!("{MAPS}/{}", made["metadata"]["name"].as_str().unwrap());
        let answer = delete(&server, &path, &options).await.expect(200);
        match finalizers {
            Some(list) => assert_eq!(answer["metadata"]["finalizers"], list, "{options}"),
            None => assert_eq!(answer["kind"], "Status", "{options}"),
        }
        // In the query as well.
        if let Some(policy) = options["propagationPolicy"].as_str() {
            let made = server.post(MAPS, &json!({"metadata": {"generateName": "x-"}})).await;
            let name = made.expect(201)["metadata"]["name"].as_str().unwrap().to_owned();
            let path = format!("{MAPS}/{name}?propagationPolicy={policy}");
            server.delete(&path).await.expect(200);
            let left = server.get(&format!("{MAPS}/{name}")).await.status;
            assert_eq!(left, if policy == "Background" { 404 } else { 200 });
        }
    }
}

#[tokio::test]
async fn a_policy_changed_in_mid_deletion_changes_the_finalizers() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    delete(&server, &path, &json!({"propagationPolicy": "Foreground"})).await.expect(200);
    let going = delete(&server, &path, &json!({"propagationPolicy": "Orphan"})).await.expect(200);
    assert_eq!(going["metadata"]["finalizers"], json!(["orphan"]));
    delete(&server, &path, &json!({"propagationPolicy": "Background"})).await.expect(200);
    server.get(&path).await.fails(404, "NotFound");
}

#[tokio::test]
async fn options_that_cannot_be() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    for (options, code) in [
        (json!({"propagationPolicy": "Sideways"}), 422),
        (json!({"propagationPolicy": "Orphan", "orphanDependents": true}), 422),
        (json!({"dryRun": ["Some"]}), 422),
        (json!({"gracePeriodSeconds": "x"}), 400),
        (json!({"kind": "Pod", "apiVersion": "v1"}), 400),
        (json!([]), 400),
    ] {
        let answer = delete(&server, &path, &options).await;
        assert_eq!(answer.status, code, "{options}: {}", answer.json());
    }
    assert_eq!(server.delete(&format!("{path}?gracePeriodSeconds=x")).await.status, 400);
    assert_eq!(server.delete(&format!("{path}?propagationPolicy=Sideways")).await.status, 422);
    assert_eq!(server.revision(), version(&made));
    // The body takes precedence over the query.
    delete(&server, &format!("{path}?dryRun=All"), &json!({"gracePeriodSeconds": 5})).await.expect(200);
    server.get(&path).await.fails(404, "NotFound");
}

#[tokio::test]
async fn a_pod_on_a_node_is_given_time() {
    let server = TestServer::start().await;
    let mut body = pod("p");
    body["spec"]["nodeName"] = json!("n");
    let path = format!("{PODS}/p");
    server.post(PODS, &body).await.expect(201);
    let going = server.delete(&path).await.expect(200);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(going["metadata"]["generation"], 2);
    let at = going["metadata"]["deletionTimestamp"].as_str().unwrap().to_owned();
    // A longer period is ignored; a shorter one takes effect.
    let longer = delete(&server, &path, &json!({"gracePeriodSeconds": 60})).await.expect(200);
    assert_eq!(longer["metadata"]["deletionTimestamp"], at);
    let shorter = delete(&server, &path, &json!({"gracePeriodSeconds": 5})).await.expect(200);
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    assert!(shorter["metadata"]["deletionTimestamp"].as_str().unwrap() < at.as_str());
    // The kubelet confirms, and the pod is removed.
    delete(&server, &path, &json!({"gracePeriodSeconds": 0})).await.expect(200);
    server.get(&path).await.fails(404, "NotFound");
    // Zero grace from the start: marked, then removed.
    let made = server.post(PODS, &body).await.expect(201);
    let mut watch = server.watch(&format!("{PODS}?watch=1&resourceVersion={}", version(&made))).await;
    let gone = server.delete(&format!("{path}?gracePeriodSeconds=0")).await.expect(200);
    assert!(gone["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], 0);
    server.get(&path).await.fails(404, "NotFound");
    for kind in ["MODIFIED", "DELETED"] {
        let event = watch.next().await;
        assert_eq!(event["type"], kind);
        assert_eq!(event["object"]["metadata"]["deletionGracePeriodSeconds"], 0);
    }
}

#[tokio::test]
async fn a_namespace_that_is_being_deleted_has_no_period_of_grace() {
    let server = TestServer::start().await;
    let body = json!({"metadata": {"name": "going"}});
    server.post("/api/v1/namespaces", &body).await.expect(201);
    let going = server.delete("/api/v1/namespaces/going").await.expect(200);
    assert_eq!(going["status"]["phase"], "Terminating");
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(going["metadata"].get("deletionGracePeriodSeconds"), None);
    // A second deletion changes nothing.
    assert_eq!(server.delete("/api/v1/namespaces/going").await.expect(200), going);
}

#[tokio::test]
async fn a_grace_period_beyond_the_time_range_is_accepted() {
    let server = TestServer::start().await;
    let mut body = pod("p");
    body["spec"]["nodeName"] = json!("n");
    server.post(PODS, &body).await.expect(201);
    for grace in [i64::MAX, i64::MIN] {
        let options = json!({"gracePeriodSeconds": grace});
        let answer = delete(&server, &format!("{PODS}/p"), &options).await;
        assert_eq!(answer.status, 200, "{}", answer.json());
    }
}

#[tokio::test]
async fn collections_are_deleted_as_selected() {
    let server = TestServer::start().await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red"), ("d", "red")] {
        let mut map = config_map(name);
        map["metadata"]["labels"] = json!({"color": color});
        if name == "d" {
            map["metadata"]["finalizers"] = json!(["example.com/f"]);
        }
        server.post(MAPS, &map).await.expect(201);
    }
    server.post("/api/v1/namespaces/kube-public/configmaps", &config_map("a")).await.expect(201);
    let before = server.revision();
    let dry = server.delete(&format!("{MAPS}?labelSelector=color%3Dred&dryRun=All")).await;
    assert_eq!(names(&dry.expect(200)), ["a", "c", "d"]);
    assert_eq!(server.revision(), before);
    let deleted = server.delete(&format!("{MAPS}?labelSelector=color%3Dred")).await.expect(200);
    assert_eq!((names(&deleted), &deleted["kind"]), (vec!["a", "c", "d"], &json!("ConfigMapList")));
    assert_eq!(names(&server.get(MAPS).await.expect(200)), ["b", "d"]);
    server.delete(&format!("{MAPS}?fieldSelector=metadata.name%3Db")).await.expect(200);
    assert_eq!(names(&server.get(MAPS).await.expect(200)), ["d"]);
    assert_eq!(names(&server.get("/api/v1/configmaps").await.expect(200)), ["d", "a"]);
    let none = server.delete(&format!("{MAPS}?labelSelector=x")).await.expect(200);
    assert_eq!(none["items"], json!([]));
    server.delete(&format!("{MAPS}?labelSelector=,,")).await.fails(400, "BadRequest");
    server.delete("/api/v1/configmaps").await.fails(405, "MethodNotAllowed");
    // At cluster scope.
    for name in ["n1", "n2"] {
        server.post("/api/v1/nodes", &json!({"metadata": {"name": name}})).await.expect(201);
    }
    server.delete("/api/v1/nodes").await.expect(200);
    assert_eq!(server.get("/api/v1/nodes").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn a_namespace_is_deleted_when_it_is_finalized() {
    let server = TestServer::start().await;
    let path = "/api/v1/namespaces/x";
    let made = server.post("/api/v1/namespaces", &json!({"metadata": {"name": "x"}})).await;
    let made = made.expect(201);
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(made["status"]["phase"], "Active");
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "x");
    let inside = "/api/v1/namespaces/x/configmaps";
    server.post(inside, &config_map("old")).await.expect(201);
    let going = server.delete(path).await.expect(200);
    assert_eq!((&going["kind"], &going["status"]["phase"]), (&json!("Namespace"), &json!("Terminating")));
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    // Nothing can be created; updates and deletions continue.
    let answer = server.post(inside, &config_map("new")).await;
    assert_eq!(
        answer.fails(403, "Forbidden"),
        "configmaps \"new\" is forbidden: unable to create new content in namespace x because it is being terminated"
    );
    assert_eq!(
        answer.json()["details"]["causes"],
        json!([{"reason": "NamespaceTerminating", "message": "namespace x is being terminated", "field": "metadata.namespace"}])
    );
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
    let answer = server.patch(&format!("{inside}/new?fieldManager=m"), "apply", &applied).await;
    answer.fails(403, "Forbidden");
    let patch = json!({"data": {"k": "w"}});
    server.patch(&format!("{inside}/old"), "merge", &patch).await.expect(200);
    server.delete(&format!("{inside}/old")).await.expect(200);
    // The finalizer cannot be removed through the namespace itself.
    let patch = json!({"spec": {"finalizers": []}});
    let kept = server.patch(path, "merge", &patch).await.expect(200);
    assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]));
    let mut last = kept.clone();
    last["spec"] = json!({});
    server.put(&format!("{path}/finalize"), &last).await.expect(200);
    server.get(path).await.fails(404, "NotFound");
}

#[tokio::test]
async fn some_namespaces_stay() {
    let server = TestServer::start().await;
    let before = server.revision();
    for name in ["default", "kube-system", "kube-public"] {
        let said = server.delete(&format!("/api/v1/namespaces/{name}")).await.fails(403, "Forbidden");
        assert_eq!(said, format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted"));
    }
    assert_eq!(server.revision(), before);
    // Namespaces cannot be deleted as a collection.
    server.delete("/api/v1/namespaces").await.fails(405, "MethodNotAllowed");
}

#[tokio::test]
async fn a_collection_is_answered_as_it_was_before() {
    let server = TestServer::start().await;
    let made = server.post(PODS, &pod("p")).await.expect(201);
    let gone = server.delete(PODS).await.expect(200);
    assert_eq!(gone["items"][0]["metadata"], made["metadata"]);
    server.get(&format!("{PODS}/p")).await.fails(404, "NotFound");
}
