use clap::Parser as _;
use windlass_ledger::{
    AuthorityId, EntryPosition, IssuanceRecord, KeyHash, LedgerChain, LedgerEntry, ObjectUid, PodReference,
    RequestKind, RequestReference, RevocationReason, SegmentHeader, SerialNumber,
};

use super::*;
use crate::cli::{CertCommand, Cli, CliCommand};
use crate::commands::cert::ledger::{RevocationObject, add_revocations, api_resource};

const NOW: i64 = 1_800_000_000;
const HOUR: i64 = 3600;

fn record(serial: u8, signer: &str, expires_in: i64) -> IssuanceRecord {
    IssuanceRecord {
        signer: signer.to_owned(),
        authority: AuthorityId::from_bytes(&[7; 20]).unwrap(),
        serial: SerialNumber::from_bytes(&[serial]).unwrap(),
        not_before: NOW - HOUR,
        not_after: NOW + expires_in,
        subject: String::new(),
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        email_addresses: Vec::new(),
        uris: Vec::new(),
        omitted_names: 0,
        usages: vec!["server auth".to_owned()],
        key_hash: KeyHash([serial; 32]),
        requester: "alice".to_owned(),
        approver: None,
        request: RequestReference {
            kind: RequestKind::CertificateSigningRequest,
            namespace: String::new(),
            name: format!("csr-{serial}"),
            uid: ObjectUid::from("uid"),
        },
        node: None,
        pod: None,
        recorded: NOW - HOUR + i64::from(serial),
    }
}

fn pod_record(serial: u8) -> IssuanceRecord {
    let mut record = record(serial, "example.com/workloads", 3 * HOUR);
    record.request.namespace = "shop".to_owned();
    record.request.kind = RequestKind::PodCertificateRequest;
    record.node = Some("n2".to_owned());
    let (name, uid, service_account) = ("web-0".to_owned(), ObjectUid::from("pod-1"), "web".to_owned());
    record.pod = Some(PodReference { name, uid, service_account });
    record
}

/// Certificates 1 (alice, DNS), 2 and 3 (node, 3 supersedes 2), 4 (pod), 5 (expired), 6 (abandoned), 7 (revoked by an
/// object).
fn index() -> CertificateIndex {
    let mut web = record(1, "example.com/web", HOUR);
    web.dns_names = vec!["web.example.com".to_owned()];
    web.subject = "CN=web".to_owned();
    let node = |serial, expiry| IssuanceRecord {
        node: Some("n1".to_owned()),
        ..record(serial, "kubernetes.io/kubelet-serving", expiry)
    };
    let records = [
        web,
        node(2, 2 * HOUR),
        node(3, 9 * HOUR),
        pod_record(4),
        record(5, "example.com/old", -HOUR),
        record(6, "example.com/gone", HOUR),
        record(7, "example.com/stolen", 4 * HOUR),
    ];
    let mut entries: Vec<LedgerEntry> =
        records.into_iter().map(|record| LedgerEntry::Issuance(Box::new(record))).collect();
    let position = |index| EntryPosition { sequence: 1, index };
    entries.extend([0, 1, 2, 3, 4, 6].map(|index| LedgerEntry::Issued(position(index))));
    entries.push(LedgerEntry::Abandoned(position(5)));
    let mut index = CertificateIndex::new();
    index.add_segment(&SegmentHeader::first(LedgerChain::Short), &entries);
    add_revocations(&mut index, &[revocation()]);
    index
}

fn revocation() -> RevocationObject {
    let spec = windlass_api::revocation::CertificateRevocationSpec {
        signer_name: "example.com/stolen".to_owned(),
        authority_id: "07".repeat(20),
        serial_number: "07".to_owned(),
        reason: RevocationReason::KeyCompromise.name().to_owned(),
        not_after: "2027-01-15T12:00:00Z".to_owned(),
        comment: None,
    };
    let mut object = RevocationObject::new("x", &api_resource(&windlass_api::revocation::RESOURCE), spec);
    object.status = Some(windlass_api::revocation::CertificateRevocationStatus {
        revoked_time: Some("2027-01-15T07:00:00Z".to_owned()),
        requester: Some("bob".to_owned()),
    });
    object
}

fn flags(line: &str) -> CertificateFilter {
    let words = ["windlass", "cert", "list"].into_iter().chain(line.split_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        CliCommand::Cert(CertCommand::List(arguments)) => filter(*arguments),
        _ => panic!("{line}"),
    }
}

#[test]
fn flags_select_certificates_by_expiry() {
    let index = index();
    let authority = "07".repeat(20);
    let table = [
        ("", "05 01 06 02 04 07 03"),
        ("--outstanding", "01 04 03"),
        ("--signer example.com/web", "01"),
        (&format!("--authority {authority} --outstanding --expiring-within 2h"), "01"),
        ("--authority 0a", ""),
        ("--node n1", "02 03"),
        ("--node n2", "04"),
        ("--pod shop/web-0", "04"),
        ("--pod shop/web-1", ""),
        ("--service-account shop/web", "04"),
        ("--dns WEB.example.com", "01"),
        ("--serial 7", "07"),
        ("--expiring-within 2h", "01 06 02"),
        ("--expiring-within 1d", "01 06 02 04 07 03"),
    ];
    for (line, wanted) in table {
        let filter = flags(line);
        let found = select(&index, &filter, NOW);
        let serials: Vec<String> = found.iter().map(|view| view.serial().to_string()).collect();
        assert_eq!(serials.join(" "), wanted, "{line}");
    }
}

#[test]
fn rows_show_holder_and_state() {
    let index = index();
    let filter = CertificateFilter::default();
    let found = select(&index, &filter, NOW);
    let table: Vec<String> = rows(&found, NOW, false).map(|row| row.join(" | ")).collect();
    assert_eq!(
        table,
        [
            "SERIAL | SIGNER | HOLDER | STATE | EXPIRES",
            "05 | example.com/old | <none> | Expired | 2027-01-15T07:00:00Z",
            "01 | example.com/web | CN=web | Issued | 2027-01-15T09:00:00Z",
            "06 | example.com/gone | <none> | Abandoned | 2027-01-15T09:00:00Z",
            "02 | kubernetes.io/kubelet-serving | node/n1 | Superseded | 2027-01-15T10:00:00Z",
            "04 | example.com/workloads | pod/shop/web-0 | Issued | 2027-01-15T11:00:00Z",
            "07 | example.com/stolen | <none> | Revoked | 2027-01-15T12:00:00Z",
            "03 | kubernetes.io/kubelet-serving | node/n1 | Issued | 2027-01-15T17:00:00Z",
        ]
    );
    let wide: Vec<Vec<Cow<'_, str>>> = rows(&found, NOW, true).collect();
    let pod = wide.get(5).unwrap();
    assert_eq!(pod.get(6..9).unwrap(), ["n2", "web", "<none>"]);
    assert!(wide.iter().all(|row| row.len() == 11));
}

#[test]
fn documents_state_what_text_states() {
    let index = index();
    let filter = CertificateFilter::default();
    let found = select(&index, &filter, NOW);
    let items = CertificateSequence { certificates: &found, now: NOW };
    let document = serde_json::to_value(CertificateListing { items }).unwrap();
    let item = |at: usize| &document["items"][at];
    assert_eq!(document["items"].as_array().unwrap().len(), 7);
    assert_eq!(item(1)["names"], serde_json::json!(["DNS:web.example.com"]));
    assert_eq!(item(3)["supersededBy"], "03");
    assert_eq!(item(4)["holder"]["podName"], "web-0");
    let revoked = serde_json::json!({"reason": "keyCompromise", "revokedTime": "2027-01-15T07:00:00Z"});
    assert_eq!((&item(5)["revocation"], &item(5)["state"]), (&revoked, &"Revoked".into()));
    assert_eq!(item(5)["authorityID"], "07".repeat(20));
}
