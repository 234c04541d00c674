//! Client certificates and front proxies.

use arc_swap::ArcSwap;
use serde_json::json;
use windlass_server::ClientCas;
use windlass_server::FrontProxy;

use super::*;

fn cas(cas: &[&CertificateAuthority]) -> ClientCas {
    let ders: Vec<CertificateDer<'_>> = cas.iter().map(|ca| ca.certificate().der().clone()).collect();
    ClientCas::new(&ders).unwrap()
}

async fn trusting(ca: &CertificateAuthority) -> TestServer {
    let cas = cas(&[ca]);
    TestServer::with(|setup| setup.authenticator.client_cas = ArcSwap::from_pointee(cas)).await
}

/// Starts a server with a client CA and a proxy CA.
async fn behind(
    clients: &CertificateAuthority,
    proxies: &CertificateAuthority,
    names: &[&str],
) -> TestServer {
    let mut proxy = FrontProxy::new(cas(&[proxies]));
    proxy.allowed_names = names.iter().map(|name| (*name).to_owned()).collect();
    let clients = cas(&[clients]);
    TestServer::with(|setup| {
        setup.authenticator.client_cas = ArcSwap::from_pointee(clients);
        setup.authenticator.front_proxy = Some(proxy);
    })
    .await
}

fn subject(name: &str) -> Subject {
    Subject::new(name, &["dev"]).unwrap()
}

#[tokio::test]
async fn cve_2018_16886_only_the_client_ca_authenticates() {
    let ca = authority("clients");
    let server = trusting(&ca).await;
    let jane = Subject::with_user_ids("jane", &["dev", "ops"], &["42"]).unwrap();
    let good = [certificate(&ca, &jane, KeyPurpose::ClientAuth)];
    let user = self_review_request(&server).presenting(&good).send().await.expect(201);
    let user = &user["status"]["userInfo"];
    assert_eq!((&user["username"], &user["uid"]), (&json!("jane"), &json!("42")));
    assert_eq!(user["groups"], json!(["dev", "ops", "system:authenticated"]));
    let id = &user["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert!(id.as_str().unwrap().starts_with("X509SHA256="), "{id}");

    let admin = Subject::new("admin", &["system:masters"]).unwrap();
    let client = KeyPurpose::ClientAuth;
    for (what, chain) in [
        ("serving CA", vec![certificate(&authority("serving"), &admin, client.clone())]),
        ("proxies' CA", vec![certificate(&authority("front-proxy"), &admin, client.clone())]),
        ("CA of the same name", vec![certificate(&authority("clients"), &admin, client.clone())]),
        ("serving only", vec![certificate(&ca, &admin, KeyPurpose::ServerAuth)]),
        ("expired", vec![certificate_for(&ca, &admin, client.clone(), days(-3, -2))]),
        ("not yet valid", vec![certificate_for(&ca, &admin, client.clone(), days(2, 3))]),
        ("the CA's own", vec![ca.certificate().der().clone()]),
        ("no name", {
            let nameless = Subject::new("", &["system:masters"]).unwrap();
            vec![certificate(&ca, &nameless, client.clone())]
        }),
        ("two user ids", {
            let two = Subject::with_user_ids("admin", &["system:masters"], &["1", "2"]).unwrap();
            vec![certificate(&ca, &two, client.clone())]
        }),
        ("no certificate", vec![CertificateDer::from(b"garbage".to_vec())]),
        ("a long chain", {
            let mut chain = vec![certificate(&ca, &admin, client.clone())];
            chain.extend(std::iter::repeat_n(ca.certificate().der().clone(), 50));
            chain
        }),
    ] {
        refused(&server, what, |asked| asked.presenting(&chain)).await;
    }
}

#[tokio::test]
async fn intermediates_are_taken_from_the_handshake() {
    let root = authority("root");
    let server = trusting(&root).await;
    let key = PrivateKey::generate().unwrap();
    let middle = Subject::new("middle", &[]).unwrap();
    let middle = root.intermediate(&middle, days(-2, 2), key, random_serial()).unwrap();
    let leaf = certificate(&middle, &subject("jane"), KeyPurpose::ClientAuth);
    let chain = [leaf, middle.certificate().der().clone()];
    let user = self_review_request(&server).presenting(&chain).send().await.expect(201);
    assert_eq!(user["status"]["userInfo"]["username"], "jane");
    refused(&server, "missing", |asked| asked.presenting(&chain[..1])).await;
}

#[tokio::test]
async fn a_token_counts_though_the_certificate_does_not() {
    let server = trusting(&authority("clients")).await;
    let chain = [certificate(&authority("other"), &subject("jane"), KeyPurpose::ClientAuth)];
    let asked = self_review_request(&server).presenting(&chain).header("authorization", "Bearer bob-token");
    assert_eq!(asked.send().await.expect(201)["status"]["userInfo"]["username"], "bob");
}

#[tokio::test]
async fn new_cas_count_from_the_next_request_on() {
    let (old, new) = (authority("old"), authority("new"));
    let server = trusting(&old).await;
    let chain = [certificate(&old, &subject("jane"), KeyPurpose::ClientAuth)];
    self_review_request(&server).presenting(&chain).send().await.expect(201);
    server.server.authenticator.client_cas.store(Arc::new(cas(&[&new])));
    refused(&server, "the old CA", |asked| asked.presenting(&chain)).await;
    let chain = [certificate(&new, &subject("jane"), KeyPurpose::ClientAuth)];
    self_review_request(&server).presenting(&chain).send().await.expect(201);
}

#[tokio::test]
async fn a_front_proxy_authenticates_for_users() {
    let (clients, proxies) = (authority("clients"), authority("proxies"));
    let server = behind(&clients, &proxies, &["aggregator"]).await;
    let chain = [certificate(&proxies, &subject("aggregator"), KeyPurpose::ClientAuth)];
    let asked = self_review_request(&server)
        .presenting(&chain)
        .header("x-remote-user", "jane")
        .header("x-remote-uid", "42")
        .header("x-remote-group", "ops")
        .header("x-remote-extra-example.com%2fscope", "read");
    let want = json!({
        "username": "jane", "uid": "42", "groups": ["ops", "system:authenticated"],
        "extra": {"example.com/scope": ["read"]},
    });
    assert_eq!(asked.send().await.expect(201)["status"]["userInfo"], want);
    // The proxy itself has no identity, and requests without a user name are unauthenticated.
    refused(&server, "no name", |asked| asked.presenting(&chain)).await;
    refused(&server, "empty name", |asked| {
        asked.presenting(&chain).header("x-remote-user", "").header("x-remote-group", "system:masters")
    })
    .await;
}

#[tokio::test]
async fn only_front_proxies_act_for_other_users() {
    let (clients, proxies) = (authority("clients"), authority("proxies"));
    let server = behind(&clients, &proxies, &["aggregator"]).await;
    let client =
        |ca: &CertificateAuthority, name: &str| [certificate(ca, &subject(name), KeyPurpose::ClientAuth)];
    fn claiming(asked: TestRequest<'_>) -> TestRequest<'_> {
        asked.header("x-remote-user", "admin").header("x-remote-group", "system:masters")
    }
    let stranger = client(&proxies, "stranger");
    refused(&server, "name", |asked| claiming(asked.presenting(&stranger))).await;
    let other = client(&authority("proxies"), "aggregator");
    refused(&server, "CA", |asked| claiming(asked.presenting(&other))).await;
    let serving = [certificate(&proxies, &subject("aggregator"), KeyPurpose::ServerAuth)];
    refused(&server, "serving only", |asked| claiming(asked.presenting(&serving))).await;
    // Client certificates and tokens keep their identity, whatever the headers say.
    let aggregator = client(&clients, "aggregator");
    let answer = claiming(self_review_request(&server).presenting(&aggregator)).send().await.expect(201);
    assert_eq!(answer["status"]["userInfo"]["groups"], json!(["dev", "system:authenticated"]));
    let answer =
        claiming(self_review_request(&server).header("authorization", "Bearer bob-token")).send().await;
    assert_eq!(answer.expect(201)["status"]["userInfo"]["username"], "bob");
    let message = claiming(server.request(Method::GET, MAPS).anonymous()).send().await;
    let message = message.fails(403, "Forbidden");
    assert!(message.contains("User \"system:anonymous\" cannot list"), "{message}");
}

#[tokio::test]
async fn a_proxy_of_the_client_ca_is_a_proxy_only_with_headers() {
    let ca = authority("both");
    let server = behind(&ca, &ca, &["aggregator"]).await;
    let chain = [certificate(&ca, &subject("aggregator"), KeyPurpose::ClientAuth)];
    let itself = self_review_request(&server).presenting(&chain).send().await.expect(201);
    assert_eq!(itself["status"]["userInfo"]["username"], "aggregator");
    let asked = self_review_request(&server).presenting(&chain).header("x-remote-user", "jane");
    assert_eq!(asked.send().await.expect(201)["status"]["userInfo"]["username"], "jane");
    // Other clients of the same CA are not trusted as proxies and keep their identity.
    let chain = [certificate(&ca, &subject("bob"), KeyPurpose::ClientAuth)];
    let asked = self_review_request(&server).presenting(&chain).header("x-remote-user", "jane");
    assert_eq!(asked.send().await.expect(201)["status"]["userInfo"]["username"], "bob");
}

#[tokio::test]
async fn headers_of_proxies_can_have_other_names() {
    let proxies = authority("proxies");
    let mut proxy = FrontProxy::new(cas(&[&proxies]));
    proxy.username_headers = vec!["X-Name".into(), "X-Other-Name".into()];
    proxy.group_headers = vec!["X-Team".into(), "X-Guild".into()];
    let server = TestServer::with(|setup| setup.authenticator.front_proxy = Some(proxy)).await;
    let chain = [certificate(&proxies, &subject("any"), KeyPurpose::ClientAuth)];
    let asked = self_review_request(&server)
        .presenting(&chain)
        .header("x-other-name", "jane")
        .header("x-guild", "b")
        .header("x-team", "a");
    let user = asked.send().await.expect(201)["status"]["userInfo"].clone();
    assert_eq!(user, json!({"username": "jane", "groups": ["a", "b", "system:authenticated"]}));
    refused(&server, "the usual name", |asked| asked.presenting(&chain).header("x-remote-user", "jane"))
        .await;
}
