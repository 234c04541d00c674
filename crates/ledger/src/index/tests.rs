use std::time::{Duration, Instant};

use super::*;
use crate::identity::ObjectUid;
use crate::record::IssuanceRecord;
use crate::samples::{RecordSource, START};
use crate::segment::{SegmentBuilder, decode_entries};

const DAY: i64 = 86_400;

/// A chain in memory that feeds an index.
struct TestChain {
    segment: SegmentBuilder,
    segments: Vec<(SegmentHeader, Vec<LedgerEntry>)>,
    /// Encoded segments before the newest.
    full: Vec<SegmentBuilder>,
}

impl TestChain {
    fn new(chain: LedgerChain) -> TestChain {
        let segment = SegmentBuilder::new(SegmentHeader::first(chain));
        TestChain { segments: vec![(*segment.header(), Vec::new())], segment, full: Vec::new() }
    }

    fn append(&mut self, entry: LedgerEntry) -> EntryPosition {
        let mut entry = entry;
        let position = self.segment.append(&mut entry).unwrap_or_else(|_| {
            let next = self.segment.successor();
            self.full.push(std::mem::replace(&mut self.segment, next));
            self.segments.push((*self.segment.header(), Vec::new()));
            self.segment.append(&mut entry).unwrap()
        });
        self.segments.last_mut().unwrap().1.push(entry);
        position
    }

    fn issue(&mut self, record: &IssuanceRecord) {
        let position = self.append(LedgerEntry::Issuance(Box::new(record.clone())));
        self.append(LedgerEntry::Issued(position));
    }

    fn fill(&self, index: &mut CertificateIndex) {
        for (header, entries) in &self.segments {
            index.add_segment(header, entries);
        }
    }

    /// Decodes the segments as a command does that reads all of them.
    fn summaries(&self) -> Vec<SegmentSummary> {
        let segments = self.full.iter().chain([&self.segment]);
        segments.map(|segment| SegmentSummary::decode(segment.header(), segment.data()).unwrap()).collect()
    }

    fn index(&self) -> CertificateIndex {
        let mut index = CertificateIndex::new();
        self.fill(&mut index);
        index
    }
}

fn revocation(record: &IssuanceRecord, reason: RevocationReason, time: i64) -> LedgerEntry {
    LedgerEntry::Revoked(Box::new(RevocationRecord {
        authority: record.authority.clone(),
        serial: record.serial,
        reason,
        requester: "admin".into(),
        time,
        not_after: record.not_after,
    }))
}

fn serials(index: &CertificateIndex, filter: &CertificateFilter, now: i64) -> Vec<SerialNumber> {
    index.select(filter, now).map(|certificate| certificate.serial()).collect()
}

#[test]
fn the_state_follows_from_the_entries() {
    let mut source = RecordSource::new();
    let mut chain = TestChain::new(LedgerChain::Short);
    let records: Vec<IssuanceRecord> = (0..6).map(|_| source.pod()).collect();
    let positions: Vec<EntryPosition> =
        records.iter().map(|record| chain.append(LedgerEntry::Issuance(Box::new(record.clone())))).collect();
    chain.append(LedgerEntry::Issued(positions[1]));
    chain.append(LedgerEntry::Abandoned(positions[2]));
    chain.append(LedgerEntry::Issued(positions[3]));
    chain.append(revocation(&records[3], RevocationReason::KeyCompromise, START));
    chain.append(revocation(&records[4], RevocationReason::CertificateHold, START));
    chain.append(revocation(&records[5], RevocationReason::CertificateHold, START));
    chain.append(revocation(&records[5], RevocationReason::RemoveFromCrl, START + 1));
    let index = chain.index();
    let state = |n: usize| index.find(&records[n].authority, records[n].serial).unwrap().state().name();
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(state),
        ["Recorded", "Issued", "Abandoned", "Revoked", "Revoked", "Recorded"]
    );
    let revoked = index.find(&records[3].authority, records[3].serial).unwrap().revocation();
    let (reason, not_after) = (RevocationReason::KeyCompromise, records[3].not_after);
    assert_eq!(revoked, Some(RevocationInfo { reason, time: START, not_after }));
    let outstanding = CertificateFilter { outstanding: true, ..CertificateFilter::default() };
    let expected = [0, 1, 5].map(|n| records[n].serial);
    assert_eq!(serials(&index, &outstanding, START), expected);
    assert!(serials(&index, &outstanding, START + 2 * DAY).is_empty(), "all have expired");
    let other = AuthorityId::from_bytes(&[8; 20]).unwrap();
    assert!(index.find(&other, records[0].serial).is_none());
}

#[test]
fn revocations_are_known_for_a_week_after_expiry_even_without_a_record() {
    let mut source = RecordSource::new();
    let mut chain = TestChain::new(LedgerChain::Short);
    let (held, unrecorded) = (source.pod(), source.pod());
    chain.append(LedgerEntry::Issuance(Box::new(held.clone())));
    chain.append(revocation(&held, RevocationReason::CertificateHold, START));
    chain.append(revocation(&held, RevocationReason::RemoveFromCrl, START + 1));
    chain.append(revocation(&unrecorded, RevocationReason::KeyCompromise, START));
    let mut index = chain.index();
    for (now, known) in [(START, 2), (START + 5 * DAY, 2), (START + 10 * DAY, 0)] {
        index.remove_expired(now);
        assert_eq!(index.revocations().count(), known, "{now}");
        let reason = |record: &IssuanceRecord| {
            index.revocation(&record.authority, record.serial).map(|found| found.reason)
        };
        let expected = (known > 0).then_some(RevocationReason::KeyCompromise);
        assert_eq!(reason(&unrecorded), expected);
        let expected = (known > 0).then_some(RevocationReason::RemoveFromCrl);
        assert_eq!(reason(&held), expected);
    }
}

#[test]
fn a_newer_key_of_the_same_holder_supersedes() {
    let mut source = RecordSource::new();
    let mut chain = TestChain::new(LedgerChain::Short);
    let first = source.pod();
    let mut same_key = source.renewal(&first);
    (same_key.key_hash, same_key.recorded) = (first.key_hash, START + 10);
    let mut second = source.renewal(&first);
    second.recorded = START + 20;
    let mut other_signer = source.renewal(&first);
    (other_signer.signer, other_signer.recorded) = ("example.com/other".into(), START + 30);
    let mut unconfirmed = source.renewal(&first);
    unconfirmed.recorded = START + 40;
    let other_pod = source.pod();
    let superseded_by = |chain: &TestChain, record: &IssuanceRecord| {
        let index = chain.index();
        let found = index.find(&record.authority, record.serial).unwrap();
        found.superseded_by().map(|newer| newer.serial())
    };
    chain.issue(&first);
    chain.issue(&same_key);
    assert_eq!(superseded_by(&chain, &first), None, "the key is the same");
    chain.issue(&second);
    chain.issue(&other_signer);
    chain.issue(&other_pod);
    let position = chain.append(LedgerEntry::Issuance(Box::new(unconfirmed.clone())));
    assert_eq!(superseded_by(&chain, &first), Some(second.serial));
    assert_eq!(superseded_by(&chain, &same_key), Some(second.serial));
    for record in [&second, &other_signer, &other_pod, &unconfirmed] {
        assert_eq!(superseded_by(&chain, record), None);
    }
    chain.append(LedgerEntry::Issued(position));
    assert_eq!(superseded_by(&chain, &second), Some(unconfirmed.serial));
    let mut back = source.renewal(&first);
    (back.key_hash, back.recorded) = (unconfirmed.key_hash, START + 50);
    chain.issue(&back);
    assert_eq!(superseded_by(&chain, &second), Some(back.serial));
    assert_eq!(superseded_by(&chain, &unconfirmed), None, "the newest has the same key");
}

#[test]
fn services_of_a_node_do_not_supersede_each_other() {
    let mut source = RecordSource::new();
    let mut chain = TestChain::new(LedgerChain::Short);
    let own = source.node(true);
    let mut moved = source.renewal(&own);
    (moved.ip_addresses, moved.recorded) = (Vec::new(), START + 10);
    let service = |name: &str, source: &mut RecordSource, seconds: i64| {
        let mut record = source.renewal(&own);
        (record.subject, record.dns_names) = (format!("CN={name}"), vec![name.to_owned()]);
        (record.ip_addresses, record.recorded) = (Vec::new(), START + seconds);
        record
    };
    let web = service("web.n1.example.com", &mut source, 20);
    let shop = service("shop.n1.example.com", &mut source, 30);
    let renewed = service("web.n1.example.com", &mut source, 40);
    for record in [&own, &moved, &web, &shop, &renewed] {
        chain.issue(record);
    }
    let index = chain.index();
    let superseded_by = |record: &IssuanceRecord| {
        let found = index.find(&record.authority, record.serial).unwrap();
        found.superseded_by().map(|newer| newer.serial())
    };
    assert_eq!(superseded_by(&own), Some(moved.serial), "addresses of a node change");
    assert_eq!(superseded_by(&moved), None);
    assert_eq!(superseded_by(&web), Some(renewed.serial));
    assert_eq!(superseded_by(&shop), None);
}

#[test]
fn filters_select_by_all_criteria() {
    let mut source = RecordSource::new();
    let (mut short, mut long) = (TestChain::new(LedgerChain::Short), TestChain::new(LedgerChain::Long));
    let (pod, mut other, node) = (source.pod(), source.pod(), source.node(true));
    other.node = Some("n1".into());
    short.issue(&pod);
    short.issue(&other);
    long.issue(&node);
    let mut index = short.index();
    long.fill(&mut index);
    let holder = pod.pod.clone().unwrap();
    let namespace = pod.request.namespace.clone();
    let none = CertificateFilter::default;
    let table = [
        (none(), vec![&pod, &other, &node]),
        (CertificateFilter { signer: Some(node.signer.clone()), ..none() }, vec![&node]),
        (CertificateFilter { authority: Some(pod.authority.clone()), ..none() }, vec![&pod, &other, &node]),
        (CertificateFilter { node: node.node.clone(), ..none() }, vec![&node]),
        (CertificateFilter { node: pod.node.clone(), ..none() }, vec![&pod]),
        (CertificateFilter { pod: Some((namespace.clone(), holder.name.clone())), ..none() }, vec![&pod]),
        (CertificateFilter { pod: Some(("x".into(), holder.name)), ..none() }, vec![]),
        (
            CertificateFilter { service_account: Some((namespace, holder.service_account)), ..none() },
            vec![&pod],
        ),
        (CertificateFilter { dns_name: Some(node.dns_names[0].to_uppercase()), ..none() }, vec![&node]),
        (CertificateFilter { serial: Some(other.serial), ..none() }, vec![&other]),
        (CertificateFilter { expiring_within: Some(DAY), ..none() }, vec![&pod, &other]),
        (CertificateFilter { expiring_within: Some(DAY / 2), ..none() }, vec![]),
        (CertificateFilter { serial: Some(other.serial), node: node.node.clone(), ..none() }, vec![]),
    ];
    for (filter, expected) in table {
        let expected: Vec<SerialNumber> = expected.into_iter().map(|record| record.serial).collect();
        assert_eq!(serials(&index, &filter, START), expected, "{filter:?}");
    }
    let view = index.find(&node.authority, node.serial).unwrap();
    let names: Vec<&str> = view.names().collect();
    let address = node.ip_addresses[0];
    assert_eq!(names, [format!("DNS:{}", node.dns_names[0]), format!("IP:{address}")]);
    assert_eq!(view.subject(), node.subject);
}

#[test]
fn totals_count_per_signer_and_authority() {
    let mut source = RecordSource::new();
    let mut chain = TestChain::new(LedgerChain::Short);
    let first = source.pod();
    let renewed = source.renewal(&first);
    let revoked = source.pod();
    let abandoned = source.pod();
    let mut old = source.pod();
    old.not_after = START - 1;
    [&first, &renewed, &revoked, &old].into_iter().for_each(|record| chain.issue(record));
    let position = chain.append(LedgerEntry::Issuance(Box::new(abandoned)));
    chain.append(LedgerEntry::Abandoned(position));
    chain.append(revocation(&revoked, RevocationReason::Superseded, START));
    let mut other = source.pod();
    other.authority = AuthorityId::from_bytes(&[9; 20]).unwrap();
    chain.issue(&other);
    let expected = [
        AuthorityTotals {
            signer: first.signer.clone(),
            authority: first.authority.clone(),
            issued: 4,
            unexpired: 3,
            outstanding: 1,
            revoked: 1,
            expiring: 0,
            earliest_expiry: Some(renewed.not_after),
            latest_expiry: Some(revoked.not_after),
        },
        AuthorityTotals {
            signer: other.signer.clone(),
            authority: other.authority.clone(),
            issued: 1,
            unexpired: 1,
            outstanding: 1,
            revoked: 0,
            expiring: 0,
            earliest_expiry: Some(other.not_after),
            latest_expiry: Some(other.not_after),
        },
    ];
    let mut index = chain.index();
    assert_eq!(index.totals(START), expected);
    index.remove_expired(START);
    assert_eq!(index.len(), 5, "the expired one is gone");
    assert_eq!(index.totals(START), expected);
    index.remove_expired(START + 2 * DAY);
    let issued: Vec<u64> = index.totals(START + 2 * DAY).iter().map(|totals| totals.issued).collect();
    assert_eq!((index.len(), issued), (0, vec![4, 1]));
    chain.fill(&mut index);
    assert!(index.is_empty(), "what was removed does not come back");
}

#[test]
fn certificates_of_pods_do_not_count_as_expiring() {
    let mut source = RecordSource::new();
    let (pod, node, revoked) = (source.pod(), source.node(true), source.node(true));
    let mut chain = TestChain::new(LedgerChain::Long);
    [&pod, &node, &revoked].into_iter().for_each(|record| chain.issue(record));
    chain.append(revocation(&revoked, RevocationReason::CessationOfOperation, START));
    let index = chain.index();
    let expiring = |now: i64| index.totals(now).iter().map(|totals| totals.expiring).sum::<u64>();
    let tenth = |of: &IssuanceRecord| of.not_after - (of.not_after - of.not_before) / 10;
    for (now, expected) in [
        (tenth(&pod) + 1, 0),
        (tenth(&node), 0),
        (tenth(&node) + 1, 1),
        (node.not_after, 1),
        (node.not_after + 1, 0),
    ] {
        assert_eq!(expiring(now), expected, "{now}");
    }
    let renewal = source.renewal(&node);
    chain.issue(&renewal);
    let renewed = chain.index().totals(tenth(&node) + 1);
    assert_eq!(renewed.iter().map(|totals| totals.expiring).sum::<u64>(), 0, "it is superseded");
}

#[test]
fn the_order_of_segments_does_not_matter() {
    let mut source = RecordSource::new();
    let mut chain = TestChain::new(LedgerChain::Short);
    let mut pods: Vec<IssuanceRecord> = (0..50).map(|_| source.pod()).collect();
    for _ in 0..12 {
        for pod in &mut pods {
            *pod = source.renewal(pod);
            chain.issue(pod);
        }
    }
    chain.append(revocation(&pods[3], RevocationReason::Superseded, START));
    assert!(chain.segments.len() > 2, "{}", chain.segments.len());
    let describe = |index: &CertificateIndex| {
        let mut all: Vec<_> = index
            .certificates()
            .map(|each| (each.position(), each.state().name(), each.superseded_by().map(|s| s.serial())))
            .collect();
        all.sort();
        all
    };
    let forward = chain.index();
    let mut backward = CertificateIndex::new();
    for (header, entries) in chain.segments.iter().rev() {
        backward.add_segment(header, &entries[..entries.len() / 2]);
        backward.add_segment(header, entries);
        backward.add_segment(header, entries);
    }
    assert_eq!(describe(&forward), describe(&backward));
    let outstanding = CertificateFilter { outstanding: true, ..CertificateFilter::default() };
    assert_eq!(forward.select(&outstanding, START).count(), 49);
}

#[test]
fn summaries_and_entries_give_the_same_index() {
    let mut source = RecordSource::new();
    let mut chain = TestChain::new(LedgerChain::Short);
    let mut records: Vec<IssuanceRecord> = (0..40).map(|number| source.node(number % 2 == 0)).collect();
    records.extend((0..160).map(|_| source.pod()));
    let (mut unnamed, mut nameless) = (source.pod(), source.node(true));
    unnamed.pod.as_mut().unwrap().uid = ObjectUid::Text(String::new());
    nameless.node = None;
    nameless.email_addresses = vec!["web@example.com".into()];
    records.extend([unnamed, nameless]);
    let renewals: Vec<IssuanceRecord> = records.iter().map(|record| source.renewal(record)).collect();
    let positions: Vec<EntryPosition> = records
        .iter()
        .chain(&renewals)
        .map(|record| chain.append(LedgerEntry::Issuance(Box::new(record.clone()))))
        .collect();
    // Confirmations of a segment are in later ones.
    for (number, position) in positions.iter().enumerate() {
        match number % 7 {
            0 => chain.append(LedgerEntry::Abandoned(*position)),
            _ => chain.append(LedgerEntry::Issued(*position)),
        };
    }
    chain.append(revocation(&records[3], RevocationReason::KeyCompromise, START));
    chain.append(LedgerEntry::Pruned { through: 0, hash: crate::SegmentHash::NONE });
    let describe = |index: &CertificateIndex| {
        let mut all: Vec<String> = index
            .certificates()
            .map(|each| {
                let names: Vec<&str> = each.names().collect();
                let newer = each.superseded_by().map(|newer| newer.serial());
                let times = (each.recorded(), each.not_before(), each.not_after());
                let issuer = (each.signer(), each.authority(), each.serial(), each.position());
                format!(
                    "{issuer:?} {times:?} {:?} {newer:?} {:?} {} {names:?} {:?}",
                    each.state(),
                    each.holder(),
                    each.subject(),
                    each.revocation()
                )
            })
            .collect();
        all.sort();
        all
    };
    let expected = describe(&chain.index());
    let summaries = chain.summaries();
    assert!(summaries.len() > 1 && expected.len() == 404, "{} in {}", expected.len(), summaries.len());
    let (mut forward, mut backward) = (CertificateIndex::new(), CertificateIndex::new());
    summaries.iter().for_each(|segment| forward.add_summary(segment));
    summaries.iter().rev().chain(&summaries).for_each(|segment| backward.add_summary(segment));
    assert_eq!((describe(&forward), describe(&backward)), (expected.clone(), expected));
}

#[test]
fn what_decodes_as_entries_decodes_as_a_summary() {
    let mut source = RecordSource::new();
    let mut segment = SegmentBuilder::new(SegmentHeader::first(LedgerChain::Short));
    for record in [source.pod(), source.node(true)] {
        segment.append(&mut LedgerEntry::Issuance(Box::new(record))).unwrap();
    }
    let header = *segment.header();
    for at in 0..segment.data().len() {
        for bits in [1, 0x10, 0x80] {
            let mut data = segment.data().to_vec();
            data[at] ^= bits;
            let (entries, summary) = (decode_entries(&header, &data), SegmentSummary::decode(&header, &data));
            let counts = (entries.map(|entries| entries.len()), summary.map(|summary| summary.entries.len()));
            assert_eq!(counts.0, counts.1, "byte {at}");
        }
        let cut = &segment.data()[..at];
        assert_eq!(decode_entries(&header, cut).err(), SegmentSummary::decode(&header, cut).err());
    }
}

#[test]
fn three_hundred_thousand_records_fit_and_are_fast() {
    let mut source = RecordSource::new();
    let mut template = Vec::new();
    for index in (0..600).step_by(4) {
        let first = source.pod();
        let second = source.renewal(&first);
        for (record, index) in [(first, index), (second, index + 2)] {
            template.push(LedgerEntry::Issuance(Box::new(record)));
            template.push(LedgerEntry::Issued(EntryPosition { sequence: 0, index }));
        }
    }
    let mut index = CertificateIndex::new();
    let began = Instant::now();
    for round in 0..1000u64 {
        let mut entries = template.clone();
        for entry in &mut entries {
            // Other pods with other certificates: the time is measured without drawing random numbers.
            if let LedgerEntry::Issuance(record) = entry {
                let mix = |bytes: &mut [u8]| bytes[..8].copy_from_slice(&round.to_be_bytes());
                let mut serial = record.serial.as_bytes().to_vec();
                serial[1..9].copy_from_slice(&round.to_be_bytes());
                record.serial = SerialNumber::from_bytes(&serial).unwrap();
                let pod = record.pod.as_mut().unwrap();
                pod.name = format!("{}{round:03}", &pod.name[..pod.name.len() - 3]);
                if let ObjectUid::Uuid(uid) = &mut pod.uid {
                    mix(uid);
                }
            }
        }
        let header = SegmentHeader { sequence: round + 1, ..SegmentHeader::first(LedgerChain::Short) };
        for entry in &mut entries {
            if let LedgerEntry::Issued(position) = entry {
                position.sequence = round + 1;
            }
        }
        index.add_segment(&header, &entries);
    }
    let (built, began) = (began.elapsed(), Instant::now());
    index.shrink_to_fit();
    let per_record = index.memory_size() / index.len();
    let outstanding = CertificateFilter { outstanding: true, ..CertificateFilter::default() };
    let count = index.select(&outstanding, START).count();
    let selected = began.elapsed();
    assert!(index.len() == 300_000 && count * 2 == index.len(), "{count} of {}", index.len());
    assert!(per_record <= 200, "{per_record} bytes per record");
    // Without optimization on a busy machine; optimized code needs a tenth of it.
    let limit = Duration::from_secs(30);
    assert!(built < limit && selected < limit, "built in {built:?}, selected in {selected:?}");
}
