//! A failing check denies: each check after authentication, by an error and by a panic.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Method;
use serde_json::{Value, json};
use windlass_server::AdmissionPlugins;
use windlass_server::{AccessCheck, FaultInjection};

use windlass_testkit::{MAPS, PODS, TestRequest, TestServer, config_map, pod};

/// The failing check, and whether it panics.
type InjectedFailure = Arc<ArcSwap<Option<(AccessCheck, bool)>>>;

/// A request guarded by a check, with its token and impersonated user.
struct CheckedRequest {
    check: AccessCheck,
    token: &'static str,
    path: &'static str,
    body: Value,
    acting_as: Option<&'static str>,
}

fn decided() -> Vec<CheckedRequest> {
    let decided = |check, token, path, body| CheckedRequest { check, token, path, body, acting_as: None };
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    vec![
        CheckedRequest {
            acting_as: Some("alice"),
            ..decided(AccessCheck::Impersonation, "admin-token", MAPS, config_map("a"))
        },
        decided(AccessCheck::FlowControl, "admin-token", MAPS, config_map("b")),
        decided(
            AccessCheck::NodeAuthorizer,
            "node-1-token",
            "/api/v1/nodes",
            json!({"metadata": {"name": "node-1"}}),
        ),
        decided(AccessCheck::Rbac, "alice-token", MAPS, config_map("c")),
        decided(
            AccessCheck::Escalation,
            "alice-token",
            roles,
            json!({"metadata": {"name": "d"}, "rules": rules}),
        ),
        decided(AccessCheck::NamespaceLifecycle, "admin-token", MAPS, config_map("e")),
        decided(AccessCheck::NodeRestriction, "admin-token", MAPS, config_map("f")),
        decided(
            AccessCheck::Signers,
            "admin-token",
            "/apis/certificates.k8s.io/v1/clustertrustbundles",
            bundle(),
        ),
        decided(AccessCheck::ServiceAccountAdmission, "admin-token", PODS, pod("g")),
    ]
}

fn bundle() -> Value {
    let anchor = include_str!("conformance/fixtures/ca-p256.pem");
    json!({
        "metadata": {"name": "example.com:s:h"},
        "spec": {"signerName": "example.com/s", "trustBundle": anchor},
    })
}

/// Checks with separate tests, which use their credentials.
const AUTHENTICATION: &[AccessCheck] = &[
    AccessCheck::FrontProxy,
    AccessCheck::ClientCertificate,
    AccessCheck::TokenFile,
    AccessCheck::ServiceAccountToken,
    AccessCheck::BootstrapToken,
];

#[tokio::test]
async fn cve_2025_44005_every_check_behind_authentication_fails_closed() {
    let failing = InjectedFailure::default();
    let which = failing.clone();
    let server = TestServer::with(|setup| {
        setup.plugins = AdmissionPlugins::default();
        setup.faults = FaultInjection::injected(move |check| match **which.load() {
            Some((failing, true)) if failing == check => panic!("injected"),
            Some((failing, false)) if failing == check => Err("injected".into()),
            Some(_) | None => Ok(()),
        });
    })
    .await;
    let admin = json!({
        "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    server.post(bindings, &admin).await.expect(201);
    let account = json!({"metadata": {"name": "default"}});
    server.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);

    let all = decided();
    for check in AccessCheck::ALL {
        let tried = all.iter().any(|d| d.check == *check) || AUTHENTICATION.contains(check);
        assert!(tried, "{check:?} is not tried");
    }
    for one in &all {
        for panics in [false, true] {
            failing.store(Arc::new(Some((one.check, panics))));
            let before = server.revision();
            let answer = request_for(&server, one).send().await;
            let (code, body) = (answer.status.as_u16(), String::from_utf8_lossy(&answer.body));
            assert!(matches!(code, 403 | 500), "{:?}: {code} {body}", one.check);
            assert!(!body.contains("injected"), "{:?}: {body}", one.check);
            assert_eq!(server.revision(), before, "{:?}", one.check);
        }
        failing.store(Arc::new(None));
        request_for(&server, one).send().await.expect(201);
    }
}

fn request_for<'a>(server: &'a TestServer, one: &CheckedRequest) -> TestRequest<'a> {
    let asked =
        server.request(Method::POST, one.path).header("authorization", &format!("Bearer {}", one.token));
    let asked = match one.acting_as {
        Some(user) => asked.header("impersonate-user", user),
        None => asked,
    };
    asked.json(&one.body)
}
