//! A ledger with known contents.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_ledger::{
    IssuanceRecord, KeyHash, LedgerChain, LedgerEntry, ObjectUid, PodReference, RequestKind,
    RequestReference, SegmentBuilder, SegmentHeader, SerialNumber,
};

use windlass_testkit::ledger_segment;

use crate::kubectl::Kubectl;

const DAY: i64 = 24 * 60 * 60;

/// Segments that are stored through the API.
pub struct LedgerSeed {
    chains: BTreeMap<LedgerChain, Vec<SegmentBuilder>>,
}

impl LedgerSeed {
    pub fn new() -> Self {
        Self { chains: BTreeMap::new() }
    }

    fn newest(&mut self, chain: LedgerChain) -> &mut SegmentBuilder {
        let segments = self.chains.entry(chain).or_default();
        if segments.is_empty() {
            segments.push(SegmentBuilder::new(SegmentHeader::first(chain)));
        }
        segments.last_mut().unwrap()
    }

    /// Records a certificate without the confirmation that it was issued.
    pub fn record(&mut self, record: IssuanceRecord) {
        let chain = LedgerChain::for_validity(record.not_before, record.not_after);
        self.newest(chain).append(&mut LedgerEntry::Issuance(Box::new(record))).unwrap();
    }

    /// Records a certificate and that it was issued.
    pub fn issue(&mut self, record: IssuanceRecord) {
        let chain = LedgerChain::for_validity(record.not_before, record.not_after);
        let segment = self.newest(chain);
        let position = segment.append(&mut LedgerEntry::Issuance(Box::new(record))).unwrap();
        segment.append(&mut LedgerEntry::Issued(position)).unwrap();
    }

    /// Begins the next segment of a chain.
    pub fn next_segment(&mut self, chain: LedgerChain) {
        let next = self.newest(chain).successor();
        self.chains.entry(chain).or_default().push(next);
    }

    /// Writes all segments; those that exist are replaced.
    pub fn store(&self, admin: &Kubectl) {
        let items: Vec<Value> = self.chains.values().flatten().map(ledger_segment).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        admin.ok_with(&list.to_string(), &["apply", "--server-side", "--force-conflicts", "-f", "-"]);
    }
}

/// A certificate of a signer that expires in some days and is 90 days older than that.
pub fn record(serial: &str, authority: &str, signer: &str, days: i64) -> IssuanceRecord {
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let serial: SerialNumber = serial.parse().unwrap();
    let mut key = [0; 32];
    key.iter_mut()
        .zip(serial.as_bytes().iter().chain(authority.as_bytes()))
        .for_each(|(to, from)| *to = *from);
    IssuanceRecord {
        signer: signer.to_owned(),
        authority: authority.parse().unwrap(),
        serial,
        not_before: now + (days - 91) * DAY,
        not_after: now + days * DAY,
        subject: "CN=web".to_owned(),
        dns_names: vec![format!("web-{serial}.example.com")],
        ip_addresses: Vec::new(),
        email_addresses: Vec::new(),
        uris: Vec::new(),
        omitted_names: 0,
        usages: ["digital signature", "server auth"].map(str::to_owned).to_vec(),
        key_hash: KeyHash(key),
        requester: "alice".to_owned(),
        approver: Some("bob".to_owned()),
        request: RequestReference {
            kind: RequestKind::CertificateSigningRequest,
            namespace: String::new(),
            name: format!("csr-{serial}"),
            uid: ObjectUid::from("0f8fad5b-d9cb-469f-a165-70867728950e"),
        },
        node: None,
        pod: None,
        recorded: now - 100,
    }
}

/// A serving certificate of a node; `age` orders those of the same node.
pub fn node_record(serial: &str, authority: &str, node: &str, age: i64) -> IssuanceRecord {
    let mut record = record(serial, authority, "kubernetes.io/kubelet-serving", 200 + age);
    record.subject = format!("CN=system:node:{node},O=system:nodes");
    record.dns_names = vec![node.to_owned()];
    record.requester = format!("system:node:{node}");
    record.node = Some(node.to_owned());
    record.recorded += age;
    record
}

/// A certificate of a pod on node n1 that lasts a day.
pub fn pod_record(serial: &str, authority: &str, namespace: &str, pod: &str) -> IssuanceRecord {
    let mut record = record(serial, authority, "example.com/workloads", 1);
    record.not_before = record.not_after - DAY;
    record.subject = String::new();
    record.request.kind = RequestKind::PodCertificateRequest;
    record.request.namespace = namespace.to_owned();
    record.node = Some("n1".to_owned());
    let (name, uid) = (pod.to_owned(), ObjectUid::from(pod));
    record.pod = Some(PodReference { name, uid, service_account: "web".to_owned() });
    record
}
