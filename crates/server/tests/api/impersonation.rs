//! Impersonation through the whole chain. Unit tests cover the rules.

use http::Method;
use windlass_server::{AccessCheck, FaultInjection};

use windlass_testkit::{MAPS, TestServer, config_map};

#[tokio::test]
async fn a_request_is_done_as_the_user_named() {
    let server = TestServer::start().await;
    let path = "/api/v1/namespaces/default/secrets";
    let asked = || server.request(Method::GET, path);
    asked().send().await.expect(200);
    let text = asked().header("impersonate-user", "system:anonymous").send().await;
    assert_eq!(
        text.fails(403, "Forbidden"),
        "secrets is forbidden: User \"system:anonymous\" cannot list resource \"secrets\" in API \
         group \"\" in the namespace \"default\""
    );
    // Similar headers have no effect.
    for header in ["impersonate_user", "x-impersonate-user", "impersonate-users"] {
        asked().header(header, "system:anonymous").send().await.expect(200);
    }
}

#[tokio::test]
async fn refusals_name_the_first_missing_permission() {
    let server = TestServer::start().await;
    let who = "User \"system:anonymous\" cannot impersonate-on:";
    for (path, user, want) in [
        (
            "/api/v1/nodes/n",
            "admin",
            format!(
                "nodes \"n\" is forbidden: {who}user-info:get resource \"nodes\" in API group \"\" at \
                 the cluster scope"
            ),
        ),
        (
            MAPS,
            "system:node:node-1",
            format!(
                "configmaps is forbidden: {who}arbitrary-node:list resource \"configmaps\" in API \
                 group \"\" in the namespace \"default\""
            ),
        ),
        ("/metrics", "admin", format!("forbidden: {who}user-info:get path \"/metrics\"")),
    ] {
        let asked = server.request(Method::GET, path).anonymous().header("impersonate-user", user);
        assert_eq!(asked.send().await.fails(403, "Forbidden"), want, "{path}");
    }
}

#[tokio::test]
async fn groups_without_a_user_are_a_bad_request() {
    let server = TestServer::start().await;
    let asked = server.request(Method::POST, MAPS).header("impersonate-group", "system:masters");
    let text = asked.json(&config_map("m")).send().await.fails(400, "BadRequest");
    assert_eq!(
        text,
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"system:masters\"}, \
         Extra:map[string][]string(nil)} without impersonating a user name"
    );
    server.get(&format!("{MAPS}/m")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn a_check_that_fails_denies() {
    let server = TestServer::with(|setup| {
        setup.faults = FaultInjection::injected(|check| match check {
            AccessCheck::Impersonation => Err("out of order".into()),
            _ => Ok(()),
        });
    })
    .await;
    let made = |name| server.request(Method::POST, MAPS).json(&config_map(name));
    made("as-jane").header("impersonate-user", "jane").send().await.fails(500, "InternalError");
    server.get(&format!("{MAPS}/as-jane")).await.fails(404, "NotFound");
    made("as-admin").send().await.expect(201);
}
