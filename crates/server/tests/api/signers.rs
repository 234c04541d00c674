//! Signers, rotations, the ledger and revocation lists: who may write them, and what is served.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use windlass_testkit::{TestRequest, TestServer};

const GROUP: &str = "/apis/windlass.dev/v1alpha1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A reference to an owner that does not exist: the garbage collector deletes the object.
static OWNER: LazyLock<Value> = LazyLock::new(
    || json!({"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "0f8fad5b-d9cb-469f-a165-70867728950e"}),
);

fn signer(name: &str, signer_name: &str) -> Value {
    json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "Signer", "metadata": {"name": name}, "spec": {
        "signerName": signer_name, "ca": {"selfSigned": {}}, "pods": {"serviceNames": true},
    }})
}

/// Lets alice write the kinds of the group, and act for signers as the rules say.
async fn grant(server: &TestServer, signer_rules: Value) {
    let mut rules = vec![json!({"apiGroups": ["windlass.dev"], "resources": ["*"], "verbs": ["*"]})];
    rules.extend(signer_rules.as_array().unwrap().iter().map(|rule| {
        json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
               "resourceNames": [rule[1]], "verbs": [rule[0]]})
    }));
    let role = json!({"metadata": {"name": "alice"}, "rules": rules});
    server.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
    let binding = json!({
        "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "alice"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    server.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
}

fn as_alice<'a>(server: &'a TestServer, method: Method, path: &str) -> TestRequest<'a> {
    server.request(method, path).header("authorization", "Bearer alice-token")
}

/// Sends every kind of write of the Signer `web` as alice. Returns the codes.
async fn write_codes(server: &TestServer) -> Vec<u16> {
    let (collection, path) = (format!("{GROUP}/signers"), format!("{GROUP}/signers/web"));
    let mut stored = server.get(&path).await.expect(200);
    stored["spec"]["pods"]["maxDuration"] = json!("2h");
    let patch = |media: &str, query: &str| {
        as_alice(server, Method::PATCH, &format!("{path}{query}")).header("content-type", media)
    };
    let merge = json!({"spec": {"pods": {"maxDuration": "3h"}}});
    let json_patch = json!([{"op": "replace", "path": "/spec/pods/serviceNames", "value": true},
                            {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
    let applied = signer("web", "example.com/web");
    // What marks an object as one of the signers file, and what has the garbage collector delete it.
    let metadata = |metadata: Value| json!({"metadata": metadata});
    let marked = metadata(json!({
        "labels": {"app.kubernetes.io/managed-by": "windlass"},
        "annotations": {"windlass.dev/signers-file": "/signers.yaml"},
    }));
    let requests = [
        as_alice(server, Method::PUT, &path).json(&stored),
        patch("application/merge-patch+json", "").json(&merge),
        patch("application/json-patch+json", "").json(&json_patch),
        patch("application/apply-patch+yaml", "?fieldManager=a&force=true").json(&applied),
        patch("application/merge-patch+json", "").json(&marked),
        patch("application/merge-patch+json", "")
            .json(&metadata(json!({"ownerReferences": [OWNER.clone()]}))),
        patch("application/merge-patch+json", "").json(&metadata(json!({"ownerReferences": null}))),
        patch("application/apply-patch+yaml", "?fieldManager=windlass-signers-file&force=true")
            .json(&applied),
        as_alice(server, Method::DELETE, &collection),
        as_alice(server, Method::DELETE, &path),
        as_alice(server, Method::POST, &collection).json(&signer("web", "example.com/web")),
    ];
    let mut codes = Vec::new();
    for request in requests {
        codes.push(request.send().await.status.as_u16());
    }
    codes
}

#[tokio::test]
async fn writing_signers_takes_the_rights_to_sign_and_to_attest() {
    let both = json!([["sign", "example.com/web"], ["attest", "example.com/*"]]);
    for (rules, codes) in [
        (json!([]), [403; 11]),
        (json!([["sign", "example.com/web"]]), [403; 11]),
        (json!([["attest", "example.com/web"]]), [403; 11]),
        (json!([["sign", "example.com/other"], ["attest", "example.com/web"]]), [403; 11]),
        // The collection is empty after it was deleted.
        (both, [200, 200, 200, 200, 200, 200, 200, 200, 200, 404, 201]),
    ] {
        let server = TestServer::start().await;
        let other = signer("other", "example.net/other");
        if codes[0] == 403 {
            server.post(&format!("{GROUP}/signers"), &other).await.expect(201);
        }
        server.post(&format!("{GROUP}/signers"), &signer("web", "example.com/web")).await.expect(201);
        grant(&server, rules.clone()).await;
        assert_eq!(write_codes(&server).await, codes, "{rules}");
        // The status takes no more than RBAC, and the spec does not change through it.
        let path = format!("{GROUP}/signers/web");
        let mut stored = server.get(&path).await.expect(200);
        let spec = stored["spec"].clone();
        stored["spec"]["pods"]["trustDomain"] = json!("evil.example");
        stored["status"] = json!({"pendingRequests": 3});
        let written = as_alice(&server, Method::PUT, &format!("{path}/status")).json(&stored);
        let written = written.send().await.expect(200);
        assert_eq!((&written["spec"], &written["status"]), (&spec, &json!({"pendingRequests": 3})));
    }
}

#[tokio::test]
async fn a_signer_cannot_be_taken_over_by_another_name() {
    let server = TestServer::start().await;
    grant(&server, json!([["sign", "example.com/mine"], ["attest", "example.com/mine"]])).await;
    let collection = format!("{GROUP}/signers");
    let create = async |name: &str, signer_name: &str| {
        as_alice(&server, Method::POST, &collection).json(&signer(name, signer_name)).send().await
    };
    let message = create("root", "example.com/root").await.fails(403, "Forbidden");
    assert!(message.ends_with("user not permitted to sign for signerName \"example.com/root\""), "{message}");
    create("mine", "example.com/mine").await.expect(201);
    let mut stored = server.get(&format!("{collection}/mine")).await.expect(200);
    stored["spec"]["signerName"] = json!("example.com/root");
    let path = format!("{collection}/mine");
    as_alice(&server, Method::PUT, &path).json(&stored).send().await.fails(422, "Invalid");
    let again = create("again", "example.com/mine").await.fails(422, "Invalid");
    assert!(again.ends_with("spec.signerName: Duplicate value: \"example.com/mine\""), "{again}");
    create("k8s", "kubernetes.io/kubelet-serving").await.fails(422, "Invalid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_signers_with_one_name_one_is_created() {
    let server = TestServer::start().await;
    let collection = format!("{GROUP}/signers");
    let creates = (0..20).map(|index| {
        let (server, collection) = (&server, &collection);
        async move {
            let answer = server.post(collection, &signer(&format!("s{index}"), "example.com/web")).await;
            answer.status.as_u16()
        }
    });
    let codes = futures::future::join_all(creates).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 422).count(), 19, "{codes:?}");
}

fn rotation(name: &str, signer_name: &str) -> Value {
    json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "CARotation", "metadata": {"name": name},
           "spec": {"signerName": signer_name}})
}

/// Sends every kind of write of the CARotation `web` as alice. Returns the codes.
async fn rotation_write_codes(server: &TestServer) -> Vec<u16> {
    let (collection, path) = (format!("{GROUP}/carotations"), format!("{GROUP}/carotations/web"));
    let mut stored = server.get(&path).await.expect(200);
    stored["spec"]["renewalWindow"] = json!("1m");
    let patch = |media: &str, query: &str| {
        as_alice(server, Method::PATCH, &format!("{path}{query}")).header("content-type", media)
    };
    let requests = [
        as_alice(server, Method::PUT, &path).json(&stored),
        patch("application/merge-patch+json", "").json(&json!({"spec": {"paused": true}})),
        patch("application/apply-patch+yaml", "?fieldManager=a&force=true")
            .json(&rotation("web", "example.com/web")),
        as_alice(server, Method::DELETE, &collection),
        as_alice(server, Method::DELETE, &path),
        as_alice(server, Method::POST, &collection).json(&rotation("web", "example.com/web")),
        // A second rotation of the signer can be created; the controllers decide which one runs.
        as_alice(server, Method::POST, &collection).json(&rotation("again", "example.com/web")),
    ];
    let mut codes = Vec::new();
    for request in requests {
        codes.push(request.send().await.status.as_u16());
    }
    codes
}

#[tokio::test]
async fn writing_rotations_takes_the_rights_to_sign_and_to_attest() {
    let both = json!([["sign", "example.com/web"], ["attest", "example.com/*"]]);
    for (rules, codes) in [
        (json!([]), [403; 7]),
        (json!([["sign", "example.com/web"]]), [403; 7]),
        (json!([["attest", "example.com/web"]]), [403; 7]),
        (json!([["sign", "example.com/other"], ["attest", "example.com/web"]]), [403; 7]),
        (both, [200, 200, 200, 200, 404, 201, 201]),
    ] {
        let server = TestServer::start().await;
        let collection = format!("{GROUP}/carotations");
        server.post(&collection, &rotation("web", "example.com/web")).await.expect(201);
        grant(&server, rules.clone()).await;
        assert_eq!(rotation_write_codes(&server).await, codes, "{rules}");
        // The status takes no more than RBAC, and the spec does not change through it.
        let path = format!("{collection}/web");
        let mut stored = server.get(&path).await.expect(200);
        let spec = stored["spec"].clone();
        stored["spec"]["rollback"] = json!(true);
        stored["status"] = json!({"phase": "Preparing"});
        let written = as_alice(&server, Method::PUT, &format!("{path}/status")).json(&stored);
        let written = written.send().await.expect(200);
        assert_eq!((&written["spec"], &written["status"]), (&spec, &json!({"phase": "Preparing"})));
    }
}

#[tokio::test]
async fn a_rotation_keeps_its_signer_and_its_rollback() {
    let server = TestServer::start().await;
    let path = format!("{GROUP}/carotations/web");
    let stored = server.post(&format!("{GROUP}/carotations"), &rotation("web", "example.com/web")).await;
    assert_eq!(stored.expect(201)["metadata"]["generation"], 1);
    let patch = async |spec: Value| {
        let request =
            server.request(Method::PATCH, &path).header("content-type", "application/merge-patch+json");
        request.json(&json!({"spec": spec})).send().await
    };
    let message = patch(json!({"signerName": "example.com/other"})).await.fails(422, "Invalid");
    assert!(message.ends_with("\"example.com/other\": field is immutable"), "{message}");
    let rolled_back = patch(json!({"rollback": true})).await.expect(200);
    assert_eq!(rolled_back["metadata"]["generation"], 2);
    let message = patch(json!({"rollback": null})).await.fails(422, "Invalid");
    assert!(message.ends_with("spec.rollback: Forbidden: cannot be unset; start another rotation instead"));
    let list = server.get(&format!("{GROUP}/carotations")).await.expect(200);
    assert_eq!(list["kind"], "CARotationList");
}

#[tokio::test]
async fn revoking_takes_the_right_to_sign() {
    let server = TestServer::start().await;
    grant(&server, json!([["sign", "example.com/web"]])).await;
    let revoke = async |signer_name: &str, serial: &str| {
        let object = json!({"metadata": {"name": format!("0a-{serial}")}, "spec": {
            "signerName": signer_name, "authorityID": "0a", "serialNumber": serial,
            "reason": "certificateHold", "notAfter": "2999-01-01T00:00:00Z",
        }});
        let path = format!("{GROUP}/certificaterevocations");
        as_alice(&server, Method::POST, &path).json(&object).send().await
    };
    let stored = revoke("example.com/web", "01").await.expect(201);
    assert_eq!(stored["status"]["requester"], "alice");
    revoke("example.com/other", "02").await.fails(403, "Forbidden");
    let list = server.get(&format!("{GROUP}/certificaterevocations")).await.expect(200);
    assert_eq!(list["kind"], "CertificateRevocationItemList");
    let lists = server.get(&format!("{GROUP}/certificaterevocationlists")).await.expect(200);
    assert_eq!(lists["kind"], "CertificateRevocationListList");
}

#[tokio::test]
async fn a_revocation_cannot_be_undone_without_the_right_to_sign() {
    for (rules, codes) in [
        (json!([["sign", "example.com/other"]]), [422, 422, 422, 422, 403, 403, 403, 403]),
        // A hold can be undone by whoever may sign; the spec never changes.
        (json!([["sign", "example.com/web"]]), [422, 422, 422, 422, 200, 200, 200, 404]),
    ] {
        let server = TestServer::start().await;
        let (collection, name) = (format!("{GROUP}/certificaterevocations"), "0a-01");
        let revocation = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "CertificateRevocation",
            "metadata": {"name": name}, "spec": {
            "signerName": "example.com/web", "authorityID": "0a", "serialNumber": "01",
            "reason": "certificateHold", "notAfter": "2999-01-01T00:00:00Z",
        }});
        let mut stored = server.post(&collection, &revocation).await.expect(201);
        grant(&server, rules.clone()).await;
        let path = format!("{collection}/{name}");
        stored["spec"]["serialNumber"] = json!("02");
        let mut applied = revocation.clone();
        applied["spec"]["notAfter"] = json!("2000-01-01T00:00:00Z");
        let patch = |media: &str, query: &str| {
            as_alice(&server, Method::PATCH, &format!("{path}{query}")).header("content-type", media)
        };
        let merge = "application/merge-patch+json";
        let replace = json!([{"op": "replace", "path": "/spec/notAfter", "value": "2000-01-01T00:00:00Z"}]);
        let requests = [
            as_alice(&server, Method::PUT, &path).json(&stored),
            patch(merge, "").json(&json!({"spec": {"serialNumber": "02"}})),
            patch("application/json-patch+json", "").json(&replace),
            patch("application/apply-patch+yaml", "?fieldManager=a&force=true").json(&applied),
            patch(merge, "").json(&json!({"metadata": {"labels": {"a": "b"}}})),
            patch(merge, "").json(&json!({"metadata": {"ownerReferences": [OWNER.clone()]}})),
            as_alice(&server, Method::DELETE, &path),
            as_alice(&server, Method::DELETE, &path),
        ];
        let mut found = Vec::new();
        for request in requests {
            found.push(request.send().await.status.as_u16());
        }
        assert_eq!(found, codes, "{rules}");
        if codes[4] == 403 {
            as_alice(&server, Method::DELETE, &collection).send().await.fails(403, "Forbidden");
            let kept = server.get(&path).await.expect(200);
            assert_eq!(
                (&kept["spec"], &kept["metadata"]["ownerReferences"]),
                (&revocation["spec"], &json!(null))
            );
            // The status is set once.
            let mut forged = kept.clone();
            forged["status"]["requester"] = json!("somebody");
            let status = as_alice(&server, Method::PUT, &format!("{path}/status")).json(&forged);
            status.send().await.fails(422, "Invalid");
        }
    }
}

/// Writing the status of a Signer takes no right to sign, so a forged one must not extend it.
#[tokio::test]
async fn an_authority_that_several_signers_list_takes_the_right_for_all_of_them() {
    for (rules, code) in [
        (json!([["sign", "example.com/mine"]]), 403),
        (json!([["sign", "example.com/mine"], ["sign", "example.com/web"]]), 201),
    ] {
        let server = TestServer::start().await;
        for name in ["web", "mine"] {
            let signer_name = format!("example.com/{name}");
            let mut stored =
                server.post(&format!("{GROUP}/signers"), &signer(name, &signer_name)).await.expect(201);
            stored["status"] = json!({"authorities": [{"id": "0a0b", "state": "Active"}]});
            server.put(&format!("{GROUP}/signers/{name}/status"), &stored).await.expect(200);
        }
        grant(&server, rules).await;
        let revocation = json!({"metadata": {"name": "0a0b-01"}, "spec": {
            "signerName": "example.com/mine", "authorityID": "0a0b", "serialNumber": "01",
            "reason": "superseded", "notAfter": "2999-01-01T00:00:00Z",
        }});
        let request = as_alice(&server, Method::POST, &format!("{GROUP}/certificaterevocations"));
        let answer = request.json(&revocation).send().await;
        assert_eq!(answer.status.as_u16(), code);
        if code == 403 {
            let message = answer.fails(403, "Forbidden");
            assert!(message.contains("is also used by signerName \"example.com/web\""), "{message}");
        }
    }
}

#[tokio::test]
async fn the_ledger_only_grows() {
    let server = TestServer::start().await;
    let segment = json!({"metadata": {"name": "short-0000000001"}, "spec": {
        "chain": "short", "sequence": 1, "previousHash": format!("sha256:{}", "0".repeat(64)),
        "entries": "YQ==", "entryCount": 2, "latestExpiry": "2999-01-01T00:00:00Z",
    }});
    let path = format!("{GROUP}/ledgersegments/short-0000000001");
    let mut stored = server.post(&format!("{GROUP}/ledgersegments"), &segment).await.expect(201);
    stored["spec"]["entryCount"] = json!(3);
    stored["spec"]["entries"] = json!("YWI=");
    let current = server.put(&path, &stored).await.expect(200);
    server.put(&path, &stored).await.fails(409, "Conflict");
    let mut shorter = current.clone();
    shorter["spec"]["entryCount"] = json!(2);
    let message = server.put(&path, &shorter).await.fails(422, "Invalid");
    assert!(message.ends_with("spec.entryCount: Invalid value: 2: may not decrease"), "{message}");
}

#[tokio::test]
async fn revocation_lists_are_served_to_everybody() {
    let server = TestServer::start().await;
    let der = [7_u8; 100];
    let list = json!({"metadata": {"name": "0a0b"}, "spec": {
        "signerName": "example.com/web", "authorityID": "0a0b", "crl": STANDARD.encode(der), "number": 1,
        "thisUpdate": "2026-01-01T00:00:00Z", "nextUpdate": "2026-01-02T00:00:00Z",
    }});
    server.post(&format!("{GROUP}/certificaterevocationlists"), &list).await.expect(201);
    let ask = |method, path: &str| server.request(method, path).anonymous();
    let found = ask(Method::GET, "/pki/crl/0a0b.crl").send().await;
    assert_eq!((found.status.as_u16(), found.body.as_ref()), (200, &der[..]));
    assert_eq!(found.headers["content-type"], "application/pkix-crl");
    assert_eq!(found.headers["cache-control"], "public, max-age=60");
    let tag = found.headers["etag"].to_str().unwrap();
    let known = ask(Method::GET, "/pki/crl/0a0b.crl").header("if-none-match", tag).send().await;
    assert_eq!((known.status.as_u16(), known.body.len()), (304, 0));
    let pem = ask(Method::GET, "/pki/crl/0a0b.pem").send().await;
    assert_eq!(pem.headers["content-type"], "application/x-pem-file");
    let text = String::from_utf8(pem.body.to_vec()).unwrap();
    assert!(text.starts_with("-----BEGIN X509 CRL-----\n"), "{text}");
    let head = ask(Method::HEAD, "/pki/crl/0a0b.crl").send().await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    assert_eq!(head.headers["content-length"], "100");
    for path in
        ["/pki/crl/0a0c.crl", "/pki/crl/0a0b", "/pki/crl/0a0b.der", "/pki/crl/", "/pki/crl/a/0a0b.crl"]
    {
        assert_eq!(ask(Method::GET, path).send().await.status.as_u16(), 404, "{path}");
    }
    for (method, path) in [(Method::POST, "/pki/crl/0a0b.crl"), (Method::GET, "/pki")] {
        assert_eq!(ask(method, path).send().await.status.as_u16(), 403, "{path}");
    }
    let posted = server.request(Method::POST, "/pki/crl/0a0b.crl").send().await;
    assert_eq!(posted.status.as_u16(), 405);
}
