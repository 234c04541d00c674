//! Authentication with every kind of credential, valid and invalid.

mod accounts;
mod bootstrap;
mod certificates;
mod faults;
mod reviews;
mod revocation;
mod revoked_certificates;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::Method;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use windlass_pki::{
    CertificateAuthority, CertificateDer, KeyPurpose, LeafTemplate, PrivateKey, Subject, Validity, issue,
};
use windlass_server::Clock;

pub use accounts::with_signer;

use windlass_testkit::{
    MAPS, TestRequest, TestResponse, TestServer, ca_with_validity, config_map, random_serial,
};

const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// A clock that a test sets forward.
#[derive(Clone, Default)]
struct TestClock(Arc<AtomicI64>);

impl TestClock {
    fn clock(&self) -> Clock {
        let ahead = self.0.clone();
        let start = OffsetDateTime::now_utc();
        Arc::new(move || start + Duration::seconds(ahead.load(Ordering::SeqCst)))
    }

    /// Sets the clock to `seconds` after the start.
    fn set(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }
}

/// Starts a server with a test clock and without the ServiceAccount plugin.
async fn with_clock() -> (TestServer, TestClock) {
    let time = TestClock::default();
    let clock = time.clock();
    let server = TestServer::with(|setup| {
        setup.clock = clock;
        setup.plugins.service_account = false;
    })
    .await;
    (server, time)
}

fn authority(name: &str) -> CertificateAuthority {
    ca_with_validity(name, days(-30, 30))
}

/// Issues a certificate valid for one day.
fn certificate(ca: &CertificateAuthority, subject: &Subject, purpose: KeyPurpose) -> CertificateDer<'static> {
    certificate_for(ca, subject, purpose, days(-1, 1))
}

fn certificate_for(
    ca: &CertificateAuthority,
    subject: &Subject,
    purpose: KeyPurpose,
    validity: Validity,
) -> CertificateDer<'static> {
    let key = PrivateKey::generate().unwrap();
    let leaf = LeafTemplate {
        subject: subject.clone(),
        alt_names: vec![windlass_pki::AltName::Dns("a.example".into())],
        purposes: vec![purpose],
        validity,
        public_key: key.public_key(),
        serial: random_serial(),
    };
    issue(ca, &leaf).unwrap().into()
}

fn days(from: i64, until: i64) -> Validity {
    let now = OffsetDateTime::now_utc();
    Validity::new(now + Duration::days(from), now + Duration::days(until)).unwrap()
}

/// Returns a SelfSubjectReview request without credentials.
fn self_review_request(server: &TestServer) -> TestRequest<'_> {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    server.request(Method::POST, WHO_AM_I).json(&body).anonymous()
}

async fn bearer(server: &TestServer, token: &str) -> Value {
    let answer = self_review_request(server).header("authorization", &format!("Bearer {token}")).send().await;
    answer.expect(201)["status"]["userInfo"].clone()
}

/// Sends a write with an invalid credential: must be a 401 that reveals nothing, and nothing is
/// written.
async fn refused(
    server: &TestServer,
    what: &str,
    with: impl FnOnce(TestRequest<'_>) -> TestRequest<'_>,
) -> TestResponse {
    let before = server.revision();
    let asked = server.request(Method::POST, MAPS).anonymous().json(&config_map("by-nobody"));
    let answer = with(asked).send().await;
    assert_eq!(answer.status.as_u16(), 401, "{what}");
    assert_eq!(answer.fails(401, "Unauthorized"), "Unauthorized", "{what}");
    assert_eq!(server.revision(), before, "{what}");
    answer
}

/// Like [`refused`], with a token.
async fn token_refused(server: &TestServer, what: &str, token: &str) {
    let header = format!("Bearer {token}");
    refused(server, what, |asked| asked.header("authorization", &header)).await;
}

/// Creates a service account and returns it.
async fn account(server: &TestServer, name: &str) -> Value {
    server.post(ACCOUNTS, &json!({"metadata": {"name": name}})).await.expect(201)
}

/// Returns a token of a service account in the namespace `default`.
async fn token(server: &TestServer, name: &str, spec: Value) -> String {
    let answer = server.post(&format!("{ACCOUNTS}/{name}/token"), &json!({"spec": spec})).await;
    answer.expect(201)["status"]["token"].as_str().unwrap().to_owned()
}

async fn review(server: &TestServer, token: &str, audiences: &[&str]) -> Value {
    let spec = json!({"token": token, "audiences": audiences});
    server.post(REVIEWS, &json!({"spec": spec})).await.expect(201)["status"].clone()
}
