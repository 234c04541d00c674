//! Bundles: served like a custom resource with trust-manager's schema.

use serde_json::{Value, json};

use windlass_testkit::TestServer;

const BUNDLES: &str = "/apis/trust.cert-manager.io/v1alpha1/bundles";

fn bundle(spec: Value) -> Value {
    json!({
        "apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": "b"}, "spec": spec,
    })
}

fn path_with_manager(manager: &str) -> String {
    format!("{BUNDLES}/b?fieldManager={manager}")
}

#[tokio::test]
async fn it_is_discovered_and_explained() {
    let server = TestServer::start().await;
    let group = server.get("/apis/trust.cert-manager.io").await.expect(200);
    assert_eq!(group["preferredVersion"]["version"], "v1alpha1");
    let kinds = server.get("/apis/trust.cert-manager.io/v1alpha1").await.expect(200);
    let kinds = kinds["resources"].as_array().unwrap();
    let names: Vec<&Value> = kinds.iter().map(|kind| &kind["name"]).collect();
    assert_eq!(names, ["bundles", "bundles/status"]);
    assert_eq!(kinds[0]["namespaced"], false);
    let document = server.get("/openapi/v3/apis/trust.cert-manager.io/v1alpha1").await.expect(200);
    let schemas = &document["components"]["schemas"];
    let jks = &schemas["io.cert-manager.trust.v1alpha1.JKS"]["properties"];
    assert_eq!(jks["password"]["default"], "changeit");
    let spec = &schemas["io.cert-manager.trust.v1alpha1.BundleSpec"];
    assert_eq!(spec["properties"]["sources"]["x-kubernetes-list-type"], "atomic");
    assert_eq!(spec["required"], json!(["sources"]));
}

#[tokio::test]
async fn defaults_are_set_and_status_is_a_subresource() {
    let server = TestServer::start().await;
    let formats = json!({"jks": {"key": "j"}, "pkcs12": {"key": "p"}});
    let target = json!({"configMap": {"key": "k"}, "additionalFormats": formats});
    let mut object = bundle(json!({"sources": [{"inLine": "x"}], "target": target}));
    object["status"] = json!({"certificates": 7});
    let made = server.post(BUNDLES, &object).await.expect(201);
    assert_eq!(made.get("status"), None);
    assert_eq!(made["metadata"]["generation"], 1);
    let formats = &made["spec"]["target"]["additionalFormats"];
    assert_eq!(formats["jks"], json!({"key": "j", "password": "changeit"}));
    assert_eq!(formats["pkcs12"], json!({"key": "p", "password": ""}));
    let status = json!({"spec": {"sources": []}, "status": {"certificates": 3}});
    let path = format!("{BUNDLES}/b/status");
    let changed = server.patch(&path, "merge", &status).await.expect(200);
    assert_eq!(changed["status"], json!({"certificates": 3}));
    assert_eq!((&changed["spec"], &changed["metadata"]["generation"]), (&made["spec"], &json!(1)));
    let changed = json!({"spec": {"target": null}, "status": {"certificates": 4}});
    let changed = server.patch(&format!("{BUNDLES}/b"), "merge", &changed).await.expect(200);
    assert_eq!(changed["status"], json!({"certificates": 3}));
    assert_eq!(changed["metadata"]["generation"], 2);
    assert_eq!(changed["spec"], json!({"sources": [{"inLine": "x"}]}));
}

#[tokio::test]
async fn empty_values_differ_from_absent_values() {
    let server = TestServer::start().await;
    let target = json!({"configMap": {"key": "k"}});
    let with = |sources: Value| bundle(json!({"sources": sources, "target": target}));
    let entry = json!({"name": "a", "key": "k"});
    for (object, words) in [
        (bundle(Value::Null), "spec: Required value"),
        (bundle(json!({})), "spec.sources: Required value"),
        (
            with(json!([])),
            "spec.sources: Invalid value: 0: spec.sources in body should have at least 1 items",
        ),
        (
            with(json!([{"inLine": ""}])),
            "spec.sources[0].inLine: Invalid value: \"\": spec.sources[0].inLine in body should be at least 1 chars long",
        ),
        (
            with(json!([{"configMap": entry, "secret": entry}])),
            "spec.sources[0]: Invalid value: exactly one of the fields in [configMap secret inLine useDefaultCAs] must be set",
        ),
        (with(json!([{"useDefaultCAs": false}])), "spec.sources: Forbidden: must define at least one source"),
        (
            with(json!([{"configMap": {"name": "b", "key": "k"}}])),
            "spec.sources[0].configMap.b.k: Forbidden: cannot define the same source as target",
        ),
    ] {
        let said = server.post(BUNDLES, &object).await.fails(422, "Invalid");
        assert!(said.contains(words), "{words} in {said}");
    }
    let mut long = with(json!([{"inLine": "x"}]));
    long["metadata"]["name"] = "b".repeat(64).into();
    let said = server.post(BUNDLES, &long).await.fails(422, "Invalid");
    assert!(said.contains("must be no more than 63 characters"), "{said}");
}

#[tokio::test]
async fn apply_takes_sources_as_a_whole_and_conditions_one_by_one() {
    let server = TestServer::start().await;
    let spec =
        |text: &str, key: &str| json!({"sources": [{"inLine": text}], "target": {"configMap": {"key": key}}});
    let made = server.patch(&path_with_manager("one"), "apply", &bundle(spec("x", "k"))).await.expect(201);
    let fields = &made["metadata"]["managedFields"][0]["fieldsV1"];
    let key = json!({"f:configMap": {"f:key": {}}});
    assert_eq!(*fields, json!({"f:spec": {"f:sources": {}, "f:target": key}}));
    let again = server.patch(&path_with_manager("one"), "apply", &bundle(spec("x", "k"))).await.expect(200);
    assert_eq!(again, made);
    let said = server.patch(&path_with_manager("two"), "apply", &bundle(spec("y", "k"))).await;
    let said = said.fails(409, "Conflict");
    assert_eq!(said, "Apply failed with 1 conflict: conflict with \"one\": .spec.sources");
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let status = |kind: &str| {
        json!({
            "apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle",
            "metadata": {"name": "b"}, "status": {"conditions": [condition(kind)]},
        })
    };
    let path = |who: &str| format!("{BUNDLES}/b/status?fieldManager={who}&force=true");
    server.patch(&path("trust-manager"), "apply", &status("Synced")).await.expect(200);
    let both = server.patch(&path("other"), "apply", &status("Seen")).await.expect(200);
    let kinds: Vec<&Value> =
        both["status"]["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
    assert_eq!(kinds, ["Synced", "Seen"]);
    let again = server.patch(&path("other"), "apply", &status("Seen")).await.expect(200);
    assert_eq!(again["metadata"]["resourceVersion"], both["metadata"]["resourceVersion"]);
    let said = server.patch(&path("other"), "apply", &status("")).await.expect(200);
    assert_eq!(said["status"]["conditions"].as_array().unwrap().len(), 2);
}
