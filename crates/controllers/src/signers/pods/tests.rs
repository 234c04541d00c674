use std::path::Path;

use k8s_openapi::ByteString;
use k8s_openapi::api::events::v1::Event;
use kube::core::GroupVersionKind;
use kube::runtime::wait::await_condition;
use serde_json::json;
use time::OffsetDateTime;
use windlass_pki::{Certificate, Validity};
use windlass_testkit::{PATIENCE, TestServer, ca_with_validity, write_ca};

use super::*;
use crate::signers::config::{SignerConfig, SignersConfig};

const HOURS: Backoff = Backoff::constant(Duration::from_secs(7200));
const STUB: &[u8] = include_bytes!("../../../../server/tests/api/conformance/fixtures/pcr-p256.stub.der");

/// Writes a CA pair to a directory; it is valid for `minutes` from now.
fn write_pair(dir: &Path, name: &str, minutes: i64) {
    let now = OffsetDateTime::now_utc();
    let until = now + time::Duration::minutes(minutes);
    let validity = Validity::new(now - time::Duration::DAY, until).unwrap();
    write_ca(dir, &ca_with_validity(name, validity));
}

fn custom() -> SignerConfig {
    let text = "{apiVersion: windlass.dev/v1, kind: Signers, signers: [{name: example.com/pods, \
                ca: {selfSigned: {directory: ca}}, pods: {trustDomain: example.com}}]}";
    SignersConfig::parse(Path::new("/signers.yaml"), text).unwrap().signers.remove(0)
}

async fn create_request(client: &Client, api: &Api<PodRequest>, name: &str) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = json!({
        "metadata": {"name": name},
        "spec": {"serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}]},
    });
    let pod = serde_json::from_value(pod).unwrap();
    let pod: Pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "PodCertificateRequest",
        "metadata": {"name": name},
        "spec": {
            "signerName": "example.com/pods",
            "podName": name,
            "podUID": pod.uid(),
            "serviceAccountName": "default",
            "serviceAccountUID": "s1",
            "nodeName": "n1",
            "nodeUID": "n1",
            "stubPKCS10Request": ByteString(STUB.to_vec()),
        },
    });
    let request = serde_json::from_value(request).unwrap();
    api.create(&PostParams::default(), &request).await.unwrap();
}

/// A signer whose CA expires in less than an hour reports this once and signs as soon as the CA is
/// replaced, whatever the request's back-off.
#[tokio::test]
async fn a_new_pair_wakes_what_waits() {
    let files = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let client = server.client();
    write_pair(files.path(), "old", 30);
    let (certificate, key) = (files.path().join("ca.crt"), files.path().join("ca.key"));
    let clock: Clock = Arc::new(OffsetDateTime::now_utc);
    let ca = CaSource::from_files(certificate, key, clock.clone());
    let signer = CustomSigner::new(custom(), ca.clone());
    let kind = GroupVersionKind::gvk("certificates.k8s.io", "v1", "PodCertificateRequest");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<PodRequest> = Api::default_namespaced_with(client.clone(), &resource);
    create_request(&client, &api, "one").await;
    let metrics = MetricFamilies::unregistered();
    let issuer = PodCertificateIssuer::from_signer(&signer, &metrics).unwrap();
    let queue = WorkQueue::new(metrics.queue(POD_SIGNING), HOURS);
    let (signer, queue) =
        (PodCertificateSigner::new(client.clone(), resource, Ledger::disabled(), clock), Arc::new(queue));
    signer.set_issuers(vec![Arc::new(issuer)]);
    let watching = tokio::spawn(signer.clone().watch(queue.clone()));
    let signing = tokio::spawn(run_workers(queue, WORKERS, move |key| signer.clone().reconcile(key)));

    let events: Api<Event> = Api::default_namespaced(client.clone());
    let told = async || {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let told = |event: &Event| event.reason.as_deref() == Some("SignerExpired");
        events.into_iter().filter(told).collect::<Vec<_>>()
    };
    let waiting = async {
        while told().await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    assert!(is_pending(&api.get("one").await.unwrap()));

    write_pair(files.path(), "new", 99);
    let following = tokio::spawn(ca.clone().watch());
    let answered = |found: Option<&PodRequest>| found.is_some_and(|request| !is_pending(request));
    let answered = await_condition(api.clone(), "one", answered);
    let answered = tokio::time::timeout(PATIENCE, answered).await.unwrap().unwrap().unwrap();
    let chain = answered.data["status"]["certificateChain"].as_str().unwrap();
    let issued = Certificate::from_pem(chain.as_bytes()).unwrap();
    assert!(ca.current().unwrap().authority().has_issued(&issued));
    assert_eq!(ca.current().unwrap().certificate().common_name(), Some("new"));
    assert_eq!(issued.validity().not_after(), ca.current().unwrap().certificate().validity().not_after());
    assert_eq!(told().await.len(), 1);
    watching.abort();
    signing.abort();
    following.abort();
}
