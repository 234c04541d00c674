//! No bypass of authorization: every composite request needs each permission, and only the verbs
//! write to the store.

use std::fs;
use std::path::Path;

use super::*;
use windlass_testkit::pod;

const TEAM: &str = "/api/v1/namespaces/team";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/team/leases";

/// A request that might be allowed by a similar permission.
struct CompositeRequest {
    what: &'static str,
    held: Value,
    /// Permission that the caller needs in addition, or instead.
    needed: Value,
    method: Method,
    path: String,
    media: &'static str,
    body: Value,
}

fn composite(
    what: &'static str,
    held: Value,
    needed: Value,
    request: (Method, String, Value),
) -> CompositeRequest {
    let (method, path, body) = request;
    CompositeRequest { what, held, needed, method, path, media: "application/json", body }
}

fn core(verbs: &[&str], resource: &str) -> Value {
    rule(verbs, "", &[resource], &[])
}

fn creations() -> Vec<CompositeRequest> {
    let leases = |verb| rule(&[verb], "coordination.k8s.io", &["leases"], &[]);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
    let lease = json!({"metadata": {"name": "new"}});
    vec![
        composite(
            "a PUT that creates",
            leases("update"),
            leases("create"),
            (Method::PUT, format!("{LEASES}/new?"), lease),
        ),
        CompositeRequest {
            media: "application/apply-patch+yaml",
            ..composite(
                "an apply that creates",
                core(&["patch", "update"], "configmaps"),
                core(&["create"], "configmaps"),
                (Method::PATCH, format!("{TEAM}/configmaps/new?fieldManager=m&"), map),
            )
        },
        composite(
            "an object with a name of the server's making",
            core(&["get", "list", "update", "patch"], "configmaps"),
            core(&["create"], "configmaps"),
            (Method::POST, format!("{TEAM}/configmaps?"), json!({"metadata": {"generateName": "new-"}})),
        ),
    ]
}

fn deletions() -> Vec<CompositeRequest> {
    let eviction = json!({"metadata": {"name": "p"}});
    vec![
        composite(
            "a collection",
            core(&["delete", "list", "get"], "configmaps"),
            core(&["deletecollection"], "configmaps"),
            (Method::DELETE, format!("{TEAM}/configmaps?"), Value::Null),
        ),
        composite(
            "one of a collection",
            core(&["deletecollection", "list", "get"], "configmaps"),
            core(&["delete"], "configmaps"),
            (Method::DELETE, format!("{TEAM}/configmaps/hidden?"), Value::Null),
        ),
        composite(
            "an eviction",
            core(&["delete", "update", "create"], "pods"),
            core(&["create"], "pods/eviction"),
            (Method::POST, format!("{TEAM}/pods/p/eviction?"), eviction),
        ),
        composite(
            "what an eviction does",
            core(&["create"], "pods/eviction"),
            core(&["delete"], "pods"),
            (Method::DELETE, format!("{TEAM}/pods/p?"), Value::Null),
        ),
    ]
}

fn parts() -> Vec<CompositeRequest> {
    let bound = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let status = json!({"status": {"message": "m"}});
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = |what, held, needed, path: &str, body: &Value| CompositeRequest {
        media: "application/merge-patch+json",
        ..composite(what, held, needed, (Method::PATCH, format!("{TEAM}/{path}?"), body.clone()))
    };
    vec![
        composite(
            "a binding",
            core(&["create", "update", "patch"], "pods"),
            core(&["create"], "pods/binding"),
            (Method::POST, format!("{TEAM}/pods/p/binding?"), bound),
        ),
        composite(
            "a token",
            core(&["create", "update", "get", "patch"], "serviceaccounts"),
            core(&["create"], "serviceaccounts/token"),
            (Method::POST, format!("{TEAM}/serviceaccounts/s/token?"), json!({"spec": {}})),
        ),
        patched(
            "a status",
            core(&["update", "patch"], "pods"),
            core(&["patch"], "pods/status"),
            "pods/p/status",
            &status,
        ),
        patched(
            "an object through its status",
            core(&["update", "patch"], "pods/status"),
            core(&["patch"], "pods"),
            "pods/p",
            &label,
        ),
        composite(
            "the end of a namespace",
            core(&["update", "patch", "delete"], "namespaces"),
            core(&["update"], "namespaces/finalize"),
            (
                Method::PUT,
                format!("{TEAM}/finalize?"),
                json!({"metadata": {"name": "team"}, "spec": {"finalizers": ["kubernetes"]}}),
            ),
        ),
    ]
}

#[tokio::test]
async fn cve_2026_33343_each_part_of_a_composite_request_needs_its_right() {
    let all: Vec<CompositeRequest> = [creations(), deletions(), parts()].into_iter().flatten().collect();
    for (i, one) in all.into_iter().enumerate() {
        let server = with_namespaces(&["team"]).await;
        server.post(&format!("{TEAM}/pods"), &pod("p")).await.expect(201);
        let account = json!({"metadata": {"name": "s"}});
        server.post(&format!("{TEAM}/serviceaccounts"), &account).await.expect(201);
        let (some, both) = (format!("some-{i}"), format!("both-{i}"));
        grant_in(&server, "team", &some, std::slice::from_ref(&one.held)).await;
        grant_in(&server, "team", &both, &[one.held.clone(), one.needed.clone()]).await;
        let ask = |user: &str, dry: &str| {
            let asked = request_as(&server, user, one.method.clone(), &format!("{}{dry}", one.path));
            let asked = asked.header("content-type", one.media);
            if one.body.is_null() { asked.send() } else { asked.json(&one.body).send() }
        };
        for dry in ["", "dryRun=All"] {
            let before = server.revision();
            let answer = ask(&some, dry).await;
            assert_eq!(answer.status, 403, "{} {dry}: {}", one.what, answer.json());
            assert!(answer.json()["status"]["token"].is_null(), "{}", one.what);
            assert_eq!(server.revision(), before, "{} {dry}", one.what);
        }
        let before = server.revision();
        let answer = ask(&both, "dryRun=All").await;
        assert!(answer.status.is_success(), "{}: {}", one.what, answer.json());
        assert_eq!(server.revision(), before, "{}: a dry run wrote", one.what);
        let answer = ask(&both, "").await;
        assert!(answer.status.is_success(), "{}: {}", one.what, answer.json());
    }
}

/// All code that writes to the store, one line each: the verbs, and two that take no requests:
/// event expiry, and the startup that records the CAs of a shared store.
const WRITERS: &[&str] = &[
    "server/src/expiry.rs",
    // Insert, replace and remove.
    "server/src/verbs/write_path/commit.rs",
    "server/src/verbs/write_path/commit.rs",
    "server/src/verbs/write_path/commit.rs",
    "windlass/src/cluster_identity.rs",
];

#[test]
fn cve_2026_33343_only_verbs_write_to_the_store() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut writers = Vec::new();
    let mut routers = Vec::new();
    for part in ["server", "controllers", "node", "windlass"] {
        for file in sources(&crates.join(part).join("src")) {
            let shown = file.strip_prefix(crates).unwrap().to_str().unwrap().to_owned();
            // Tests may prepare stores directly.
            if shown.ends_with("/tests.rs") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                if line.contains(".commit(") {
                    writers.push(shown.clone());
                }
                if line.contains("route::route(") {
                    routers.push(shown.clone());
                }
            }
        }
    }
    writers.sort();
    assert_eq!(writers, WRITERS);
    // The verbs are reached only through the chain, after authorization.
    assert_eq!(routers, ["server/src/chain.rs"]);
    let chain = fs::read_to_string(crates.join("server/src/chain.rs")).unwrap();
    let at = |text: &str| chain.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(at("authenticator.authenticate(") < at("authorizer.decide("));
    assert!(at("authorizer.decide(") < at("route::route("));
}
