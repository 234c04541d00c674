use std::net::IpAddr;

use base64::Engine as _;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::identity::{AuthorityId, KeyHash, ObjectUid, SerialNumber};
use crate::limits::MAX_STRING_BYTES;
use crate::record::{
    IssuanceRecord, PodReference, RequestKind, RequestReference, RevocationReason, RevocationRecord,
};
use crate::samples::RecordSource;

/// Size of the JSON that a server stores for a segment.
fn stored_size(segment: &SegmentBuilder) -> usize {
    let fields = ["chain", "sequence", "previousHash", "entries", "entryCount", "latestExpiry"];
    let fields: Vec<String> = fields.map(|name| format!("f:{name}:{{}}")).to_vec();
    let object = json!({
        "kind": "LedgerSegment",
        "apiVersion": "windlass.dev/v1alpha1",
        "metadata": {
            "name": segment.header().name(),
            "uid": "0f8fad5b-d9cb-469f-a165-70867728950e",
            "generation": 999,
            "creationTimestamp": "2026-11-18T07:00:00Z",
            "managedFields": [{
                "manager": "windlass-controllers",
                "operation": "Update",
                "apiVersion": "windlass.dev/v1alpha1",
                "time": "2026-11-18T07:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": fields},
            }],
        },
        "spec": {
            "chain": segment.header().chain.name(),
            "sequence": segment.header().sequence,
            "previousHash": segment.header().previous_hash.to_string(),
            "entries": base64::engine::general_purpose::STANDARD.encode(segment.data()),
            "entryCount": segment.entry_count(),
            "latestExpiry": "2026-11-25T07:00:00Z",
        },
    });
    object.to_string().len()
}

/// Returns the average size at rest of 5,000 certificates with their confirmations.
fn bytes_per_certificate(mut record: impl FnMut() -> IssuanceRecord) -> usize {
    let mut segment = SegmentBuilder::new(SegmentHeader::first(LedgerChain::Short));
    let (mut size, count) = (0, 5000);
    let mut append = |mut entry: LedgerEntry| match segment.append(&mut entry) {
        Ok(position) => position,
        Err(SegmentFull) => {
            size += stored_size(&segment);
            segment = segment.successor();
            segment.append(&mut entry).unwrap()
        }
    };
    for _ in 0..count {
        let position = append(LedgerEntry::Issuance(Box::new(record())));
        append(LedgerEntry::Issued(position));
    }
    (size + stored_size(&segment)) / count
}

#[test]
fn a_certificate_takes_at_most_300_bytes_at_rest() {
    let mut source = RecordSource::new();
    let pods = bytes_per_certificate(|| source.pod());
    let mut serving = false;
    let nodes = bytes_per_certificate(|| {
        serving = !serving;
        source.node(serving)
    });
    assert!(pods <= 205 && nodes <= 215, "{pods} bytes per pod, {nodes} per node");
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{0,12}", "web-[a-z]{3}\\.default\\.svc", "\\PC{0,20}"]
}

fn uid() -> impl Strategy<Value = ObjectUid> {
    prop_oneof![any::<[u8; 16]>().prop_map(ObjectUid::Uuid), "[a-z0-9]{0,8}".prop_map(ObjectUid::Text),]
}

fn serial() -> impl Strategy<Value = SerialNumber> {
    prop::collection::vec(1u8.., 1..=20).prop_map(|bytes| SerialNumber::from_bytes(&bytes).unwrap())
}

fn authority() -> impl Strategy<Value = AuthorityId> {
    prop::collection::vec(any::<u8>(), 1..=20).prop_map(|bytes| AuthorityId::from_bytes(&bytes).unwrap())
}

fn position() -> impl Strategy<Value = EntryPosition> {
    (0u64..=3, any::<u32>()).prop_map(|(sequence, index)| EntryPosition { sequence, index })
}

prop_compose! {
    fn record()(
        signer in text(),
        (authority, serial, key) in (authority(), serial(), any::<[u8; 32]>()),
        times in any::<[i64; 3]>(),
        (subject, requester, approver) in (text(), text(), prop::option::of("[a-z]{1,9}")),
        dns_names in prop::collection::vec(text(), 0..4),
        ip_addresses in prop::collection::vec(any::<IpAddr>(), 0..3),
        email_addresses in prop::collection::vec(text(), 0..2),
        uris in prop::collection::vec(text(), 0..2),
        omitted_names in 0u32..2,
        usages in prop::collection::vec("[a-z ]{1,9}", 0..4),
        (namespace, name, request_uid) in (text(), text(), uid()),
        pods in any::<bool>(),
        node in prop::option::of("[a-z]{1,9}"),
        is_node_user in any::<bool>(),
        pod in prop::option::of((text(), uid(), text())),
    ) -> IssuanceRecord {
        let kind = match pods {
            true => RequestKind::PodCertificateRequest,
            false => RequestKind::CertificateSigningRequest,
        };
        let [recorded, not_before, not_after] = times;
        let requester = match &node {
            Some(node) if is_node_user => format!("system:node:{node}"),
            _ => requester,
        };
        let pod = pod.map(|(name, uid, service_account)| PodReference { name, uid, service_account });
        IssuanceRecord {
            signer, authority, serial, not_before, not_after, subject, dns_names, ip_addresses,
            email_addresses, uris, omitted_names, usages, key_hash: KeyHash(key), requester, approver,
            request: RequestReference { kind, namespace, name, uid: request_uid },
            node, pod, recorded,
        }
    }
}

fn entry() -> impl Strategy<Value = LedgerEntry> {
    let revoked = (authority(), serial(), 0u8..=10, text(), any::<i64>(), any::<i64>());
    let revoked = revoked.prop_map(|(authority, serial, reason, requester, time, not_after)| {
        let reason = RevocationReason::from_number(reason).unwrap_or(RevocationReason::Unspecified);
        let record = RevocationRecord { authority, serial, reason, requester, time, not_after };
        LedgerEntry::Revoked(Box::new(record))
    });
    prop_oneof![
        4 => record().prop_map(|record| LedgerEntry::Issuance(Box::new(record))),
        2 => position().prop_map(LedgerEntry::Issued),
        1 => position().prop_map(LedgerEntry::Abandoned),
        1 => revoked,
        1 => (any::<u64>(), any::<[u8; 32]>())
            .prop_map(|(through, hash)| LedgerEntry::Pruned { through, hash: SegmentHash(hash) }),
    ]
}

fn version() -> impl Strategy<Value = EncodingVersion> {
    prop_oneof![Just(EncodingVersion::Separate), Just(EncodingVersion::Profiles)]
}

fn header() -> SegmentHeader {
    SegmentHeader { chain: LedgerChain::Medium, sequence: 3, previous_hash: SegmentHash([1; 32]) }
}

proptest! {
    #[test]
    fn entries_survive_encoding_and_appends(
        entries in prop::collection::vec(entry(), 0..12),
        cut in 0usize..12,
        version in version(),
    ) {
        let mut whole = SegmentBuilder::with_version(header(), version);
        let mut resumed = SegmentBuilder::with_version(header(), version);
        let mut before = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            if at == cut {
                resumed = SegmentBuilder::resume(header(), resumed.data()).unwrap().0;
                before = whole.data().to_vec();
            }
            prop_assert_eq!(whole.append(&mut entry.clone()), resumed.append(&mut entry.clone()));
        }
        prop_assert_eq!(whole.data(), resumed.data());
        prop_assert!(whole.data().starts_with(&before));
        prop_assert_eq!(whole.hash(), resumed.hash());
        prop_assert_eq!(whole.latest_expiry(), resumed.latest_expiry());
        prop_assert_eq!(whole.data().first(), Some(&version.byte()));
        prop_assert_eq!(decode_entries(&header(), whole.data()), Ok(entries));
    }

    #[test]
    fn no_input_makes_the_decoder_panic(data in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_entries(&header(), &data);
    }

    #[test]
    fn no_change_makes_the_decoder_panic(
        entries in prop::collection::vec(entry(), 1..4),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        version in version(),
    ) {
        let mut segment = SegmentBuilder::with_version(header(), version);
        for entry in &entries {
            let _ = segment.append(&mut entry.clone());
        }
        let mut data = segment.data().to_vec();
        let at = at.index(data.len());
        data[at] = byte;
        if let Ok((mut builder, _)) = SegmentBuilder::resume(header(), &data) {
            let _ = builder.append(&mut entries[0].clone());
        }
    }
}

#[test]
fn a_record_that_is_too_large_is_shortened() {
    let mut record = RecordSource::new().pod();
    record.dns_names = (0..1024).map(|n| format!("{n}.{}", "x".repeat(240))).collect();
    record.uris = vec!["u".repeat(MAX_STRING_BYTES + 1), "short".into()];
    record.requester = "é".repeat(MAX_STRING_BYTES);
    record.request.uid = ObjectUid::Text("u".repeat(5000));
    let count = record.name_count();
    let mut segment = SegmentBuilder::new(header());
    let mut entry = LedgerEntry::Issuance(Box::new(record));
    segment.append(&mut entry).unwrap();
    let decoded = decode_entries(&header(), segment.data()).unwrap();
    assert_eq!(decoded, [entry.clone()]);
    let LedgerEntry::Issuance(record) = entry else { panic!("{entry:?}") };
    assert_eq!(record.name_count(), count);
    assert!(record.omitted_names > 900 && record.dns_names.len() > 50, "{}", record.omitted_names);
    assert_eq!(record.requester.len(), MAX_STRING_BYTES);
}

#[test]
fn a_record_without_a_node_cannot_have_its_user_as_requester() {
    let mut record = RecordSource::new().node(false);
    record.node = Some("n".into());
    record.requester = "system:node:n".into();
    let mut segment = SegmentBuilder::new(header());
    segment.append(&mut LedgerEntry::Issuance(Box::new(record))).unwrap();
    let mut data = segment.data().to_vec();
    // The record ends with its node, a new string of one byte.
    assert!(data.ends_with(&[0, 1, b'n']), "{data:?}");
    data.truncate(data.len() - 2);
    data.push(0);
    assert_eq!(decode_entries(&header(), &data), Err(DecodeError::Invalid("requester")));
}

#[test]
fn segments_of_the_first_version_are_continued_in_it() {
    let mut source = RecordSource::new();
    let mut old = SegmentBuilder::with_version(header(), EncodingVersion::Separate);
    let mut entries: Vec<LedgerEntry> =
        (0..3).map(|_| LedgerEntry::Issuance(Box::new(source.pod()))).collect();
    old.append(&mut entries[0]).unwrap();
    let (mut resumed, _) = SegmentBuilder::resume(header(), old.data()).unwrap();
    resumed.append(&mut entries[1]).unwrap();
    assert!(resumed.data().starts_with(old.data()) && resumed.data().starts_with(&[1]));
    assert_eq!(header().find_head(resumed.data(), old.hash()), Ok(Some(1)));
    assert_eq!(decode_entries(&header(), resumed.data()).as_deref(), Ok(&entries[..2]));
    let mut next = resumed.successor();
    next.append(&mut entries[2]).unwrap();
    assert!(next.data().starts_with(&[2]), "a successor has the newest version");
    assert_eq!(decode_entries(next.header(), next.data()).as_deref(), Ok(&entries[2..]));
}

#[test]
fn a_full_segment_has_a_successor() {
    let mut source = RecordSource::new();
    let mut segment = SegmentBuilder::new(SegmentHeader::first(LedgerChain::Short));
    let full = loop {
        let mut entry = LedgerEntry::Issuance(Box::new(source.pod()));
        if segment.append(&mut entry).is_err() {
            break segment.clone();
        }
        assert!(segment.data().len() <= MAX_SEGMENT_BYTES);
    };
    assert!(full.entry_count() > 150, "{}", full.entry_count());
    let next = full.successor();
    assert_eq!((next.header().sequence, next.header().previous_hash), (2, full.hash()));
    assert_eq!(next.header().name(), "short-0000000002");
    let other = SegmentHeader { chain: LedgerChain::Long, ..*full.header() };
    assert_ne!(other.hash(full.data()), full.hash(), "the place of a segment is part of its hash");
}

#[test]
fn what_is_not_a_segment_is_rejected() {
    let table: [(&[u8], DecodeError); 8] = [
        (&[], DecodeError::Truncated),
        (&[0], DecodeError::UnknownVersion(0)),
        (&[3], DecodeError::UnknownVersion(3)),
        (&[1, 1, 0x80, 1], DecodeError::Invalid("flags of a record")),
        (&[2, 1, 0, 1], DecodeError::Invalid("profile")),
        (&[1, 9], DecodeError::Invalid("kind of entry")),
        (&[1, 2, 4, 0], DecodeError::Invalid("position")),
        (&[1, 2, 0], DecodeError::Truncated),
    ];
    for (data, expected) in table {
        assert_eq!(decode_entries(&header(), data), Err(expected), "{data:?}");
    }
    let large = vec![1; MAX_SEGMENT_BYTES + 1];
    assert_eq!(decode_entries(&header(), &large), Err(DecodeError::TooLarge("entries")));
}

#[test]
fn the_seeds_of_the_fuzz_target_are_segments() {
    let issuance = include_bytes!("../../../../fuzz/seeds/ledger/issuance.bin");
    let mut entries = decode_entries(&header(), issuance).unwrap();
    assert!(matches!(&entries[..], [LedgerEntry::Issuance(_), LedgerEntry::Issued(_)]), "{entries:?}");
    let mut again = SegmentBuilder::with_version(header(), EncodingVersion::Separate);
    for entry in &mut entries {
        again.append(entry).unwrap();
    }
    assert_eq!(again.data(), issuance, "the first version is still written as it was");
    let pruned = include_bytes!("../../../../fuzz/seeds/ledger/pruned.bin");
    assert_eq!(decode_entries(&header(), pruned).unwrap().len(), 3);
    let profiles = include_bytes!("../../../../fuzz/seeds/ledger/profiles.bin");
    let entries = decode_entries(&header(), profiles).unwrap();
    assert!(profiles.starts_with(&[2]) && entries.len() == 4, "{entries:?}");
}
