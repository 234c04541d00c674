//! Default roles and bindings: created at the first start and restored at every start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt as _;
use windlass_server::LocalClient;
use windlass_server::{AccessCheck, FaultInjection};
use windlass_server::{MASTERS, User};
use windlass_server::{Server, ServerOptions, start};
use windlass_store::{EmbeddedOptions, EmbeddedStore};

use windlass_testkit::{TestServer, names};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn cluster_role(name: &str) -> String {
    format!("{RBAC}/clusterroles/{name}")
}

fn cluster_binding(name: &str) -> String {
    format!("{RBAC}/clusterrolebindings/{name}")
}

#[tokio::test]
async fn the_defaults_are_there() {
    let server = TestServer::start().await;
    let mut found = 0;
    for (plural, some) in [
        ("clusterroles", vec!["admin", "cluster-admin", "edit", "system:node", "view"]),
        ("clusterrolebindings", vec!["cluster-admin", "system:discovery", "system:node"]),
        ("roles", vec!["extension-apiserver-authentication-reader"]),
        ("rolebindings", vec!["system::extension-apiserver-authentication-reader"]),
    ] {
        let list = server.get(&format!("{RBAC}/{plural}")).await.expect(200);
        let names = names(&list);
        for name in some {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        for item in list["items"].as_array().unwrap() {
            let metadata = &item["metadata"];
            let label = &metadata["labels"]["kubernetes.io/bootstrapping"];
            assert_eq!(label, "rbac-defaults", "{metadata}");
            let annotations = &metadata["annotations"];
            assert_eq!(annotations["rbac.authorization.kubernetes.io/autoupdate"], "true");
            found += 1;
        }
    }
    assert_eq!(found, 85);
    assert!(server.server.policy.is_applied());
    let ready = server.get("/readyz?verbose").await;
    let ready = String::from_utf8_lossy(&ready.body).into_owned();
    assert!(ready.contains("[+]poststarthook/rbac/bootstrap-roles ok\n"), "{ready}");
}

#[tokio::test]
async fn default_roles_match_kubernetes() {
    let server = TestServer::start().await;
    let role = server.get(&cluster_role("system:discovery")).await.expect(200);
    let paths = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    assert_eq!(role["rules"], json!([{"verbs": ["get"], "nonResourceURLs": paths}]));
    let edit = server.get(&cluster_role("edit")).await.expect(200);
    let selector = json!({"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}});
    assert_eq!(edit["aggregationRule"], json!({"clusterRoleSelectors": [selector]}));
    assert_eq!(edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
    let nobody = server.get(&cluster_binding("system:node")).await.expect(200);
    assert!(nobody.get("subjects").is_none(), "{nobody}");
    let node = server.get(&cluster_role("system:node")).await.expect(200);
    let last = node["rules"].as_array().unwrap().last().unwrap();
    let requests = json!({
        "verbs": ["create", "get", "list", "watch"],
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["podcertificaterequests"],
    });
    assert_eq!(*last, requests);
}

#[tokio::test]
async fn a_start_that_finds_all_in_order_writes_nothing() {
    let server = TestServer::start().await;
    let before = server.revision();
    let server = server.restart().await;
    assert_eq!(server.revision(), before);
    assert!(server.server.policy.is_applied());
}

#[tokio::test]
async fn removed_defaults_are_restored() {
    let server = TestServer::start().await;
    let (role, binding) = (cluster_role("system:basic-user"), cluster_binding("system:public-info-viewer"));
    let full = server.get(&role).await.expect(200)["rules"].clone();
    let first = json!([{"op": "remove", "path": "/rules/0"}, {"op": "remove", "path": "/metadata/labels"}]);
    server.patch(&role, "json", &first).await.expect(200);
    let given = server.get(&binding).await.expect(200)["subjects"].clone();
    let nobody = json!([{"op": "remove", "path": "/subjects"}]);
    server.patch(&binding, "json", &nobody).await.expect(200);
    server.delete(&cluster_role("view")).await.expect(200);

    let server = server.restart().await;
    let role = server.get(&role).await.expect(200);
    assert_eq!(role["rules"], json!([full[1], full[0]]));
    assert_eq!(role["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
    assert_eq!(server.get(&binding).await.expect(200)["subjects"], given);
    server.get(&cluster_role("view")).await.expect(200);
}

#[tokio::test]
async fn additions_are_preserved() {
    let server = TestServer::start().await;
    let (role, binding) = (cluster_role("system:basic-user"), cluster_binding("system:node"));
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    let add = json!([{"op": "add", "path": "/rules/0", "value": rule}]);
    let role_then = server.patch(&role, "json", &add).await.expect(200);
    let somebody = json!([{"kind": "Group", "name": "g", "apiGroup": "rbac.authorization.k8s.io"}]);
    let add = json!([{"op": "add", "path": "/subjects", "value": somebody}]);
    let binding_then = server.patch(&binding, "json", &add).await.expect(200);

    let server = server.restart().await;
    assert_eq!(server.get(&role).await.expect(200), role_then);
    assert_eq!(server.get(&binding).await.expect(200), binding_then);
}

#[tokio::test]
async fn autoupdate_false_is_respected() {
    let server = TestServer::start().await;
    let (role, binding) = (cluster_role("system:basic-user"), cluster_binding("cluster-admin"));
    let annotation = json!({"rbac.authorization.kubernetes.io/autoupdate": "false"});
    let empty = json!({"metadata": {"annotations": annotation}, "rules": [], "subjects": null});
    let role_then = server.patch(&role, "merge", &empty).await.expect(200);
    let nobody = json!({"metadata": {"annotations": annotation}, "subjects": null});
    let binding_then = server.patch(&binding, "merge", &nobody).await.expect(200);

    let server = server.restart().await;
    assert_eq!(server.get(&role).await.expect(200), role_then);
    assert_eq!(server.get(&binding).await.expect(200), binding_then);
}

#[tokio::test]
async fn a_binding_of_another_role_is_recreated() {
    let server = TestServer::start().await;
    let path = cluster_binding("system:monitoring");
    let right = server.get(&path).await.expect(200);
    server.delete(&path).await.expect(200);
    let other = json!({"kind": "ClusterRole", "name": "cluster-admin"});
    let wrong: Value = json!({
        "metadata": {"name": "system:monitoring"},
        "roleRef": other,
        "subjects": [{"kind": "User", "name": "mallory"}],
    });
    server.post(&format!("{RBAC}/clusterrolebindings"), &wrong).await.expect(201);

    let server = server.restart().await;
    let again = server.get(&path).await.expect(200);
    assert_eq!(again["roleRef"], right["roleRef"]);
    assert_eq!(again["subjects"], right["subjects"]);
}

#[tokio::test]
async fn bindings_get_their_groups_and_keep_their_role() {
    let server = TestServer::start().await;
    let all = format!("{RBAC}/namespaces/default/rolebindings");
    let body = json!({
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}],
    });
    let mut made = server.post(&all, &body).await.expect(201);
    assert_eq!(made["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(made["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(made["subjects"][1], json!({"kind": "ServiceAccount", "name": "s"}));
    made["roleRef"]["name"] = "edit".into();
    let message = server.put(&format!("{all}/b"), &made).await.fails(422, "Invalid");
    assert_eq!(
        message,
        "RoleBinding.rbac.authorization.k8s.io \"b\" is invalid: roleRef: Invalid value: \
         {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"edit\"}: \
         field is immutable"
    );
    // A PUT to a missing name creates it.
    let role = json!({"metadata": {"name": "r"}, "rules": []});
    server.put(&format!("{RBAC}/namespaces/default/roles/r"), &role).await.expect(201);
    let table = server
        .request(Method::GET, &all)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .send()
        .await
        .expect(200);
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let columns: Vec<&str> = columns.map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Role", "Age", "Users", "Groups", "ServiceAccounts"]);
    assert_eq!(table["rows"][0]["cells"][1], "ClusterRole/view");
    assert_eq!(table["rows"][0]["cells"][5], "/s");
}

#[tokio::test]
async fn a_server_without_the_policy_is_not_ready_and_retries() {
    let dir = tempfile::tempdir().unwrap();
    let (_down, shutdown) = watch::channel(false);
    let failing = Arc::new(AtomicBool::new(true));
    let fails = failing.clone();
    let faults = FaultInjection::injected(move |check| match check {
        AccessCheck::FlowControl if fails.load(Ordering::SeqCst) => Err("not now".into()),
        _ => Ok(()),
    });
    let store = Arc::new(EmbeddedStore::open(EmbeddedOptions::new(dir.path())).unwrap());
    let server = start(ServerOptions { faults, ..ServerOptions::new(store, shutdown) }).await.unwrap();
    assert!(!server.policy.is_applied());
    failing.store(false, Ordering::SeqCst);
    let (code, words) = readyz(&server).await;
    assert_eq!(code, 500);
    assert!(words.contains("[-]poststarthook/rbac/bootstrap-roles failed"), "{words}");

    let mut changes = server.policy.subscribe();
    let in_place = changes.wait_for(|in_place| *in_place);
    let waited = tokio::time::timeout(Duration::from_secs(20), in_place).await;
    assert!(*waited.expect("it was not tried again").unwrap());
    assert_eq!(readyz(&server).await, (200, "ok".to_owned()));
}

async fn readyz(server: &Arc<Server>) -> (u16, String) {
    let admin = User::authenticated("admin", "", vec![MASTERS.into()]);
    let request = Request::get("/readyz").body(Full::<bytes::Bytes>::default()).unwrap();
    let response = LocalClient::new(server.clone(), admin).oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}
