use std::path::Path;

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_pki::{Certificate, Validity};
use windlass_testkit::{PATIENCE, TestServer, ca_with_validity, write_ca};

use super::*;
use windlass_runtime::csr::{APPROVED, certificate, condition};

const HOURS: Backoff = Backoff::constant(Duration::from_secs(7200));

/// Writes a CA pair to a directory; it is valid for `days` from now.
fn write_pair(dir: &Path, name: &str, days: i64) {
    let now = OffsetDateTime::now_utc();
    let validity = Validity::new(now - time::Duration::DAY, now + time::Duration::days(days));
    write_ca(dir, &ca_with_validity(name, validity.unwrap()));
}

async fn create_approved(api: &Api<Csr>, name: &str) {
    let cases = include_str!("../../tests/loops/issuance.json");
    let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
    let case = cases.into_iter().find(|each| each["case"] == "key p256").unwrap();
    let mut request: Csr = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"request": "", "signerName": case["signerName"], "usages": case["usages"]},
    }))
    .unwrap();
    request.spec.request = ByteString(case["request"].as_str().unwrap().into());
    let request = api.create(&PostParams::default(), &request).await.unwrap();
    let yes = true_condition(APPROVED, "Tested", "", OffsetDateTime::now_utc());
    let request = with_condition(&request, yes, "");
    let params = PostParams::default();
    api.replace_subresource("approval", name, &params, &request).await.unwrap();
}

async fn wait_until(api: &Api<Csr>, good: impl Fn(&Csr) -> bool) -> Csr {
    let waiting = await_condition(api.clone(), "one", |found: Option<&Csr>| found.is_some_and(&good));
    tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap()
}

/// A signer reports an expired CA and signs as soon as the CA is replaced, whatever the request's
/// back-off.
#[tokio::test]
async fn a_new_pair_wakes_what_waits() {
    let files = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let client = server.client();
    write_pair(files.path(), "old", 1);
    let pair = ["ca.crt", "ca.key"].map(|name| files.path().join(name));
    let today: Clock = Arc::new(OffsetDateTime::now_utc);
    // Two days from now, when the old pair has expired.
    let later: Clock = Arc::new(|| OffsetDateTime::now_utc() + time::Duration::days(2));
    let ca = CaSource::from_files(pair[0].clone(), pair[1].clone(), today);
    let (signer, max_duration) = (KubernetesSigner::Client, Duration::from_secs(3600));
    let metrics = MetricFamilies::unregistered();
    let terms = SigningTerms::BuiltIn { signer, max_duration };
    let issuer = CsrIssuer::new(signer.name(), ca.clone(), terms, &metrics);
    let queue = WorkQueue::new(metrics.queue(SIGNING), HOURS);
    let (signer, queue) = (CsrSigner::new(&client, Ledger::disabled(), later), Arc::new(queue));
    signer.set_issuers(vec![Arc::new(issuer)]);
    let watching = tokio::spawn(signer.clone().watch(client.clone(), queue.clone()));
    let signing = tokio::spawn(run_workers(queue, WORKERS, move |name| signer.clone().reconcile(name)));
    let api: Api<Csr> = Api::all(client.clone());
    create_approved(&api, "one").await;

    let waiting = wait_until(&api, |request| condition(request, DELAYED).is_some()).await;
    let told = condition(&waiting, DELAYED).unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_deref()), ("True", Some("SignerExpired")));
    assert!(told.message.as_ref().unwrap().starts_with("the signer has expired"));
    assert!(certificate(&waiting).is_none());

    write_pair(files.path(), "new", 99);
    let following = tokio::spawn(ca.clone().watch());
    let signed = wait_until(&api, |request| certificate(request).is_some()).await;
    assert!(condition(&signed, DELAYED).is_none(), "what is over is no longer said");
    assert!(condition(&signed, APPROVED).is_some());
    let text = signed.status.unwrap().certificate.unwrap().0;
    assert!(ca.current().unwrap().authority().has_issued(&Certificate::from_pem(&text).unwrap()));
    assert_eq!(ca.current().unwrap().certificate().common_name(), Some("new"));

    // The same task wrote the event before the certificate.
    let events: Api<Event> = Api::namespaced(client, "default");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let told = |event: &&Event| event.reason.as_deref() == Some("SignerExpired");
    let event = events.iter().find(told).unwrap();
    assert_eq!(event.regarding.as_ref().unwrap().name.as_deref(), Some("one"));
    watching.abort();
    signing.abort();
    following.abort();
}
