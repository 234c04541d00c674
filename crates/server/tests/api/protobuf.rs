//! Protobuf bodies, recorded from Go clients with kube-apiserver's responses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use std::path::Path;
use windlass_store::{KeyChange, WritePrecondition, WriteRequest};

use super::conformance::compare::normal;
use windlass_testkit::{TestResponse, TestServer};

pub fn recorded(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/fixtures/protobuf");
    let bytes = std::fs::read(folder.join(format!("{name}.json"))).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

async fn replay(server: &TestServer, recording: &Value) -> TestResponse {
    let text = |name: &str| recording[name].as_str().unwrap_or_default().to_owned();
    let method: Method = text("method").parse().unwrap();
    let asked = server.request(method, &text("path"));
    let asked = asked.header("content-type", &text("contentType"));
    let asked = asked.header("user-agent", &text("userAgent"));
    asked.raw_body(STANDARD.decode(text("body")).unwrap()).send().await
}

/// Creates the namespace in a path, if missing.
async fn namespace(server: &TestServer, recording: &Value) {
    let path = recording["path"].as_str().unwrap();
    let parts: Vec<&str> = path.split(['/', '?']).collect();
    let at = parts.iter().position(|p| *p == "namespaces");
    if let Some(name) = at.and_then(|i| parts.get(i + 1)).filter(|_| parts.len() > at.unwrap() + 2) {
        server.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }
}

#[tokio::test]
async fn recorded_creates_are_replayed() {
    for name in [
        "CertificateSigningRequest-POST-5dde2f1b",
        "CertificateSigningRequest-POST-71ab600e",
        "ClusterTrustBundle-POST-d1854458",
        "ConfigMap-POST-99199d0a",
        "Event-POST-67e2220d",
        "Event-POST-a90929c2",
        "Lease-POST-7d3a5061",
        "Lease-POST-b90e97a8",
        "Namespace-POST-cecd138d",
        "Namespace-POST-f3c210a1",
        "Pod-POST-3080359f",
        "Pod-POST-7b822d7c",
        "Secret-POST-7da337b2",
        "Secret-POST-93df0551",
        "ServiceAccount-POST-3936f36c",
        "ServiceAccount-POST-ac47dc79",
    ] {
        let server = TestServer::start().await;
        let recording = recorded(name);
        namespace(&server, &recording).await;
        let answer = replay(&server, &recording).await;
        assert_eq!(
            u64::from(answer.status.as_u16()),
            recording["status"].as_u64().unwrap(),
            "{name}: {}",
            answer.json()
        );
        let (mut have, mut want) = (normal(&answer.json(), ""), normal(&recording["answer"], ""));
        for made in [&mut have, &mut want] {
            if made["metadata"].get("generateName").is_some() {
                made["metadata"]["name"] = json!("<generated>");
            }
        }
        assert_eq!(have, want, "{name}");
    }
}

/// The object before the update is the recorded response without the updated part.
#[tokio::test]
async fn recorded_updates_are_replayed() {
    for (name, key, brought) in [
        (
            "Lease-PUT-11c0d99c",
            "coordination.k8s.io/leases/kube-system/kube-controller-manager",
            "/spec/renewTime",
        ),
        (
            "Lease-PUT-3173b081",
            "coordination.k8s.io/leases/kube-system/kube-controller-manager",
            "/spec/renewTime",
        ),
        ("Lease-PUT-da459ada", "coordination.k8s.io/leases/lease-test-8752/lease", "/spec/renewTime"),
        (
            "CertificateSigningRequest-PUT-1c055bcf",
            "certificates.k8s.io/certificatesigningrequests/e2e-example-csr-7dnzf",
            "/metadata/annotations",
        ),
        (
            "CertificateSigningRequest-PUT-2760594b",
            "certificates.k8s.io/certificatesigningrequests/pb-1",
            "/status/conditions",
        ),
        (
            "CertificateSigningRequest-PUT-272746de",
            "certificates.k8s.io/certificatesigningrequests/pb-1",
            "/status/certificate",
        ),
        (
            "CertificateSigningRequest-PUT-fa896591",
            "certificates.k8s.io/certificatesigningrequests/tester-csr-sxrsw",
            "/status/conditions",
        ),
        (
            "CertificateSigningRequest-PUT-7e6e547d",
            "certificates.k8s.io/certificatesigningrequests/e2e-example-csr-7dnzf",
            "/status/certificate",
        ),
        ("Event-PUT-d4f1684f", "core/events/events-5537/event-test", "/series"),
        ("Namespace-PUT-21e4ecc2", "core/namespaces/namespaces-8714", "/spec/none"),
        ("Namespace-PUT-2568cef0", "core/namespaces/namespaces-1812", "/status/conditions"),
        ("Namespace-PUT-4d4a5c6c", "core/namespaces/e2e-ns-vmnb9-8763", "/spec/finalizers"),
        ("Namespace-PUT-affcaf02", "core/namespaces/e2e-ns-vmnb9-8763", "/spec/finalizers"),
    ] {
        let server = TestServer::start().await;
        let recording = recorded(name);
        namespace(&server, &recording).await;
        seed(&server, &recording, key, brought).await;
        let answer = replay(&server, &recording).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.json());
        assert_eq!(normal(&answer.json(), ""), normal(&recording["answer"], ""), "{name}");
    }
}

/// Stores the object at exactly the version that the recorded body contains.
async fn seed(server: &TestServer, recording: &Value, key: &str, without: &str) {
    let body = STANDARD.decode(recording["body"].as_str().unwrap()).unwrap();
    let wanted = version_in(&body);
    let mut object = recording["answer"].clone();
    let meta = object["metadata"].as_object_mut().unwrap();
    meta.remove("resourceVersion");
    meta.remove("managedFields");
    let (parent, field) = without.rsplit_once('/').unwrap();
    if let Some(Value::Object(map)) = object.pointer_mut(parent) {
        map.remove(field);
    }
    let commit = |key: String, bytes: bytes::Bytes| {
        let write = WriteRequest { key, expect: WritePrecondition::Any, change: KeyChange::Put(bytes) };
        server.store.commit(write)
    };
    while wanted.is_some_and(|wanted| server.revision() < wanted - 1) {
        commit("filler/filler".into(), bytes::Bytes::from_static(b"x")).await.unwrap();
    }
    let kind = object["kind"].as_str().unwrap();
    let api_version = object["apiVersion"].as_str().unwrap();
    let bytes = windlass_server::encode_object(kind, api_version, &object, false);
    commit(key.into(), bytes).await.unwrap();
    assert!(wanted.is_none_or(|wanted| server.revision() == wanted));
}

/// Returns the resourceVersion of ObjectMeta, if any: field 6, after the UID.
fn version_in(body: &[u8]) -> Option<u64> {
    let uid = body.windows(2).position(|w| w == [0x2a, 0x24]).unwrap();
    let at = uid + 2 + 36;
    assert_eq!(body[at], 0x32);
    let digits = &body[at + 2..at + 2 + body[at + 1] as usize];
    std::str::from_utf8(digits).unwrap().parse().ok()
}

#[tokio::test]
async fn options_of_a_deletion_come_in_protobuf_too() {
    for (name, made) in [
        (
            "Status-DELETE-a1ab6de7",
            Some(json!({"metadata": {"name": "event-test"}, "involvedObject": {"namespace": "events-5537"}})),
        ),
        ("Status-DELETE-c9d706f3", Some(json!({"metadata": {"name": "lease"}}))),
        ("CertificateSigningRequestList-DELETE-d1f208fc", None),
        ("ConfigMapList-DELETE-a1ab6de7", None),
        ("SecretList-DELETE-a1ab6de7", None),
        ("LeaseList-DELETE-c9d706f3", None),
        ("EventList-DELETE-7c2702fe", None),
        ("ServiceAccountList-DELETE-a1ab6de7", None),
    ] {
        let server = TestServer::start().await;
        let recording = recorded(name);
        namespace(&server, &recording).await;
        if let Some(made) = made {
            let path = recording["path"].as_str().unwrap();
            let (collection, _) = path.rsplit_once('/').unwrap();
            server.post(collection, &made).await.expect(201);
        }
        let answer = replay(&server, &recording).await.expect(200);
        let (have, want) = (normal(&answer, ""), normal(&recording["answer"], ""));
        if have["kind"] == "Status" {
            assert_eq!(have, want, "{name}");
        }
        assert_eq!((&have["kind"], &have["apiVersion"]), (&want["kind"], &want["apiVersion"]), "{name}");
    }
    let server = TestServer::start().await;
    let recording = recorded("Namespace-DELETE-a1ab6de7");
    server.post("/api/v1/namespaces", &json!({"metadata": {"name": "namespaces-1812"}})).await.expect(201);
    let answer = replay(&server, &recording).await.expect(200);
    assert_eq!((&answer["kind"], &answer["status"]["phase"]), (&json!("Namespace"), &json!("Terminating")));
}
