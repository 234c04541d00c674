//! Objects that a user creates in their namespace grant nothing outside it: the location of an
//! object counts, not its name or contents.

use super::*;
use crate::access::GROUP;

const TEAM: &str = "/api/v1/namespaces/team";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

/// Returns all permissions of `user`, as the server reports them.
async fn rights(server: &TestServer, user: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for namespace in ["team", "other", "kube-system", "kube-public", "default"] {
        let review = json!({"spec": {"namespace": namespace}});
        let path = format!("{REVIEWS}/selfsubjectrulesreviews");
        let asked = request_as(server, user, Method::POST, &path).json(&review);
        let groups = http::HeaderValue::from_static("system:authenticated");
        let reported = asked.header_value("impersonate-group", groups).send().await.expect(201);
        all.push(reported["status"].clone());
    }
    all
}

/// Starts a server where `user` administers the namespace `team`.
async fn with_owner(user: &str) -> TestServer {
    let server = with_namespaces(&["team", "other"]).await;
    let bound = binding("owner", "ClusterRole", "admin", user);
    let path = format!("{RBAC}/namespaces/team/rolebindings");
    server.post(&path, &bound).await.expect(201);
    server
}

#[tokio::test]
async fn ghsa_8rvj_mm4h_c258_own_objects_grant_no_permissions() {
    let server = with_owner("owner").await;
    let before = rights(&server, "owner").await;
    let namespace = server.get("/api/v1/namespaces/other").await.expect(200);
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "other", "controller": true,
        "blockOwnerDeletion": true, "uid": namespace["metadata"]["uid"]}]);
    let marks = json!({
        "rbac.authorization.kubernetes.io/autoupdate": "true",
        "kubernetes.io/bootstrapping": "rbac-defaults",
        "rbac.authorization.k8s.io/aggregate-to-admin": "true",
        "kubernetes.io/metadata.name": "kube-system",
    });
    let metadata = |name: &str, annotations: &Value| json!({"name": name, "ownerReferences": owner, "labels": marks, "annotations": annotations});
    let token = |account: &str| {
        json!({"kubernetes.io/service-account.name": account,
            "kubernetes.io/service-account.uid": "u", "kubernetes.io/service-account.namespace": "kube-system"})
    };
    let own = |name: &str| json!({"metadata": metadata(name, &marks)});
    let mut bootstrap = own("bootstrap-token-abcdef");
    bootstrap["type"] = json!("bootstrap.kubernetes.io/token");
    bootstrap["stringData"] = json!({
        "token-id": "abcdef", "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true", "auth-extra-groups": "system:bootstrappers:x",
    });
    let mut credential = json!({"metadata": metadata("credential", &token("namespace-controller"))});
    credential["type"] = json!("kubernetes.io/service-account-token");
    let mut authentication = own("extension-apiserver-authentication");
    authentication["data"] = json!({"requestheader-allowed-names": "[]",
        "requestheader-username-headers": "[\"X-Remote-User\"]", "client-ca-file": "-"});
    let mut pod = windlass_testkit::pod("kube-apiserver-node-1");
    pod["metadata"] = metadata("kube-apiserver-node-1", &marks);
    for (kind, object) in [
        ("secrets", &bootstrap),
        ("secrets", &credential),
        ("configmaps", &authentication),
        ("configmaps", &own("kube-root-ca.crt")),
        ("configmaps", &own("cluster-info")),
        ("serviceaccounts", &own("system:masters")),
        ("serviceaccounts", &own("generic-garbage-collector")),
        ("pods", &pod),
    ] {
        let asked = request_as(&server, "owner", Method::POST, &format!("{TEAM}/{kind}")).json(object);
        let answer = asked.send().await;
        // The kind's own rules may reject some; most are accepted.
        assert!(matches!(answer.status.as_u16(), 201 | 403 | 422), "{kind}: {}", answer.json());
    }
    assert_eq!(rights(&server, "owner").await, before);
    let made = server.get(&format!("{TEAM}/secrets/credential")).await;
    assert!(made.json()["data"]["token"].is_null(), "{}", made.json());
    for (name, value) in [("authorization", "Bearer abcdef.0123456789abcdef")] {
        let answer = server.request(Method::GET, "/api").header(name, value).send().await;
        answer.fails(401, "Unauthorized");
    }
    let asked = server.request(Method::GET, "/metrics").anonymous();
    let asked = asked.header("x-remote-user", "admin").header("x-remote-group", "system:masters");
    asked.send().await.fails(403, "Forbidden");
}

/// Service accounts named like the server's controllers, but in another namespace.
#[tokio::test]
async fn ghsa_8rvj_mm4h_c258_a_controller_name_grants_no_permissions() {
    let server = with_owner("owner").await;
    let plain = rights(&server, "system:serviceaccount:team:plain").await;
    let mut names = std::collections::BTreeSet::from(["default".to_owned()]);
    for path in ["clusterrolebindings", "namespaces/kube-system/rolebindings"] {
        let list = server.get(&format!("{RBAC}/{path}")).await.expect(200);
        for bound in list["items"].as_array().unwrap() {
            for subject in bound["subjects"].as_array().into_iter().flatten() {
                names.insert(subject["name"].as_str().unwrap().to_owned());
            }
        }
    }
    assert!(names.contains("namespace-controller") && names.len() > 10, "{names:?}");
    for name in &names {
        let user = format!("system:serviceaccount:team:{name}");
        assert_eq!(rights(&server, &user).await, plain, "{name}");
        let user = format!("system:serviceaccount:kube-system:team:{name}");
        assert_eq!(rights(&server, &user).await, plain, "{name}");
    }
    // Also with a real token.
    let account = json!({"metadata": {"name": "namespace-controller"}});
    let accounts = format!("{TEAM}/serviceaccounts");
    request_as(&server, "owner", Method::POST, &accounts).json(&account).send().await.expect(201);
    let path = format!("{accounts}/namespace-controller/token");
    let asked = request_as(&server, "owner", Method::POST, &path).json(&json!({"spec": {}}));
    let token = asked.send().await.expect(201)["status"]["token"].as_str().unwrap().to_owned();
    for path in ["/api/v1/secrets", "/api/v1/namespaces", "/api/v1/namespaces/other/secrets"] {
        let asked = server.request(Method::GET, path);
        let asked = asked.header("authorization", &format!("Bearer {token}"));
        asked.send().await.fails(403, "Forbidden");
    }
}

/// Roles and bindings that a namespace administrator may write, and their limits.
#[tokio::test]
async fn ghsa_8rvj_mm4h_c258_own_roles_grant_no_more_permissions() {
    let server = with_owner("owner").await;
    let (roles, bindings) =
        (format!("{RBAC}/namespaces/team/roles"), format!("{RBAC}/namespaces/team/rolebindings"));
    let post = |path: String, body: Value| {
        let asked = request_as(&server, "owner", Method::POST, &path).json(&body);
        asked.send()
    };
    for (path, body) in [
        (roles.clone(), role("all", &[everything()])),
        (roles.clone(), role("nodes", &[rule(&["get"], "", &["nodes"], &[])])),
        (bindings.clone(), binding("all", "ClusterRole", "cluster-admin", "owner")),
        (bindings.clone(), binding("node", "ClusterRole", "system:node", "owner")),
        (format!("{RBAC}/clusterroles"), role("mine", &[])),
        (format!("{RBAC}/clusterrolebindings"), binding("b", "ClusterRole", "view", "owner")),
        (format!("{RBAC}/namespaces/other/rolebindings"), binding("b", "ClusterRole", "view", "owner")),
    ] {
        post(path.clone(), body).await.fails(403, "Forbidden");
    }
    // They may grant what they hold to anybody within the namespace.
    let mut shared = binding("shared", "ClusterRole", "admin", "system:anonymous");
    shared["subjects"] = json!([
        {"apiGroup": GROUP, "kind": "Group", "name": "system:authenticated"},
        {"kind": "ServiceAccount", "name": "namespace-controller", "namespace": "kube-system"},
    ]);
    post(bindings.clone(), shared).await.expect(201);
    let list = |namespace: &str| format!("/api/v1/namespaces/{namespace}/secrets");
    request_as(&server, "anybody", Method::GET, &list("team")).send().await.expect(200);
    request_as(&server, "anybody", Method::GET, &list("other")).send().await.fails(403, "Forbidden");
    request_as(&server, "owner", Method::GET, &list("other")).send().await.fails(403, "Forbidden");
    // Labelling a role for aggregation requires the permissions it contains.
    let write = rule(&["create", "update", "patch"], GROUP, &["clusterroles"], &[]);
    crate::access::grant(&server, "maker", "maker", &[write]).await;
    let mut part = role("part", &[rule(&["*"], "", &["nodes"], &[])]);
    part["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    let path = format!("{RBAC}/clusterroles");
    request_as(&server, "maker", Method::POST, &path).json(&part).send().await.fails(403, "Forbidden");
}
