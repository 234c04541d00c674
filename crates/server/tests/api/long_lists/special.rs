//! Requests that are large in other ways, and the server's responsiveness meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Map, Value, json};

use super::{TrialResults, is_long};
use windlass_testkit::{MAPS, PODS, TestServer, config_map, pod};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const SELF_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

fn request(usages: Value) -> Value {
    let pem = include_bytes!("../conformance/fixtures/csr-p256.pem");
    json!({"metadata": {"name": "r"}, "spec": {
        "request": STANDARD.encode(pem), "signerName": "example.com/s", "usages": usages,
    }})
}

fn count() -> usize {
    if is_long() { 100_000 } else { 5_000 }
}

#[tokio::test]
async fn objects_too_large_to_store_are_not_validated() {
    let server = TestServer::start().await;
    let large = request(json!(vec!["!"; 700_000]));
    let refused = server.post(REQUESTS, &large).await.fails(413, "RequestEntityTooLarge");
    assert!(refused.starts_with("etcdserver: request is too large"), "{refused}");
    // The same rule holds for an update.
    server.post(MAPS, &config_map("m")).await.expect(201);
    let mut map = config_map("m");
    map["data"]["not a key"] = json!("x".repeat(2 << 20));
    server.put(&format!("{MAPS}/m"), &map).await.fails(413, "RequestEntityTooLarge");
    let small = json!({"data": {"not a key": "x"}});
    server.patch(&format!("{MAPS}/m"), "merge", &small).await.fails(422, "Invalid");
}

#[tokio::test]
async fn a_refusal_lists_a_hundred_errors() {
    let server = TestServer::start().await;
    let refused = server.post(REQUESTS, &request(json!(vec!["!"; 10_000]))).await;
    let message = refused.fails(422, "Invalid");
    assert!(message.ends_with(", … and 19899 more]"), "{}", &message[message.len() - 200..]);
    let causes = refused.json()["details"]["causes"].as_array().unwrap().len();
    assert_eq!(causes, 101);
    assert!(refused.body.len() < 256 * 1024, "{}", refused.body.len());
}

#[tokio::test]
async fn bodies_of_questions_and_options_are_small() {
    let server = TestServer::start().await;
    let requirements = vec![json!({"key": "!", "operator": "x"}); 115_000];
    let attributes = json!({"verb": "list", "resource": "pods",
        "labelSelector": {"requirements": requirements}});
    let question = json!({"spec": {"resourceAttributes": attributes}});
    let refused = server.post(SELF_REVIEWS, &question).await;
    assert_eq!(refused.fails(413, "RequestEntityTooLarge"), "Request entity too large: limit is 524288");
    let options = json!({"dryRun": vec!["All"; 200_000]});
    let delete = server.request(Method::DELETE, &format!("{MAPS}/m")).json(&options);
    delete.send().await.fails(413, "RequestEntityTooLarge");
}

/// Four slow requests on one worker: without separate threads, `/readyz` would wait for all of
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn other_requests_are_answered_while_large_bodies_are_processed() {
    let server = Arc::new(TestServer::start().await);
    let left = Arc::new(AtomicUsize::new(4));
    let mut large = Vec::new();
    for i in 0..4 {
        let (server, left) = (server.clone(), left.clone());
        large.push(tokio::spawn(async move {
            let mut body = pod(&format!("p{i}"));
            body["spec"]["containers"] = vec![json!({}); 8_000].into();
            let answer = server.post(PODS, &body).await;
            left.fetch_sub(1, Ordering::SeqCst);
            answer.status.as_u16()
        }));
    }
    let ready = {
        let (server, left) = (server.clone(), left.clone());
        tokio::spawn(async move {
            server.get("/readyz").await.expect(200);
            left.load(Ordering::SeqCst)
        })
    };
    assert!(ready.await.unwrap() > 0, "/readyz was answered after all large requests");
    for answer in large {
        assert_eq!(answer.await.unwrap(), 422);
    }
}

#[tokio::test]
async fn selectors_have_few_requirements() {
    let server = TestServer::start().await;
    let terms = |count: usize, term: &str| vec![term; count].join(",");
    for (count, code) in [(1000, 200), (1001, 400)] {
        let path = format!("{MAPS}?labelSelector={}", terms(count, "!a"));
        server.get(&path).await.expect(code);
        let path = format!("{MAPS}?fieldSelector={}", terms(count, "metadata.name!=a"));
        server.get(&path).await.expect(code);
    }
    let values: Vec<String> = (0..9_000).map(|i| format!("v{i}")).collect();
    let path = format!("{MAPS}?labelSelector=a+in+({})", values.join(","));
    server.get(&path).await.expect(200);
}

#[tokio::test]
async fn keys_that_stand_twice_below_long_keys() {
    let server = TestServer::start().await;
    let mut trials = TrialResults::default();
    let count = count();
    let twice = "\"x\":1,\"x\":2,".repeat(count);
    let long = "k".repeat(1 << 20);
    let body = format!("{{\"metadata\":{{\"{long}\":{{{twice}\"x\":3}}}}}}");
    let send = server.request(Method::POST, MAPS).header("content-type", "application/json").raw_body(body);
    trials.time("twice below a long key", "create", count, send.send()).await;
    // Unknown fields with long names.
    let unknown: String = (0..4_000).map(|i| format!("\"{i}{long:.600}\":1,")).collect();
    let body = format!("{{\"metadata\":{{{unknown}\"x\":3}}}}");
    let path = format!("{MAPS}?fieldValidation=Strict");
    let send = server.request(Method::POST, &path).header("content-type", "application/json").raw_body(body);
    trials.time("unknown fields", "create", count, send.send()).await;
    trials.conclude();
}

#[tokio::test]
async fn metadata_that_repeats_itself() {
    let server = TestServer::start().await;
    let mut trials = TrialResults::default();
    let count = count();
    let owner = |i: usize| json!({"apiVersion": "v1", "kind": "A", "name": "n", "uid": format!("u{i}"), "controller": true});
    let mut map = config_map("m");
    map["metadata"]["ownerReferences"] = (0..count.min(8_000)).map(owner).collect();
    trials.time("owners that all control", "create", count, server.post(MAPS, &map)).await;

    let mut map = config_map("m");
    map["metadata"]["managedFields"] = json!([{"manager": "\u{1}".repeat(count), "operation": "Update",
        "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]);
    trials.time("a manager of control characters", "create", count, server.post(MAPS, &map)).await;
    let path = format!("{MAPS}?fieldManager={}", "%01".repeat(20_000));
    trials.time("a manager in the query", "create", count, server.post(&path, &map)).await;

    let manager = |i: usize, operation: &str| {
        json!({"manager": format!("m{i}"), "operation": operation, "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:k{i}"): {}}}})
    };
    let managers = count.min(8_000);
    for operation in ["Apply", "Update"] {
        let name = operation.to_lowercase();
        server.post(MAPS, &config_map(&name)).await.expect(201);
        let mut map = config_map(&name);
        let keys = (0..managers).map(|i| (format!("k{i}"), json!("v")));
        map["data"] = keys.collect::<Map<_, _>>().into();
        // The writer of the data owns it, so the managers are added afterwards.
        server.put(&format!("{MAPS}/{name}"), &map).await.expect(200);
        map["metadata"]["managedFields"] = (0..managers).map(|i| manager(i, operation)).collect();
        let own = format!("{MAPS}/{name}");
        trials.time("managers", operation, count, server.put(&own, &map)).await;
        for value in map["data"].as_object_mut().unwrap().values_mut() {
            *value = json!("w");
        }
        map["apiVersion"] = json!("v1");
        map["kind"] = json!("ConfigMap");
        map["metadata"].as_object_mut().unwrap().remove("managedFields");
        for force in ["", "&force=true"] {
            let path = format!("{own}?fieldManager=kubectl{force}");
            let apply = server.patch(&path, "apply", &map);
            trials.time("managers", "apply", count, apply).await;
        }
    }
    trials.conclude();
}

#[tokio::test]
async fn finalizers_of_an_object_that_is_deleted() {
    let server = TestServer::start().await;
    let mut trials = TrialResults::default();
    let count = count().min(20_000);
    let finalizers =
        |from: usize| -> Value { (from..from + count).map(|i| json!(format!("a.b/f{i}"))).collect() };
    let mut map = config_map("m");
    map["metadata"]["finalizers"] = finalizers(0);
    server.post(MAPS, &map).await.expect(201);
    let own = format!("{MAPS}/m");
    server.delete(&own).await.expect(200);
    map["metadata"]["finalizers"] = finalizers(count);
    trials.time("finalizers", "update", count, server.put(&own, &map)).await;
    trials.conclude();
}

#[tokio::test]
async fn a_patch_that_names_one_element_again_and_again() {
    let server = TestServer::start().await;
    let mut trials = TrialResults::default();
    let count = count().min(10_000);
    let mut body = pod("p");
    let variable = |i: usize| json!({"name": format!("V{i}"), "value": "x"});
    body["spec"]["containers"][0]["env"] = (0..count).map(variable).collect();
    server.post(PODS, &body).await.expect(201);
    let again = json!({"name": "c", "env": [{"name": "V0", "value": "y"}]});
    let patch = json!({"spec": {"containers": vec![again; count]}});
    let own = format!("{PODS}/p");
    let refused =
        trials.time("one element", "strategic", 20 * count, server.patch(&own, "strategic", &patch));
    refused.await.fails(413, "RequestEntityTooLarge");
    trials.conclude();
}

#[tokio::test]
async fn a_role_that_repeats_a_long_name() {
    let server = TestServer::start().await;
    let bind = |name: &str, role: Value| {
        json!({"metadata": {"name": name}, "roleRef": role,
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}]})
    };
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    server.post(bindings, &bind("alice", role)).await.expect(201);
    let verbs: Vec<String> = (0..10_000).map(|i| format!("v{i}")).collect();
    let body = json!({"metadata": {"name": "r"}, "rules": [
        {"verbs": verbs, "apiGroups": [""], "resources": ["x".repeat(1 << 20)]},
    ]});
    let mut trials = TrialResults::default();
    let ask = server.request(Method::POST, ROLES).header("authorization", "Bearer alice-token").json(&body);
    let refused = trials.time("a long name", "create", 10_000, ask.send()).await;
    let why = refused.fails(403, "Forbidden");
    assert!(why.contains("the rules come to more permissions than can be compared"), "{why}");
    trials.conclude();
}

#[tokio::test]
async fn pem_of_very_many_blocks() {
    let server = TestServer::start().await;
    let mut trials = TrialResults::default();
    let fill = |block: &str| block.repeat((1 << 20) / block.len());
    let garbage = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    let root = include_str!("../conformance/fixtures/ca-p256.pem");
    let begin = "-----BEGIN CERTIFICATE-----\n";
    for (shown, pem) in [("garbage", fill(garbage)), ("one root", fill(root)), ("beginnings", fill(begin))] {
        let count = pem.len() / 20;
        let body = json!({"metadata": {"name": "b"}, "spec": {"trustBundle": pem}});
        trials.time(shown, "bundle", count, server.post(BUNDLES, &body)).await;
        let mut body = request(json!(["client auth"]));
        body["spec"]["request"] = json!(STANDARD.encode(&pem));
        trials.time(shown, "request", count, server.post(REQUESTS, &body)).await;
        let mut body = request(json!(["client auth"]));
        server.post(REQUESTS, &body).await;
        body["status"] = json!({"certificate": STANDARD.encode(&pem)});
        let path = format!("{REQUESTS}/r/status");
        trials.time(shown, "certificate", count, server.put(&path, &body)).await;
    }
    trials.conclude();
}
