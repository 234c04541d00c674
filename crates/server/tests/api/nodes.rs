//! Permissions and restrictions of nodes.

mod isolation;
mod own_node;
mod pods;
mod races;

use http::Method;
use serde_json::{Value, json};

use windlass_testkit::{TestRequest, TestResponse, TestServer, TestWatch};

/// Starts a server where RBAC grants nodes everything, so that only admission restricts them.
async fn permissive_server() -> TestServer {
    let server = TestServer::start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let all = json!(["*"]);
    let role = json!({"metadata": {"name": "generous"},
        "rules": [{"apiGroups": all, "resources": all, "verbs": all}]});
    server.post(&format!("{rbac}/clusterroles"), &role).await.expect(201);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"metadata": {"name": "generous"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "generous"},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}]});
    server.post(&format!("{rbac}/clusterrolebindings"), &binding).await.expect(201);
    server
}

#[derive(Clone, Copy)]
struct NodeClient<'a>(&'a TestServer, &'a str);

impl NodeClient<'_> {
    fn request(&self, method: Method, path: &str) -> TestRequest<'_> {
        self.0.request(method, path).header("authorization", &format!("Bearer {}-token", self.1))
    }

    async fn get(&self, path: &str) -> TestResponse {
        self.request(Method::GET, path).send().await
    }

    async fn post(&self, path: &str, body: &Value) -> TestResponse {
        self.request(Method::POST, path).json(body).send().await
    }

    async fn put(&self, path: &str, body: &Value) -> TestResponse {
        self.request(Method::PUT, path).json(body).send().await
    }

    async fn delete(&self, path: &str) -> TestResponse {
        self.request(Method::DELETE, path).send().await
    }

    async fn patch(&self, path: &str, how: &str, body: &Value) -> TestResponse {
        let media = match how {
            "json" => "application/json-patch+json",
            "merge" => "application/merge-patch+json",
            "strategic" => "application/strategic-merge-patch+json",
            "apply" => "application/apply-patch+yaml",
            other => panic!("no patch is called {other}"),
        };
        self.request(Method::PATCH, path).header("content-type", media).json(body).send().await
    }

    async fn watch(&self, path: &str) -> TestWatch {
        self.request(Method::GET, path).watch().await
    }
}

/// Returns the merge patch from `old` to `new`.
fn merge_patch(old: &Value, new: &Value) -> Value {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return new.clone();
    };
    let mut patch = json!({});
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch[key] = Value::Null;
    }
    for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(value)) {
        patch[key] = merge_patch(before.get(key).unwrap_or(&Value::Null), value);
    }
    patch
}

/// Collects the JSON pointers of all leaves.
fn leaves(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                leaves(value, &format!("{at}/{key}"), out);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (i, value) in list.iter().enumerate() {
                leaves(value, &format!("{at}/{i}"), out);
            }
        }
        _ => out.push(at.to_owned()),
    }
}

/// Returns the JSON pointers at which two values differ.
fn difference(old: &Value, new: &Value) -> Vec<String> {
    let mut all = Vec::new();
    leaves(old, "", &mut all);
    leaves(new, "", &mut all);
    all.sort();
    all.dedup();
    all.retain(|at| old.pointer(at) != new.pointer(at));
    all
}

const NODE_1: &str = "/api/v1/nodes/node-1";

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}
