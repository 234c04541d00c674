//! A PUT or PATCH that would create an object needs permission to create as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use http::Method;
use serde_json::json;
use windlass_server::{AccessCheck, FaultInjection};

use windlass_testkit::{MAPS, TestServer};

#[tokio::test]
async fn cve_2026_33343_the_right_to_update_is_not_the_right_to_create() {
    let armed = Arc::new(AtomicI32::new(-1));
    let count = armed.clone();
    // Lets this many RBAC decisions pass and fails the later ones; never below zero.
    let server = TestServer::with(move |setup| {
        let count = count.clone();
        setup.faults = FaultInjection::injected(move |check| {
            let left = || count.load(SeqCst);
            if check != AccessCheck::Rbac || left() < 0 {
                return Ok(());
            }
            if left() == 0 {
                return Err("out of order".into());
            }
            count.fetch_sub(1, SeqCst);
            Ok(())
        });
    })
    .await;
    let role = json!({
        "metadata": {"name": "writer"},
        "rules": [{
            "apiGroups": ["", "coordination.k8s.io"],
            "resources": ["leases", "configmaps"],
            "verbs": ["create", "update", "patch"],
        }],
    });
    let binding = json!({
        "metadata": {"name": "writer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    server.post(&format!("{rbac}/clusterroles"), &role).await.expect(201);
    server.post(&format!("{rbac}/clusterrolebindings"), &binding).await.expect(201);

    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/x";
    let map = format!("{MAPS}/x?fieldManager=m");
    let typed = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind, "metadata": {"name": "x"}});
    let put = |left| {
        armed.store(left, SeqCst);
        let body = typed("coordination.k8s.io/v1", "Lease");
        let asked = server.request(Method::PUT, lease).header("authorization", "Bearer alice-token");
        asked.json(&body).send()
    };
    let apply = |left| {
        armed.store(left, SeqCst);
        let asked = server.request(Method::PATCH, &map).header("authorization", "Bearer alice-token");
        let asked = asked.header("content-type", "application/apply-patch+yaml");
        asked.json(&typed("v1", "ConfigMap")).send()
    };
    let refused = put(1).await.fails(403, "Forbidden");
    assert_eq!(refused, "leases.coordination.k8s.io \"x\" is forbidden: ");
    let refused = apply(1).await.fails(403, "Forbidden");
    assert_eq!(refused, "configmaps \"x\" is forbidden: ");
    // With both permissions it is created; an existing object needs only one.
    put(2).await.expect(201);
    apply(2).await.expect(201);
    apply(1).await.expect(200);
}
