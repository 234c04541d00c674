//! Permissions and references in one namespace do not apply to another.

use super::*;
use windlass_testkit::{ISSUER, pod};

const NAMESPACES: &[&str] = &["a", "b", "c"];

fn base(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}")
}

/// Returns all requests that the owner of a namespace could make in one.
fn requests(namespace: &str) -> Vec<(Method, String, Value)> {
    let base = base(namespace);
    let mut all = Vec::new();
    for kind in ["secrets", "configmaps", "serviceaccounts"] {
        let one = format!("{base}/{kind}/hidden");
        let new = json!({"metadata": {"name": "hidden"}});
        all.push((Method::GET, one.clone(), Value::Null));
        all.push((Method::GET, format!("{base}/{kind}"), Value::Null));
        all.push((Method::GET, format!("{base}/{kind}?watch=1&timeoutSeconds=1"), Value::Null));
        all.push((Method::POST, format!("{base}/{kind}?dryRun=All"), json!({"metadata": {"name": "new"}})));
        all.push((Method::PUT, format!("{one}?dryRun=All"), new.clone()));
        all.push((Method::PATCH, format!("{one}?dryRun=All"), json!({"metadata": {"labels": {"x": "y"}}})));
        all.push((Method::DELETE, format!("{one}?dryRun=All"), Value::Null));
        all.push((Method::DELETE, format!("{base}/{kind}?dryRun=All"), Value::Null));
    }
    all.push((Method::POST, format!("{base}/serviceaccounts/hidden/token"), json!({"spec": {}})));
    all
}

async fn world() -> TestServer {
    let server = with_namespaces(NAMESPACES).await;
    for namespace in NAMESPACES {
        let account = json!({"metadata": {"name": "hidden"}});
        server.post(&format!("{}/serviceaccounts", base(namespace)), &account).await.expect(201);
    }
    server
}

#[tokio::test]
async fn cve_2021_34824_rights_end_with_their_namespace() {
    let server = world().await;
    for home in NAMESPACES {
        grant_in(&server, home, &format!("owner-{home}"), &[everything()]).await;
        let account = format!("system:serviceaccount:{home}:hidden");
        grant_in(&server, home, &account, &[everything()]).await;
    }
    for home in NAMESPACES {
        for user in [format!("owner-{home}"), format!("system:serviceaccount:{home}:hidden")] {
            for namespace in NAMESPACES {
                for (method, path, body) in requests(namespace) {
                    let media = match method {
                        Method::PATCH => "application/merge-patch+json",
                        _ => "application/json",
                    };
                    let asked = request_as(&server, &user, method.clone(), &path);
                    let asked = asked.header("content-type", media);
                    let (status, ..) =
                        if body.is_null() { asked.open() } else { asked.json(&body).open() }.await;
                    let wanted = namespace == home;
                    assert_eq!(status.is_success(), wanted, "{user}: {method} {path}: {status}");
                    assert!(wanted || status == 403, "{user}: {method} {path}: {status}");
                }
            }
            for kind in ["secrets", "configmaps", "serviceaccounts"] {
                let path = format!("/api/v1/{kind}");
                let answer = request_as(&server, &user, Method::GET, &path).send().await;
                answer.fails(403, "Forbidden");
            }
        }
    }
}

/// The path decides; another namespace in the body is an error.
#[tokio::test]
async fn cve_2021_34824_a_body_does_not_lead_into_another_namespace() {
    let server = world().await;
    grant_in(&server, "a", "owner", &[everything()]).await;
    let before = server.revision();
    let there = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "hidden", "namespace": "b"}, "data": {"k": "mine"}});
    let maps = format!("{}/configmaps", base("a"));
    let one = format!("{maps}/hidden");
    for (method, path, media) in [
        (Method::POST, maps.clone(), "application/json"),
        (Method::PUT, one.clone(), "application/json"),
        (Method::PATCH, one.clone(), "application/merge-patch+json"),
        (Method::PATCH, one.clone(), "application/strategic-merge-patch+json"),
        (Method::PATCH, format!("{one}?fieldManager=m&force=true"), "application/apply-patch+yaml"),
        (Method::PATCH, format!("{maps}/new?fieldManager=m"), "application/apply-patch+yaml"),
    ] {
        let asked = request_as(&server, "owner", method.clone(), &path).header("content-type", media);
        let answer = asked.json(&there).send().await;
        assert!(answer.status.is_client_error(), "{method} {path} {media}: {}", answer.json());
    }
    let token = format!("{}/serviceaccounts/hidden/token", base("a"));
    let elsewhere = json!({"metadata": {"name": "hidden", "namespace": "b"}, "spec": {}});
    let answer = request_as(&server, "owner", Method::POST, &token).json(&elsewhere).send().await;
    assert!(answer.status.is_client_error(), "{}", answer.json());
    assert_eq!(server.revision(), before);
}

/// Tokens belong to the account in their namespace and are bound to objects in it.
#[tokio::test]
async fn cve_2021_34824_tokens_stay_in_their_namespace() {
    let server = world().await;
    let only = json!({"metadata": {"name": "only-b"}});
    server.post(&format!("{}/secrets", base("b")), &only).await.expect(201);
    let path = format!("{}/serviceaccounts/hidden/token", base("a"));
    let bound = |name: &str| {
        let to = json!({"apiVersion": "v1", "kind": "Secret", "name": name});
        json!({"spec": {"audiences": [ISSUER], "boundObjectRef": to}})
    };
    server.post(&path, &bound("only-b")).await.fails(404, "NotFound");
    let token = server.post(&path, &bound("hidden")).await.expect(201);
    let token = format!("Bearer {}", token["status"]["token"].as_str().unwrap());
    let ask = || server.request(Method::GET, "/api").header("authorization", &token).send();
    ask().await.expect(200);
    // Objects of the same name elsewhere do not affect it.
    for (namespace, code) in [("b", 200), ("c", 200), ("a", 401)] {
        server.delete(&format!("{}/secrets/hidden", base(namespace))).await.expect(200);
        assert_eq!(ask().await.status, code, "{namespace}");
    }
}

/// A pod references objects in its namespace, so its node may read these and no others of the same
/// name, even if namespaces and names are equal.
#[tokio::test]
async fn cve_2021_34824_what_a_pod_refers_to_is_in_its_namespace() {
    let server = world().await;
    let names = ["a", "b", "hidden"];
    for namespace in ["a", "b"] {
        for name in &names[..2] {
            for kind in ["secrets", "configmaps", "serviceaccounts"] {
                let made = json!({"metadata": {"name": name}});
                server.post(&format!("{}/{kind}", base(namespace)), &made).await.expect(201);
            }
        }
    }
    let mut made = pod("b");
    made["spec"]["nodeName"] = json!("node-1");
    made["spec"]["serviceAccountName"] = json!("b");
    made["spec"]["volumes"] = json!([
        {"name": "s", "secret": {"secretName": "b"}}, {"name": "c", "configMap": {"name": "b"}}]);
    server.post(&format!("{}/pods", base("a")), &made).await.expect(201);
    for namespace in NAMESPACES {
        for kind in ["secrets", "configmaps", "serviceaccounts", "pods"] {
            for name in names {
                let path = format!("{}/{kind}/{name}", base(namespace));
                let asked = server.request(Method::GET, &path);
                let answer = asked.header("authorization", "Bearer node-1-token").send().await;
                let wanted = if (*namespace, name) == ("a", "b") { 200 } else { 403 };
                assert_eq!(answer.status, wanted, "{path}");
            }
        }
        let path = format!("{}/serviceaccounts/b/token", base(namespace));
        let asked = server.request(Method::POST, &path).json(&json!({"spec": {}}));
        let answer = asked.header("authorization", "Bearer node-1-token").send().await;
        assert!(!answer.status.is_success() || *namespace == "a", "{path}: {}", answer.json());
    }
    // A reference that contains a namespace is no valid name.
    let mut tricky = pod("tricky");
    tricky["spec"]["volumes"] = json!([{"name": "s", "secret": {"secretName": "../c/hidden"}}]);
    tricky["spec"]["nodeName"] = json!("node-1");
    tricky["spec"]["imagePullSecrets"] = json!([{"name": "../c/hidden"}, {"name": "c/hidden"}]);
    let _ = server.post(&format!("{}/pods", base("a")), &tricky).await;
    let asked = server.request(Method::GET, &format!("{}/secrets/hidden", base("c")));
    let answer = asked.header("authorization", "Bearer node-1-token").send().await;
    answer.fails(403, "Forbidden");
}
