//! TokenReviews, SelfSubjectReviews and unauthenticated callers.

use serde_json::json;

use super::*;
use windlass_testkit::ISSUER;

#[tokio::test]
async fn a_review_returns_the_user_of_a_token() {
    let (server, _) = with_clock().await;
    let want = json!({
        "authenticated": true, "audiences": [ISSUER],
        "user": {
            "username": "bob", "uid": "bob-uid", "groups": ["dev", "ops", "system:authenticated"],
        },
    });
    assert_eq!(review(&server, "bob-token", &[]).await, want);
    let made = account(&server, "build").await;
    let token = token(&server, "build", json!({})).await;
    let status = review(&server, &token, &[]).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["user"]["uid"], made["metadata"]["uid"]);
    let id = &status["user"]["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert!(id.as_str().unwrap().starts_with("JTI="), "{id}");
    // Only the spec contains the token.
    let whole = server.post(REVIEWS, &json!({"spec": {"token": token}})).await.expect(201);
    assert_eq!(whole["spec"]["token"], json!(token));
    assert!(!status.to_string().contains(&token));
}

#[tokio::test]
async fn a_review_returns_the_reason_for_a_rejection() {
    let (server, time) = with_clock().await;
    let unknown = json!({"user": {}, "error": "invalid bearer token"});
    assert_eq!(review(&server, "nonsense", &[]).await, unknown);
    assert_eq!(review(&server, "bob-token", &["vault"]).await, unknown);
    account(&server, "build").await;
    let token = token(&server, "build", json!({"expirationSeconds": 600})).await;
    let status = review(&server, &token, &["vault", "x"]).await;
    let want = format!(
        "[invalid bearer token, token audiences [\"{ISSUER}\"] is invalid for the target audiences [\"vault\" \"x\"]]"
    );
    assert_eq!(status, json!({"user": {}, "error": want}));
    time.set(700);
    let want = "[invalid bearer token, service account token has expired]";
    assert_eq!(review(&server, &token, &[]).await["error"], want);
    for body in [json!({"spec": {}}), json!({"spec": {"token": ""}})] {
        let message = server.post(REVIEWS, &body).await.fails(400, "BadRequest");
        assert_eq!(message, "token is required for TokenReview in authentication");
    }
}

#[tokio::test]
async fn whoami_reports_the_caller() {
    let server = TestServer::start().await;
    let asked = self_review_request(&server).header("authorization", "Bearer bob-token");
    let mut answer = asked.send().await.expect(201);
    assert!(answer["metadata"]["creationTimestamp"].is_string());
    answer["metadata"] = json!({});
    assert_eq!(
        answer,
        json!({
            "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
            "status": {"userInfo": {
                "username": "bob", "uid": "bob-uid",
                "groups": ["dev", "ops", "system:authenticated"],
            }},
        })
    );
    let got = server.get(WHO_AM_I).await;
    assert_eq!(got.status.as_u16(), 405);
}

#[tokio::test]
async fn cve_2019_11243_anonymous_clients_carry_no_identity() {
    let server = TestServer::start().await;
    for (name, value) in [
        ("authorization", ""),
        ("authorization", "Bearer "),
        ("authorization", "Bearer"),
        ("authorization", "Bearer  admin-token"),
        ("authorization", "Basic YWRtaW46YWRtaW4="),
        ("x-remote-user", "admin"),
        ("x-forwarded-user", "admin"),
        ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YWRtaW4tdG9rZW4"),
    ] {
        let answer = server.request(Method::GET, MAPS).anonymous().header(name, value).send().await;
        let message = answer.fails(403, "Forbidden");
        let words = "User \"system:anonymous\" cannot list";
        assert!(message.contains(words), "{name}: {value}: {message}");
        server.request(Method::GET, "/version").anonymous().header(name, value).send().await.expect(200);
    }
    let closed = TestServer::with(|setup| setup.authenticator.anonymous = false).await;
    refused(&closed, "nobody", |asked| asked).await;
    assert_eq!(bearer(&closed, "bob-token").await["username"], "bob");
}

#[tokio::test]
async fn an_invalid_token_is_not_anonymous() {
    let server = TestServer::start().await;
    for token in ["nope", "\u{fffd}", "a.b.c", "..", "admin-token2", "abcdef.0123456789abcdef"] {
        let value = http::HeaderValue::from_bytes(format!("Bearer {token}").as_bytes()).unwrap();
        refused(&server, token, |asked| asked.header_value("authorization", value)).await;
    }
}
