//! All requests of the matrix.

use http::Method;
use serde_json::{Value, json};

use super::callers::{MatrixFixture, TestCaller};
use windlass_testkit::TestResponse;

/// One line of the table.
pub struct MatrixRequest {
    pub verb: &'static str,
    /// Description of the request in the table.
    pub what: String,
    method: Method,
    path: String,
    media: Option<&'static str>,
    pub body: Option<Value>,
}

impl MatrixRequest {
    /// Sends the request as a caller; writes as a dry run or for real.
    pub async fn send(&self, world: &MatrixFixture, caller: &TestCaller, dry_run: bool) -> TestResponse {
        let read = self.method == Method::GET;
        let separator = if self.path.contains('?') { '&' } else { '?' };
        let path = match (read, self.verb) {
            (_, "watch") => format!("{}{separator}watch=true&timeoutSeconds=1", self.path),
            (true, _) => self.path.clone(),
            (false, _) if dry_run => format!("{}{separator}dryRun=All", self.path),
            (false, _) => self.path.clone(),
        };
        let mut asked = world.server.request(self.method.clone(), &path).anonymous();
        for (name, value) in caller.headers() {
            asked = asked.header(name, &value);
        }
        if let Some(media) = self.media {
            asked = asked.header("content-type", media);
        }
        if let Some(body) = &self.body {
            asked = asked.json(body);
        }
        if self.verb != "watch" {
            return asked.send().await;
        }
        // A started watch was allowed; its end is not awaited.
        let (status, headers, body) = asked.open().await;
        let body = if status == http::StatusCode::OK {
            bytes::Bytes::new()
        } else {
            http_body_util::BodyExt::collect(body).await.unwrap().to_bytes()
        };
        TestResponse { status, headers, body }
    }
}

/// Path of a kind, and the requested object.
pub struct ResourceLocation {
    pub collection: &'static str,
    pub name: &'static str,
    pub new: Value,
    /// Name of the location in the table.
    pub shown: &'static str,
}

pub async fn all_requests(world: &MatrixFixture) -> Vec<MatrixRequest> {
    let mut all = Vec::new();
    for place in places() {
        all.extend(collection(&place));
        all.extend(object(world, &place).await);
    }
    all.extend(narrowed());
    all.extend(subresources(world).await);
    all.extend(super::certificates::requests(world).await);
    all.extend(super::signers::requests(world).await);
    all.extend(questions());
    all.extend(paths());
    all
}

fn places() -> Vec<ResourceLocation> {
    let place = |collection, name, shown, new| ResourceLocation { collection, name, new, shown };
    let rule = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let new = |more: Value| {
        let mut object = json!({"metadata": {"name": "new"}});
        for (key, value) in more.as_object().unwrap() {
            object[key] = value.clone();
        }
        object
    };
    vec![
        place("/api/v1/namespaces/team/secrets", "used", "secrets team/used", new(json!({}))),
        place("/api/v1/namespaces/team/secrets", "unused", "secrets team/unused", new(json!({}))),
        place("/api/v1/namespaces/other/secrets", "used", "secrets other/used", new(json!({}))),
        place("/api/v1/namespaces/team/configmaps", "used", "configmaps team/used", new(json!({}))),
        place("/api/v1/namespaces/team/configmaps", "unused", "configmaps team/unused", new(json!({}))),
        place(
            "/api/v1/namespaces/team/serviceaccounts",
            "build",
            "serviceaccounts team/build",
            new(json!({})),
        ),
        place(
            "/api/v1/namespaces/team/pods",
            "on-node-1",
            "pods team/on-node-1",
            new(json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})),
        ),
        place(
            "/api/v1/namespaces/team/pods",
            "on-node-2",
            "pods team/on-node-2",
            new(json!({"spec": {"nodeName": "node-2", "containers": [{"name": "c", "image": "i"}]}})),
        ),
        place("/api/v1/nodes", "node-1", "nodes node-1", new(json!({}))),
        place("/api/v1/nodes", "node-2", "nodes node-2", new(json!({}))),
        place(
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            "node-1",
            "leases kube-node-lease/node-1",
            new(json!({})),
        ),
        place(
            "/apis/coordination.k8s.io/v1/namespaces/team/leases",
            "lock",
            "leases team/lock",
            new(json!({})),
        ),
        place(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings",
            "editor",
            "rolebindings team/editor",
            new(json!({"roleRef": role_ref, "subjects": []})),
        ),
        place(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "view",
            "clusterroles view",
            new(json!({"rules": rule})),
        ),
        place("/api/v1/namespaces", "team", "namespaces team", new(json!({}))),
    ]
}

pub fn request(verb: &'static str, what: &str, method: Method, path: String) -> MatrixRequest {
    MatrixRequest { verb, what: what.to_owned(), method, path, media: None, body: None }
}

pub fn collection(place: &ResourceLocation) -> Vec<MatrixRequest> {
    let ask = |verb, method| request(verb, place.shown, method, place.collection.to_owned());
    let mut all = vec![
        ask("list", Method::GET),
        ask("watch", Method::GET),
        MatrixRequest { body: Some(place.new.clone()), ..ask("create", Method::POST) },
    ];
    if place.collection != "/api/v1/namespaces" {
        all.push(ask("deletemany", Method::DELETE));
    }
    all
}

pub async fn object(world: &MatrixFixture, place: &ResourceLocation) -> Vec<MatrixRequest> {
    let path = format!("{}/{}", place.collection, place.name);
    let ask = |verb, method| request(verb, place.shown, method, path.clone());
    let current = world.server.get(&path).await.expect(200);
    let mut changed = current.clone();
    changed["metadata"]["annotations"]["example.com/a"] = json!("b");
    let applied = json!({
        "apiVersion": current["apiVersion"], "kind": current["kind"],
        "metadata": {"name": place.name, "annotations": {"example.com/a": "b"}},
    });
    let mut all = vec![
        ask("get", Method::GET),
        MatrixRequest { body: Some(changed), ..ask("update", Method::PUT) },
        ask("delete", Method::DELETE),
    ];
    let merge = json!({"metadata": {"annotations": {"example.com/a": "b"}}});
    let json = json!([{"op": "test", "path": "/metadata/name", "value": place.name}]);
    all.extend(patches(&path, place.shown, &merge, &json));
    all.push(MatrixRequest {
        media: Some("application/apply-patch+yaml"),
        body: Some(applied),
        ..request("apply", place.shown, Method::PATCH, format!("{path}?fieldManager=m"))
    });
    all
}

pub fn patches(path: &str, shown: &str, merge: &Value, json: &Value) -> Vec<MatrixRequest> {
    [
        ("patch-merge", "application/merge-patch+json", merge),
        ("patch-smp", "application/strategic-merge-patch+json", merge),
        ("patch-json", "application/json-patch+json", json),
    ]
    .into_iter()
    .map(|(verb, media, body)| MatrixRequest {
        media: Some(media),
        body: Some(body.clone()),
        ..request(verb, shown, Method::PATCH, path.to_owned())
    })
    .collect()
}

/// Returns lists and watches restricted to one object or to one node's objects.
fn narrowed() -> Vec<MatrixRequest> {
    let mut all = Vec::new();
    for (what, path) in [
        (
            "secrets team/used by selector",
            "/api/v1/namespaces/team/secrets?fieldSelector=metadata.name%3Dused",
        ),
        (
            "secrets team/unused by selector",
            "/api/v1/namespaces/team/secrets?fieldSelector=metadata.name%3Dunused",
        ),
        ("pods of node-1", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1"),
        ("pods of node-2", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-2"),
        ("pods not of node-2", "/api/v1/pods?fieldSelector=spec.nodeName%21%3Dnode-2"),
        ("secrets of all namespaces", "/api/v1/secrets"),
        ("nodes node-1 by selector", "/api/v1/nodes?fieldSelector=metadata.name%3Dnode-1"),
    ] {
        all.push(request("list", what, Method::GET, path.to_owned()));
        all.push(request("watch", what, Method::GET, path.to_owned()));
    }
    all
}

async fn subresources(world: &MatrixFixture) -> Vec<MatrixRequest> {
    let mut all = Vec::new();
    for node in ["node-1", "node-2"] {
        let path = format!("/api/v1/nodes/{node}/status");
        all.extend(view(world, &path, &format!("nodes/status {node}")).await);
        let path = format!("/api/v1/namespaces/team/pods/on-{node}/status");
        all.extend(view(world, &path, &format!("pods/status team/on-{node}")).await);
        let path = format!("/api/v1/namespaces/team/pods/on-{node}/eviction");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": format!("on-{node}")}});
        let what = format!("pods/eviction team/on-{node}");
        all.push(MatrixRequest { body: Some(eviction), ..request("create", &what, Method::POST, path) });
    }
    for namespace in ["team", "other"] {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/build/token");
        let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let what = format!("serviceaccounts/token {namespace}/build");
        all.push(MatrixRequest { body: Some(token), ..request("create", &what, Method::POST, path) });
    }
    let bound = bound_token(world).await;
    let path = "/api/v1/namespaces/team/serviceaccounts/build/token".to_owned();
    let what = "serviceaccounts/token team/build for a pod of node-1";
    all.push(MatrixRequest { body: Some(bound), ..request("create", what, Method::POST, path) });
    all
}

async fn bound_token(world: &MatrixFixture) -> Value {
    let pod = world.server.get("/api/v1/namespaces/team/pods/on-node-1").await.expect(200);
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"boundObjectRef": {
            "apiVersion": "v1", "kind": "Pod", "name": "on-node-1", "uid": pod["metadata"]["uid"],
        }},
    })
}

pub async fn view(world: &MatrixFixture, path: &str, shown: &str) -> Vec<MatrixRequest> {
    let current = world.server.get(path).await.expect(200);
    let update = request("update", shown, Method::PUT, path.to_owned());
    let get = request("get", shown, Method::GET, path.to_owned());
    // A phase that the kind has, where it is an enum.
    let phase = if current["kind"] == "CARotation" { "Renewing" } else { "Running" };
    let merge = json!({"status": {"phase": phase}});
    let json = json!([{"op": "test", "path": "/kind", "value": current["kind"]}]);
    let mut all = vec![get, MatrixRequest { body: Some(current), ..update }];
    all.extend(patches(path, shown, &merge, &json));
    all
}

fn questions() -> Vec<MatrixRequest> {
    let access = json!({"resourceAttributes": {"verb": "get", "resource": "secrets"}});
    let about = |user: &str| {
        let mut spec = access.clone();
        spec["user"] = json!(user);
        spec
    };
    let mut local = about("x");
    local["resourceAttributes"]["namespace"] = json!("team");
    let authz = "/apis/authorization.k8s.io/v1";
    let authn = "/apis/authentication.k8s.io/v1";
    [
        ("selfsubjectreviews", format!("{authn}/selfsubjectreviews"), json!({})),
        ("tokenreviews", format!("{authn}/tokenreviews"), json!({"token": "x"})),
        ("selfsubjectaccessreviews", format!("{authz}/selfsubjectaccessreviews"), access.clone()),
        ("selfsubjectrulesreviews", format!("{authz}/selfsubjectrulesreviews"), json!({"namespace": "team"})),
        ("subjectaccessreviews", format!("{authz}/subjectaccessreviews"), about("x")),
        (
            "localsubjectaccessreviews team",
            format!("{authz}/namespaces/team/localsubjectaccessreviews"),
            local,
        ),
    ]
    .into_iter()
    .map(|(what, path, spec)| {
        let body = if spec == json!({}) { json!({}) } else { json!({"spec": spec}) };
        MatrixRequest { body: Some(body), ..request("create", what, Method::POST, path) }
    })
    .collect()
}

fn paths() -> Vec<MatrixRequest> {
    [
        "/healthz",
        "/livez",
        "/readyz",
        "/readyz/ping",
        "/version",
        "/api",
        "/apis",
        "/api/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/metrics",
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
        "/pki/crl/0a.crl",
    ]
    .into_iter()
    .map(|path| request("get", path, Method::GET, path.to_owned()))
    .collect()
}
