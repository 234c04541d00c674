//! Callers of the matrix, and the objects they request.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Method;
use serde_json::{Value, json};
use windlass_server::TokenFile;

use super::{certificates, signers};
use windlass_testkit::TestServer;

/// Content of objects that must not leak.
pub const CANARY: &str = "canary-8d1f";
/// The same in base64, as in secrets.
pub const CANARY_BASE64: &str = "Y2FuYXJ5LThkMWY";

/// A server with objects and callers.
pub struct MatrixFixture {
    pub server: TestServer,
    pub callers: Vec<TestCaller>,
}

/// A caller with or without a credential.
pub struct TestCaller {
    pub name: &'static str,
    token: Option<String>,
    headers: &'static [(&'static str, &'static str)],
}

/// Users with static tokens: (name, groups).
const USERS: &[(&str, &str)] = &[
    ("nobody", "dev"),
    ("editor", ""),
    ("viewer", ""),
    ("root", ""),
    ("rolemaker", ""),
    ("binder", ""),
    ("impersonator", ""),
    ("system:node:node-1", "system:nodes"),
    ("system:node:node-2", "system:nodes"),
    ("system:node:node-3", ""),
    ("master", "system:masters"),
    ("monitor", "system:monitoring"),
];

impl MatrixFixture {
    pub async fn new() -> MatrixFixture {
        let file: String = USERS
            .iter()
            .copied()
            .chain(certificates::DECIDERS.iter().map(|(name, _, _)| (*name, "")))
            .map(|(name, groups)| format!("{name}-token,{name},{name}-uid,\"{groups}\"\n"))
            .collect();
        let file = Arc::new(TokenFile::parse(&format!("admin-token,admin,,system:masters\n{file}")).unwrap());
        let server = TestServer::with(move |setup| {
            setup.authenticator.tokens = ArcSwap::from(file.clone());
        })
        .await;
        objects(&server).await;
        grants(&server).await;
        certificates::prepare(&server).await;
        signers::prepare(&server).await;
        let callers = callers(&server).await;
        MatrixFixture { server, callers }
    }

    pub fn names(&self) -> String {
        self.callers.iter().map(|c| c.name).collect::<Vec<_>>().join(" ")
    }
}

impl TestCaller {
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let token = self.token.iter().map(|token| ("authorization", format!("Bearer {token}")));
        token.chain(self.headers.iter().map(|(name, value)| (*name, (*value).to_owned())))
    }
}

pub async fn create_object(server: &TestServer, path: &str, object: Value) -> Value {
    server.post(path, &object).await.expect(201)
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

async fn objects(server: &TestServer) {
    for namespace in ["team", "other"] {
        create_object(server, "/api/v1/namespaces", named(namespace)).await;
        let base = format!("/api/v1/namespaces/{namespace}");
        for name in ["used", "unused"] {
            let secret = json!({"metadata": {"name": name}, "stringData": {"k": CANARY}});
            create_object(server, &format!("{base}/secrets"), secret).await;
            let map = json!({"metadata": {"name": name}, "data": {"k": CANARY}});
            create_object(server, &format!("{base}/configmaps"), map).await;
        }
        for account in ["default", "build"] {
            create_object(server, &format!("{base}/serviceaccounts"), named(account)).await;
        }
    }
    for node in ["node-1", "node-2"] {
        create_object(server, "/api/v1/nodes", named(node)).await;
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        create_object(server, leases, named(node)).await;
        create_object(server, "/api/v1/namespaces/team/pods", pod(&format!("on-{node}"), node)).await;
    }
    create_object(server, "/apis/coordination.k8s.io/v1/namespaces/team/leases", named("lock")).await;
}

/// Returns a pod on a node; the one on node-1 uses the objects named `used`.
fn pod(name: &str, node: &str) -> Value {
    let volumes = if node == "node-1" {
        let certificate =
            json!({"signerName": "example.com/x", "keyType": "ECDSAP256", "credentialBundlePath": "b"});
        json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}, {"podCertificate": certificate}]}},
            {"name": "s", "secret": {"secretName": "used"}}, {"name": "c", "configMap": {"name": "used"}}])
    } else {
        json!([])
    };
    json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node, "serviceAccountName": if node == "node-1" { "build" } else { "default" },
            "containers": [{"name": "c", "image": "i"}], "volumes": volumes,
        },
    })
}

async fn grants(server: &TestServer) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let team = format!("{rbac}/namespaces/team");
    let roles = ["roles", "rolebindings"];
    let manage = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": roles, "verbs": ["*"]}]);
    let mut bind = manage.clone();
    bind[0]["resources"] = json!(["rolebindings"]);
    bind.as_array_mut().unwrap().push(json!({
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
        "resourceNames": ["view"], "verbs": ["bind"],
    }));
    let alice = json!([{"apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"], "verbs": ["impersonate"]}]);
    for (name, rules) in [("manage-roles", manage), ("bind-view", bind), ("be-alice", alice)] {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        create_object(server, &format!("{rbac}/clusterroles"), role).await;
    }
    for (user, role) in
        [("editor", "edit"), ("viewer", "view"), ("rolemaker", "manage-roles"), ("binder", "bind-view")]
    {
        create_object(server, &format!("{team}/rolebindings"), binding(user, role)).await;
    }
    for (user, role) in [("root", "cluster-admin"), ("impersonator", "be-alice")] {
        create_object(server, &format!("{rbac}/clusterrolebindings"), binding(user, role)).await;
    }
}

pub fn binding(user: &str, role: &str) -> Value {
    json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

async fn callers(server: &TestServer) -> Vec<TestCaller> {
    let by_token = |name: &'static str, token: String| TestCaller { name, token: Some(token), headers: &[] };
    let user = |name: &'static str| by_token(name, format!("{name}-token"));
    let boot = |id: &str| format!("{id}.0123456789abcdef");
    bootstrap_token(server, "goodid", &[]).await;
    bootstrap_token(server, "lateid", &[("expiration", "2020-01-01T00:00:00Z")]).await;
    bootstrap_token(server, "otherx", &[("usage-bootstrap-authentication", "false")]).await;
    let account = token(server, "team", json!({})).await;
    let foreign = token(server, "team", json!({"audiences": ["https://elsewhere.example"]})).await;
    let orphan = orphaned_token(server).await;
    let mut all = vec![
        TestCaller { name: "anonymous", token: None, headers: &[] },
        by_token("wrong-token", "nonsense".into()),
        user("nobody"),
        by_token("bootstrap", boot("goodid")),
        by_token("bootstrap-expired", boot("lateid")),
        by_token("bootstrap-unusable", boot("otherx")),
        TestCaller { name: "node-1", ..user("system:node:node-1") },
        TestCaller { name: "node-2", ..user("system:node:node-2") },
        TestCaller { name: "node-3-not-in-group", ..user("system:node:node-3") },
        by_token("account", account),
        by_token("account-other-audience", foreign),
        by_token("account-of-deleted-pod", orphan),
        user("viewer"),
        user("editor"),
        user("rolemaker"),
        user("binder"),
        user("monitor"),
        TestCaller { name: "nobody-as-master", headers: &[("impersonate-user", "master")], ..user("nobody") },
        TestCaller {
            name: "impersonator-as-alice",
            headers: &[("impersonate-user", "alice")],
            ..user("impersonator")
        },
        TestCaller {
            name: "impersonator-as-masters",
            headers: &[("impersonate-user", "alice"), ("impersonate-group", "system:masters")],
            ..user("impersonator")
        },
        user("root"),
        user("master"),
    ];
    all.extend(certificates::DECIDERS.iter().map(|(name, _, _)| user(name)));
    all
}

async fn bootstrap_token(server: &TestServer, id: &str, more: &[(&str, &str)]) {
    let mut data = json!({
        "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
    });
    for (key, value) in more {
        data[*key] = json!(value);
    }
    let name = format!("bootstrap-token-{id}");
    let secret =
        json!({"metadata": {"name": name}, "type": "bootstrap.kubernetes.io/token", "stringData": data});
    create_object(server, "/api/v1/namespaces/kube-system/secrets", secret).await;
}

async fn token(server: &TestServer, namespace: &str, spec: Value) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/build/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let made = server.post(&path, &request).await.expect(201);
    made["status"]["token"].as_str().unwrap().to_owned()
}

/// Returns a token whose pod was deleted.
async fn orphaned_token(server: &TestServer) -> String {
    let pods = "/api/v1/namespaces/team/pods";
    create_object(
        server,
        pods,
        json!({
            "metadata": {"name": "gone"},
            "spec": {"serviceAccountName": "build", "containers": [{"name": "c", "image": "i"}]},
        }),
    )
    .await;
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "gone"}});
    let token = token(server, "team", bound).await;
    let path = format!("{pods}/gone?gracePeriodSeconds=0");
    server.request(Method::DELETE, &path).send().await.expect(200);
    token
}
