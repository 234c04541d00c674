//! Tests of revocation lists and of revocations in the ledger, on a server.

mod config_maps;
mod removed_token;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use k8s_openapi::ByteString;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_controllers::signers::SignerSettings;
use windlass_controllers::{Clock, ControllerOptions, signers};
use windlass_ledger::{LedgerEntry, RevocationReason, decode_entries};
use windlass_pki::{Certificate, CertificateAuthority, CertificateRevocationList, pem};
use windlass_testkit::self_signed_ca;

use crate::certificates::is_settled;
use crate::custom_signers::objects::wait_for;
use crate::custom_signers::{CsrTemplate, write_ca};
use crate::fixture::{PATIENCE, TestCluster, wait_until};
use crate::ledger::stored_segments;

const SIGNER: &str = "example.com/web";

/// A server whose controllers run one custom signer, with a clock that a test can advance.
struct CrlFixture {
    world: TestCluster,
    /// Seconds that the clock of the controllers is ahead.
    ahead: Arc<AtomicI64>,
    files: tempfile::TempDir,
    ca: CertificateAuthority,
}

impl CrlFixture {
    /// Starts with a signer whose section `crl` is this.
    async fn start(crl: &str) -> CrlFixture {
        let world = TestCluster::without_controllers().await;
        let (files, ca) = (tempfile::tempdir().unwrap(), self_signed_ca("web"));
        write_ca(files.path(), &ca, &[]);
        let text = format!(
            "{{apiVersion: windlass.dev/v1, kind: Signers, signers: [{{name: {SIGNER}, \
             ca: {{files: {{certificate: tls.crt, key: tls.key}}}}, crl: {{{crl}}}, \
             requests: {{commonNames: ['*'], usages: [server auth], maxDuration: 48h, \
             approval: {{automatic: {{groups: [web]}}}}}}}}]}}"
        );
        std::fs::write(files.path().join("signers.yaml"), text).unwrap();
        let mut fixture = CrlFixture { world, ahead: Arc::default(), files, ca };
        fixture.run_controllers();
        fixture
    }

    fn run_controllers(&mut self) {
        let ahead = self.ahead.clone();
        let clock: Clock = Arc::new(move || {
            OffsetDateTime::now_utc() + time::Duration::seconds(ahead.load(Ordering::SeqCst))
        });
        let file = self.files.path().join("signers.yaml");
        self.world.run_controllers_with(ControllerOptions {
            custom: signers::open(&file, &clock).unwrap(),
            signers: SignerSettings { file: Some(file), ..SignerSettings::default() },
            controllers: "custom-signer-controller,certificate-revocation-controller".parse().unwrap(),
            ..ControllerOptions::new(clock)
        });
    }

    fn advance(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::SeqCst);
    }

    fn lists(&self) -> Api<DynamicObject> {
        Api::all_with(
            self.world.client.clone(),
            &resource("CertificateRevocationList", "certificaterevocationlists"),
        )
    }

    fn revocations(&self) -> Api<DynamicObject> {
        Api::all_with(self.world.client.clone(), &revocation_resource())
    }

    async fn issue(&self, name: &str) -> Certificate {
        let api = Api::all(self.world.client_as("bob", &["web", "system:masters"]));
        let asked = CsrTemplate {
            signer: SIGNER,
            subject: "CN=x",
            names: &[],
            usages: &["server auth"],
            seconds: None,
        };
        asked.create(&api, name).await;
        let request = wait_until(&api, name, "be answered", is_settled).await.unwrap();
        let text = request.status.unwrap().certificate.unwrap().0;
        Certificate::from_der(&pem::certificates(&text).unwrap()[0]).unwrap()
    }

    async fn revoke(&self, serial: &str, reason: &str) {
        let object = revocation(&self.ca, serial, reason);
        self.revocations().create(&PostParams::default(), &object).await.unwrap();
    }

    async fn undo(&self, serial: &str) {
        let name = format!("{}-{serial}", self.ca.certificate().authority_id());
        self.revocations().delete(&name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the list of a CA is as wanted; returns it.
    async fn wait_for_list(
        &self,
        ca: &CertificateAuthority,
        what: &str,
        good: impl Fn(&CertificateRevocationList) -> bool,
    ) -> CertificateRevocationList {
        let id = ca.certificate().authority_id();
        let read = |found: Option<&DynamicObject>| found.and_then(|found| parse_list(found, ca));
        let is_good = |found: Option<&DynamicObject>| read(found).is_some_and(|list| good(&list));
        read(wait_for(&self.lists(), &id, what, is_good).await.as_ref()).unwrap()
    }

    /// Returns reason and time of all revocations in the ledger, by time.
    async fn recorded(&self) -> Vec<(RevocationReason, i64)> {
        let mut found = Vec::new();
        for segment in stored_segments(&self.world.client).await {
            for entry in decode_entries(&segment.header, &segment.data).unwrap() {
                if let LedgerEntry::Revoked(record) = entry {
                    found.push((record.reason, record.time));
                }
            }
        }
        // Of different chains: a certificate without a record is in the longest.
        found.sort_by_key(|(_, time)| *time);
        found
    }

    async fn wait_for_records(&self, expected: &[RevocationReason]) {
        let waiting = async {
            while self.recorded().await.iter().map(|(reason, _)| *reason).ne(expected.iter().copied()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(found.is_ok(), "{:?}, not {expected:?}", self.recorded().await);
    }
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: "windlass.dev".into(),
        version: "v1alpha1".into(),
        api_version: "windlass.dev/v1alpha1".into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

fn revocation_resource() -> ApiResource {
    resource("CertificateRevocation", "certificaterevocations")
}

fn revocation(ca: &CertificateAuthority, serial: &str, reason: &str) -> DynamicObject {
    let id = ca.certificate().authority_id();
    let expires = OffsetDateTime::now_utc() + time::Duration::days(2);
    DynamicObject::new(&format!("{id}-{serial}"), &revocation_resource()).data(json!({"spec": {
        "signerName": SIGNER,
        "authorityID": id,
        "serialNumber": serial,
        "reason": reason,
        "notAfter": windlass_api::timestamp::format(expires),
    }}))
}

/// Reads a list and verifies that the CA signed it.
fn parse_list(object: &DynamicObject, ca: &CertificateAuthority) -> Option<CertificateRevocationList> {
    let der: ByteString = serde_json::from_value(object.data["spec"]["crl"].clone()).unwrap();
    let list = CertificateRevocationList::from_der(&der.0).unwrap();
    list.verify(ca.certificate()).ok()?;
    assert_eq!(object.data["spec"]["number"].as_u64(), list.number());
    Some(list)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_is_listed_and_recorded() {
    let mut site = CrlFixture::start("distributionPoints: ['https://pki.example.com/{authority}.crl']").await;
    let (good, bad) = (site.issue("good").await, site.issue("bad").await);
    let url = format!("https://pki.example.com/{}.crl", site.ca.certificate().authority_id());
    let der = bad.der().to_vec();
    assert!(der.windows(url.len()).any(|part| part == url.as_bytes()), "the leaf names {url}");
    let empty = site.wait_for_list(&site.ca, "be signed", CertificateRevocationList::is_empty).await;
    site.revoke(&bad.serial_hex(), "keyCompromise").await;
    let list = site.wait_for_list(&site.ca, "have the certificate", |list| list.len() == 1).await;
    assert!(list.find(bad.serial()).is_some() && list.find(good.serial()).is_none());
    assert!(list.number() > empty.number());
    site.wait_for_records(&[RevocationReason::KeyCompromise]).await;
    let metrics = site.world.metrics();
    let labels = format!("{{signer=\"{SIGNER}\",authority=\"{}\"}}", site.ca.certificate().authority_id());
    for line in [
        format!("windlass_crl_revoked_certificates{labels} 1"),
        format!("windlass_crl_sign_failures_total{labels} 0"),
        format!("windlass_crl_next_update_timestamp_seconds{labels} {}", list.next_update().unix_timestamp()),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }

    // Another leader neither records it again nor decreases the number.
    site.world.stop_controllers().await;
    site.run_controllers();
    site.revoke("0a", "certificateHold").await;
    let next = site.wait_for_list(&site.ca, "have both", |list| list.len() == 2).await;
    assert!(next.number() > list.number());
    let both = [RevocationReason::KeyCompromise, RevocationReason::CertificateHold];
    site.wait_for_records(&both).await;
    site.undo("0a").await;
    site.wait_for_list(&site.ca, "lose the hold", |list| list.len() == 1).await;
    let all = [both[0], both[1], RevocationReason::RemoveFromCrl];
    site.wait_for_records(&all).await;

    // A hold that is undone while no controller runs is withdrawn as well, once.
    site.revoke("0b", "certificateHold").await;
    let held = [all[0], all[1], all[2], RevocationReason::CertificateHold];
    site.wait_for_records(&held).await;
    site.world.stop_controllers().await;
    site.undo("0b").await;
    site.run_controllers();
    site.wait_for_list(&site.ca, "lose the second hold", |list| list.len() == 1).await;
    let withdrawn = [held[0], held[1], held[2], held[3], RevocationReason::RemoveFromCrl];
    site.wait_for_records(&withdrawn).await;
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_signed_again_before_it_expires() {
    let site = CrlFixture::start("duration: 2h").await;
    let first = site.wait_for_list(&site.ca, "be signed", |_| true).await;
    assert_eq!(first.next_update() - first.this_update(), time::Duration::hours(2));
    site.advance(3540);
    site.revoke("0a", "superseded").await;
    let changed = site.wait_for_list(&site.ca, "have the revocation", |list| list.len() == 1).await;
    assert!(changed.this_update() - first.this_update() < time::Duration::minutes(61));
    site.advance(3600);
    let renewed = |list: &CertificateRevocationList| list.this_update() > changed.this_update();
    let next = site.wait_for_list(&site.ca, "be renewed", renewed).await;
    assert!(next.number() > changed.number() && next.this_update() < changed.next_update());
    // What somebody else does to the list does not last.
    let id = site.ca.certificate().authority_id();
    site.advance(60);
    site.lists().delete(&id, &DeleteParams::default()).await.unwrap();
    let number = next.number();
    site.wait_for_list(&site.ca, "be signed again", |list| list.number() > number).await;
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_cas_have_lists_after_a_replacement() {
    let mut site = CrlFixture::start("").await;
    site.wait_for_list(&site.ca, "be signed", |_| true).await;
    let next = self_signed_ca("next");
    write_ca(site.files.path(), &next, &[]);
    site.wait_for_list(&next, "be signed", CertificateRevocationList::is_empty).await;
    site.revoke("0a", "keyCompromise").await;
    site.wait_for_list(&site.ca, "have the revocation", |list| list.len() == 1).await;
    // A process that never had the key leaves the list alone.
    site.world.stop_controllers().await;
    site.run_controllers();
    site.revoke("0b", "keyCompromise").await;
    let reasons = [RevocationReason::KeyCompromise; 2];
    site.wait_for_records(&reasons).await;
    let object = revocation(&next, "0c", "superseded");
    site.revocations().create(&PostParams::default(), &object).await.unwrap();
    site.wait_for_list(&next, "have its revocation", |list| list.find(&[0x0c]).is_some()).await;
    let last = site.lists().get(&site.ca.certificate().authority_id()).await.unwrap();
    assert_eq!(parse_list(&last, &site.ca).unwrap().len(), 1);
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_is_set_where_the_server_did_not() {
    let ca = self_signed_ca("elsewhere");
    let object = revocation(&ca, "0a", "superseded");
    let name = object.name_any();
    let stored = format!(
        "{{\"kind\":\"CertificateRevocation\",\"apiVersion\":\"windlass.dev/v1alpha1\",\"metadata\":{{\
         \"name\":\"{name}\",\"uid\":\"0f8fad5b-d9cb-469f-a165-70867728950e\",\"generation\":1,\
         \"creationTimestamp\":\"2026-01-02T03:04:05Z\"}},\"spec\":{}}}",
        object.data["spec"]
    );
    let key = format!("windlass.dev/certificaterevocations/{name}");
    let mut world = TestCluster::with_stored_objects(&[(&key, stored)]).await;
    let clock: Clock = Arc::new(OffsetDateTime::now_utc);
    world.run_controllers_with(ControllerOptions {
        controllers: "custom-signer-controller,certificate-revocation-controller".parse().unwrap(),
        ..ControllerOptions::new(clock)
    });
    let api: Api<DynamicObject> = Api::all_with(world.client.clone(), &revocation_resource());
    let time = |found: &DynamicObject| found.data["status"]["revokedTime"].clone();
    let is_set = |found: Option<&DynamicObject>| found.is_some_and(|found| time(found) != Value::Null);
    let found = wait_for(&api, &name, "have its time", is_set).await.unwrap();
    assert_eq!((time(&found), found.name_any()), (json!("2026-01-02T03:04:05Z"), name));
    world.shut_down().await;
}
