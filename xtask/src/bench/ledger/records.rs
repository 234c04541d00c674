//! Records of a large cluster in which every pod has renewed its certificate once.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use windlass_ledger::{
    AuthorityId, IssuanceRecord, KeyHash, LedgerChain, LedgerEntry, ObjectUid, PodReference, RequestKind,
    RequestReference, SegmentBuilder, SegmentHeader, SerialNumber,
};

/// Segments of one chain, and what they contain.
pub struct SeededLedger {
    pub segments: Vec<SegmentBuilder>,
    /// Certificates that are neither expired nor superseded.
    pub outstanding: usize,
}

const DAY: i64 = 24 * 60 * 60;
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Records this many certificates of half as many pods, each confirmed, evenly within the last 23 hours.
pub fn seed(count: usize, now: i64) -> SeededLedger {
    let mut random = StdRng::seed_from_u64(18);
    let pods: Vec<IssuanceRecord> = (0..count / 2).map(|number| pod(&mut random, number)).collect();
    let mut segments = vec![SegmentBuilder::new(SegmentHeader::first(LedgerChain::Short))];
    let total = i64::try_from(2 * pods.len()).unwrap_or(i64::MAX).max(1);
    for (number, pod) in (0..).zip(pods.iter().chain(&pods)) {
        let recorded = now - 23 * 60 * 60 + 23 * 60 * 60 * number / total;
        let record = issue(&mut random, pod, recorded);
        append(&mut segments, LedgerEntry::Issuance(Box::new(record)));
    }
    SeededLedger { segments, outstanding: pods.len() }
}

/// Appends a record and its confirmation.
fn append(segments: &mut Vec<SegmentBuilder>, mut entry: LedgerEntry) {
    loop {
        let Some(newest) = segments.last_mut() else { return };
        if let Ok(position) = newest.append(&mut entry) {
            let mut issued = LedgerEntry::Issued(position);
            if newest.append(&mut issued).is_err() {
                let mut next = newest.successor();
                let _ = next.append(&mut issued);
                segments.push(next);
            }
            return;
        }
        let next = newest.successor();
        segments.push(next);
    }
}

fn word(random: &mut StdRng, length: usize) -> String {
    let letter = |_| LETTERS.get(random.random_range(0..LETTERS.len())).copied().unwrap_or(b'x');
    (0..length).map(letter).map(char::from).collect()
}

/// A pod of one of 2,000 deployments on one of 5,000 nodes, before its first certificate.
fn pod(random: &mut StdRng, number: usize) -> IssuanceRecord {
    let (app, node) = (number % 2_000, random.random_range(0..5_000));
    let namespace = format!("team-{}", app % 200);
    let account = format!("backend-service-{app}");
    let node = format!("ip-10-{}-{}-{}.eu-central-1.compute.internal", node % 16, node / 256, node % 256);
    let name = format!("{account}-{}-{}", word(random, 10), word(random, 5));
    IssuanceRecord {
        signer: "example.com/workloads".to_owned(),
        authority: AuthorityId::from_bytes(&[7; 20]).unwrap_or_else(|_| unreachable!("20 bytes fit")),
        serial: serial(random),
        not_before: 0,
        not_after: 0,
        subject: String::new(),
        dns_names: vec![
            format!("{account}.{namespace}.svc.cluster.local"),
            format!("{account}.{namespace}.svc"),
        ],
        ip_addresses: Vec::new(),
        email_addresses: Vec::new(),
        uris: vec![format!("spiffe://cluster.example.com/ns/{namespace}/sa/{account}")],
        omitted_names: 0,
        usages: ["digital signature", "client auth", "server auth"].map(str::to_owned).to_vec(),
        key_hash: KeyHash([0; 32]),
        requester: format!("system:node:{node}"),
        approver: None,
        request: RequestReference {
            kind: RequestKind::PodCertificateRequest,
            namespace,
            name: String::new(),
            uid: ObjectUid::Uuid(random.random()),
        },
        node: Some(node),
        pod: Some(PodReference { name, uid: ObjectUid::Uuid(random.random()), service_account: account }),
        recorded: 0,
    }
}

/// The next certificate of a pod, for a day.
fn issue(random: &mut StdRng, pod: &IssuanceRecord, recorded: i64) -> IssuanceRecord {
    let mut record = pod.clone();
    record.serial = serial(random);
    record.key_hash = KeyHash(random.random());
    record.request.name = format!("req-{}", word(random, 20));
    record.request.uid = ObjectUid::Uuid(random.random());
    (record.recorded, record.not_before) = (recorded, recorded - 300);
    record.not_after = recorded - 300 + DAY;
    record
}

fn serial(random: &mut StdRng) -> SerialNumber {
    let mut bytes: [u8; 16] = random.random();
    // Positive and without a leading zero.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_bytes(&bytes).unwrap_or_else(|_| unreachable!("16 bytes fit"))
}

#[cfg(test)]
mod tests {
    use windlass_ledger::{CertificateIndex, StoredSegment, decode_entries, verify_chain};

    use super::*;

    #[test]
    fn half_of_the_records_are_outstanding_and_the_chain_verifies() {
        let now = 1_800_000_000;
        let seeded = seed(2_000, now);
        assert!(seeded.segments.len() > 5, "{}", seeded.segments.len());
        let mut index = CertificateIndex::new();
        let stored: Vec<StoredSegment> = seeded
            .segments
            .iter()
            .map(|segment| {
                let entries = decode_entries(segment.header(), segment.data()).unwrap();
                index.add_segment(segment.header(), &entries);
                StoredSegment {
                    header: *segment.header(),
                    data: segment.data().to_vec(),
                    entry_count: segment.entry_count().into(),
                    latest_expiry: segment.latest_expiry().unwrap(),
                }
            })
            .collect();
        assert!(verify_chain(LedgerChain::Short, &stored).is_intact());
        let outstanding = index.certificates().filter(|each| each.is_outstanding(now)).count();
        assert_eq!((index.len(), outstanding), (2_000, seeded.outstanding));
    }
}
