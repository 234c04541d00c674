//! What the ServiceAccount plugin adds to pods, and what it rejects.

use http::Method;
use serde_json::{Value, json};
use windlass_server::AdmissionPlugins;

use windlass_testkit::{PODS, TestServer, pod};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const PLACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Starts a server with the plugin enabled and a default account in the namespace `default`.
async fn server() -> TestServer {
    let server = bare_server().await;
    server.post(ACCOUNTS, &json!({"metadata": {"name": "default"}})).await.expect(201);
    server
}

/// Starts the same server without any account.
async fn bare_server() -> TestServer {
    TestServer::with(|setup| setup.plugins = AdmissionPlugins::default()).await
}

fn spec(containers: Value, rest: Value) -> Value {
    let mut spec = rest;
    spec["containers"] = containers;
    json!({"metadata": {"name": "p"}, "spec": spec})
}

/// Returns the mount paths of a container and their volumes.
fn mounts(container: &Value) -> Vec<(&str, &str)> {
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    mounts.map(|m| (m["mountPath"].as_str().unwrap(), m["name"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn a_new_pod_finds_a_token_of_its_account() {
    let server = server().await;
    let own = json!([{"mountPath": PLACE, "name": "own"}]);
    let containers = json!([
        {"name": "a", "image": "i"},
        {"name": "b", "image": "i", "volumeMounts": own},
    ]);
    let rest = json!({
        "initContainers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "own", "emptyDir": {}}],
    });
    let made = server.post(PODS, &spec(containers, rest)).await.expect(201);
    let spec = &made["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["serviceAccount"], "default");
    let name = spec["volumes"][1]["name"].as_str().unwrap();
    let suffix = name.strip_prefix("kube-api-access-").unwrap();
    assert_eq!(suffix.len(), 5, "{name}");
    assert_eq!(
        spec["volumes"],
        json!([{"name": "own", "emptyDir": {}}, {
            "name": name,
            "projected": {
                "defaultMode": 420,
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }},
                    {"downwardAPI": {"items": [{
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }]}},
                ],
            },
        }])
    );
    let mount = json!([{"name": name, "mountPath": PLACE, "readOnly": true}]);
    assert_eq!(spec["containers"][0]["volumeMounts"], mount);
    assert_eq!(mounts(&spec["containers"][1]), [(PLACE, "own")]);
    assert_eq!(spec["initContainers"][0]["volumeMounts"], mount);
    // The additions include all defaults: sending the object back changes nothing.
    let again = server.put(&format!("{PODS}/p"), &made).await.expect(200);
    assert_eq!(again["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn pod_and_account_say_whether_a_token_is_mounted() {
    let server = bare_server().await;
    let choice = [Value::Null, json!(true), json!(false)];
    for (account_says, of_account) in ["none", "true", "false"].into_iter().zip(&choice) {
        let account = json!({
            "metadata": {"name": account_says},
            "automountServiceAccountToken": of_account,
        });
        server.post(ACCOUNTS, &account).await.expect(201);
        for (pod_says, of_pod) in ["none", "true", "false"].into_iter().zip(&choice) {
            let mut pod = pod(&format!("{account_says}-{pod_says}"));
            pod["spec"]["serviceAccountName"] = json!(account_says);
            pod["spec"]["automountServiceAccountToken"] = of_pod.clone();
            let made = server.post(PODS, &pod).await.expect(201);
            let wanted = of_pod.as_bool().or(of_account.as_bool()).unwrap_or(true);
            let shown = format!("account {account_says}, pod {pod_says}");
            assert_eq!(!mounts(&made["spec"]["containers"][0]).is_empty(), wanted, "{shown}");
            assert_eq!(made["spec"]["volumes"].is_array(), wanted, "{shown}");
        }
    }
}

#[tokio::test]
async fn volumes_are_added_only_where_they_are_needed() {
    let server = server().await;
    // Every container already mounts something at the path.
    let own = json!([{"mountPath": PLACE, "name": "own"}]);
    let volumes = json!({"volumes": [{"name": "own", "emptyDir": {}}]});
    let containers = json!([{"name": "a", "image": "i", "volumeMounts": own}]);
    let mut all = spec(containers, volumes);
    all["metadata"]["name"] = json!("all");
    let made = server.post(PODS, &all).await.expect(201);
    assert_eq!(made["spec"]["volumes"].as_array().unwrap().len(), 1);
    // A volume with that prefix is reused.
    let volumes = json!({"volumes": [{"name": "kube-api-access-mine", "emptyDir": {}}]});
    let made = server.post(PODS, &spec(json!([{"name": "a", "image": "i"}]), volumes)).await;
    let made = made.expect(201);
    assert_eq!(mounts(&made["spec"]["containers"][0]), [(PLACE, "kube-api-access-mine")]);
    assert_eq!(made["spec"]["volumes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn pull_secrets_default_to_those_of_the_account() {
    let server = bare_server().await;
    let account =
        json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "a"}, {"name": "b"}]});
    server.post(ACCOUNTS, &account).await.expect(201);
    let made = server.post(PODS, &pod("without")).await.expect(201);
    assert_eq!(made["spec"]["imagePullSecrets"], json!([{"name": "a"}, {"name": "b"}]));
    let mut with = pod("with");
    with["spec"]["imagePullSecrets"] = json!([{"name": "c"}]);
    let made = server.post(PODS, &with).await.expect(201);
    assert_eq!(made["spec"]["imagePullSecrets"], json!([{"name": "c"}]));
}

#[tokio::test]
async fn an_account_that_is_missing_refuses_the_pod() {
    let server = server().await;
    // The deprecated field name counts too.
    for field in ["serviceAccountName", "serviceAccount"] {
        let mut named = pod("p");
        named["spec"][field] = json!("nobody");
        let text = server.post(PODS, &named).await.fails(403, "Forbidden");
        assert_eq!(
            text,
            "pods \"p\" is forbidden: error looking up service account default/nobody: \
             serviceaccount \"nobody\" not found"
        );
        named["metadata"] = json!({"generateName": "g-"});
        let text = server.post(PODS, &named).await.fails(403, "Forbidden");
        assert!(text.starts_with("pods \"g-\" is forbidden: error looking up"), "{text}");
    }
    let elsewhere = server.post("/api/v1/namespaces/nowhere/pods", &pod("p")).await;
    assert_eq!(elsewhere.fails(404, "NotFound"), "namespaces \"nowhere\" not found");
}

#[tokio::test]
async fn the_default_account_may_come_a_moment_later() {
    let server = bare_server().await;
    let (pod, account) = (pod("p"), json!({"metadata": {"name": "default"}}));
    let (made, _) = tokio::join!(server.post(PODS, &pod), server.post(ACCOUNTS, &account));
    assert_eq!(made.expect(201)["spec"]["serviceAccountName"], "default");
}

#[tokio::test]
async fn the_default_account_is_not_waited_for_for_ever() {
    let server = bare_server().await;
    let text = server.post(PODS, &pod("p")).await.fails(403, "Forbidden");
    assert!(text.ends_with("serviceaccount \"default\" not found"), "{text}");
}

#[tokio::test]
async fn mirror_pods_are_skipped_and_refer_to_nothing() {
    let server = server().await;
    let mirror = |name: &str| {
        let mut pod = pod(name);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
        pod["spec"]["nodeName"] = json!("node-1");
        pod
    };
    let made = server.post(PODS, &mirror("plain")).await.expect(201);
    assert_eq!(made["spec"].get("serviceAccountName"), None);
    assert_eq!(made["spec"].get("volumes"), None);
    let projected = |source: Value| json!([{"name": "v", "projected": {"sources": [source]}}]);
    for (field, value, why) in [
        ("serviceAccountName", json!("default"), "reference service accounts"),
        ("imagePullSecrets", json!([{"name": "s"}]), "reference secrets"),
        ("volumes", json!([{"name": "v", "secret": {"secretName": "s"}}]), "reference secrets"),
        ("volumes", projected(json!({"secret": {"name": "s"}})), "reference secrets"),
        (
            "volumes",
            projected(json!({"serviceAccountToken": {"path": "t"}})),
            "use ServiceAccountToken volume projections",
        ),
    ] {
        let mut pod = mirror("p");
        pod["spec"][field] = value;
        let text = server.post(PODS, &pod).await.fails(403, "Forbidden");
        assert_eq!(text, format!("pods \"p\" is forbidden: a mirror pod may not {why}"));
    }
}

#[tokio::test]
async fn an_account_can_keep_its_pods_to_its_secrets() {
    let server = bare_server().await;
    let account = json!({
        "metadata": {
            "name": "default",
            "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"},
        },
        "secrets": [{"name": "ok"}],
    });
    server.post(ACCOUNTS, &account).await.expect(201);
    let with = |name: &str, secret: &str| {
        let mut pod = pod(name);
        pod["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": secret}}]);
        pod
    };
    let because = "is not allowed because service account default does not reference that secret";
    server.post(PODS, &with("a", "ok")).await.expect(201);
    let text = server.post(PODS, &with("b", "other")).await.fails(403, "Forbidden");
    let volume = "volume with secret.secretName=\"other\"";
    assert_eq!(text, format!("pods \"b\" is forbidden: {volume} {because}"));

    // Neither by an ephemeral container, nor by naming another account with it.
    server.post(ACCOUNTS, &json!({"metadata": {"name": "free"}})).await.expect(201);
    let path = format!("{PODS}/a/ephemeralcontainers");
    for (secret, account) in [("other", "default"), ("other", "free"), ("ok", "default")] {
        let mut pod = server.get(&format!("{PODS}/a")).await.expect(200);
        pod["spec"]["serviceAccountName"] = json!(account);
        pod["spec"]["serviceAccount"] = json!(account);
        pod["spec"]["ephemeralContainers"] = json!([{
            "name": "d", "image": "i", "envFrom": [{"secretRef": {"name": secret}}],
        }]);
        let answer = server.put(&path, &pod).await;
        if secret == "ok" {
            answer.expect(200);
        } else {
            let how = "ephemeral container d with envFrom referencing secret.secretName=\"other\"";
            assert_eq!(answer.fails(500, ""), format!("{how} {because}"), "{account}");
        }
    }
}

#[tokio::test]
async fn the_plugin_can_be_off() {
    let server = TestServer::start().await;
    let made = server.post(PODS, &pod("p")).await.expect(201);
    assert_eq!(made["spec"].get("serviceAccountName"), None);
    assert_eq!(made["spec"].get("volumes"), None);
}

#[tokio::test]
async fn changes_of_a_pod_are_not_equipped() {
    let server = server().await;
    server.post(PODS, &pod("p")).await.expect(201);
    let status = json!({"status": {"phase": "Running"}});
    let path = format!("{PODS}/p/status");
    let changed = server.patch(&path, "merge", &status).await.expect(200);
    assert_eq!(changed["spec"]["volumes"].as_array().unwrap().len(), 1);
    // Binding is a create operation, but not of a pod.
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let bound = server.request(Method::POST, &format!("{PODS}/p/binding")).json(&binding).send().await;
    bound.expect(201);
}
