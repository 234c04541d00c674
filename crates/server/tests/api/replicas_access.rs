//! A credential or permission granted at one server is valid at the others.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::etcd::TestEtcd;
use windlass_testkit::{MAPS, TestServer};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
/// Enough rounds to meet a stale server.
const ROUNDS: usize = 30;

fn binding(role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": format!("{role}-{user}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

async fn pair(etcd: &TestEtcd) -> [TestServer; 2] {
    [TestServer::start_on_store(etcd.open()).await, TestServer::start_on_store(etcd.open()).await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_counts_at_every_server_once_it_is_bound() {
    let etcd = TestEtcd::start();
    let [a, b] = pair(&etcd).await;
    for round in 0..ROUNDS {
        let user = format!("user-{round}");
        let as_user = async |server: &TestServer| {
            server.request(Method::GET, MAPS).header("impersonate-user", &user).send().await
        };
        let (here, there) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        assert_eq!(as_user(there).await.status, 403);
        let bound = binding("view", &user);
        here.post(&format!("{RBAC}/clusterrolebindings"), &bound).await.expect(201);
        as_user(there).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_about_rights_and_tokens_are_answered_alike() {
    let etcd = TestEtcd::start();
    let [a, b] = pair(&etcd).await;
    for round in 0..ROUNDS {
        let user = format!("user-{round}");
        let bound = binding("view", &user);
        a.post(&format!("{RBAC}/clusterrolebindings"), &bound).await.expect(201);
        let review = json!({"spec": {
            "user": user,
            "resourceAttributes": {"verb": "get", "resource": "configmaps", "namespace": "default"},
        }});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = b.post(path, &review).await.expect(201);
        assert_eq!(answer["status"]["allowed"], true, "{answer}");
    }
}

/// Returns a bootstrap token as a secret, and its text.
fn token(round: usize) -> (Value, String) {
    let (id, secret) = (format!("a{round:05}"), "0123456789abcdef");
    let encoded = |text: &str| STANDARD.encode(text);
    let object = json!({
        "metadata": {"name": format!("bootstrap-token-{id}")},
        "type": "bootstrap.kubernetes.io/token",
        "data": {
            "token-id": encoded(&id),
            "token-secret": encoded(secret),
            "usage-bootstrap-authentication": encoded("true"),
        },
    });
    (object, format!("{id}.{secret}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_token_is_valid_at_every_server() {
    let etcd = TestEtcd::start();
    let [a, b] = pair(&etcd).await;
    for round in 0..ROUNDS {
        let (secret, token) = token(round);
        a.post(SECRETS, &secret).await.expect(201);
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let bearer = format!("Bearer {token}");
        let asked = b.request(Method::POST, path).anonymous().header("authorization", &bearer);
        let who = asked.json(&json!({})).send().await.expect(201);
        let name = &who["status"]["userInfo"]["username"];
        assert_eq!(name, &json!(format!("system:bootstrap:a{round:05}")));
        // A secret that does not exist authenticates nobody, however often it is tried.
        let wrong = format!("Bearer {}", token.replace("0123", "3210"));
        let asked = b.request(Method::POST, path).anonymous().header("authorization", &wrong);
        asked.json(&json!({})).send().await.fails(401, "Unauthorized");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthorized_requests_are_refused_without_etcd() {
    let mut etcd = TestEtcd::start();
    let [a, _b] = pair(&etcd).await;
    etcd.kill();
    let stranger = a.request(Method::GET, MAPS).anonymous().header("authorization", "Bearer nobody");
    stranger.send().await.fails(401, "Unauthorized");
    let user = a.request(Method::GET, &format!("{MAPS}?resourceVersion=0"));
    user.header("impersonate-user", "vera").send().await.fails(403, "Forbidden");
}
