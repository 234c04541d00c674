//! Table and metadata views of objects and lists.

use http::Method;
use serde_json::{Value, json};

use windlass_testkit::{MAPS, PODS, TestServer, config_map, names, pod, version};

async fn view(server: &TestServer, path: &str, kind: &str, version: &str) -> Value {
    let accept = format!("application/json;as={kind};v={version};g=meta.k8s.io");
    server.request(Method::GET, path).header("accept", &accept).send().await.expect(200)
}

#[tokio::test]
async fn tables_have_a_row_for_each_object() {
    let server = TestServer::start().await;
    for name in ["a", "b", "c"] {
        server.post(MAPS, &config_map(name)).await.expect(201);
    }
    for api in ["v1", "v1beta1"] {
        let table = view(&server, MAPS, "Table", api).await;
        assert_eq!(table["kind"], "Table");
        assert_eq!(table["apiVersion"], format!("meta.k8s.io/{api}"));
        assert_eq!(version(&table), server.revision());
        let columns: Vec<&Value> =
            table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
        assert_eq!(columns, ["Name", "Data", "Age"]);
        let rows = table["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!((&rows[0]["cells"][0], &rows[0]["cells"][1]), (&json!("a"), &json!(1)));
        assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(rows[0]["object"]["data"], Value::Null);
    }
    let one = view(&server, &format!("{MAPS}/a"), "Table", "v1").await;
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    let page = view(&server, &format!("{MAPS}?limit=2"), "Table", "v1").await;
    assert_eq!(page["rows"].as_array().unwrap().len(), 2);
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    assert!(page["metadata"]["continue"].is_string());
    for (include, kind) in
        [("None", Value::Null), ("Metadata", json!("PartialObjectMetadata")), ("Object", json!("ConfigMap"))]
    {
        let table = view(&server, &format!("{MAPS}?includeObject={include}"), "Table", "v1").await;
        let row = table["rows"][0].as_object().unwrap();
        assert_eq!(row["object"]["kind"], kind, "{include}");
    }
    let empty = view(&server, "/api/v1/namespaces/kube-public/configmaps", "Table", "v1").await;
    assert_eq!(empty["rows"], json!([]));
    assert!(!empty["columnDefinitions"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn the_row_of_a_completed_pod_shows_its_state() {
    let server = TestServer::start().await;
    server.post(PODS, &pod("p")).await.expect(201);
    let path = format!("{PODS}/p");
    let table = view(&server, &path, "Table", "v1").await;
    assert_eq!(table["rows"][0].get("conditions"), None);
    for (phase, message) in
        [("Failed", "The pod failed."), ("Succeeded", "The pod has completed successfully.")]
    {
        let change = json!({"status": {"phase": phase}});
        server.patch(&format!("{path}/status"), "merge", &change).await.expect(200);
        let table = view(&server, &path, "Table", "v1").await;
        let said = json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]);
        assert_eq!(table["rows"][0]["conditions"], said);
    }
}

#[tokio::test]
async fn every_kind_has_as_many_cells_as_columns() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    server.post(PODS, &pod("p")).await.expect(201);
    for (path, body) in [
        ("/api/v1/nodes", json!({"metadata": {"name": "n"}})),
        ("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})),
        ("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "s"}})),
        (
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
        ),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", json!({"metadata": {"name": "l"}})),
        (
            "/api/v1/namespaces/default/events",
            json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}),
        ),
    ] {
        server.post(path, &body).await.expect(201);
        let table = view(&server, path, "Table", "v1").await;
        let columns = table["columnDefinitions"].as_array().unwrap().len();
        let cells = table["rows"][0]["cells"].as_array().unwrap().len();
        assert_eq!(cells, columns, "{path}");
    }
    for path in [PODS, "/api/v1/namespaces"] {
        let table = view(&server, path, "Table", "v1").await;
        let columns = table["columnDefinitions"].as_array().unwrap().len();
        assert_eq!(table["rows"][0]["cells"].as_array().unwrap().len(), columns, "{path}");
    }
}

#[tokio::test]
async fn metadata_is_returned_without_the_object() {
    let server = TestServer::start().await;
    let made = server.post(MAPS, &config_map("a")).await.expect(201);
    let one = view(&server, &format!("{MAPS}/a"), "PartialObjectMetadata", "v1").await;
    assert_eq!(
        one,
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]})
    );
    let list = view(&server, MAPS, "PartialObjectMetadataList", "v1").await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(names(&list), ["a"]);
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(list["items"][0]["data"], Value::Null);
}

/// Writes respond in the requested view as well.
#[tokio::test]
async fn writes_are_answered_as_metadata_too() {
    let server = TestServer::start().await;
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let asked = server.request(Method::POST, MAPS).header("accept", accept).json(&config_map("a"));
    assert_eq!(asked.send().await.expect(201)["kind"], "PartialObjectMetadata");
    let asked = server.request(Method::PATCH, &format!("{MAPS}/a")).header("accept", accept);
    let asked = asked.header("content-type", "application/merge-patch+json");
    let answer = asked.json(&json!({"metadata": {"labels": {"x": "y"}}})).send().await.expect(200);
    assert_eq!(
        (&answer["kind"], &answer["metadata"]["labels"]),
        (&json!("PartialObjectMetadata"), &json!({"x": "y"}))
    );
    // A Status is not converted.
    let asked = server.request(Method::DELETE, &format!("{MAPS}/a")).header("accept", accept);
    assert_eq!(asked.send().await.expect(200)["kind"], "Status");
}

#[tokio::test]
async fn tables_come_in_yaml_too() {
    let server = TestServer::start().await;
    let accept = "application/yaml;as=Table;v=v1;g=meta.k8s.io";
    let answer = server.request(Method::GET, MAPS).header("accept", accept).send().await;
    assert_eq!(answer.headers["content-type"], "application/yaml");
    assert!(String::from_utf8_lossy(&answer.body).contains("kind: Table"));
}

#[tokio::test]
async fn the_root_names_every_path() {
    let server = TestServer::start().await;
    let answer = server.get("/").await.expect(200);
    let paths: Vec<&str> = answer["paths"].as_array().unwrap().iter().flat_map(|p| p.as_str()).collect();
    for path in ["/api", "/api/v1", "/apis", "/apis/coordination.k8s.io/v1", "/openapi/v3", "/readyz"] {
        assert!(paths.contains(&path), "{path} in {paths:?}");
        server.get(path).await.expect(200);
    }
}

#[tokio::test]
async fn unknown_media_types_are_rejected_as_in_kubernetes() {
    let server = TestServer::start().await;
    let body = server
        .request(http::Method::POST, "/api/v1/namespaces")
        .header("content-type", "text/plain")
        .raw_body("x")
        .send()
        .await
        .json();
    assert_eq!((&body["code"], body.get("details")), (&serde_json::json!(415), None));
}

#[tokio::test]
async fn reviews_and_actions_have_no_table() {
    let server = TestServer::start().await;
    server.post(PODS, &pod("p")).await.expect(201);
    let access = "/apis/authorization.k8s.io/v1";
    let question = json!({"spec": {"user": "u", "nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let token = json!({"spec": {"audiences": ["a"]}});
    for (path, body, metadata) in [
        (format!("{access}/selfsubjectaccessreviews"), &question, true),
        (format!("{access}/subjectaccessreviews"), &question, true),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews".into(), &json!({}), true),
        ("/apis/authentication.k8s.io/v1/tokenreviews".into(), &json!({"spec": {"token": "t"}}), true),
        ("/api/v1/namespaces/default/serviceaccounts/default/token".into(), &token, false),
        (format!("{PODS}/p/eviction"), &json!({}), false),
    ] {
        let ask = |kind: &str| {
            let accept = format!("application/json;as={kind};v=v1;g=meta.k8s.io");
            server.request(Method::POST, &path).header("accept", &accept).json(body)
        };
        let before = server.revision();
        ask("Table").send().await.fails(406, "NotAcceptable");
        assert_eq!(server.revision(), before, "{path}");
        if metadata {
            let shown = ask("PartialObjectMetadata").send().await.expect(201);
            assert_eq!(shown["kind"], "PartialObjectMetadata", "{path}");
            assert_eq!((shown.get("spec"), shown.get("status")), (None, None), "{path}");
        }
        let either = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let answer = server.request(Method::POST, &path).header("accept", either).json(body).send().await;
        assert_ne!(answer.status, 406, "{path}");
    }
}
