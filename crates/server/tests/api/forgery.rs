//! Fields owned by the server cannot be forged: every field of the certificate kinds, set and
//! removed by every verb and patch type, through every endpoint, by a caller with all permissions.
//!
//! After each attempt the stored object may differ only in fields that its writers may write.

mod field_locations;
mod write_methods;

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use field_locations::FieldChange;
use write_methods::WriteMethod;

use windlass_testkit::TestServer;

/// A kind to attack, with its endpoints.
struct ForgeryTarget {
    version: &'static str,
    /// Path such as `certificatesigningrequests`, below its namespace if it has one.
    place: &'static str,
    type_name: &'static str,
    object: Value,
    /// Earlier writes to these subresources.
    before: Vec<(&'static str, Value)>,
    /// Attacked endpoints, and the fields that may change there beside [`EVERYBODYS`].
    open: &'static [(&'static str, &'static [&'static str])],
}

/// Fields that anyone who may write the object may change.
const EVERYBODYS: &[&str] = &[
    "/metadata/labels",
    "/metadata/annotations",
    "/metadata/finalizers",
    "/metadata/ownerReferences",
    "/metadata/generateName",
];
/// Fields that change with every write.
const CONSEQUENCES: &[&str] = &["/metadata/managedFields", "/metadata/resourceVersion"];

fn signing_request() -> ForgeryTarget {
    let pem = include_bytes!("conformance/fixtures/csr-p256.pem");
    let leaf = STANDARD.encode(include_bytes!("conformance/fixtures/leaf.pem"));
    let approved = json!({"type": "Approved", "status": "True", "reason": "R", "message": "m"});
    ForgeryTarget {
        version: "v1",
        place: "certificatesigningrequests",
        type_name: "io.k8s.api.certificates.v1.CertificateSigningRequest",
        object: json!({
            "metadata": {"name": "it", "labels": {"a": "b"}},
            "spec": {
                "request": STANDARD.encode(pem), "signerName": "example.com/x",
                "expirationSeconds": 3600, "usages": ["client auth"],
            },
        }),
        before: vec![
            ("approval", json!({"conditions": [approved]})),
            ("status", json!({"conditions": [approved], "certificate": leaf})),
        ],
        open: &[("", &[]), ("approval", &["/status/conditions"]), ("status", &["/status/conditions"])],
    }
}

fn bundle(version: &'static str) -> ForgeryTarget {
    let type_name = match version {
        "v1" => "io.k8s.api.certificates.v1.ClusterTrustBundle",
        "v1beta1" => "io.k8s.api.certificates.v1beta1.ClusterTrustBundle",
        _ => "io.k8s.api.certificates.v1alpha1.ClusterTrustBundle",
    };
    let anchors = include_str!("conformance/fixtures/ca-p256.pem");
    ForgeryTarget {
        version,
        place: "clustertrustbundles",
        type_name,
        object: json!({
            "metadata": {"name": "example.com:x:it"},
            "spec": {"signerName": "example.com/x", "trustBundle": anchors},
        }),
        before: Vec::new(),
        open: &[("", &["/spec/trustBundle", "/metadata/generation"])],
    }
}

fn pod_request(version: &'static str, decided: bool) -> ForgeryTarget {
    let type_name = match version {
        "v1" => "io.k8s.api.certificates.v1.PodCertificateRequest",
        "v1beta1" => "io.k8s.api.certificates.v1beta1.PodCertificateRequest",
        _ => "io.k8s.api.certificates.v1alpha1.PodCertificateRequest",
    };
    let stub = STANDARD.encode(include_bytes!("conformance/fixtures/pcr-p256.stub.der"));
    let denied = json!({"conditions": [{
        "type": "Denied", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    ForgeryTarget {
        version,
        place: "namespaces/default/podcertificaterequests",
        type_name,
        object: json!({
            "metadata": {"name": "it"},
            "spec": {
                "signerName": "example.com/x", "podName": "p", "podUID": "pod-uid", "serviceAccountName": "s",
                "serviceAccountUID": "account-uid", "nodeName": "n", "nodeUID": "node-uid",
                "maxExpirationSeconds": 3600, "stubPKCS10Request": stub,
            },
        }),
        before: if decided { vec![("status", denied)] } else { Vec::new() },
        // Kubernetes resets the rest of the metadata, but not this.
        open: &[("", &[]), ("status", &["/metadata/generateName"])],
    }
}

impl ForgeryTarget {
    fn collection(&self) -> String {
        format!("/apis/certificates.k8s.io/{}/{}", self.version, self.place)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.object["metadata"]["name"].as_str().unwrap())
    }

    /// Recreates the object in the state to be attacked.
    async fn recreate(&self, server: &TestServer) -> Value {
        let path = self.path();
        if server.get(&path).await.status == 200 {
            // Finalizers left by an attack would block its deletion.
            let free = json!({"metadata": {"finalizers": null}});
            server.patch(&path, "merge", &free).await.expect(200);
            server.delete(&path).await.expect(200);
        }
        let mut made = server.post(&self.collection(), &self.object).await.expect(201);
        for (subresource, status) in &self.before {
            made["status"] = status.clone();
            made = server.put(&format!("{path}/{subresource}"), &made).await.expect(200);
        }
        made
    }
}

#[tokio::test]
async fn no_field_of_a_signing_request_is_forged() {
    attack(signing_request()).await;
}

#[tokio::test]
async fn no_field_of_a_trust_bundle_is_forged() {
    for version in ["v1", "v1beta1", "v1alpha1"] {
        attack(bundle(version)).await;
    }
}

#[tokio::test]
async fn no_field_of_a_pod_request_is_forged() {
    for (version, decided) in [("v1", false), ("v1", true), ("v1beta1", true), ("v1alpha1", false)] {
        attack(pod_request(version, decided)).await;
    }
}

/// Starts a server where a role grants alice all permissions.
async fn server() -> TestServer {
    let server = TestServer::start().await;
    let binding = json!({
        "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    server.post(path, &binding).await.expect(201);
    server
}

async fn attack(target: ForgeryTarget) {
    let server = server().await;
    let mut current = target.recreate(&server).await;
    let mut forged = Vec::new();
    let (mut tried, mut taken) = (0, 0);
    for place in field_locations::for_type(target.type_name) {
        for value in [None, Some(field_locations::forged_value(place.shape.as_ref()))] {
            let change = FieldChange { at: place.at.clone(), value };
            for (subresource, open) in target.open {
                let path = match *subresource {
                    "" => target.path(),
                    subresource => format!("{}/{subresource}", target.path()),
                };
                for how in WriteMethod::ALL {
                    let wanted = change.apply_to(&current);
                    let body = how.body(&current, &wanted, std::slice::from_ref(&change));
                    let answer = write_methods::send(&server, "alice-token", &path, how, &body).await;
                    tried += 1;
                    let found = server.get(&target.path()).await.expect(200);
                    assert_ne!(answer.json()["reason"], "InternalError", "{how:?} {path} {}", change.shown());
                    for changed in differences(&current, &found) {
                        if !may_change(&changed, open, subresource, &target) {
                            forged.push(format!("{how:?} {path}: {} changed {changed}", change.shown()));
                        }
                    }
                    check_decided(&current, &found, &mut forged);
                    if found != current {
                        taken += 1;
                        current = target.recreate(&server).await;
                    }
                }
            }
        }
    }
    assert!(forged.is_empty(), "{} of {tried}:\n{}", forged.len(), forged[..forged.len().min(40)].join("\n"));
    // Attacks that never change anything may be ineffective.
    assert!(tried > 500 && taken > 10, "{taken} of {tried} attempts changed anything");
}

fn may_change(changed: &str, open: &[&str], subresource: &str, target: &ForgeryTarget) -> bool {
    // Writers of a pod request's status may change nothing but the status.
    let everybodys = !(subresource == "status" && target.place.ends_with("podcertificaterequests"));
    CONSEQUENCES.contains(&changed)
        || open.contains(&changed)
        || (everybodys && EVERYBODYS.contains(&changed))
}

/// Decisions on a signing request are final: once Approved, it cannot be denied.
fn check_decided(before: &Value, after: &Value, forged: &mut Vec<String>) {
    let decisions = |object: &Value| -> Vec<Value> {
        let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let decides = |c: &Value| matches!(c["type"].as_str(), Some("Approved" | "Denied"));
        all.iter().filter(|c| decides(c)).map(|c| json!([c["type"], c["status"]])).collect()
    };
    if decisions(before) != decisions(after) {
        forged.push(format!("decided {:?}, and then {:?}", decisions(before), decisions(after)));
    }
}

/// Returns the differing parts, as `/metadata/labels`: second-level fields, which have a known
/// owner.
fn differences(before: &Value, after: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default()
    };
    for top in keys(before).into_iter().chain(keys(after)) {
        let (old, new) = (&before[&top], &after[&top]);
        if old == new {
            continue;
        }
        let inner: BTreeSet<String> = keys(old).into_iter().chain(keys(new)).collect();
        if inner.is_empty() {
            found.insert(format!("/{top}"));
        }
        found.extend(
            inner.iter().filter(|key| old.get(key) != new.get(key)).map(|key| format!("/{top}/{key}")),
        );
    }
    found
}

/// The requester is the authenticated user, whatever the request says; the same holds for all other
/// server-owned fields.
#[tokio::test]
async fn nothing_is_forged_in_a_new_object() {
    let server = server().await;
    for target in [signing_request(), bundle("v1"), pod_request("v1", false), pod_request("v1beta1", false)] {
        let mut honest = target.object.clone();
        honest["apiVersion"] = json!(format!("certificates.k8s.io/{}", target.version));
        for place in field_locations::for_type(target.type_name) {
            let change = FieldChange {
                at: place.at.clone(),
                value: Some(field_locations::forged_value(place.shape.as_ref())),
            };
            let body = change.apply_to(&honest);
            let asked = server.request(http::Method::POST, &target.collection());
            let answer = asked.header("authorization", "Bearer alice-token").json(&body).send().await;
            assert_ne!(answer.json()["reason"], "InternalError", "{}", change.shown());
            if answer.status != 201 {
                continue;
            }
            let made = answer.json();
            let reported = change.shown();
            assert_ne!(made["metadata"]["uid"], "forged", "{reported}");
            assert_ne!(made["metadata"]["creationTimestamp"], "2001-01-01T00:00:00Z", "{reported}");
            assert!(made["metadata"].get("deletionTimestamp").is_none(), "{reported}");
            let status = made.get("status").cloned().unwrap_or(json!({}));
            assert_eq!(status, json!({}), "{reported}");
            if target.place == "certificatesigningrequests" {
                let asker = json!(["alice", "alice-uid", ["dev", "system:authenticated"]]);
                let spec = &made["spec"];
                assert_eq!(json!([spec["username"], spec["uid"], spec["groups"]]), asker, "{reported}");
                assert!(spec.get("extra").is_none(), "{reported}");
            }
            let name = made["metadata"]["name"].as_str().unwrap();
            let path = format!("{}/{name}", target.collection());
            server.patch(&path, "merge", &json!({"metadata": {"finalizers": null}})).await.expect(200);
            server.delete(&path).await.expect(200);
        }
    }
}

/// Nobody can request a certificate of the group with all permissions, in any way.
#[tokio::test]
async fn system_masters_cannot_be_requested() {
    let server = server().await;
    let pem = STANDARD.encode(include_bytes!("conformance/fixtures/csr-masters.pem"));
    let collection = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let body = |metadata: Value| {
        json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": metadata,
            "spec": {
                "request": pem, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
            },
        })
    };
    let before = server.revision();
    let text = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    for metadata in [json!({"name": "m"}), json!({"generateName": "m-"})] {
        let reported = server.post(collection, &body(metadata)).await.fails(403, "Forbidden");
        assert!(reported.ends_with(text), "{reported}");
    }
    let applied = format!("{collection}/m?fieldManager=m");
    let reported = server.patch(&applied, "apply", &body(json!({"name": "m"}))).await.fails(403, "Forbidden");
    assert!(reported.ends_with(text), "{reported}");
    let yaml = server.request(http::Method::POST, collection).header("content-type", "application/yaml");
    // JSON is valid YAML.
    let reported = yaml.raw_body(body(json!({"name": "m"})).to_string()).send().await.fails(403, "Forbidden");
    assert!(reported.ends_with(text), "{reported}");
    assert_eq!(server.revision(), before);
}

/// Signers are cluster-scoped, so a namespaced role grants nothing on them.
#[tokio::test]
async fn no_namespace_grants_the_right_to_decide() {
    let server = TestServer::start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let all = json!({
        "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    server.post(&format!("{rbac}/namespaces/default/rolebindings"), &all).await.expect(201);
    let target = pod_request("v1", false);
    let mut made = target.recreate(&server).await;
    made["status"] = json!({"conditions": [{
        "type": "Denied", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    let path = format!("{}/status", target.path());
    let asked = server.request(http::Method::PUT, &path).header("authorization", "Bearer alice-token");
    let reported = asked.json(&made).send().await.fails(422, "Invalid");
    assert!(reported.contains("is not permitted to \"sign\" for signer \"example.com/x\""), "{reported}");
}
