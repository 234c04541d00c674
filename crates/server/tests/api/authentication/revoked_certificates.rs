//! Revoked client certificates are rejected from the next request on.

use std::time::{Duration as StdDuration, Instant};

use arc_swap::ArcSwap;
use windlass_pki::Certificate;
use windlass_server::{ClientCas, FrontProxy, Peer, ServerOptions};
use windlass_testkit::TestWatch;

use super::super::etcd::TestEtcd;
use super::*;

const REVOCATIONS: &str = "/apis/windlass.dev/v1alpha1/certificaterevocations";

fn trusting(ca: &CertificateAuthority) -> impl FnOnce(&mut ServerOptions) + use<> {
    let cas = ClientCas::new(&[ca.certificate().der().clone()]).unwrap();
    move |setup| setup.authenticator.client_cas = ArcSwap::from_pointee(cas)
}

fn admin() -> Subject {
    Subject::new("jane", &["system:masters"]).unwrap()
}

fn connection(chain: &[CertificateDer<'static>]) -> Arc<Peer> {
    Arc::new(Peer::from_tls("127.0.0.1:1".parse().unwrap(), chain.to_vec()))
}

fn revocation(issuer: &Certificate, revoked: &[u8], reason: &str) -> Value {
    let revoked = Certificate::from_der(revoked).unwrap();
    let (authority, serial) = (issuer.authority_id(), revoked.serial_hex());
    let not_after = windlass_api::timestamp::format(revoked.validity().not_after());
    json!({"metadata": {"name": format!("{authority}-{serial}")}, "spec": {
        "signerName": "kubernetes.io/kube-apiserver-client", "authorityID": authority,
        "serialNumber": serial, "reason": reason, "notAfter": not_after,
    }})
}

async fn code(server: &TestServer, connection: &Arc<Peer>) -> u16 {
    let asked = self_review_request(server).over(connection);
    asked.send().await.status.as_u16()
}

async fn idle_watch(server: &TestServer, connection: &Arc<Peer>) -> TestWatch {
    let path = format!("{MAPS}?watch=1&resourceVersion={}", server.revision());
    server.request(Method::GET, &path).anonymous().over(connection).watch().await
}

async fn assert_ends(mut watch: TestWatch) {
    let started = Instant::now();
    let event = watch.next().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(401)), "{event}");
    assert!(watch.try_next().await.is_none(), "it goes on");
    assert!(started.elapsed() < StdDuration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_open_connection_is_rejected_from_the_next_request_on() {
    let ca = authority("clients");
    let server = TestServer::with(trusting(&ca)).await;
    let chain = [certificate(&ca, &admin(), KeyPurpose::ClientAuth)];
    let other = [certificate(&ca, &admin(), KeyPurpose::ClientAuth)];
    let (open, unaffected) = (connection(&chain), connection(&other));
    assert_eq!((code(&server, &open).await, code(&server, &unaffected).await), (201, 201));
    let watch = idle_watch(&server, &open).await;
    let mut going_on = idle_watch(&server, &unaffected).await;

    let revocation = revocation(ca.certificate(), &chain[0], "keyCompromise");
    let stored = server.post(REVOCATIONS, &revocation).await.expect(201);
    assert_eq!(stored["status"]["requester"], "admin");
    assert_eq!(stored["status"]["revokedTime"], stored["metadata"]["creationTimestamp"]);
    assert_eq!((code(&server, &open).await, code(&server, &unaffected).await), (401, 201));
    assert_ends(watch).await;
    refused(&server, "new connection", |asked| asked.presenting(&chain)).await;
    server.post(MAPS, &config_map("later")).await.expect(201);
    assert_eq!(going_on.brief().await, "ADDED later");

    // A token on the same connection still counts.
    let asked = self_review_request(&server).over(&open).header("authorization", "Bearer bob-token");
    assert_eq!(asked.send().await.expect(201)["status"]["userInfo"]["username"], "bob");
}

#[tokio::test]
async fn only_a_hold_can_be_undone_before_the_certificate_expires() {
    let ca = authority("clients");
    let time = TestClock::default();
    let (clock, trusting) = (time.clock(), trusting(&ca));
    let server = TestServer::with(|setup| {
        setup.clock = clock;
        trusting(setup);
    })
    .await;
    let chain = [certificate(&ca, &admin(), KeyPurpose::ClientAuth)];
    let open = connection(&chain);
    for (reason, undone) in [("certificateHold", true), ("superseded", false)] {
        let revocation = revocation(ca.certificate(), &chain[0], reason);
        server.post(REVOCATIONS, &revocation).await.expect(201);
        assert_eq!(code(&server, &open).await, 401);
        let path = format!("{REVOCATIONS}/{}", revocation["metadata"]["name"].as_str().unwrap());
        let deleted = server.delete(&path).await;
        if undone {
            deleted.expect(200);
            assert_eq!(code(&server, &open).await, 201);
        } else {
            let message = deleted.fails(403, "Forbidden");
            assert!(message.contains("revocation is final until the certificate expires at"), "{message}");
            server.delete(REVOCATIONS).await.fails(403, "Forbidden");
            time.set(2 * 24 * 60 * 60);
            server.delete(&path).await.expect(200);
        }
    }
}

#[tokio::test]
async fn a_revoked_intermediate_revokes_what_it_issued() {
    let root = authority("root");
    let server = TestServer::with(trusting(&root)).await;
    let key = PrivateKey::generate().unwrap();
    let middle =
        root.intermediate(&Subject::new("middle", &[]).unwrap(), days(-2, 2), key, random_serial()).unwrap();
    let leaf = || certificate(&middle, &admin(), KeyPurpose::ClientAuth);
    let chains = [[leaf(), middle.certificate().der().clone()], [leaf(), middle.certificate().der().clone()]];
    let open = chains.each_ref().map(|chain| connection(chain));
    assert_eq!((code(&server, &open[0]).await, code(&server, &open[1]).await), (201, 201));
    // The issuer of the leaf is the intermediate, not the root.
    let wrong = revocation(root.certificate(), &chains[0][0], "superseded");
    server.post(REVOCATIONS, &wrong).await.expect(201);
    assert_eq!(code(&server, &open[0]).await, 201);
    let right = revocation(middle.certificate(), &chains[0][0], "superseded");
    server.post(REVOCATIONS, &right).await.expect(201);
    assert_eq!((code(&server, &open[0]).await, code(&server, &open[1]).await), (401, 201));
    let both = revocation(root.certificate(), &chains[0][1], "cACompromise");
    server.post(REVOCATIONS, &both).await.expect(201);
    assert_eq!((code(&server, &open[0]).await, code(&server, &open[1]).await), (401, 401));
}

#[tokio::test]
async fn a_revoked_front_proxy_speaks_for_nobody() {
    let ca = authority("proxies");
    let proxy = FrontProxy::new(ClientCas::new(&[ca.certificate().der().clone()]).unwrap());
    let server = TestServer::with(|setup| setup.authenticator.front_proxy = Some(proxy)).await;
    let chain = [certificate(&ca, &Subject::new("proxy", &[]).unwrap(), KeyPurpose::ClientAuth)];
    let open = connection(&chain);
    let ask = || self_review_request(&server).over(&open).header("x-remote-user", "jane");
    ask().send().await.expect(201);
    server.post(REVOCATIONS, &revocation(ca.certificate(), &chain[0], "superseded")).await.expect(201);
    ask().send().await.fails(401, "Unauthorized");
}

/// Whoever may sign for one signer cannot lock out the clients of this server, or of another signer.
#[tokio::test]
async fn an_authority_is_revoked_from_by_its_own_signer() {
    let ca = authority("clients");
    let server = TestServer::with(trusting(&ca)).await;
    let chain = [certificate(&ca, &admin(), KeyPurpose::ClientAuth)];
    let mut forged = revocation(ca.certificate(), &chain[0], "superseded");
    forged["spec"]["signerName"] = json!("example.com/web");
    let message = server.post(REVOCATIONS, &forged).await.fails(403, "Forbidden");
    assert!(message.ends_with("does not belong to signerName \"example.com/web\""), "{message}");

    let signers = "/apis/windlass.dev/v1alpha1/signers";
    let signer = json!({"metadata": {"name": "web"}, "spec": {
        "signerName": "example.com/web", "ca": {"selfSigned": {}}, "pods": {"serviceNames": true},
    }});
    let mut signer = server.post(signers, &signer).await.expect(201);
    signer["status"] = json!({"authorities": [{"id": "0a0b", "state": "Active"}]});
    server.put(&format!("{signers}/web/status"), &signer).await.expect(200);
    let of = |signer_name: &str, serial: &str| {
        json!({"metadata": {"name": format!("0a0b-{serial}")}, "spec": {
            "signerName": signer_name, "authorityID": "0a0b", "serialNumber": serial, "reason": "superseded",
            "notAfter": "2020-01-01T00:00:00Z",
        }})
    };
    server.post(REVOCATIONS, &of("example.com/web", "01")).await.expect(201);
    server.post(REVOCATIONS, &of("example.com/other", "02")).await.fails(403, "Forbidden");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_counts_at_every_server_within_a_second() {
    let etcd = TestEtcd::start();
    let ca = authority("clients");
    let start = async || TestServer::builder().store(etcd.open()).options(trusting(&ca)).start().await;
    let (here, there) = (start().await, start().await);
    let chain = [certificate(&ca, &admin(), KeyPurpose::ClientAuth)];
    let open = [connection(&chain), connection(&chain)];
    assert_eq!((code(&here, &open[0]).await, code(&there, &open[1]).await), (201, 201));
    let watch = idle_watch(&there, &open[1]).await;
    let revocation = revocation(ca.certificate(), &chain[0], "keyCompromise");
    here.post(REVOCATIONS, &revocation).await.expect(201);
    assert_eq!(code(&here, &open[0]).await, 401);
    assert_ends(watch).await;
    assert_eq!(code(&there, &open[1]).await, 401);
}
