//! Authenticators that fail.

use arc_swap::ArcSwap;
use serde_json::json;
use windlass_server::ClientCas;
use windlass_server::FrontProxy;
use windlass_server::{AccessCheck, FaultInjection};

use super::*;

/// The failing check, and whether it panics; set while the server runs.
type InjectedAuthFailure = Arc<ArcSwap<Option<(AccessCheck, bool)>>>;

async fn failing() -> (TestServer, InjectedAuthFailure, CertificateAuthority) {
    let failing = InjectedAuthFailure::default();
    let ca = authority("both");
    let ders = [ca.certificate().der().clone()];
    let (which, cas) = (failing.clone(), || ClientCas::new(&ders).unwrap());
    let server = TestServer::with(|setup| {
        setup.authenticator.client_cas = ArcSwap::from_pointee(cas());
        setup.authenticator.front_proxy = Some(FrontProxy::new(cas()));
        setup.faults = FaultInjection::injected(move |check| match **which.load() {
            Some((failing, true)) if failing == check => panic!("injected"),
            Some((failing, false)) if failing == check => Err("injected".into()),
            Some(_) | None => Ok(()),
        });
    })
    .await;
    let everybody = json!({
        "metadata": {"name": "everybody"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    server.post(bindings, &everybody).await.expect(201);
    (server, failing, ca)
}

#[tokio::test]
async fn cve_2025_44005_a_check_that_fails_denies() {
    let (server, failing, ca) = failing().await;
    let chain = [certificate(&ca, &Subject::new("jane", &[]).unwrap(), KeyPurpose::ClientAuth)];
    account(&server, "build").await;
    let account_token = format!("Bearer {}", token(&server, "build", json!({})).await);
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true",
        },
    });
    server.post("/api/v1/namespaces/kube-system/secrets", &secret).await.expect(201);
    let good = [
        (AccessCheck::FrontProxy, "x-remote-user", "bob"),
        (AccessCheck::ClientCertificate, "x-none", ""),
        (AccessCheck::TokenFile, "authorization", "Bearer bob-token"),
        (AccessCheck::ServiceAccountToken, "authorization", &account_token),
        (AccessCheck::BootstrapToken, "authorization", "Bearer abcdef.0123456789abcdef"),
    ];
    for (check, header, value) in good {
        let certified = matches!(check, AccessCheck::FrontProxy | AccessCheck::ClientCertificate);
        let chain: &[_] = if certified { &chain } else { &[] };
        let ask = |method, path: &str| {
            let asked = server.request(method, path).anonymous().presenting(chain);
            asked.header(header, value)
        };
        let body = config_map(&format!("{check:?}").to_lowercase());
        for panics in [false, true] {
            failing.store(Arc::new(Some((check, panics))));
            let before = server.revision();
            let answer = ask(Method::POST, MAPS).json(&body).send().await;
            answer.fails(500, "InternalError");
            assert!(!String::from_utf8_lossy(&answer.body).contains("injected"));
            // Not even public paths.
            let open = ask(Method::GET, "/version").send().await;
            assert_eq!(open.status.as_u16(), 500, "{check:?}");
            assert_eq!(server.revision(), before, "{check:?}");
        }
        failing.store(Arc::new(None));
        ask(Method::POST, MAPS).json(&body).send().await.expect(201);
    }
}

#[tokio::test]
async fn a_failed_review_returns_no_user() {
    let (server, failing, ca) = failing().await;
    let admin = Subject::new("admin", &["system:masters"]).unwrap();
    let chain = [certificate(&ca, &admin, KeyPurpose::ClientAuth)];
    for check in [AccessCheck::TokenFile, AccessCheck::ServiceAccountToken, AccessCheck::BootstrapToken] {
        let ask = || {
            let asked = server.request(Method::POST, REVIEWS).anonymous().presenting(&chain);
            asked.json(&json!({"spec": {"token": "nonsense"}}))
        };
        ask().send().await.expect(201);
        failing.store(Arc::new(Some((check, false))));
        ask().send().await.fails(500, "InternalError");
        failing.store(Arc::new(None));
    }
}
