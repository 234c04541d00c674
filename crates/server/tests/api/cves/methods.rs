//! Unknown methods, verbs and subresources are rejected, never ignored.

use super::*;
use windlass_testkit::pod;

const METHODS: &[&str] = &[
    "TRACE", "CONNECT", "PROPFIND", "PURGE", "LINK", "QUERY", "LIST", "WATCH", "get", "Post", "GETT",
    "M-SEARCH", "X", "*",
];

/// One path for each kind of route.
const PLACES: &[&str] = &[
    "/api/v1/namespaces/team/secrets",
    "/api/v1/namespaces/team/secrets/hidden",
    "/api/v1/namespaces/team/secrets?watch=1",
    "/api/v1/secrets",
    "/api/v1/watch/namespaces/team/secrets",
    "/api/v1/namespaces/team",
    "/api/v1/namespaces/team/finalize",
    "/api/v1/namespaces/team/pods/p/status",
    "/api/v1/namespaces/team/pods/p/eviction",
    "/api/v1/namespaces/team/pods/p/nothing",
    "/api/v1/namespaces/team/serviceaccounts/s/token",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/admin",
    "/api",
    "/apis",
    "/metrics",
    "/healthz",
    "/version",
    "/openapi/v2",
    "/nothing",
];

async fn world() -> TestServer {
    let server = with_namespaces(&["team"]).await;
    let base = "/api/v1/namespaces/team";
    server.post(&format!("{base}/pods"), &pod("p")).await.expect(201);
    let account = json!({"metadata": {"name": "s"}});
    server.post(&format!("{base}/serviceaccounts"), &account).await.expect(201);
    server
}

#[tokio::test]
async fn cve_2026_30836_an_unknown_method_does_nothing() {
    let server = world().await;
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    crate::access::grant(&server, "all", "owner", &[rule(&verbs, "*", &["*"], &[])]).await;
    let before = server.revision();
    let body = json!({"metadata": {"name": "hidden"}});
    for method in METHODS {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        for path in PLACES {
            let resource = path.split('/').count() > 3 && !path.starts_with("/openapi");
            // Callers with all permissions, with all existing verbs, with none, and
            // unauthenticated.
            let answer = server.request(method.clone(), path).json(&body).send().await;
            let code = answer.status.as_u16();
            assert!(matches!(code, 404 | 405), "{method} {path}: {code}");
            for user in ["owner", "stranger"] {
                let answer = request_as(&server, user, method.clone(), path).json(&body).send().await;
                let code = answer.status.as_u16();
                assert!(!leaks_canary(&answer.body), "{user} {method} {path}");
                if resource && !path.contains("/watch/") {
                    assert_eq!(code, 403, "{user} {method} {path}");
                } else {
                    assert!(matches!(code, 403..=405), "{user} {method} {path}: {code}");
                }
            }
            let answer = server.request(method.clone(), path).anonymous().json(&body).send().await;
            let code = answer.status.as_u16();
            assert!(matches!(code, 401 | 403 | 404 | 405), "anonymous {method} {path}: {code}");
        }
    }
    assert_eq!(server.revision(), before);
}

/// An unknown subresource is not the object.
#[tokio::test]
async fn cve_2026_30836_an_unknown_subresource_is_denied() {
    let server = world().await;
    let core = |resource: &str| rule(&["*"], "", &[resource], &[]);
    grant_in(&server, "team", "plain", &[core("pods"), core("secrets"), core("serviceaccounts")]).await;
    let before = server.revision();
    for (path, known) in [
        ("pods/p/nothing", false),
        ("pods/p/STATUS", false),
        ("pods/p/status%20", false),
        ("pods/p/log", false),
        ("pods/p/exec", false),
        ("pods/p/proxy", false),
        ("secrets/hidden/data", false),
        ("secrets/hidden/status", false),
        ("serviceaccounts/s/Token", false),
        ("serviceaccounts/s/tokens", false),
        ("pods/p/status", true),
        ("pods/p/eviction", true),
        ("pods/p/binding", true),
        ("serviceaccounts/s/token", true),
    ] {
        let path = format!("/api/v1/namespaces/team/{path}");
        for method in [
            Method::GET,
            Method::HEAD,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::OPTIONS,
        ] {
            let answer = request_as(&server, "plain", method.clone(), &path).json(&json!({})).send().await;
            assert_eq!(answer.status, 403, "{method} {path}");
            if !known {
                let answer = server.request(method.clone(), &path).json(&json!({})).send().await;
                assert_eq!(answer.status, 404, "{method} {path}");
            }
        }
    }
    assert_eq!(server.revision(), before);
}

/// A rule for nonexistent verbs, kinds or groups grants nothing that exists.
#[tokio::test]
async fn cve_2026_30836_rules_that_name_nothing_give_nothing() {
    let server = world().await;
    let verbs = ["other", "GET", "get ", "read", "any", "all", "", "list,get"];
    let odd = [
        rule(&verbs, "", &["secrets"], &[]),
        rule(&["get"], "core", &["secrets"], &[]),
        rule(&["get"], "v1", &["secrets"], &[]),
        rule(&["get"], "", &["secret", "Secrets", "secrets/", "*/", "/*", "secrets/*", "any"], &[]),
    ];
    grant_in(&server, "team", "odd", &odd).await;
    for method in [Method::GET, Method::DELETE, Method::from_bytes(b"OTHER").unwrap()] {
        for path in ["secrets", "secrets/hidden"] {
            let path = format!("/api/v1/namespaces/team/{path}");
            let answer = request_as(&server, "odd", method.clone(), &path).send().await;
            let code = answer.status.as_u16();
            // `other` is the verb of unknown methods: even if allowed, the method is rejected.
            let refused = code == 403 || (method.as_str() == "OTHER" && code == 405);
            assert!(refused, "{method} {path}: {code}");
        }
    }
}

/// The compiler rejects catch-all matches in access decisions.
#[test]
fn cve_2026_30836_what_decides_about_access_has_no_catch_all() {
    let chain = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/chain");
    for part in ["authn", "authz", "admission", "impersonation"] {
        let text = fs::read_to_string(chain.join(format!("{part}.rs"))).unwrap();
        assert!(text.contains("#![deny(clippy::wildcard_enum_match_arm)]"), "{part}");
    }
}
