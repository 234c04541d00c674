//! Vulnerabilities of other projects as tests, each named after the one it would have caught.
//! `docs/track-record.md` lists them all.

mod before_authentication;
mod composite;
mod identities;
mod methods;
mod namespaces;
mod paths;
mod provenance;
mod track_record;
mod visibility;

use std::fs;
use std::path::{Path, PathBuf};

use http::Method;
use serde_json::{Value, json};

use crate::access::{RBAC, binding, role, rule};
use windlass_testkit::{TestRequest, TestServer};

/// Content of objects that must not leak.
const CANARY: &str = "canary-5a0c";
/// The same in base64, as in secrets.
const CANARY_BASE64: &str = "Y2FuYXJ5LTVhMGM";

/// Returns true if a response leaks the canary.
fn leaks_canary(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    text.contains(CANARY) || text.contains(CANARY_BASE64)
}

/// Builds a request of a user without a token: the administrator impersonates them.
fn request_as<'a>(server: &'a TestServer, user: &str, method: Method, path: &str) -> TestRequest<'a> {
    server.request(method, path).header("impersonate-user", user)
}

/// Grants `user` the rules in one namespace.
async fn grant_in(server: &TestServer, namespace: &str, user: &str, rules: &[Value]) {
    let name = user.replace(':', "-");
    let base = format!("{RBAC}/namespaces/{namespace}");
    server.post(&format!("{base}/roles"), &role(&name, rules)).await.expect(201);
    let bound = binding(&name, "Role", &name, user);
    server.post(&format!("{base}/rolebindings"), &bound).await.expect(201);
}

fn everything() -> Value {
    rule(&["*"], "*", &["*"], &[])
}

/// Creates namespaces, each with a secret and a ConfigMap `hidden` that contain the canary.
async fn with_namespaces(names: &[&str]) -> TestServer {
    let server = TestServer::start().await;
    for namespace in names {
        let made = json!({"metadata": {"name": namespace}});
        server.post("/api/v1/namespaces", &made).await.expect(201);
        let base = format!("/api/v1/namespaces/{namespace}");
        let hidden = |field: &str| json!({"metadata": {"name": "hidden"}, (field): {"k": CANARY}});
        server.post(&format!("{base}/secrets"), &hidden("stringData")).await.expect(201);
        server.post(&format!("{base}/configmaps"), &hidden("data")).await.expect(201);
    }
    server
}

/// Returns all Rust files below a directory.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            all.push(path);
        }
    }
    all
}
