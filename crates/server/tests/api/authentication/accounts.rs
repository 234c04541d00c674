//! Service account tokens: issuance and invalidation.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use windlass_server::TokenSigner;

use super::*;
use windlass_testkit::{ISSUER, PODS};

/// Returns the claims of a token without verification.
fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

fn bound(kind: &str, name: &str) -> Value {
    json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}})
}

async fn create_pod(server: &TestServer, name: &str, account: &str, node: &str) -> Value {
    let spec = json!({
        "containers": [{"name": "c", "image": "i"}], "serviceAccountName": account, "nodeName": node,
    });
    server.post(PODS, &json!({"metadata": {"name": name}, "spec": spec})).await.expect(201)
}

/// Starts a server whose signing key the test knows.
pub async fn with_signer() -> (TestServer, TokenSigner) {
    let key = PrivateKey::generate().unwrap();
    let pem = key.to_pem().unwrap();
    let again = PrivateKey::from_pem(pem.as_bytes()).unwrap();
    let server = TestServer::start().await;
    let verifier = server.server.authenticator.service_accounts.as_ref().unwrap();
    verifier.replace_keys(&[key.public_key().clone()]).unwrap();
    (server, TokenSigner::new(again, ISSUER).unwrap())
}

#[tokio::test]
async fn a_token_authenticates_its_service_account() {
    let (server, _) = with_clock().await;
    let made = account(&server, "build").await;
    let token = token(&server, "build", json!({})).await;
    let said = claims(&token);
    let user = bearer(&server, &token).await;
    assert_eq!(
        user,
        json!({
            "username": "system:serviceaccount:default:build",
            "uid": made["metadata"]["uid"],
            "groups": [
                "system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated",
            ],
            "extra": {
                "authentication.kubernetes.io/credential-id":
                    [format!("JTI={}", said["jti"].as_str().unwrap())],
            },
        })
    );
    assert_eq!((&said["iss"], &said["aud"]), (&json!(ISSUER), &json!([ISSUER])));
    assert_eq!(said["exp"].as_i64().unwrap() - said["nbf"].as_i64().unwrap(), 3600);
}

#[tokio::test]
async fn an_answer_says_what_was_left_open() {
    let (server, _) = with_clock().await;
    let made = account(&server, "build").await;
    let path = format!("{ACCOUNTS}/build/token");
    let body = json!({"metadata": {"labels": {"a": "b"}}});
    let answer = server.post(&path, &body).await.expect(201);
    let meta = &answer["metadata"];
    assert_eq!((&meta["name"], &meta["namespace"]), (&json!("build"), &json!("default")));
    assert_eq!((&meta["uid"], &meta["labels"]["a"]), (&made["metadata"]["uid"], &json!("b")));
    assert!(meta["creationTimestamp"].is_string());
    let spec = json!({"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null});
    assert_eq!(answer["spec"], spec);
}

#[tokio::test]
async fn invalid_requests_for_tokens_are_refused() {
    let (server, _) = with_clock().await;
    account(&server, "build").await;
    account(&server, "other").await;
    create_pod(&server, "p", "other", "").await;
    let path = format!("{ACCOUNTS}/build/token");
    let before = server.revision();
    for (body, code, reason, words) in [
        (json!({"metadata": {"name": "x"}}), 422, "Invalid", "must match the service account name"),
        (json!({"metadata": {"uid": "x"}}), 409, "Conflict", "does not match the UID of the service"),
        (json!({"spec": {"expirationSeconds": 599}}), 422, "Invalid", "less than 10 minutes"),
        (json!({"spec": {"expirationSeconds": 1_i64 << 33}}), 422, "Invalid", "larger than 2^32"),
        (json!({"spec": bound("Pod", "none")}), 404, "NotFound", "pods \"none\" not found"),
        (json!({"spec": bound("Node", "none")}), 404, "NotFound", "nodes \"none\" not found"),
        (json!({"spec": bound("Secret", "none")}), 404, "NotFound", "secrets \"none\" not found"),
        (
            json!({"spec": bound("ConfigMap", "c")}),
            400,
            "BadRequest",
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            json!({"spec": bound("Pod", "p")}),
            400,
            "BadRequest",
            "cannot bind token for serviceaccount \"build\" to pod running with different serviceaccount name.",
        ),
    ] {
        let message = server.post(&path, &body).await.fails(code, reason);
        assert!(message.contains(words), "{message}");
    }
    let missing = server.post(&format!("{ACCOUNTS}/none/token"), &json!({})).await;
    assert_eq!(missing.fails(404, "NotFound"), "serviceaccounts \"none\" not found");
    let mut reference = bound("Pod", "p");
    reference["boundObjectRef"]["uid"] = json!("x");
    let other = server.post(&format!("{ACCOUNTS}/other/token"), &json!({"spec": reference})).await;
    assert!(other.fails(409, "Conflict").contains("does not match the UID in record"));
    assert_eq!(server.revision(), before);
}

#[tokio::test]
async fn a_token_ends_with_its_time() {
    let (server, time) = with_clock().await;
    account(&server, "build").await;
    let token = token(&server, "build", json!({"expirationSeconds": 600})).await;
    time.set(659);
    bearer(&server, &token).await;
    time.set(662);
    token_refused(&server, "expired", &token).await;
    // The signature is cached; the time is checked each time.
    time.set(0);
    bearer(&server, &token).await;
    time.set(-100);
    token_refused(&server, "not valid yet", &token).await;
}

#[tokio::test]
async fn a_token_ends_with_its_account() {
    let (server, time) = with_clock().await;
    account(&server, "build").await;
    let old = token(&server, "build", json!({})).await;
    bearer(&server, &old).await;
    server.delete(&format!("{ACCOUNTS}/build")).await.expect(200);
    token_refused(&server, "deleted", &old).await;
    account(&server, "build").await;
    token_refused(&server, "another of the same name", &old).await;
    let new = token(&server, "build", json!({})).await;
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    server.patch(&format!("{ACCOUNTS}/build"), "merge", &held).await.expect(200);
    server.delete(&format!("{ACCOUNTS}/build")).await.expect(200);
    time.set(58);
    bearer(&server, &new).await;
    time.set(63);
    token_refused(&server, "going for more than a minute", &new).await;
}

#[tokio::test]
async fn a_token_ends_with_its_pod() {
    let (server, time) = with_clock().await;
    account(&server, "build").await;
    server.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.expect(201);
    let first = create_pod(&server, "p", "build", "").await;
    let old = token(&server, "build", bound("Pod", "p")).await;
    let user = bearer(&server, &old).await;
    let extra =
        |user: &Value, key: &str| user["extra"][format!("authentication.kubernetes.io/{key}")][0].clone();
    assert_eq!(extra(&user, "pod-name"), "p");
    assert_eq!(extra(&user, "pod-uid"), first["metadata"]["uid"]);
    assert!(extra(&user, "node-name").is_null());
    server.delete(&format!("{PODS}/p")).await.expect(200);
    token_refused(&server, "deleted", &old).await;
    create_pod(&server, "p", "build", "n").await;
    token_refused(&server, "another of the same name", &old).await;
    let new = token(&server, "build", bound("Pod", "p")).await;
    let user = bearer(&server, &new).await;
    let node = server.get("/api/v1/nodes/n").await.expect(200);
    assert_eq!(extra(&user, "node-name"), "n");
    assert_eq!(extra(&user, "node-uid"), node["metadata"]["uid"]);
    // The node is informational: the token remains valid without it.
    server.delete("/api/v1/nodes/n").await.expect(200);
    bearer(&server, &new).await;
    let path = format!("{PODS}/p?gracePeriodSeconds=30");
    server.delete(&path).await.expect(200);
    time.set(88);
    bearer(&server, &new).await;
    time.set(93);
    token_refused(&server, "going for more than a minute", &new).await;
}

#[tokio::test]
async fn a_token_ends_with_its_node_or_secret() {
    let (server, _) = with_clock().await;
    account(&server, "build").await;
    for (kind, path) in [("Node", "/api/v1/nodes"), ("Secret", "/api/v1/namespaces/default/secrets")] {
        let body = json!({"metadata": {"name": "x"}});
        server.post(path, &body).await.expect(201);
        let token = token(&server, "build", bound(kind, "x")).await;
        let user = bearer(&server, &token).await;
        let node = &user["extra"]["authentication.kubernetes.io/node-name"][0];
        assert_eq!(node.is_string(), kind == "Node");
        server.delete(&format!("{path}/x")).await.expect(200);
        token_refused(&server, kind, &token).await;
        server.post(path, &body).await.expect(201);
        token_refused(&server, kind, &token).await;
    }
}

#[tokio::test]
async fn cve_2025_66406_a_token_counts_for_its_audience_only() {
    let (server, _) = with_clock().await;
    account(&server, "build").await;
    let vault = token(&server, "build", json!({"audiences": ["vault"]})).await;
    let both = token(&server, "build", json!({"audiences": ["vault", ISSUER]})).await;
    let own = token(&server, "build", json!({})).await;
    token_refused(&server, "for another audience", &vault).await;
    for token in [&both, &own] {
        bearer(&server, token).await;
    }
    for (token, asked, reported) in [
        (&vault, &["vault"][..], Some(json!(["vault"]))),
        (&vault, &["x", "vault"], Some(json!(["vault"]))),
        (&vault, &[ISSUER], None),
        (&vault, &[], None),
        (&vault, &["Vault"], None),
        (&both, &["vault", ISSUER], Some(json!(["vault", ISSUER]))),
        (&both, &[], Some(json!([ISSUER]))),
        (&own, &["vault"], None),
        (&own, &[], Some(json!([ISSUER]))),
    ] {
        let status = review(&server, token, asked).await;
        assert_eq!(status.get("audiences").cloned(), reported, "{asked:?}: {status}");
        assert_eq!(status["authenticated"] == true, reported.is_some(), "{asked:?}: {status}");
    }
}

#[tokio::test]
async fn a_forged_token_is_rejected() {
    let (server, signer) = with_signer().await;
    let made = account(&server, "build").await;
    let good = json!({
        "sub": "system:serviceaccount:default:build", "aud": [ISSUER], "exp": 4_000_000_000_i64,
        "kubernetes.io": {
            "namespace": "default",
            "serviceaccount": {"name": "build", "uid": made["metadata"]["uid"]},
        },
    });
    bearer(&server, &signer.sign(good.clone()).unwrap()).await;
    for (what, pointer, value) in [
        ("another subject", "/sub", json!("system:serviceaccount:kube-system:admin")),
        ("no subject", "/sub", Value::Null),
        ("no expiry", "/exp", Value::Null),
        ("expiry in words", "/exp", json!("never")),
        ("no audience", "/aud", Value::Null),
        ("an empty audience", "/aud", json!([])),
        ("another account's uid", "/kubernetes.io/serviceaccount/uid", json!("x")),
        ("no uid", "/kubernetes.io/serviceaccount/uid", json!("")),
        ("another namespace", "/kubernetes.io/namespace", json!("kube-system")),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        token_refused(&server, what, &signer.sign(bad).unwrap()).await;
    }
    for when in ["nbf", "iat"] {
        let mut future = good.clone();
        future[when] = json!(3_999_999_999_i64);
        token_refused(&server, when, &signer.sign(future).unwrap()).await;
    }
    let stranger = TokenSigner::new(PrivateKey::generate().unwrap(), ISSUER).unwrap();
    token_refused(&server, "another key", &stranger.sign(good.clone()).unwrap()).await;
    let token = signer.sign(good.clone()).unwrap();
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (header, payload) = message.split_once('.').unwrap();
    let changed = if signature.starts_with('A') { 'B' } else { 'A' };
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    for (what, bad) in [
        ("none", format!("{none}.{payload}.")),
        ("none, signed", format!("{none}.{payload}.{signature}")),
        ("no signature", format!("{header}.{payload}.")),
        ("two parts", message.to_owned()),
        ("a changed signature", format!("{message}.{changed}{}", &signature[1..])),
    ] {
        assert_ne!(bad, token);
        token_refused(&server, what, &bad).await;
    }
}

#[tokio::test]
async fn keys_and_issuers_can_be_rolled_over() {
    let (server, signer) = with_signer().await;
    let made = account(&server, "build").await;
    let verifier = server.server.authenticator.service_accounts.as_ref().unwrap();
    let own = token(&server, "build", json!({})).await;
    // The server signs with a key that it no longer accepts.
    token_refused(&server, "a key that is gone", &own).await;
    let claims = json!({
        "sub": "system:serviceaccount:default:build", "aud": [ISSUER], "exp": 4_000_000_000_i64,
        "kubernetes.io": {
            "namespace": "default",
            "serviceaccount": {"name": "build", "uid": made["metadata"]["uid"]},
        },
    });
    let token = signer.sign(claims).unwrap();
    bearer(&server, &token).await;
    let new = PrivateKey::generate().unwrap();
    verifier.replace_keys(&[new.public_key().clone()]).unwrap();
    token_refused(&server, "a key that was known", &token).await;
}

#[tokio::test]
async fn others_can_find_the_keys() {
    let server = TestServer::start().await;
    let found = server.get("/.well-known/openid-configuration").await;
    assert_eq!(found.headers["content-type"], "application/json");
    assert_eq!(found.headers["cache-control"], "public, max-age=3600");
    let want = json!({
        "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    });
    assert_eq!(found.expect(200), want);
    let keys = server.get("/openid/v1/jwks").await;
    assert_eq!(keys.headers["content-type"], "application/jwk-set+json");
    assert_eq!(keys.headers["cache-control"], "public, max-age=3600");
    let keys = keys.expect(200);
    let key = &keys["keys"][0];
    assert_eq!((&key["kty"], &key["crv"]), (&json!("EC"), &json!("P-256")));
    assert_eq!((&key["alg"], &key["use"]), (&json!("ES256"), &json!("sig")));
    account(&server, "build").await;
    let token = token(&server, "build", json!({})).await;
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_eq!(header["kid"], key["kid"]);
    let paths = server.get("/").await.expect(200);
    assert!(paths["paths"].as_array().unwrap().contains(&json!("/openid/v1/jwks")));
    let put = server.request(Method::PUT, "/openid/v1/jwks").send().await;
    assert_eq!(put.status.as_u16(), 405);
    let silent = TestServer::with(|setup| setup.authenticator.service_accounts = None).await;
    assert_eq!(silent.get("/openid/v1/jwks").await.status.as_u16(), 404);
}
