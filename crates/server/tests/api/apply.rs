//! Server-side apply and field ownership.

use http::Method;
use serde_json::{Value, json};

use windlass_testkit::{MAPS, PODS, TestServer, config_map, pod, version};

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn path_with_manager(manager: &str) -> String {
    format!("{MAPS}/a?fieldManager={manager}")
}

#[tokio::test]
async fn apply_creates_and_then_does_nothing() {
    let server = TestServer::start().await;
    let made = server.patch(&path_with_manager("one"), "apply", &map(json!({"k": "v"}))).await.expect(201);
    assert_eq!(made["metadata"]["namespace"], "default");
    let managed = made["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managed.len(), 1);
    let mut entry = managed[0].clone();
    let time = entry.as_object_mut().unwrap().remove("time").unwrap();
    assert_eq!(time, made["metadata"]["creationTimestamp"]);
    assert_eq!(
        entry,
        json!({
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:k": {}}},
        })
    );
    let again = server.patch(&path_with_manager("one"), "apply", &map(json!({"k": "v"}))).await.expect(200);
    assert_eq!(again, made);
    assert_eq!(server.revision(), version(&made));
}

#[tokio::test]
async fn a_field_of_another_manager_is_a_conflict_unless_forced() {
    let server = TestServer::start().await;
    server.patch(&path_with_manager("one"), "apply", &map(json!({"k": "v", "mine": "1"}))).await.expect(201);
    let answer = server.patch(&path_with_manager("two"), "apply", &map(json!({"k": "w"}))).await;
    let status = answer.expect(409);
    assert_eq!(status["reason"], "Conflict");
    assert_eq!(status["message"], "Apply failed with 1 conflict: conflict with \"one\": .data.k");
    assert_eq!(
        status["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.k"}])
    );
    // An equal value is no conflict: both own it.
    server.patch(&path_with_manager("two"), "apply", &map(json!({"k": "v"}))).await.expect(200);
    let forced = format!("{}&force=true", path_with_manager("two"));
    let changed = server.patch(&forced, "apply", &map(json!({"k": "w"}))).await.expect(200);
    assert_eq!(changed["data"], json!({"k": "w", "mine": "1"}));
    let owned: Vec<(&str, &Value)> = changed["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m["manager"].as_str().unwrap(), &m["fieldsV1"]))
        .collect();
    assert_eq!(
        owned,
        [("one", &json!({"f:data": {"f:mine": {}}})), ("two", &json!({"f:data": {"f:k": {}}})),]
    );
    let unforced = format!("{}&force=false", path_with_manager("one"));
    server.patch(&unforced, "apply", &map(json!({"k": "v"}))).await.fails(409, "Conflict");
}

#[tokio::test]
async fn fields_no_longer_applied_are_removed_unless_co_owned() {
    let server = TestServer::start().await;
    let body = map(json!({"a": "1", "b": "2"}));
    server.patch(&path_with_manager("one"), "apply", &body).await.expect(201);
    server.patch(&path_with_manager("two"), "apply", &map(json!({"b": "2"}))).await.expect(200);
    let changed = server.patch(&path_with_manager("one"), "apply", &map(json!({"c": "3"}))).await.expect(200);
    assert_eq!(changed["data"], json!({"b": "2", "c": "3"}));
}

#[tokio::test]
async fn updates_own_what_they_change() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}?fieldManager=maker");
    let made = server.post(&path, &config_map("a")).await.expect(201);
    let managed = &made["metadata"]["managedFields"];
    assert_eq!(managed[0]["manager"], "maker");
    assert_eq!(managed[0]["operation"], "Update");
    assert_eq!(managed[0]["fieldsV1"], json!({"f:data": {".": {}, "f:k": {}}}));
    server.patch(&path_with_manager("two"), "apply", &map(json!({"k": "w"}))).await.fails(409, "Conflict");
    // Defaults to the user agent; without one, the manager is unknown.
    let asked = server.request(Method::PUT, &format!("{MAPS}/a")).header("user-agent", "tool/1.0 (x)");
    let changed = asked.json(&map(json!({"k": "x"}))).send().await.expect(200);
    let managers: Vec<&Value> =
        changed["metadata"]["managedFields"].as_array().unwrap().iter().map(|m| &m["manager"]).collect();
    assert!(managers.contains(&&json!("tool")), "{managers:?}");
    let other = server.post(MAPS, &config_map("b")).await.expect(201);
    assert_eq!(other["metadata"]["managedFields"][0]["manager"], "unknown");
}

#[tokio::test]
async fn managed_fields_can_be_reset_but_not_forged() {
    let server = TestServer::start().await;
    let made = server.patch(&path_with_manager("one"), "apply", &map(json!({"k": "v"}))).await.expect(201);
    let path = format!("{MAPS}/a");
    let reset = json!({"metadata": {"managedFields": [{}]}});
    let changed = server.patch(&path, "merge", &reset).await.expect(200);
    assert_eq!(changed["metadata"]["managedFields"], Value::Null);
    let mut body = map(json!({"k": "v"}));
    body["metadata"]["managedFields"] = made["metadata"]["managedFields"].clone();
    let said = server.patch(&path_with_manager("one"), "apply", &body).await.fails(400, "BadRequest");
    assert_eq!(said, "metadata.managedFields must be nil");
}

#[tokio::test]
async fn the_status_is_applied_on_its_own_and_never_creates() {
    let server = TestServer::start().await;
    let path = format!("{PODS}/p/status?fieldManager=kubelet");
    let mut body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "status": {"message": "m"}});
    server.patch(&path, "apply", &body).await.fails(404, "NotFound");
    let made = server.post(PODS, &pod("p")).await.expect(201);
    body["spec"] = json!({"activeDeadlineSeconds": 5});
    let changed = server.patch(&path, "apply", &body).await.expect(200);
    assert_eq!((&changed["status"]["message"], &changed["spec"]), (&json!("m"), &made["spec"]));
    let entry = changed["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["manager"] == "kubelet")
        .unwrap();
    assert_eq!((&entry["operation"], &entry["subresource"]), (&json!("Apply"), &json!("status")));
    assert_eq!(entry["fieldsV1"], json!({"f:status": {"f:message": {}}}));
}

#[tokio::test]
async fn lists_are_owned_element_by_element() {
    let server = TestServer::start().await;
    let service = |ports: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": ports, "selector": {"a": "b"}}})
    };
    let path = |m: &str| format!("/api/v1/namespaces/default/services/s?fieldManager={m}");
    let http = json!({"name": "http", "port": 80, "protocol": "TCP"});
    let https = json!({"name": "https", "port": 443, "protocol": "TCP"});
    server.patch(&path("one"), "apply", &service(json!([http]))).await.expect(201);
    let both = server.patch(&path("two"), "apply", &service(json!([https]))).await.expect(200);
    let ports = |s: &Value| {
        let ports = s["spec"]["ports"].as_array().unwrap().iter();
        ports.map(|p| p["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ports(&both), ["http", "https"]);
    let one = server.patch(&path("two"), "apply", &service(json!([]))).await;
    assert_eq!(ports(&one.expect(200)), ["http"]);
}

#[tokio::test]
async fn bodies_may_be_yaml_and_options_are_checked() {
    let server = TestServer::start().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: |\n    text\n";
    let apply = |path: String, body: String| {
        let asked = server.request(Method::PATCH, &path);
        asked.header("content-type", "application/apply-patch+yaml").raw_body(body).send()
    };
    let made = apply(path_with_manager("one"), yaml.into()).await.expect(201);
    assert_eq!(made["data"], json!({"k": "text\n"}));
    let said = apply(format!("{MAPS}/a"), yaml.into()).await.fails(422, "Invalid");
    assert_eq!(
        said,
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    for (query, body, code) in [
        (path_with_manager("one"), "{".to_owned(), 400),
        (path_with_manager("one"), "a: [".to_owned(), 400),
        (path_with_manager("one"), "[]".to_owned(), 400),
        (path_with_manager("one"), yaml.replace("name: a", "name: b"), 400),
        (path_with_manager("one"), yaml.replace("ConfigMap", "Secret"), 400),
        (path_with_manager("one"), yaml.replace("apiVersion: v1\n", ""), 400),
        (path_with_manager(&"x".repeat(129)), yaml.to_owned(), 422),
        (path_with_manager("one%07"), yaml.to_owned(), 422),
    ] {
        let answer = apply(query.clone(), body.clone()).await;
        assert_eq!(answer.status, code, "{query} {body}: {}", answer.json());
    }
    let forced = server.patch(&format!("{MAPS}/a?force=true"), "merge", &json!({})).await;
    assert!(forced.fails(422, "Invalid").contains("may not be specified for non-apply patch"));
    for query in [path_with_manager("one"), format!("{}&fieldValidation=Strict", path_with_manager("one"))] {
        let odd = apply(query, format!("{yaml}odd: 1\n")).await;
        let why = "failed to create typed patch object (default/a; /v1, Kind=ConfigMap): \
                   .odd: field not declared in schema";
        assert_eq!(odd.fails(500, ""), why);
    }
}

#[tokio::test]
async fn a_dry_run_applies_nothing() {
    let server = TestServer::start().await;
    let before = server.revision();
    let dry = format!("{}&dryRun=All", path_with_manager("one"));
    server.patch(&dry, "apply", &map(json!({"k": "v"}))).await.expect(201);
    server.get(&format!("{MAPS}/a")).await.fails(404, "NotFound");
    assert_eq!(server.revision(), before);
    server.patch(&path_with_manager("one"), "apply", &map(json!({"k": "v"}))).await.expect(201);
    let before = server.revision();
    let seen = server.patch(&dry, "apply", &map(json!({"k": "w"}))).await.expect(200);
    assert_eq!(seen["data"], json!({"k": "w"}));
    assert_eq!(server.revision(), before);
}

#[tokio::test]
async fn unreadable_managed_fields_do_no_harm() {
    let server = TestServer::start().await;
    server.patch(&path_with_manager("one"), "apply", &map(json!({"k": "v"}))).await.expect(201);
    let path = format!("{MAPS}/a");
    let deep = (0..60).fold(json!({}), |inner, _| json!({"f:x": inner}));
    for fields in [
        json!({"q:": {}}),
        json!({"f:": {}}),
        json!({"k:{": {}}),
        json!({"k:[]": {}}),
        json!({"v:nonsense": {}}),
        json!({"i:-1": {}, "i:99999999999999999999": {}}),
        json!({"": {}}),
        json!({"f:data": 7}),
        json!({"f:data": {"f:k": {".": {}, "f:deeper": {}}}}),
        deep,
        json!([]),
        json!("text"),
        Value::Null,
    ] {
        let entry = json!({"manager": "odd", "operation": "Update", "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let patch = json!({"metadata": {"managedFields": [entry]}, "data": {"n": fields.to_string()}});
        let answer = server.patch(&path, "merge", &patch).await;
        assert!(answer.status.as_u16() < 500, "{fields}: {}", answer.json());
        let forced = format!("{}&force=true", path_with_manager("one"));
        let answer = server.patch(&forced, "apply", &map(json!({"k": "v"}))).await;
        assert_eq!(answer.status, 200, "after {fields}: {}", answer.json());
    }
    for entry in [
        json!({"operation": "Dance"}),
        json!({"manager": "x".repeat(200), "operation": "Update", "fieldsType": "FieldsV1"}),
        json!({"operation": "Update", "fieldsType": "Other"}),
        json!({"operation": "Update", "apiVersion": "nonsense/v9/x", "fieldsType": "FieldsV1"}),
        json!({"operation": "Update", "time": "yesterday"}),
    ] {
        let patch = json!({"metadata": {"managedFields": [entry]}});
        let answer = server.patch(&path, "merge", &patch).await;
        assert!(answer.status.as_u16() < 500, "{entry}: {}", answer.json());
    }
    server.get(&path).await.expect(200);
}

/// The ten newest update entries stay separate; older ones are merged.
#[tokio::test]
async fn many_writers_do_not_swell_the_record() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    for i in 0..30 {
        let patch = json!({"data": {format!("k{i}"): "v"}});
        server.patch(&path_with_manager(&format!("m{i}")), "merge", &patch).await.expect(200);
    }
    let end = server.get(&format!("{MAPS}/a")).await.expect(200);
    let managed = end["metadata"]["managedFields"].as_array().unwrap();
    assert!(managed.len() <= 11, "{}", managed.len());
}
