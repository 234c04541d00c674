//! Kinds of certificates.k8s.io: requesters, metrics, versions and features.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use windlass_server::ServerOptions;

use windlass_testkit::{TestServer, names, version};

const GROUP: &str = "/apis/certificates.k8s.io";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles";

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("conformance/fixtures/", $name))
    };
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn signing_request(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "request": base64(fixture!("csr-p256.pem")),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        },
    })
}

fn bundle(name: &str) -> Value {
    let pem = String::from_utf8(fixture!("ca-p256.pem").to_vec()).unwrap();
    json!({"metadata": {"name": name}, "spec": {"trustBundle": pem}})
}

fn pod_requests(version: &str) -> String {
    format!("{GROUP}/{version}/namespaces/default/podcertificaterequests")
}

fn pod_request(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "signerName": "example.com/pods",
            "podName": "p",
            "podUID": "9f1c7b9e-6d0b-4a55-8f39-0d5b6f0c1a11",
            "serviceAccountName": "default",
            "serviceAccountUID": "s1",
            "nodeName": "node-1",
            "nodeUID": "n1",
            "stubPKCS10Request": base64(fixture!("pcr-p256.stub.der")),
        },
    })
}

/// A request as nodes created it before stub certificates existed.
fn older_pod_request(name: &str) -> Value {
    let mut request = pod_request(name);
    request["spec"]["stubPKCS10Request"] = Value::Null;
    request["spec"]["pkixPublicKey"] = json!(base64(fixture!("pcr-p256.spki")));
    request["spec"]["proofOfPossession"] = json!(base64(fixture!("pcr-p256.pop")));
    request
}

#[tokio::test]
async fn a_request_records_its_requester() {
    let server = TestServer::start().await;
    let mut body = signing_request("r");
    body["spec"]["username"] = json!("mallory");
    let made = server.post(REQUESTS, &body).await.expect(201);
    assert_eq!(made["spec"]["username"], "admin");
    assert_eq!(made["spec"]["groups"], json!(["system:masters", "system:authenticated"]));
    // The server sets or resets the rest.
    assert_eq!(made["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn lifetimes_are_counted_where_they_are_stored() {
    let server = TestServer::start().await;
    let mut body = signing_request("r");
    body["spec"]["expirationSeconds"] = json!(3600);
    let mut made = server.post(REQUESTS, &body).await.expect(201);
    made["status"]["certificate"] = json!(base64(fixture!("leaf.pem")));
    let status = format!("{REQUESTS}/r/status");
    let counted = "apiserver_certificates_registry_csr_requested_duration_total\
                   {signerName=\"kubernetes.io/kube-apiserver-client\"} 1";
    let counts = async || {
        let text = server.get("/metrics").await;
        String::from_utf8_lossy(&text.body).contains(counted)
    };
    server.put(&format!("{status}?dryRun=All"), &made).await.expect(200);
    assert!(!counts().await, "a dry run counts");
    server.put(&status, &made).await.expect(200);
    assert!(counts().await);
    made["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    made["metadata"]["labels"] = json!({"a": "b"});
    server.put(&status, &made).await.expect(200);
    assert!(counts().await, "a certificate counts twice");
}

#[tokio::test]
async fn decisions_bring_metadata_along() {
    let server = TestServer::start().await;
    server.post(REQUESTS, &signing_request("r")).await.expect(201);
    for (door, status) in [
        ("approval", json!({"conditions": [{"type": "Approved", "status": "True"}]})),
        ("status", json!({"certificate": base64(fixture!("leaf.pem"))})),
    ] {
        let patch = json!({"metadata": {"annotations": {door: "true"}}, "status": status});
        let path = format!("{REQUESTS}/r/{door}");
        let patched = server.patch(&path, "merge", &patch).await.expect(200);
        assert_eq!(patched["metadata"]["annotations"][door], "true");
    }
    let patch = json!({"spec": {"signerName": "example.com/x"}, "status": {"conditions": null}});
    let patched = server.patch(&format!("{REQUESTS}/r"), "merge", &patch).await.expect(200);
    assert_eq!(patched["spec"]["signerName"], "kubernetes.io/kube-apiserver-client");
    assert_eq!(patched["status"]["conditions"][0]["type"], "Approved");
}

#[tokio::test]
async fn appliers_own_only_the_fields_of_the_endpoint() {
    let server = TestServer::start().await;
    server.post(REQUESTS, &signing_request("r")).await.expect(201);
    let applied = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "r"},
        "status": {
            "conditions": [{"type": "Approved", "status": "True"}],
            "certificate": base64(fixture!("leaf.pem")),
        },
    });
    let path = format!("{REQUESTS}/r/approval?fieldManager=one");
    let made = server.patch(&path, "apply", &applied).await.expect(200);
    let fields = made["metadata"]["managedFields"].as_array().unwrap();
    let one = fields.iter().find(|entry| entry["manager"] == "one").unwrap();
    assert_eq!(one["subresource"], "approval");
    let owned = &one["fieldsV1"]["f:status"];
    assert!(owned.get("f:conditions").is_some() && owned.get("f:certificate").is_none(), "{one}");
    assert_eq!(made["status"].get("certificate"), None);
}

#[tokio::test]
async fn a_bundle_counts_its_changes() {
    let server = TestServer::start().await;
    let made = server.post(BUNDLES, &bundle("a")).await.expect(201);
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{BUNDLES}/a");
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = server.patch(&path, "merge", &labels).await.expect(200);
    assert_eq!(patched["metadata"]["generation"], 1);
    let pem = String::from_utf8(fixture!("bundle-two.pem").to_vec()).unwrap();
    let more = json!({"spec": {"trustBundle": pem}});
    let patched = server.patch(&path, "merge", &more).await.expect(200);
    assert_eq!(patched["metadata"]["generation"], 2);
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let same = server.get(&format!("{GROUP}/{version}/clustertrustbundles/a")).await;
        let same = same.expect(200);
        assert_eq!(same["apiVersion"], format!("certificates.k8s.io/{version}"));
        assert_eq!(same["spec"], patched["spec"]);
    }
}

#[tokio::test]
async fn names_of_bundles_may_be_long() {
    let server = TestServer::start().await;
    let signer = format!("{}.example.com/{}", "d".repeat(60), "p".repeat(200));
    let name = format!("{}:{}", signer.replace('/', ":"), "n".repeat(253));
    let mut body = bundle(&name);
    body["spec"]["signerName"] = json!(signer);
    server.post(BUNDLES, &body).await.expect(201);
    let found = server.get(&format!("{BUNDLES}/{name}")).await.expect(200);
    assert_eq!(found["metadata"]["name"], name);
}

#[tokio::test]
async fn the_stable_version_has_no_older_proof() {
    let server = TestServer::start().await;
    let (stable, beta, alpha) = (pod_requests("v1"), pod_requests("v1beta1"), pod_requests("v1alpha1"));
    let mut watch = server.watch(&format!("{stable}?watch=1")).await;
    server.post(&alpha, &older_pod_request("older")).await.expect(201);
    server.post(&stable, &pod_request("newer")).await.expect(201);
    for name in ["older", "newer"] {
        let full = server.get(&format!("{beta}/{name}")).await.expect(200);
        assert!(full["spec"].get("pkixPublicKey").is_some());
        let lean = server.get(&format!("{stable}/{name}")).await.expect(200);
        assert!(lean["spec"].get("pkixPublicKey").is_none());
        assert!(lean["spec"].get("proofOfPossession").is_none());
        assert_eq!(watch.next().await["object"], lean);
    }
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    server.patch(&format!("{stable}/newer"), "merge", &labels).await.expect(200);
    // Converting to v1 would lose the proof of possession, and a request is immutable.
    let answer = server.patch(&format!("{stable}/older"), "merge", &labels).await;
    assert!(answer.fails(422, "Invalid").contains("field is immutable"));
    server.patch(&format!("{beta}/older"), "merge", &labels).await.expect(200);
    let denied = json!({"status": {"conditions": [{"type": "Denied", "status": "True",
        "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    server.patch(&format!("{stable}/older/status"), "merge", &denied).await.expect(200);
    let full = server.get(&format!("{beta}/older")).await.expect(200);
    assert_eq!(full["spec"]["proofOfPossession"], base64(fixture!("pcr-p256.pop")));
}

#[tokio::test]
async fn requests_of_pods_are_found_by_pod_node_and_signer() {
    let server = TestServer::start().await;
    let stable = pod_requests("v1");
    for (name, pod, node) in [("a", "p", "node-1"), ("b", "q", "node-1"), ("c", "p", "node-2")] {
        let mut body = pod_request(name);
        body["spec"]["podName"] = json!(pod);
        body["spec"]["nodeName"] = json!(node);
        server.post(&stable, &body).await.expect(201);
    }
    for (selector, want) in [
        ("spec.podName=p", vec!["a", "c"]),
        ("spec.nodeName=node-1,spec.podName!=p", vec!["b"]),
        ("spec.signerName=example.com/other", vec![]),
        ("metadata.name=c", vec!["c"]),
    ] {
        let list = server.get(&format!("{stable}?fieldSelector={selector}")).await.expect(200);
        assert_eq!(names(&list), want, "{selector}");
    }
    let answer = server.get(&format!("{stable}?fieldSelector=metadata.namespace=default")).await;
    let text = answer.fails(400, "BadRequest");
    assert_eq!(text, "field label not supported: metadata.namespace");
}

#[tokio::test]
async fn applying_through_the_stable_version_owns_no_proof() {
    let server = TestServer::start().await;
    let mut body = pod_request("a");
    body["apiVersion"] = json!("certificates.k8s.io/v1");
    body["kind"] = json!("PodCertificateRequest");
    let path = format!("{}/a?fieldManager=one", pod_requests("v1"));
    let made = server.patch(&path, "apply", &body).await.expect(201);
    let spec = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert!(spec.get("f:podName").is_some() && spec.get("f:pkixPublicKey").is_none(), "{spec}");
    let again = server.patch(&path, "apply", &body).await.expect(200);
    assert_eq!(version(&again), version(&made));
}

#[tokio::test]
async fn warnings_come_with_failures_too() {
    let server = TestServer::start().await;
    let mut body = bundle("a");
    body["spec"]["colour"] = json!("red");
    body["spec"]["signerName"] = json!("x");
    let warning = ["299 - \"unknown field \\\"spec.colour\\\"\""];
    let answer = server.post(BUNDLES, &body).await;
    answer.fails(422, "Invalid");
    assert_eq!(answer.warnings(), warning);
    server.post(BUNDLES, &bundle("a")).await.expect(201);
    body["metadata"]["resourceVersion"] = json!("1");
    let answer = server.put(&format!("{BUNDLES}/a"), &body).await;
    answer.fails(409, "Conflict");
    assert_eq!(answer.warnings(), warning);
    let patch = json!({"spec": {"colour": "red", "signerName": "x"}});
    let answer = server.patch(&format!("{BUNDLES}/a"), "merge", &patch).await;
    answer.fails(422, "Invalid");
    assert_eq!(answer.warnings(), warning);
}

#[tokio::test]
async fn a_disabled_feature_hides_its_kind_and_keeps_its_objects() {
    for (feature, path, plural, body) in [
        ("ClusterTrustBundle", BUNDLES.to_owned(), "clustertrustbundles", bundle("a")),
        ("PodCertificateRequest", pod_requests("v1"), "podcertificaterequests", pod_request("a")),
    ] {
        let server = TestServer::start().await;
        let made = server.post(&path, &body).await.expect(201);
        let off = |setup: &mut ServerOptions| setup.features.set(feature, false).unwrap();
        let server = server.restart_with(off).await;
        server.get(&format!("{path}/a")).await.fails(404, "NotFound");
        server.post(&path, &body).await.fails(404, "NotFound");
        let listed = async |server: &TestServer| {
            let resources = server.get(&format!("{GROUP}/v1")).await.expect(200);
            let all = resources["resources"].as_array().unwrap().clone();
            all.iter().any(|resource| resource["name"] == plural)
        };
        assert!(!listed(&server).await, "{plural} is listed");
        let server = server.restart().await;
        assert!(listed(&server).await, "{plural} is not listed");
        assert_eq!(server.get(&format!("{path}/a")).await.expect(200), made);
    }
}
