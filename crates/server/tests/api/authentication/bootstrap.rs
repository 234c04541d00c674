//! Bootstrap tokens.

use serde_json::json;

use super::*;

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const TOKEN: &str = "abcdef.0123456789abcdef";

fn secret(changes: Value) -> Value {
    let mut data = json!({
        "token-id": "abcdef", "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:worker",
    });
    for (key, value) in changes.as_object().unwrap() {
        data[key] = value.clone();
    }
    json!({
        "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": data,
    })
}

#[tokio::test]
async fn a_bootstrap_token_is_what_its_secret_says() {
    let (server, time) = with_clock().await;
    token_refused(&server, "no secret", TOKEN).await;
    server.post(SECRETS, &secret(json!({}))).await.expect(201);
    let want = json!({
        "username": "system:bootstrap:abcdef",
        "groups": ["system:bootstrappers", "system:bootstrappers:worker", "system:authenticated"],
    });
    assert_eq!(bearer(&server, TOKEN).await, want);
    assert_eq!(review(&server, TOKEN, &[]).await["user"], want);
    assert!(review(&server, TOKEN, &["vault"]).await["authenticated"].is_null());
    for (what, token) in [
        ("another secret", "abcdef.0123456789abcdee"),
        ("upper case", "ABCDEF.0123456789ABCDEF"),
        ("too short", "abcdef.0123456789abcde"),
        ("the id alone", "abcdef."),
    ] {
        token_refused(&server, what, token).await;
    }
    let soon = OffsetDateTime::now_utc() + Duration::minutes(10);
    for (what, change, after) in [
        ("expired", json!({"expiration": windlass_api::timestamp::format(soon)}), 601),
        ("expiry in words", json!({"expiration": "soon"}), 0),
        ("not for this", json!({"usage-bootstrap-authentication": "false"}), 0),
        ("a group too many", json!({"auth-extra-groups": "system:masters"}), 0),
        ("another id", json!({"token-id": "fedcba"}), 0),
    ] {
        let path = format!("{SECRETS}/bootstrap-token-abcdef");
        time.set(0);
        server.put(&path, &secret(json!({}))).await.expect(200);
        bearer(&server, TOKEN).await;
        server.put(&path, &secret(change)).await.expect(200);
        time.set(after);
        token_refused(&server, what, TOKEN).await;
    }
}

#[tokio::test]
async fn ghsa_8rvj_mm4h_c258_a_deleted_or_moved_secret_grants_nothing() {
    let (server, _) = with_clock().await;
    server.post("/api/v1/namespaces/default/secrets", &secret(json!({}))).await.expect(201);
    token_refused(&server, "another namespace", TOKEN).await;
    let mut opaque = secret(json!({}));
    opaque["type"] = json!("Opaque");
    server.post(SECRETS, &opaque).await.expect(201);
    token_refused(&server, "another type", TOKEN).await;
    let path = format!("{SECRETS}/bootstrap-token-abcdef");
    server.delete(&path).await.expect(200);
    let mut held = secret(json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(SECRETS, &held).await.expect(201);
    bearer(&server, TOKEN).await;
    server.delete(&path).await.expect(200);
    token_refused(&server, "going", TOKEN).await;
}

#[tokio::test]
async fn bootstrap_tokens_can_be_turned_off() {
    let server = TestServer::with(|setup| setup.authenticator.bootstrap_tokens = false).await;
    server.post(SECRETS, &secret(json!({}))).await.expect(201);
    token_refused(&server, "off", TOKEN).await;
}
