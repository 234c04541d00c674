//! RBAC: roles and bindings as clients write them, and access reviews.

use http::Method;
use serde_json::{Value, json};

use windlass_testkit::{MAPS, TestResponse, TestServer, config_map};

pub const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
pub const GROUP: &str = "rbac.authorization.k8s.io";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

async fn as_user(server: &TestServer, user: &str, method: Method, path: &str, body: &Value) -> TestResponse {
    let asked = server.request(method, path).header("authorization", &format!("Bearer {user}-token"));
    if body.is_null() { asked.send().await } else { asked.json(body).send().await }
}

async fn get(server: &TestServer, user: &str, path: &str) -> TestResponse {
    as_user(server, user, Method::GET, path, &Value::Null).await
}

async fn post(server: &TestServer, user: &str, path: &str, body: &Value) -> TestResponse {
    as_user(server, user, Method::POST, path, body).await
}

pub fn rule(verbs: &[&str], group: &str, resources: &[&str], names: &[&str]) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

pub fn role(name: &str, rules: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

pub fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
    })
}

/// Grants `user` the rules cluster-wide, in a role `name`.
pub async fn grant(server: &TestServer, name: &str, user: &str, rules: &[Value]) {
    server.post(&format!("{RBAC}/clusterroles"), &role(name, rules)).await.expect(201);
    let bound = binding(name, "ClusterRole", name, user);
    server.post(&format!("{RBAC}/clusterrolebindings"), &bound).await.expect(201);
}

/// Grants alice the permission to write roles and bindings.
async fn grant_alice_role_writes(server: &TestServer) {
    let kinds = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];
    let verbs = ["create", "update", "patch", "get"];
    grant(server, "writer", "alice", &[rule(&verbs, GROUP, &kinds, &[])]).await;
}

#[tokio::test]
async fn grants_and_revocations_count_from_the_next_request_on() {
    let server = TestServer::start().await;
    server.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let refused = get(&server, "alice", &path).await.fails(403, "Forbidden");
    assert_eq!(
        refused,
        "configmaps \"a\" is forbidden: User \"alice\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    for _ in 0..20 {
        server.post(bindings, &binding("b", "Role", "r", "alice")).await.expect(201);
        let reported = get(&server, "alice", &path).await.fails(403, "Forbidden");
        assert!(reported.ends_with(": RBAC: role.rbac.authorization.k8s.io \"r\" not found"), "{reported}");
        server.post(roles, &role("r", &[rule(&["get"], "", &["configmaps"], &[])])).await.expect(201);
        get(&server, "alice", &path).await.expect(200);
        get(&server, "bob", &path).await.fails(403, "Forbidden");
        get(&server, "alice", MAPS).await.fails(403, "Forbidden");
        // Revoked by emptying the role, granted again, and revoked with the binding.
        server.put(&format!("{roles}/r"), &role("r", &[])).await.expect(200);
        get(&server, "alice", &path).await.fails(403, "Forbidden");
        let again = role("r", &[rule(&["*"], "*", &["*"], &[])]);
        server.put(&format!("{roles}/r"), &again).await.expect(200);
        get(&server, "alice", &path).await.expect(200);
        get(&server, "alice", "/api/v1/namespaces/kube-system/configmaps").await.fails(403, "Forbidden");
        get(&server, "alice", "/api/v1/configmaps").await.fails(403, "Forbidden");
        get(&server, "alice", "/metrics").await.fails(403, "Forbidden");
        server.delete(&format!("{bindings}/b")).await.expect(200);
        get(&server, "alice", &path).await.fails(403, "Forbidden");
        server.delete(&format!("{roles}/r")).await.expect(200);
    }
}

#[tokio::test]
async fn grants_survive_a_restart() {
    let server = TestServer::start().await;
    grant(&server, "r", "alice", &[rule(&["list"], "", &["configmaps"], &[])]).await;
    let server = server.restart().await;
    get(&server, "alice", MAPS).await.expect(200);
    server.delete(&format!("{RBAC}/clusterrolebindings/r")).await.expect(200);
    get(&server, "alice", MAPS).await.fails(403, "Forbidden");
}

#[tokio::test]
async fn cve_2026_39350_names_are_compared_and_no_patterns() {
    let server = TestServer::start().await;
    for name in ["a.b", "axb", "a.b.c"] {
        server.post(MAPS, &config_map(name)).await.expect(201);
    }
    let verbs = ["get", "list", "create", "delete"];
    grant(&server, "r", "alice", &[rule(&verbs, "", &["configmaps"], &["a.b", "*"])]).await;
    get(&server, "alice", &format!("{MAPS}/a.b")).await.expect(200);
    for name in ["axb", "a.b.c", "a"] {
        get(&server, "alice", &format!("{MAPS}/{name}")).await.fails(403, "Forbidden");
    }
    // A rule with resource names does not match requests without a name; a selector can supply one.
    get(&server, "alice", MAPS).await.fails(403, "Forbidden");
    post(&server, "alice", MAPS, &config_map("a.b")).await.fails(403, "Forbidden");
    let named = format!("{MAPS}?fieldSelector=metadata.name%3Da.b");
    assert_eq!(get(&server, "alice", &named).await.expect(200)["items"].as_array().unwrap().len(), 1);
    let other = format!("{MAPS}?fieldSelector=metadata.name%3Daxb");
    get(&server, "alice", &other).await.fails(403, "Forbidden");
    as_user(&server, "alice", Method::DELETE, MAPS, &Value::Null).await.fails(403, "Forbidden");
}

#[tokio::test]
async fn wildcards_and_subresources() {
    let server = TestServer::start().await;
    grant(&server, "r", "alice", &[rule(&["get"], "", &["*/status"], &[])]).await;
    let ask = |verb: &'static str, resource: &'static str, sub: &'static str| {
        let server = &server;
        async move {
            let attributes = json!({"verb": verb, "resource": resource, "subresource": sub});
            let review = json!({"spec": {"resourceAttributes": attributes, "user": "alice"}});
            let path = format!("{REVIEWS}/subjectaccessreviews");
            server.post(&path, &review).await.expect(201)["status"]["allowed"].clone()
        }
    };
    assert_eq!(ask("get", "pods", "status").await, true);
    assert_eq!(ask("get", "nodes", "status").await, true);
    assert_eq!(ask("get", "pods", "").await, false);
    assert_eq!(ask("get", "pods", "log").await, false);
    assert_eq!(ask("update", "pods", "status").await, false);
    grant(&server, "all", "alice", &[rule(&["*"], "*", &["*"], &[])]).await;
    assert_eq!(ask("update", "pods", "log").await, true);
}

#[tokio::test]
async fn aggregated_roles_follow_their_parts() {
    let server = TestServer::start().await;
    let roles = format!("{RBAC}/clusterroles");
    let mut sum = role("sum", &[rule(&["delete"], "", &["configmaps"], &[])]);
    sum["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "sum"}}]});
    server.post(&roles, &sum).await.expect(201);
    let bound = binding("b", "ClusterRole", "sum", "alice");
    server.post(&format!("{RBAC}/clusterrolebindings"), &bound).await.expect(201);
    get(&server, "alice", MAPS).await.fails(403, "Forbidden");
    as_user(&server, "alice", Method::DELETE, &format!("{MAPS}/x"), &Value::Null)
        .await
        .fails(403, "Forbidden");
    let mut part = role("part", &[rule(&["list"], "", &["configmaps"], &[])]);
    part["metadata"]["labels"] = json!({"to": "sum"});
    server.post(&roles, &part).await.expect(201);
    get(&server, "alice", MAPS).await.expect(200);
    let path = format!("{roles}/part");
    server.patch(&path, "merge", &json!({"metadata": {"labels": null}})).await.expect(200);
    get(&server, "alice", MAPS).await.fails(403, "Forbidden");
}

#[tokio::test]
async fn a_role_with_more_permissions_cannot_be_written() {
    let server = TestServer::start().await;
    grant_alice_role_writes(&server).await;
    let (roles, local) = (format!("{RBAC}/clusterroles"), format!("{RBAC}/namespaces/default/roles"));
    let wide = rule(&["get", "list"], "", &["configmaps"], &[]);
    let reported =
        post(&server, "alice", &roles, &role("x", std::slice::from_ref(&wide))).await.fails(403, "Forbidden");
    assert_eq!(
        reported,
        concat!(
            "clusterroles.rbac.authorization.k8s.io \"x\" is forbidden: user \"alice\" (groups=[\"dev\" \"system:authenticated\"]) ",
            "is attempting to grant RBAC permissions not currently held:\n",
            "{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"get\" \"list\"]}",
        )
    );
    // One held rule and one missing: the error reports the missing one.
    grant(&server, "maps", "alice", &[rule(&["get"], "", &["configmaps"], &[])]).await;
    let reported =
        post(&server, "alice", &local, &role("x", std::slice::from_ref(&wide))).await.fails(403, "Forbidden");
    assert!(reported.starts_with("roles.rbac.authorization.k8s.io \"x\" is forbidden"), "{reported}");
    assert!(
        reported.ends_with("held:\n{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"list\"]}"),
        "{reported}"
    );
    let held = role("x", &[rule(&["get"], "", &["configmaps"], &[])]);
    for path in [&roles, &local] {
        post(&server, "alice", path, &held).await.expect(201);
        every_change_is_refused(&server, &format!("{path}/x"), &role("x", std::slice::from_ref(&wide))).await;
        // Updates that change only owner references, or reduce permissions, are allowed.
        let one = format!("{path}/x");
        let less = json!({"rules": []});
        patch(&server, "alice", &one, "merge", &json!({"metadata": {"finalizers": ["a.io/b"]}}))
            .await
            .expect(200);
        patch(&server, "alice", &one, "merge", &less).await.expect(200);
        patch(&server, "alice", &one, "merge", &json!({"metadata": {"finalizers": null}})).await.expect(200);
    }
    server.put(&format!("{roles}/x"), &role("x", &[wide])).await.expect(200);
    // A label is no rule, but aggregation selects roles by labels.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    patch(&server, "alice", &format!("{roles}/x"), "merge", &label).await.fails(403, "Forbidden");
}

async fn patch(server: &TestServer, user: &str, path: &str, how: &str, body: &Value) -> TestResponse {
    let media = match how {
        "json" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        _ => "application/apply-patch+yaml",
    };
    let asked = server.request(Method::PATCH, path).header("content-type", media);
    let asked = asked.header("authorization", &format!("Bearer {user}-token"));
    asked.raw_body(body.to_string()).send().await
}

/// Tries PUT, every patch type and apply, also as dry runs, on an existing object and (by apply) on
/// a missing one.
async fn every_change_is_refused(server: &TestServer, path: &str, wanted: &Value) {
    let before = server.get(path).await.expect(200);
    let mut typed = wanted.clone();
    typed["apiVersion"] = json!(format!("{GROUP}/v1"));
    typed["kind"] = before["kind"].clone();
    let field = if wanted["rules"].is_array() { "rules" } else { "subjects" };
    let change = json!({(field): wanted[field]});
    let operation = json!([{"op": "add", "path": format!("/{field}"), "value": wanted[field]}]);
    let (existing, folder) = (path, path.rsplit_once('/').unwrap().0);
    for query in ["", "dryRun=All"] {
        let at = format!("{existing}?{query}");
        let put = as_user(server, "alice", Method::PUT, &at, wanted).await;
        put.fails(403, "Forbidden");
        patch(server, "alice", &at, "json", &operation).await.fails(403, "Forbidden");
        patch(server, "alice", &at, "merge", &change).await.fails(403, "Forbidden");
        patch(server, "alice", &at, "strategic", &change).await.fails(403, "Forbidden");
        let apply = format!("{existing}?fieldManager=m&force=true&{query}");
        patch(server, "alice", &apply, "apply", &typed).await.fails(403, "Forbidden");
        let mut new = typed.clone();
        new["metadata"]["name"] = json!("new");
        let create = format!("{folder}/new?fieldManager=m&{query}");
        patch(server, "alice", &create, "apply", &new).await.fails(403, "Forbidden");
        post(server, "alice", &format!("{folder}?{query}"), &new).await.fails(403, "Forbidden");
    }
    assert_eq!(server.get(path).await.expect(200), before);
    server.get(&format!("{folder}/new")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn the_escalate_verb_allows_writing_any_role() {
    let server = TestServer::start().await;
    grant_alice_role_writes(&server).await;
    let roles = format!("{RBAC}/clusterroles");
    let wide = role("x", &[rule(&["*"], "*", &["*"], &[])]);
    grant(&server, "one", "alice", &[rule(&["escalate"], GROUP, &["clusterroles"], &["x"])]).await;
    // The path of a new role has no name yet.
    post(&server, "alice", &roles, &wide).await.fails(403, "Forbidden");
    server.post(&roles, &role("x", &[])).await.expect(201);
    as_user(&server, "alice", Method::PUT, &format!("{roles}/x"), &wide).await.expect(200);
    server.post(&roles, &role("y", &[])).await.expect(201);
    let mut other = wide.clone();
    other["metadata"]["name"] = json!("y");
    as_user(&server, "alice", Method::PUT, &format!("{roles}/y"), &other).await.fails(403, "Forbidden");
    grant(&server, "any", "alice", &[rule(&["escalate"], GROUP, &["clusterroles"], &[])]).await;
    as_user(&server, "alice", Method::PUT, &format!("{roles}/y"), &other).await.expect(200);
    // Applies to cluster roles only.
    let local = format!("{RBAC}/namespaces/default/roles");
    post(&server, "alice", &local, &wide).await.fails(403, "Forbidden");
    server.delete(&format!("{RBAC}/clusterrolebindings/any")).await.expect(200);
    as_user(&server, "alice", Method::PUT, &format!("{roles}/y"), &other).await.fails(403, "Forbidden");
}

#[tokio::test]
async fn aggregation_needs_everything() {
    let server = TestServer::start().await;
    grant_alice_role_writes(&server).await;
    let roles = format!("{RBAC}/clusterroles");
    let mut sum = role("sum", &[]);
    sum["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "sum"}}]});
    let text = "clusterroles.rbac.authorization.k8s.io \"sum\" is forbidden: must have cluster-admin privileges to use the aggregationRule";
    assert_eq!(post(&server, "alice", &roles, &sum).await.fails(403, "Forbidden"), text);
    server.post(&roles, &sum).await.expect(201);
    // A user with fewer permissions must not remove the rule either.
    let one = format!("{roles}/sum");
    let plain = role("sum", &[]);
    assert_eq!(as_user(&server, "alice", Method::PUT, &one, &plain).await.fails(403, "Forbidden"), text);
    let paths = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
    let much = rule(&["get", "list", "create", "update", "patch", "delete"], "*", &["*"], &[]);
    grant(&server, "much", "alice", &[much, paths]).await;
    assert_eq!(as_user(&server, "alice", Method::PUT, &one, &plain).await.fails(403, "Forbidden"), text);
    grant(&server, "all", "alice", &[rule(&["*"], "*", &["*"], &[])]).await;
    as_user(&server, "alice", Method::PUT, &one, &plain).await.expect(200);
    post(
        &server,
        "alice",
        &roles,
        &json!({"metadata": {"name": "more"}, "aggregationRule": sum["aggregationRule"]}),
    )
    .await
    .expect(201);
}

#[tokio::test]
async fn a_role_with_more_permissions_cannot_be_bound() {
    let server = TestServer::start().await;
    grant_alice_role_writes(&server).await;
    let wide = rule(&["get"], "", &["secrets"], &[]);
    server
        .post(&format!("{RBAC}/clusterroles"), &role("wide", std::slice::from_ref(&wide)))
        .await
        .expect(201);
    let (everywhere, here) =
        (format!("{RBAC}/clusterrolebindings"), format!("{RBAC}/namespaces/default/rolebindings"));
    let bound = |name: &str| binding(name, "ClusterRole", "wide", "alice");
    for path in [&everywhere, &here] {
        let reported = post(&server, "alice", path, &bound("b")).await.fails(403, "Forbidden");
        let plural = path.rsplit_once('/').unwrap().1;
        assert!(
            reported.starts_with(&format!(
                "{plural}.rbac.authorization.k8s.io \"b\" is forbidden: user \"alice\" (groups="
            )),
            "{reported}"
        );
        assert!(
            reported.ends_with("held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"),
            "{reported}"
        );
        let other = binding("b", "ClusterRole", "wide", "bob");
        server.post(path, &other).await.expect(201);
        every_change_is_refused(&server, &format!("{path}/b"), &bound("b")).await;
        server.delete(&format!("{path}/b")).await.expect(200);
    }
    let gone = binding("b", "ClusterRole", "gone", "alice");
    let reported = post(&server, "alice", &here, &gone).await.fails(404, "NotFound");
    assert_eq!(reported, "clusterroles.rbac.authorization.k8s.io \"gone\" not found");
    // A user who holds the role in a namespace may grant it there.
    server.post(&here, &binding("mine", "ClusterRole", "wide", "alice")).await.expect(201);
    post(&server, "alice", &here, &binding("yours", "ClusterRole", "wide", "bob")).await.expect(201);
    post(&server, "alice", &everywhere, &binding("yours", "ClusterRole", "wide", "bob"))
        .await
        .fails(403, "Forbidden");
}

#[tokio::test]
async fn the_bind_verb_allows_binding_a_role() {
    let server = TestServer::start().await;
    grant_alice_role_writes(&server).await;
    for name in ["wide", "other"] {
        let wide = role(name, &[rule(&["get"], "", &["secrets"], &[])]);
        server.post(&format!("{RBAC}/clusterroles"), &wide).await.expect(201);
    }
    let (everywhere, here) =
        (format!("{RBAC}/clusterrolebindings"), format!("{RBAC}/namespaces/default/rolebindings"));
    // In one namespace, for one role.
    let binder = role("binder", &[rule(&["bind"], GROUP, &["clusterroles"], &["wide"])]);
    server.post(&format!("{RBAC}/namespaces/default/roles"), &binder).await.expect(201);
    server.post(&here, &binding("binder", "Role", "binder", "alice")).await.expect(201);
    post(&server, "alice", &here, &binding("a", "ClusterRole", "wide", "bob")).await.expect(201);
    post(&server, "alice", &here, &binding("b", "ClusterRole", "other", "bob")).await.fails(403, "Forbidden");
    post(&server, "alice", &everywhere, &binding("a", "ClusterRole", "wide", "bob"))
        .await
        .fails(403, "Forbidden");
    grant(&server, "everywhere", "alice", &[rule(&["bind"], GROUP, &["clusterroles"], &["wide"])]).await;
    post(&server, "alice", &everywhere, &binding("a", "ClusterRole", "wide", "bob")).await.expect(201);
    get(&server, "bob", "/api/v1/namespaces/default/secrets/s").await.fails(404, "NotFound");
}

#[tokio::test]
async fn questions_are_answered_with_the_reason() {
    let server = TestServer::start().await;
    grant(&server, "r", "alice", &[rule(&["get"], "", &["configmaps"], &[])]).await;
    let path = format!("{REVIEWS}/subjectaccessreviews");
    let spec = json!({"user": "alice", "resourceAttributes": {"verb": "get", "resource": "configmaps", "namespace": "x"}});
    let answer = server.post(&path, &json!({"spec": spec})).await.expect(201);
    assert_eq!(
        answer,
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec,
            "status": {"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"r\" of ClusterRole \"r\" to User \"alice\""},
        })
    );
    let masters = json!({"spec": {"groups": ["system:masters"], "nonResourceAttributes": {"verb": "get", "path": "/x"}}});
    assert_eq!(server.post(&path, &masters).await.expect(201)["status"], json!({"allowed": true}));
    let nobody = json!({"spec": {"user": "bob", "nonResourceAttributes": {"verb": "get", "path": "/x"}}, "status": {"allowed": true}});
    assert_eq!(server.post(&path, &nobody).await.expect(201)["status"], json!({"allowed": false}));
    // An invalid selector requests access to everything.
    let mut spec = spec;
    spec["resourceAttributes"]["fieldSelector"] = json!({"rawSelector": "a"});
    let answer = server.post(&path, &json!({"spec": spec})).await.expect(201);
    let ignored = "spec.resourceAttributes.fieldSelector ignored due to parse error";
    assert_eq!(answer["status"]["evaluationError"], ignored);
    // The caller needs permission to create reviews.
    post(&server, "alice", &path, &masters).await.fails(403, "Forbidden");
}

#[tokio::test]
async fn invalid_reviews_are_rejected_with_the_reason() {
    let server = TestServer::start().await;
    let both =
        json!({"user": "a", "resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/x"}});
    let selector = json!({"user": "a", "resourceAttributes": {"fieldSelector": {}, "labelSelector": {
        "rawSelector": "a=b", "requirements": [{"key": "a b", "operator": "In"}]}}});
    for (plural, body, want) in [
        (
            "subjectaccessreviews",
            json!({"spec": {}}),
            "[spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of user or group must be specified]",
        ),
        (
            "subjectaccessreviews",
            json!({"spec": both}),
            "spec: Invalid value: {\"path\":\"/x\"}: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            "selfsubjectaccessreviews",
            json!({"spec": {}}),
            "spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            "selfsubjectaccessreviews",
            json!({"metadata": {"name": "n"}, "spec": {"resourceAttributes": {}}}),
            "metadata: Invalid value: {\"name\":\"n\"}: must be empty",
        ),
        (
            "namespaces/default/localsubjectaccessreviews",
            json!({"spec": {"user": "a", "resourceAttributes": {"namespace": "x"}}}),
            "spec.resourceAttributes.namespace: Invalid value: \"x\": must match metadata.namespace",
        ),
        (
            "namespaces/default/localsubjectaccessreviews",
            json!({"spec": {"user": "a", "nonResourceAttributes": {"path": "/x"}}}),
            "spec.nonResourceAttributes: Invalid value: {\"path\":\"/x\"}: disallowed on this kind of request",
        ),
    ] {
        let reported = server.post(&format!("{REVIEWS}/{plural}"), &body).await.fails(422, "Invalid");
        assert_eq!(reported, format!(".authorization.k8s.io \"\" is invalid: {want}"), "{body}");
    }
    let reported = server
        .post(&format!("{REVIEWS}/subjectaccessreviews"), &json!({"spec": selector}))
        .await
        .fails(422, "Invalid");
    for want in [
        "spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required",
        "spec.resourceAttributes.labelSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements",
        "spec.resourceAttributes.labelSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        "spec.resourceAttributes.labelSelector.requirements[0].key: Invalid value: \"a b\"",
    ] {
        assert!(reported.contains(want), "{reported}");
    }
    let elsewhere = json!({"metadata": {"namespace": "x"}, "spec": {"user": "a", "resourceAttributes": {"namespace": "x"}}});
    let path = format!("{REVIEWS}/namespaces/default/localsubjectaccessreviews");
    server.post(&path, &elsewhere).await.fails(400, "BadRequest");
    let here = json!({"spec": {"user": "a", "resourceAttributes": {"namespace": "default"}}});
    assert_eq!(server.post(&path, &here).await.expect(201)["metadata"], json!({"namespace": "default"}));
}

#[tokio::test]
async fn the_rules_of_the_caller_are_listed() {
    let server = TestServer::start().await;
    let path = format!("{REVIEWS}/selfsubjectrulesreviews");
    let ask = rule(&["create"], "authorization.k8s.io", &["selfsubjectrulesreviews"], &[]);
    let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/x"]});
    for user in ["alice", "system:node:node-1"] {
        grant(&server, &user.replace(':', "-"), user, &[ask.clone(), paths.clone()]).await;
    }
    let local = rule(&["get"], "", &["configmaps"], &["a"]);
    server
        .post(&format!("{RBAC}/namespaces/default/roles"), &role("r", std::slice::from_ref(&local)))
        .await
        .expect(201);
    let bound = binding("b", "Role", "r", "alice");
    server.post(&format!("{RBAC}/namespaces/default/rolebindings"), &bound).await.expect(201);
    let review = |namespace: &str| json!({"spec": {"namespace": namespace}});
    let mut answer = post(&server, "alice", &path, &review("default")).await.expect(201);
    let everybodys = post(&server, "bob", &path, &review("default")).await.expect(201);
    for rules in ["resourceRules", "nonResourceRules"] {
        let common = everybodys["status"][rules].as_array().unwrap();
        assert!(!common.is_empty());
        let own = answer["status"][rules].as_array_mut().unwrap();
        own.retain(|rule| !common.contains(rule));
    }
    assert_eq!(
        answer,
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "metadata": {}, "spec": {},
            "status": {"resourceRules": [ask, local], "nonResourceRules": [paths], "incomplete": false},
        })
    );
    let answer = post(&server, "alice", &path, &review("other")).await.expect(201);
    let rules = answer["status"]["resourceRules"].as_array().unwrap();
    assert!(rules.contains(&ask) && !rules.contains(&local), "{rules:?}");
    let node = post(&server, "node-1", &path, &review("default")).await.expect(201);
    assert_eq!(node["status"]["incomplete"], true);
    let text = "node authorizer does not support user rule resolution";
    assert_eq!(node["status"]["evaluationError"], text);
    let reported = post(&server, "alice", &path, &review("")).await.fails(400, "BadRequest");
    assert_eq!(reported, "no namespace on request");
}
