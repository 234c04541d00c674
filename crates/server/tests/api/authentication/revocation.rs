//! Open watches end when their credential or permissions are revoked.

use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use windlass_server::ClientCas;
use windlass_server::FrontProxy;
use windlass_server::TokenFile;
use windlass_server::{AccessCheck, FaultInjection};

use super::*;
use windlass_testkit::{PODS, TestWatch};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Returns the path of a watch with the longest timeout.
fn endless(path: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}watch=1&timeoutSeconds=9223372036854775807&resourceVersion=0")
}

/// Grants `subject` read access to secrets, in a binding `readers`.
async fn grant_secret_reads(server: &TestServer, subject: Value) {
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}]);
    grant(server, "readers", rules, subject).await;
}

async fn grant(server: &TestServer, name: &str, rules: Value, subject: Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    server.post(ROLES, &role).await.expect(201);
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [subject],
    });
    server.post(BINDINGS, &binding).await.expect(201);
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name})
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name})
}

/// Replaces the static tokens with the admin's and those of `lines`.
fn replace_tokens(server: &TestServer, lines: &str) {
    let file = format!("admin-token,admin,admin-uid,system:masters\n{lines}");
    server.server.authenticator.tokens.store(Arc::new(TokenFile::parse(&file).unwrap()));
}

async fn secret(server: &TestServer, name: &str) {
    server.post(SECRETS, &json!({"metadata": {"name": name}})).await.expect(201);
}

fn open<'a>(server: &'a TestServer, path: &str, token: &str) -> TestRequest<'a> {
    server.request(Method::GET, &endless(path)).header("authorization", &format!("Bearer {token}"))
}

/// Opens a watch and reads its first event.
async fn delivering(server: &TestServer, asked: TestRequest<'_>) -> TestWatch {
    let mut watch = asked.watch().await;
    secret(server, "before").await;
    let first = watch.next().await;
    assert_eq!(first["object"]["metadata"]["name"], "before", "{first}");
    watch
}

/// Asserts that no later write is delivered, and that the watch ends with the reason.
async fn ends(server: &TestServer, mut watch: TestWatch, code: u16) {
    secret(server, "after").await;
    let event = watch.next().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(code)), "{event}");
    assert_eq!(event["object"]["kind"], "Status");
    assert!(watch.try_next().await.is_none(), "it continues");
}

#[tokio::test]
async fn a_watch_ends_with_the_binding_that_allowed_it() {
    let server = TestServer::start().await;
    grant_secret_reads(&server, user("alice")).await;
    let watch = delivering(&server, open(&server, SECRETS, "alice-token")).await;
    server.delete(&format!("{BINDINGS}/readers")).await.expect(200);
    ends(&server, watch, 403).await;
}

#[tokio::test]
async fn a_watch_ends_with_the_rule_that_allowed_it() {
    let server = TestServer::start().await;
    grant_secret_reads(&server, user("alice")).await;
    let watch = delivering(&server, open(&server, SECRETS, "alice-token")).await;
    let rules = json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]});
    server.patch(&format!("{ROLES}/readers"), "merge", &rules).await.expect(200);
    ends(&server, watch, 403).await;
}

#[tokio::test]
async fn a_watch_ends_with_its_static_token() {
    for (file, code) in [
        ("t,bob,bob-uid,dev\n", 401),
        // The token now belongs to another user with the same permissions.
        ("alice-token,bob,bob-uid,dev\n", 401),
        ("alice-token,alice,alice-uid,other\n", 403),
    ] {
        let server = TestServer::start().await;
        grant_secret_reads(&server, group("dev")).await;
        let watch = delivering(&server, open(&server, SECRETS, "alice-token")).await;
        replace_tokens(&server, file);
        ends(&server, watch, code).await;
    }
}

#[tokio::test]
async fn a_watch_ends_with_what_a_service_accounts_token_depends_on() {
    for what in ["account", "pod", "secret", "keys"] {
        let (server, _) = with_clock().await;
        account(&server, "build").await;
        grant_secret_reads(&server, group("system:serviceaccounts")).await;
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "build"});
        server.post(PODS, &json!({"metadata": {"name": "p"}, "spec": spec})).await.expect(201);
        server.post(SECRETS, &json!({"metadata": {"name": "bound"}})).await.expect(201);
        let bound = |kind: &str, name: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}});
        let (spec, path) = match what {
            "pod" => (bound("Pod", "p"), format!("{PODS}/p?gracePeriodSeconds=0")),
            "secret" => (bound("Secret", "bound"), format!("{SECRETS}/bound")),
            _ => (json!({}), format!("{ACCOUNTS}/build")),
        };
        let token = token(&server, "build", spec).await;
        let watched = format!("{SECRETS}?fieldSelector=metadata.name!%3Dbound");
        let watch = delivering(&server, open(&server, &watched, &token)).await;
        if what == "keys" {
            let verifier = server.server.authenticator.service_accounts.as_ref().unwrap();
            let key = PrivateKey::generate().unwrap();
            verifier.replace_keys(&[key.public_key().clone()]).unwrap();
        } else {
            server.delete(&path).await.expect(200);
        }
        ends(&server, watch, 401).await;
    }
}

#[tokio::test]
async fn a_watch_ends_with_its_bootstrap_token() {
    let server = TestServer::start().await;
    let data = json!({"token-id": "abcdef", "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true"});
    let system = "/api/v1/namespaces/kube-system/secrets";
    let object = json!({"metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token", "stringData": data});
    server.post(system, &object).await.expect(201);
    grant_secret_reads(&server, group("system:bootstrappers")).await;
    let watch = delivering(&server, open(&server, SECRETS, "abcdef.0123456789abcdef")).await;
    server.delete(&format!("{system}/bootstrap-token-abcdef")).await.expect(200);
    ends(&server, watch, 401).await;
}

#[tokio::test]
async fn a_watch_ends_with_the_ca_of_its_certificate() {
    let (ca, other) = (authority("clients"), authority("others"));
    let trust = |ca: &CertificateAuthority| ClientCas::new(&[ca.certificate().der().clone()]).unwrap();
    let cas = trust(&ca);
    let server = TestServer::with(|setup| setup.authenticator.client_cas = ArcSwap::from_pointee(cas)).await;
    grant_secret_reads(&server, user("jane")).await;
    let chain = [certificate(&ca, &Subject::new("jane", &[]).unwrap(), KeyPurpose::ClientAuth)];
    // The token is ignored, because the certificate takes precedence.
    let asked = open(&server, SECRETS, "bob-token").presenting(&chain);
    let watch = delivering(&server, asked).await;
    server.server.authenticator.client_cas.store(Arc::new(trust(&other)));
    ends(&server, watch, 401).await;
}

#[tokio::test]
async fn a_watch_ends_with_the_right_to_impersonate() {
    let server = TestServer::start().await;
    grant_secret_reads(&server, user("bob")).await;
    let rules = json!([{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}]);
    grant(&server, "actors", rules, user("alice")).await;
    let asked = open(&server, SECRETS, "alice-token").header("impersonate-user", "bob");
    let watch = delivering(&server, asked).await;
    server.delete(&format!("{BINDINGS}/actors")).await.expect(200);
    ends(&server, watch, 403).await;
}

#[tokio::test]
async fn a_nodes_watch_ends_with_the_pod_that_needed_the_object() {
    let server = TestServer::start().await;
    let spec = json!({"nodeName": "node-1", "containers": [{"name": "c", "image": "i",
        "envFrom": [{"secretRef": {"name": "after"}}]}]});
    server.post(PODS, &json!({"metadata": {"name": "p"}, "spec": spec})).await.expect(201);
    let path = format!("{SECRETS}?fieldSelector=metadata.name%3Dafter");
    let watch = open(&server, &path, "node-1-token").watch().await;
    server.delete(&format!("{PODS}/p?gracePeriodSeconds=0")).await.expect(200);
    ends(&server, watch, 403).await;
}

/// Only time passes: expiry is detected within a minute.
#[tokio::test]
async fn an_idle_watch_ends_within_a_minute_of_its_expiry() {
    let (server, time) = with_clock().await;
    account(&server, "build").await;
    grant_secret_reads(&server, group("system:serviceaccounts")).await;
    let token = token(&server, "build", json!({})).await;
    let mut watch = open(&server, SECRETS, &token).watch().await;
    assert!(watch.has_no_event());
    time.set(3600 + 61);
    let start = tokio::time::Instant::now();
    // With nothing else to do, the paused runtime advances to the next timer.
    tokio::time::pause();
    let event = watch.next_within(std::time::Duration::from_secs(600)).await;
    assert_eq!(event.unwrap()["object"]["code"], 401);
    assert!(start.elapsed() <= std::time::Duration::from_secs(60), "{:?}", start.elapsed());
}

/// A watch without a timeout ends within twice the minimum time.
#[tokio::test]
async fn no_watch_lasts_for_ever() {
    let server = TestServer::start().await;
    let mut watch = open(&server, SECRETS, "admin-token").watch().await;
    assert!(watch.has_no_event());
    let start = tokio::time::Instant::now();
    tokio::time::pause();
    let end = watch.next_within(std::time::Duration::from_secs(365 * 24 * 3600)).await;
    assert!(end.is_none());
    let minutes = start.elapsed().as_secs() / 60;
    assert!((30..=60).contains(&minutes), "{minutes} minutes");
}

/// Starts a server that counts RBAC decisions.
async fn counting() -> (TestServer, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let server = TestServer::with(move |setup| {
        setup.faults = FaultInjection::injected(move |check| {
            if check == AccessCheck::Rbac {
                count.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        });
    });
    (server.await, asked)
}

/// A watch is checked when it delivers and a dependency changed: not for every event, and not for
/// every change of a role.
#[tokio::test]
async fn watches_are_checked_when_it_matters_only() {
    let (server, asked) = counting().await;
    grant_secret_reads(&server, user("alice")).await;
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(open(&server, SECRETS, "alice-token").watch().await);
    }
    let mut busy = open(&server, SECRETS, "alice-token").watch().await;
    secret(&server, "first").await;
    busy.next().await;
    let before = asked.load(Ordering::SeqCst);
    for number in 0..20 {
        let name = format!("other-{number}");
        server.post(ROLES, &json!({"metadata": {"name": name}, "rules": []})).await.expect(201);
    }
    for number in 0..20 {
        secret(&server, &format!("s-{number}")).await;
        busy.next().await;
    }
    let checks = asked.load(Ordering::SeqCst) - before;
    assert!(checks <= 2, "{checks} checks for 20 changes and 20 events");
    for watch in &mut idle {
        assert_eq!(watch.next().await["object"]["metadata"]["name"], "first");
    }
}

/// Unrelated changes do not end a watch.
#[tokio::test]
async fn a_watch_continues_when_others_are_revoked() {
    let server = TestServer::start().await;
    grant_secret_reads(&server, group("dev")).await;
    grant(&server, "more", json!([]), user("alice")).await;
    let mut watch = delivering(&server, open(&server, SECRETS, "alice-token")).await;
    server.delete(&format!("{BINDINGS}/more")).await.expect(200);
    replace_tokens(&server, "alice-token,alice,alice-uid,dev\nnew,carol,carol-uid\n");
    server.server.authenticator.client_cas.store(Arc::default());
    secret(&server, "later").await;
    assert_eq!(watch.next().await["object"]["metadata"]["name"], "later");
}

#[tokio::test]
async fn a_check_that_fails_ends_the_watch() {
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let fails = broken.clone();
    let server = TestServer::with(move |setup| {
        setup.faults = FaultInjection::injected(move |check| match check {
            AccessCheck::ServiceAccountToken if fails.load(Ordering::SeqCst) => Err("broken".into()),
            _ => Ok(()),
        });
    })
    .await;
    account(&server, "build").await;
    grant_secret_reads(&server, group("system:serviceaccounts")).await;
    let token = token(&server, "build", json!({})).await;
    let watch = delivering(&server, open(&server, SECRETS, &token)).await;
    broken.store(true, Ordering::SeqCst);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    server.patch(&format!("{ACCOUNTS}/build"), "merge", &label).await.expect(200);
    ends(&server, watch, 500).await;
}

#[tokio::test]
async fn a_watch_ends_with_the_ca_of_its_front_proxy() {
    let (ca, other) = (authority("proxies"), authority("others"));
    let trust = |ca: &CertificateAuthority| ClientCas::new(&[ca.certificate().der().clone()]).unwrap();
    let proxy = FrontProxy::new(trust(&ca));
    let server = TestServer::with(|setup| setup.authenticator.front_proxy = Some(proxy)).await;
    grant_secret_reads(&server, group("proxied")).await;
    let chain = [certificate(&ca, &Subject::new("proxy", &[]).unwrap(), KeyPurpose::ClientAuth)];
    let asked = open(&server, SECRETS, "").anonymous().presenting(&chain);
    let asked = asked.header("x-remote-user", "jane").header("x-remote-group", "proxied");
    let watch = delivering(&server, asked.header("x-remote-extra-scope", "all")).await;
    server.server.authenticator.front_proxy.as_ref().unwrap().cas.store(Arc::new(trust(&other)));
    ends(&server, watch, 401).await;
}
