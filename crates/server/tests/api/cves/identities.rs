//! Names are compared literally: they are no paths, and none is normalized to another.

use http_body_util::{BodyExt as _, Full};
use tower::ServiceExt as _;
use windlass_server::LocalClient;
use windlass_server::User;

use super::*;
use crate::authentication::with_signer;
use windlass_testkit::{ISSUER, PODS, pod};

const ACCOUNT: &str = "system:serviceaccount:b:c";

/// Names that resemble `system:serviceaccount:b:c` but differ.
const ALMOST: &[&str] = &[
    "system:serviceaccount:a/../b:c",
    "system:serviceaccount:./b:c",
    "system:serviceaccount:/b:c",
    "system:serviceaccount:b/:c",
    "system:serviceaccount:b//:c",
    "system:serviceaccount:b:./c",
    "system:serviceaccount:b:d/../c",
    "system:serviceaccount:b:c/",
    "system:serviceaccount:b:c/.",
    "system:serviceaccount:b:c:d",
    "system:serviceaccount::b:c",
    "system:serviceaccount:b::c",
    "system:serviceaccount:%62:c",
    "system:serviceaccount:b%3Ac",
    "system:serviceaccount:a%2f..%2fb:c",
    "system:serviceaccount:B:c",
    "System:serviceaccount:b:c",
    "system:serviceaccounts:b:c",
    "serviceaccount:b:c",
    "b:c",
    "b/c",
    "system:serviceaccount:.:c",
    "system:serviceaccount:*:c",
    "system:serviceaccount:b:*",
];

#[tokio::test]
async fn cve_2021_27099_no_name_is_read_as_a_path() {
    let server = with_namespaces(&["a", "b"]).await;
    let account = json!({"metadata": {"name": "c"}});
    server.post("/api/v1/namespaces/b/serviceaccounts", &account).await.expect(201);
    let path = "/api/v1/namespaces/b/secrets/hidden";
    grant_in(&server, "b", ACCOUNT, &[rule(&["get"], "", &["secrets"], &[])]).await;
    request_as(&server, ACCOUNT, Method::GET, path).send().await.expect(200);
    // A user who may impersonate that account only.
    let act = rule(&["impersonate"], "", &["serviceaccounts"], &["c"]);
    grant_in(&server, "b", "alice", &[act]).await;
    let as_alice = |name: &str| {
        let asked = server.request(Method::GET, path).header("authorization", "Bearer alice-token");
        asked.header("impersonate-user", name).send()
    };
    as_alice(ACCOUNT).await.expect(200);
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    for name in ALMOST {
        request_as(&server, name, Method::GET, path).send().await.fails(403, "Forbidden");
        as_alice(name).await.fails(403, "Forbidden");
        let reported = request_as(&server, name, Method::POST, who).json(&json!({})).send().await.expect(201);
        let user = &reported["status"]["userInfo"];
        assert_eq!(user["username"], *name);
        let groups = user["groups"].to_string();
        assert!(!groups.contains("system:serviceaccounts:b\""), "{name}: {groups}");
    }
}

#[tokio::test]
async fn cve_2021_27099_a_token_for_a_path_is_rejected() {
    let (server, signer) = with_signer().await;
    let made = server.post("/api/v1/namespaces", &json!({"metadata": {"name": "b"}})).await;
    made.expect(201);
    let accounts = "/api/v1/namespaces/b/serviceaccounts";
    let made = server.post(accounts, &json!({"metadata": {"name": "c"}})).await.expect(201);
    let token = |namespace: &str, name: &str| {
        let claims = json!({
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "aud": [ISSUER], "exp": 4_000_000_000_i64,
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": made["metadata"]["uid"]},
            },
        });
        format!("Bearer {}", signer.sign(claims).unwrap())
    };
    let ask = |token: String| server.request(Method::GET, "/api").header("authorization", &token).send();
    ask(token("b", "c")).await.expect(200);
    for (namespace, name) in [
        ("a/../b", "c"),
        ("./b", "c"),
        ("b/", "c"),
        ("b", "d/../c"),
        ("b", "./c"),
        ("b", "c/"),
        ("", "b/c"),
        ("b:c", ""),
        ("", ""),
        ("..", ".."),
        ("b\0", "c"),
    ] {
        ask(token(namespace, name)).await.fails(401, "Unauthorized");
    }
    for (path, name) in [("a/../b", "c"), ("%2e%2e", "c"), ("b", "%2e%2e"), ("a%2f..%2fb", "c")] {
        let path = format!("/api/v1/namespaces/{path}/serviceaccounts/{name}/token");
        let answer = server.post(&path, &json!({"spec": {}})).await;
        assert!(answer.status.is_client_error(), "{path}: {}", answer.status);
    }
    for name in ["..", "a/../c", "c:d", "c/", "."] {
        let made = server.post(accounts, &json!({"metadata": {"name": name}})).await;
        made.fails(422, "Invalid");
    }
}

/// A node's name is the rest of its user name, not a path.
#[tokio::test]
async fn cve_2021_27099_a_node_is_not_where_its_name_leads() {
    let server = TestServer::start().await;
    for node in ["node-1", "node-2"] {
        server.post("/api/v1/nodes", &json!({"metadata": {"name": node}})).await.expect(201);
    }
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": CANARY}});
    server.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    let mut placed = pod("p");
    placed["spec"]["nodeName"] = json!("node-1");
    placed["spec"]["imagePullSecrets"] = json!([{"name": "s"}]);
    server.post(PODS, &placed).await.expect(201);
    let ask = async |name: &str, path: &str| {
        let user = User::authenticated(name, "", vec!["system:nodes".into()]);
        let request = http::Request::get(path).body(Full::default()).unwrap();
        let local = LocalClient::new(server.server.clone(), user);
        let response = local.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        (status, response.into_body().collect().await.unwrap().to_bytes())
    };
    let (object, secret) = ("/api/v1/nodes/node-1", "/api/v1/namespaces/default/secrets/s");
    for path in [object, secret] {
        assert_eq!(ask("system:node:node-1", path).await.0, 200, "{path}");
        for name in [
            "system:node:node-2/../node-1",
            "system:node:./node-1",
            "system:node:/node-1",
            "system:node:node-1/",
            "system:node:NODE-1",
            "system:node:node-1:x",
            "system:node::node-1",
            "system:node:node-%31",
            "system:node:node.1",
            "system:node:*",
            "system:node:node-*",
            "system:node:",
            "system:node",
            "node-1",
        ] {
            let (status, body) = ask(name, path).await;
            assert_eq!(status, 403, "{name} {path}");
            assert!(!leaks_canary(&body), "{name}");
        }
    }
}
