use k8s_openapi::ByteString;
use serde_json::json;
use time::macros::datetime;
use windlass_ledger::{AuthorityId, KeyHash, ObjectUid, RequestReference};
use windlass_pki::Validity;
use windlass_testkit::ca_with_validity;

use super::*;

const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

fn record(kind: RequestKind, serial: &[u8]) -> IssuanceRecord {
    IssuanceRecord {
        signer: "example.com/web".into(),
        authority: AuthorityId::from_bytes(&[7; 20]).unwrap(),
        serial: SerialNumber::from_bytes(serial).unwrap(),
        not_before: 0,
        not_after: 3600,
        subject: String::new(),
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        email_addresses: Vec::new(),
        uris: Vec::new(),
        omitted_names: 0,
        usages: Vec::new(),
        key_hash: KeyHash::from_spki(serial),
        requester: String::new(),
        approver: None,
        request: RequestReference {
            kind,
            namespace: String::new(),
            name: "one".into(),
            uid: ObjectUid::from(UID),
        },
        node: None,
        pod: None,
        recorded: 0,
    }
}

#[test]
fn the_request_tells_what_became_of_its_certificate() {
    let validity = Validity::new(datetime!(2026-01-01 0:00 UTC), datetime!(2036-01-01 0:00 UTC)).unwrap();
    let issued = ca_with_validity("any", validity);
    let issued = issued.certificate();
    let pem = issued.to_pem();
    let (own, other) = (issued.serial(), [1u8; 16].as_slice());
    let refused = |kind: &str, status: &str| json!({"conditions": [{"type": kind, "status": status}]});
    let csr = RequestKind::CertificateSigningRequest;
    let pod = RequestKind::PodCertificateRequest;
    let certificate = json!({"certificate": ByteString(pem.clone().into_bytes())});
    let garbage = json!({"certificate": ByteString(b"garbage".to_vec())});
    let chain = json!({"certificateChain": pem});
    let table = [
        (csr, own, UID, certificate.clone(), RecordOutcome::Issued),
        (csr, other, UID, certificate.clone(), RecordOutcome::Abandoned),
        (csr, own, UID, garbage, RecordOutcome::Abandoned),
        (csr, own, "another", certificate, RecordOutcome::Unknown),
        (csr, own, UID, json!({}), RecordOutcome::Pending),
        (csr, own, UID, refused("Approved", "True"), RecordOutcome::Pending),
        (csr, own, UID, refused("Denied", "True"), RecordOutcome::Abandoned),
        (csr, own, UID, refused("Failed", "False"), RecordOutcome::Pending),
        (csr, own, UID, chain.clone(), RecordOutcome::Pending),
        (pod, own, UID, chain.clone(), RecordOutcome::Issued),
        (pod, other, UID, chain, RecordOutcome::Abandoned),
        (pod, own, UID, refused("Failed", "True"), RecordOutcome::Abandoned),
    ];
    for (kind, serial, uid, status, expected) in table {
        let request = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Any", "metadata": {"name": "one", "uid": uid}, "status": status,
        }));
        let request: DynamicObject = request.unwrap();
        assert_eq!(decide(&record(kind, serial), Some(&request)), expected, "{status}");
    }
    assert_eq!(decide(&record(csr, own), None), RecordOutcome::Unknown);
}
