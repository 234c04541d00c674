use super::*;
use crate::samples::RecordSource;
use crate::segment::SegmentBuilder;

/// Builds a chain of five segments with a few records and confirmations each.
fn chain() -> Vec<StoredSegment> {
    let mut source = RecordSource::new();
    let mut segment = SegmentBuilder::new(SegmentHeader::first(LedgerChain::Short));
    let mut stored = Vec::new();
    for _ in 0..5 {
        for _ in 0..3 {
            let position = segment.append(&mut LedgerEntry::Issuance(Box::new(source.pod()))).unwrap();
            segment.append(&mut LedgerEntry::Issued(position)).unwrap();
        }
        stored.push(store(&segment));
        segment = segment.successor();
    }
    stored
}

fn store(segment: &SegmentBuilder) -> StoredSegment {
    StoredSegment {
        header: *segment.header(),
        data: segment.data().to_vec(),
        entry_count: u64::from(segment.entry_count()),
        latest_expiry: segment.latest_expiry().unwrap_or_default(),
    }
}

fn problems(segments: &[StoredSegment]) -> Vec<String> {
    let report = verify_chain(LedgerChain::Short, segments);
    report.problems.iter().map(ToString::to_string).collect()
}

/// Announces in the last segment that the first ones are deleted.
fn announce_pruning(segments: &mut [StoredSegment], through: u64) {
    let index = usize::try_from(through).unwrap();
    let hash = segments[index].header.previous_hash;
    let last = segments.last_mut().unwrap();
    let (mut builder, _) = SegmentBuilder::resume(last.header, &last.data).unwrap();
    builder.append(&mut LedgerEntry::Pruned { through, hash }).unwrap();
    *last = store(&builder);
}

#[test]
fn an_intact_chain_verifies_in_any_order() {
    let mut segments = chain();
    let head = segments[4].header.hash(&segments[4].data);
    segments.reverse();
    let report = verify_chain(LedgerChain::Short, &segments);
    assert!(report.is_intact(), "{:?}", report.problems);
    assert_eq!((report.first, report.last, report.entries, report.head), (1, 5, 30, head));
    let empty = verify_chain(LedgerChain::Long, &segments);
    assert!(empty.is_intact() && empty.last == 0 && empty.head == SegmentHash::NONE);
}

#[test]
fn every_deviation_is_reported() {
    type Change = fn(&mut Vec<StoredSegment>);
    let table: [(&str, Change, &[&str]); 11] = [
        ("missing", |s| drop(s.remove(2)), &["segment 3 is missing"]),
        ("two missing", |s| drop(s.drain(1..3)), &["segments 2 to 3 are missing"]),
        ("the first is missing", |s| drop(s.remove(0)), &["segment 1 is missing"]),
        (
            "modified",
            |s| {
                let other = s[0].data.clone();
                s[1].data = [&other[..], &[5, 0], &[0; 32]].concat();
                s[1].entry_count = 7;
            },
            &["segment 2 was modified: its successor has another hash"],
        ),
        (
            "swapped",
            |s| {
                let (a, b) = (s[1].header.sequence, s[2].header.sequence);
                (s[1].header.sequence, s[2].header.sequence) = (b, a);
            },
            &[
                "segment 1 was modified: its successor has another hash",
                "segment 3 follows segment 1 by its hash",
                "segment 3 was modified: its successor has another hash",
            ],
        ),
        ("twice", |s| s.push(s[1].clone()), &["segment 2 is a duplicate"]),
        (
            "copied",
            |s| {
                let mut copy = s[4].clone();
                copy.header.sequence = 6;
                copy.header.previous_hash = s[4].header.hash(&s[4].data);
                s.push(copy);
            },
            &["segment 6 is a duplicate"],
        ),
        (
            "undecodable",
            |s| s[4].data[1] = 99,
            &["segment 5 cannot be decoded: invalid kind of entry in the segment"],
        ),
        (
            "wrong count",
            |s| s[4].entry_count = 5,
            &["segment 5 is inconsistent: entryCount is not the number of entries"],
        ),
        (
            "wrong expiry",
            |s| s[4].latest_expiry -= 1,
            &["segment 5 is inconsistent: latestExpiry is before the expiry of a certificate in it"],
        ),
        (
            "dangling",
            |s| {
                s[4].data.extend_from_slice(&[2, 0, 5]);
                s[4].entry_count += 1;
            },
            &["segment 5 is inconsistent: an entry refers to a record that does not exist"],
        ),
    ];
    for (case, change, expected) in table {
        let mut segments = chain();
        change(&mut segments);
        let mut found = problems(&segments);
        found.sort();
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn a_pruned_beginning_is_no_gap() {
    let mut segments = chain();
    announce_pruning(&mut segments, 3);
    assert_eq!(problems(&segments), [""; 0], "nothing is deleted yet");
    let half = [segments[1].clone(), segments[2].clone(), segments[3].clone(), segments[4].clone()];
    assert_eq!(problems(&half), [""; 0], "half of it is deleted");
    let report = verify_chain(LedgerChain::Short, &segments[3..]);
    assert!(report.is_intact(), "{:?}", report.problems);
    assert_eq!((report.first, report.last, report.pruned_through), (4, 5, 3));
    assert_eq!(problems(&segments[4..]), ["segment 4 is missing"]);
    let mut other = segments[3..].to_vec();
    other[0].header.previous_hash = SegmentHash([9; 32]);
    let modified = |n| format!("segment {n} was modified: its successor has another hash");
    assert_eq!(problems(&other), [modified(3), modified(4)]);
}
