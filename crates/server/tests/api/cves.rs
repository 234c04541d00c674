//! Vulnerabilities of others, as tests: each is named after the one that it would have caught.
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

/// Stands in objects that must not be given away.
const CANARY: &str = "canary-5a0c";
/// The same, as secrets hold it.
const CANARY_BASE64: &str = "Y2FuYXJ5LTVhMGM";

/// Whether an answer gives the canary away.
fn leaks_canary(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    text.contains(CANARY) || text.contains(CANARY_BASE64)
}

/// A request of a user that needs no token: the administrator speaks for them.
fn request_as<'a>(
    server: &'a TestServer,
    user: &str,
    method: Method,
    path: &str,
) -> TestRequest<'a> {
    server.request(method, path).header("impersonate-user", user)
}

/// Gives `user` the rules in one namespace.
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

/// Namespaces, each with a secret and a configmap called `hidden` that hold the canary.
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

/// All Rust files below a folder.
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
