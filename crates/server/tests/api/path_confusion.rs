//! Requests that authorization and routing might interpret differently.

use http::Method;
use serde_json::{Value, json};

use windlass_testkit::{TestResponse, TestServer};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";

async fn as_alice(server: &TestServer, method: Method, path: &str, body: &Value) -> TestResponse {
    let asked = server.request(method, path).header("authorization", "Bearer alice-token");
    if body.is_null() { asked.send().await } else { asked.json(body).send().await }
}

/// Grants alice all permissions in the namespace `mine`, and none elsewhere.
async fn alice_owns_a_namespace(server: &TestServer) {
    let namespace = json!({"metadata": {"name": "mine"}});
    server.post("/api/v1/namespaces", &namespace).await.expect(201);
    let all = json!({"metadata": {"name": "all"},
        "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
    server.post(&format!("{RBAC}/namespaces/mine/roles"), &all).await.expect(201);
    let binding = json!({
        "metadata": {"name": "all"},
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "all"},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "alice"}],
    });
    server.post(&format!("{RBAC}/namespaces/mine/rolebindings"), &binding).await.expect(201);
}

#[tokio::test]
async fn cluster_scoped_objects_are_not_found_in_a_namespace() {
    let server = TestServer::start().await;
    alice_owns_a_namespace(&server).await;
    as_alice(&server, Method::GET, "/api/v1/namespaces/mine", &Value::Null).await.expect(200);
    let node = json!({"metadata": {"name": "n"}});
    server.post("/api/v1/nodes", &node).await.expect(201);
    for (method, path, body) in [
        (Method::GET, "/api/v1/namespaces/mine/nodes", Value::Null),
        (Method::GET, "/api/v1/namespaces/mine/nodes/n", Value::Null),
        (Method::DELETE, "/api/v1/namespaces/mine/nodes/n", Value::Null),
        (Method::DELETE, "/api/v1/namespaces/mine/nodes", Value::Null),
        (Method::POST, "/api/v1/namespaces/mine/nodes", json!({"metadata": {"name": "m"}})),
        (Method::PUT, "/api/v1/namespaces/mine/nodes/n", node.clone()),
        (Method::PUT, "/api/v1/namespaces/mine/nodes/n/status", node.clone()),
        (Method::GET, "/api/v1/watch/namespaces/mine/nodes/n", Value::Null),
        (Method::GET, "/api/v1/namespaces/mine/namespaces", Value::Null),
        (Method::GET, "/api/v1/namespaces/mine/namespaces/kube-system", Value::Null),
        (Method::DELETE, "/api/v1/namespaces/mine/namespaces/mine", Value::Null),
        (
            Method::POST,
            "/apis/authorization.k8s.io/v1/namespaces/mine/subjectaccessreviews",
            json!({"spec": {"user": "bob",
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}}),
        ),
    ] {
        let answer = as_alice(&server, method.clone(), path, &body).await;
        assert_eq!(answer.status, 404, "{method} {path}: {:?}", answer.body);
    }
    server.get("/api/v1/nodes/n").await.expect(200);
    let roles = format!("{RBAC}/namespaces/mine/clusterroles/cluster-admin");
    as_alice(&server, Method::GET, &roles, &Value::Null).await.expect(404);
}

#[tokio::test]
async fn a_question_about_a_namespace_is_asked_in_one() {
    let server = TestServer::start().await;
    let question =
        json!({"spec": {"user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/localsubjectaccessreviews";
    server.post(path, &question).await.expect(404);
}
