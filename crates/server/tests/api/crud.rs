//! Create, get and update.

use http::Method;
use serde_json::{Value, json};

use windlass_testkit::{MAPS, PODS, TestServer, config_map, pod, version};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

#[tokio::test]
async fn a_new_object_gets_what_the_server_owns_and_keeps_none_of_the_clients() {
    let server = TestServer::start().await;
    let body = json!({
        "metadata": {
            "name": "a",
            "uid": "mine",
            "creationTimestamp": "2001-01-01T00:00:00Z",
            "deletionTimestamp": "2001-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 5,
            "generation": 9,
            "selfLink": "/x",
            "managedFields": [{"manager": "me"}],
            "labels": {"kept": "yes"},
        },
        "data": {"k": "v"},
    });
    let made = server.post(MAPS, &body).await.expect(201);
    let meta = &made["metadata"];
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert_eq!(meta["namespace"], "default");
    assert_eq!(meta["labels"], json!({"kept": "yes"}));
    assert_ne!(meta["uid"], "mine");
    assert_eq!(meta["uid"].as_str().unwrap().len(), 36);
    assert_ne!(meta["creationTimestamp"], "2001-01-01T00:00:00Z");
    for gone in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"] {
        assert_eq!(meta[gone], Value::Null, "{gone}");
    }
    assert_ne!(meta["managedFields"][0]["manager"], "me");
    assert_eq!(version(&made), server.revision());
    assert_eq!(server.get(&format!("{MAPS}/a")).await.expect(200), made);
}

#[tokio::test]
async fn names_are_generated() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &json!({"metadata": {"generateName": "gen-"}})).await.expect(201);
    let name = made["metadata"]["name"].as_str().unwrap();
    assert_eq!((name.len(), made["metadata"]["generateName"].as_str()), (9, Some("gen-")));
    let both = json!({"metadata": {"generateName": "gen-", "name": "own"}});
    assert_eq!(server.post(MAPS, &both).await.expect(201)["metadata"]["name"], "own");
}

#[tokio::test]
async fn creations_that_cannot_be() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("there")).await.expect(201);
    let before = server.revision();
    let with = |meta: Value| json!({"metadata": meta});
    for (path, body, code, reason, message) in [
        (MAPS, config_map("there"), 409, "AlreadyExists", "configmaps \"there\" already exists"),
        (
            MAPS,
            with(json!({"name": "a", "namespace": "other"})),
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            MAPS,
            with(json!({"name": "a", "resourceVersion": "1"})),
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        ),
        (
            MAPS,
            with(json!({})),
            422,
            "Invalid",
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            MAPS,
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}),
            400,
            "BadRequest",
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (
            MAPS,
            json!({"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "a"}}),
            400,
            "BadRequest",
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
        (
            "/api/v1/namespaces/nowhere/configmaps",
            config_map("a"),
            404,
            "NotFound",
            "namespaces \"nowhere\" not found",
        ),
        (
            "/api/v1/configmaps",
            config_map("a"),
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ),
    ] {
        let answer = server.post(path, &body).await;
        assert_eq!(answer.fails(code, reason), message, "{body}");
    }
    assert_eq!(server.revision(), before);
}

#[tokio::test]
async fn names_follow_the_grammar_of_their_kind() {
    let server = TestServer::start().await;
    let long = "a".repeat(254);
    for (path, name, good) in [
        (MAPS, "a.b-c", true),
        (MAPS, "kube-root-ca.crt", true),
        (MAPS, "A", false),
        (MAPS, "-a", false),
        (MAPS, "a_b", false),
        (MAPS, "a/b", false),
        (MAPS, "..", false),
        (MAPS, ".", false),
        (MAPS, "a%2fb", false),
        (MAPS, "ä", false),
        (MAPS, long.as_str(), false),
        ("/api/v1/namespaces", "a.b", false),
        ("/api/v1/namespaces", "a-b", true),
        ("/api/v1/nodes", "a.b", true),
    ] {
        let answer = server.post(path, &json!({"metadata": {"name": name}})).await;
        assert_eq!(answer.status, if good { 201 } else { 422 }, "{path} {name}");
    }
}

#[tokio::test]
async fn get_finds_or_says_what_is_missing() {
    let server = TestServer::start().await;
    for (path, message) in [
        ("/api/v1/namespaces/default/configmaps/x", "configmaps \"x\" not found"),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/x",
            "leases.coordination.k8s.io \"x\" not found",
        ),
        ("/api/v1/nodes/x", "nodes \"x\" not found"),
        // For reads, a missing namespace is no separate error.
        ("/api/v1/namespaces/nowhere/pods/x", "pods \"x\" not found"),
        ("/api/v1/things", "the server could not find the requested resource"),
        (
            "/api/v1/namespaces/default/configmaps/x/status",
            "the server could not find the requested resource",
        ),
    ] {
        assert_eq!(server.get(path).await.fails(404, "NotFound"), message, "{path}");
    }
    let gone = server.get("/api/v1/namespaces/default/configmaps/x").await.json();
    assert_eq!(gone["details"], json!({"name": "x", "kind": "configmaps"}));
    let empty = server.get("/api/v1/namespaces/nowhere/configmaps").await.expect(200);
    assert_eq!(empty["items"], json!([]));
}

#[tokio::test]
async fn updates_replace() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    // Without a version: unconditional. UID and creation time are kept.
    let new = json!({"metadata": {"name": "a"}, "data": {"other": "x"}});
    let changed = server.put(&path, &new).await.expect(200);
    assert_eq!(changed["data"], json!({"other": "x"}));
    for kept in ["uid", "creationTimestamp", "namespace"] {
        assert_eq!(changed["metadata"][kept], made["metadata"][kept], "{kept}");
    }
    assert_eq!(version(&changed), server.revision());
    // With the stale version.
    assert_eq!(
        server.put(&path, &made).await.fails(409, "Conflict"),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    // With the current version.
    let mut again = changed.clone();
    again["data"] = json!({"third": "y"});
    assert_eq!(server.put(&path, &again).await.expect(200)["data"], json!({"third": "y"}));
}

#[tokio::test]
async fn updates_that_cannot_be() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let before = server.revision();
    let with = |meta: Value| json!({"metadata": meta, "data": {"new": "x"}});
    for (body, code, reason, message) in [
        (
            with(json!({"name": "b"})),
            400,
            "BadRequest",
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            with(json!({"name": "a", "namespace": "other"})),
            400,
            "BadRequest",
            "the namespace of the object (other) does not match the namespace on the request (default)",
        ),
        (
            with(json!({"name": "a", "resourceVersion": "99999"})),
            409,
            "Conflict",
            "the object has been modified; please apply your changes",
        ),
        (with(json!({"name": "a", "uid": "x"})), 409, "Conflict", "Precondition failed: UID"),
        (
            with(json!({"name": "a", "creationTimestamp": "2001-01-01T00:00:00Z"})),
            422,
            "Invalid",
            "metadata.creationTimestamp: Invalid value",
        ),
    ] {
        let said = server.put(&path, &body).await.fails(code, reason);
        assert!(said.contains(message), "{body}: {said}");
    }
    let missing = server.put(&format!("{MAPS}/b"), &config_map("b")).await;
    assert_eq!(missing.fails(404, "NotFound"), "configmaps \"b\" not found");
    let nameless = server.put(&path, &json!({"data": {}})).await;
    assert!(nameless.fails(400, "BadRequest").contains("name must be provided"));
    assert_eq!(server.revision(), before);
}

#[tokio::test]
async fn an_update_that_changes_nothing_is_none() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    let mut watch = server.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&made))).await;
    let path = format!("{MAPS}/a");
    assert_eq!(server.put(&path, &made).await.expect(200), made);
    assert_eq!(server.put(&path, &config_map("a")).await.expect(200), made);
    assert_eq!(server.patch(&path, "merge", &json!({})).await.expect(200), made);
    assert_eq!(server.patch(&path, "json", &json!([])).await.expect(200), made);
    assert_eq!(server.revision(), version(&made));
    assert!(watch.has_no_event());
}

#[tokio::test]
async fn leases_and_events_are_created_by_an_update_and_leases_want_a_version() {
    let server = TestServer::start().await;
    let path = format!("{LEASES}/l");
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    let made = server.put(&path, &lease).await.expect(201);
    assert_eq!(made["metadata"]["namespace"], "default");
    let said = server.put(&path, &lease).await;
    assert_eq!(
        said.fails(422, "Invalid"),
        "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
    // The message names the resource where other 422s name the kind.
    assert_eq!(said.json()["details"]["kind"], "leases");
    let mut with_version = made.clone();
    with_version["spec"]["holderIdentity"] = json!("b");
    server.put(&path, &with_version).await.expect(200);
    // A version means that the object existed before, so it must not be created again.
    let mut gone = made;
    gone["metadata"]["name"] = json!("gone");
    server.put(&format!("{LEASES}/gone"), &gone).await.fails(404, "NotFound");
    let event = json!({
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
    });
    server.put("/api/v1/namespaces/default/events/e", &event).await.expect(201);
}

#[tokio::test]
async fn the_status_and_the_rest_are_written_apart() {
    let server = TestServer::start().await;
    server.post(PODS, &pod("p")).await.expect(201);
    server.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.expect(201);
    server.post("/api/v1/namespaces", &json!({"metadata": {"name": "x"}})).await.expect(201);
    for (path, status, spec) in [
        (format!("{PODS}/p"), json!({"message": "from status"}), json!({"activeDeadlineSeconds": 77})),
        (
            "/api/v1/nodes/n".to_owned(),
            json!({"nodeInfo": {"machineID": "m"}}),
            json!({"unschedulable": true}),
        ),
        (
            "/api/v1/namespaces/x".to_owned(),
            json!({"conditions": [{"type": "Odd", "status": "True"}]}),
            json!({}),
        ),
    ] {
        let before = server.get(&path).await.expect(200);
        let patch = json!({"status": status, "spec": spec});
        let changed = server.patch(&format!("{path}/status"), "merge", &patch).await.expect(200);
        assert_ne!(changed["status"], before["status"], "{path}");
        assert_eq!(changed["spec"], before["spec"], "{path}");
        assert_eq!(changed["metadata"]["generation"], before["metadata"]["generation"]);
        let before = changed;
        let patch = json!({"status": {"phase": null, "message": null, "nodeInfo": null,
            "conditions": null}, "spec": spec});
        let changed = server.patch(&path, "merge", &patch).await.expect(200);
        assert_eq!(changed["status"], before["status"], "{path}");
        if spec != json!({}) {
            assert_ne!(changed["spec"], before["spec"], "{path}");
        }
        assert_eq!(server.get(&format!("{path}/status")).await.expect(200), changed);
    }
}

#[tokio::test]
async fn generation_counts_changes_of_the_desired_state() {
    let server = TestServer::start().await;
    let path = format!("{PODS}/p");
    let made = server.post(PODS, &pod("p")).await.expect(201);
    assert_eq!(made["metadata"]["generation"], 1);
    for (target, patch, generation) in [
        (path.clone(), json!({"metadata": {"labels": {"a": "b"}}}), 1),
        (format!("{path}/status"), json!({"status": {"message": "m"}}), 1),
        (path.clone(), json!({"spec": {"activeDeadlineSeconds": 9}}), 2),
        (path.clone(), json!({"metadata": {"generation": 40}}), 2),
        (path.clone(), json!({"spec": {"activeDeadlineSeconds": 8}}), 3),
    ] {
        let changed = server.patch(&target, "merge", &patch).await.expect(200);
        assert_eq!(changed["metadata"]["generation"], generation, "{patch}");
    }
}

#[tokio::test]
async fn metadata_is_checked_and_most_of_it_cannot_change() {
    let server = TestServer::start().await;
    for (meta, field) in [
        (json!({"labels": {"a b": "c"}}), "metadata.labels"),
        (json!({"labels": {"a": "b c"}}), "metadata.labels"),
        (json!({"annotations": {"a b": "c"}}), "metadata.annotations"),
        (json!({"finalizers": ["no/pe/x"]}), "metadata.finalizers"),
        (json!({"ownerReferences": [{"kind": "x"}]}), "metadata.ownerReferences"),
        (json!({"annotations": {"big": "x".repeat(257 * 1024)}}), "metadata.annotations"),
    ] {
        let mut body = config_map("a");
        body["metadata"].as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
        let said = server.post(MAPS, &body).await.fails(422, "Invalid");
        assert!(said.contains(field), "{said}");
    }
}

#[tokio::test]
async fn many_writers_of_one_object_lose_nothing() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    // Every writer reads, changes its own key and retries until there is no conflict.
    let writer = |id: usize| {
        let (server, path) = (&server, &path);
        async move {
            for round in 0..10 {
                loop {
                    let mut now = server.get(path).await.expect(200);
                    now["data"][format!("w{id}")] = json!(round.to_string());
                    match server.put(path, &now).await.status.as_u16() {
                        200 => break,
                        409 => {}
                        other => panic!("{other}"),
                    }
                }
            }
        }
    };
    futures::future::join_all((0..8).map(writer)).await;
    let end = server.get(&path).await.expect(200);
    for id in 0..8 {
        assert_eq!(end["data"][format!("w{id}")], "9");
    }
}

#[tokio::test]
async fn merge_patches_at_once_all_take_effect() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let patch = |id: usize| {
        let (server, path) = (&server, &path);
        async move {
            let body = json!({"data": {format!("p{id}"): "x"}});
            server.patch(path, "merge", &body).await.expect(200);
        }
    };
    futures::future::join_all((0..5).map(patch)).await;
    assert_eq!(server.get(&path).await.expect(200)["data"].as_object().unwrap().len(), 6);
}

#[tokio::test]
async fn methods_that_a_path_does_not_have() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    for (method, path) in [
        (Method::POST, "/api/v1/namespaces/default/configmaps/a"),
        (Method::PUT, MAPS),
        (Method::PATCH, MAPS),
        (Method::DELETE, "/api/v1/configmaps"),
        (Method::DELETE, "/api/v1/namespaces/default/pods/p/status"),
        (Method::GET, "/api/v1/namespaces/default/finalize"),
        (Method::OPTIONS, MAPS),
    ] {
        let answer = server.request(method.clone(), path).json(&json!({})).send().await;
        answer.fails(405, "MethodNotAllowed");
    }
}

/// Kubernetes' wording since it began to warn.
#[tokio::test]
async fn an_owner_named_twice_is_named_once_with_a_warning() {
    let server = TestServer::start().await;
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid});
    let mut body = config_map("a");
    body["metadata"]["ownerReferences"] =
        json!([owner("u1"), owner("u2"), owner("u1"), owner("u2"), owner("u1")]);
    let want = json!([owner("u1"), owner("u2")]);
    let warning = "299 - \".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u1, u2\"";
    let path = format!("{MAPS}/a");
    for answer in [
        server.post(MAPS, &body).await,
        server.put(&path, &body).await,
        server.patch(&format!("{path}?fieldValidation=Strict"), "merge", &body).await,
    ] {
        assert_eq!(answer.warnings(), [warning]);
        assert!(answer.status.is_success());
        assert_eq!(answer.json()["metadata"]["ownerReferences"], want);
    }
}
