//! Records as clusters have them, for tests.

use std::net::IpAddr;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::identity::{AuthorityId, KeyHash, ObjectUid, SerialNumber};
use crate::record::{IssuanceRecord, PodReference, RequestKind, RequestReference};

/// When the first record is written.
pub const START: i64 = 1_800_000_000;
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Generates records; the same seed gives the same.
pub struct RecordSource {
    random: StdRng,
    count: i64,
}

impl RecordSource {
    pub fn new() -> RecordSource {
        RecordSource { random: StdRng::seed_from_u64(18), count: 0 }
    }

    fn word(&mut self, letters: &[u8], length: usize) -> String {
        (0..length).map(|_| char::from(letters[self.random.random_range(0..letters.len())])).collect()
    }

    fn uuid(&mut self) -> ObjectUid {
        ObjectUid::Uuid(self.random.random())
    }

    fn record(&mut self, signer: &str, lifetime: i64) -> IssuanceRecord {
        self.count += 1;
        let recorded = START + self.count / 4;
        let serial: [u8; 16] = self.random.random();
        IssuanceRecord {
            signer: signer.to_owned(),
            authority: AuthorityId::from_bytes(&[7; 20]).unwrap(),
            serial: SerialNumber::from_bytes(&serial).unwrap(),
            not_before: recorded - 300,
            not_after: recorded - 300 + lifetime,
            subject: String::new(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            email_addresses: Vec::new(),
            uris: Vec::new(),
            omitted_names: 0,
            usages: ["digital signature", "client auth", "server auth"].map(str::to_owned).to_vec(),
            key_hash: KeyHash(self.random.random()),
            requester: String::new(),
            approver: None,
            request: RequestReference {
                kind: RequestKind::CertificateSigningRequest,
                namespace: String::new(),
                name: String::new(),
                uid: self.uuid(),
            },
            node: None,
            pod: None,
            recorded,
        }
    }

    /// A new pod of one of 40 deployments on one of 100 nodes.
    pub fn pod(&mut self) -> IssuanceRecord {
        let (app, node) = (self.random.random_range(0..40), self.random.random_range(0..100));
        let namespace = format!("team-{}", app % 10);
        let account = format!("backend-service-{app}");
        let node = format!("ip-10-0-{}-{node}.eu-central-1.compute.internal", node % 16);
        let mut record = self.record("example.com/workloads", 86_400);
        record.dns_names =
            vec![format!("{account}.{namespace}.svc.cluster.local"), format!("{account}.{namespace}.svc")];
        record.uris = vec![format!("spiffe://cluster.example.com/ns/{namespace}/sa/{account}")];
        record.requester = format!("system:node:{node}");
        let letters = self.word(LETTERS, 20);
        record.request = RequestReference {
            kind: RequestKind::PodCertificateRequest,
            namespace,
            name: format!("req-{letters}"),
            uid: self.uuid(),
        };
        let letters = self.word(LETTERS, 5);
        let name = format!("{account}-7d4b9c6f8{}-{letters}", char::from(LETTERS[app % 27]));
        record.pod = Some(PodReference { name, uid: self.uuid(), service_account: account });
        record.node = Some(node);
        record
    }

    /// The next certificate of the holder of `before`, with another key.
    pub fn renewal(&mut self, before: &IssuanceRecord) -> IssuanceRecord {
        let fresh = self.record(&before.signer, before.not_after - before.not_before);
        let letters = self.word(LETTERS, 20);
        let mut record = before.clone();
        (record.serial, record.key_hash) = (fresh.serial, fresh.key_hash);
        (record.recorded, record.not_before) = (fresh.recorded, fresh.not_before);
        record.not_after = fresh.not_after;
        (record.request.uid, record.request.name) = (fresh.request.uid, format!("req-{letters}"));
        record
    }

    /// A client or serving certificate of a new node, by a CertificateSigningRequest.
    pub fn node(&mut self, serving: bool) -> IssuanceRecord {
        let [a, b, c]: [u8; 3] = self.random.random();
        let node = format!("ip-10-{a}-{b}-{c}.eu-central-1.compute.internal");
        let signer = if serving { "kubelet-serving" } else { "kube-apiserver-client-kubelet" };
        let mut record = self.record(&format!("kubernetes.io/{signer}"), 365 * 86_400);
        record.subject = format!("CN=system:node:{node},O=system:nodes");
        record.usages = ["digital signature", "client auth"].map(str::to_owned).to_vec();
        if serving {
            record.dns_names = vec![node.clone()];
            record.ip_addresses = vec![IpAddr::from([10, a, b, c])];
        }
        record.requester = format!("system:node:{node}");
        record.approver = Some("AutoApproved: Auto approving kubelet client certificate after SAR".into());
        record.request.name = format!("node-csr-{}", self.word(BASE64, 43));
        record.node = Some(node);
        record
    }
}
