use super::*;

const NOW: OffsetDateTime = time::macros::datetime!(2026-11-15 12:00 UTC);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn anchor(name: &str) -> TrustAnchor {
    TrustAnchor { der: name.as_bytes().to_vec() }
}

fn policy(now: OffsetDateTime) -> AnchorPolicy {
    let (timeout, signing) = (5 * MINUTE, None);
    AnchorPolicy { now, overlap: HOUR, timeout, max_duration: DAY, signing, delivered: false }
}

/// Returns our bundle as it is after these contents were written.
fn existing_bundle(contents: &BundleContents) -> ExistingBundle {
    ExistingBundle {
        ours: true,
        labelled: true,
        text: contents.to_pem(),
        current: Some(contents.current_fingerprint()),
        records: Some(contents.records.clone()),
        retired: None,
    }
}

/// Returns a bundle as written by versions without records.
fn legacy_bundle(names: &[&str], retired: Option<OffsetDateTime>) -> ExistingBundle {
    ExistingBundle {
        ours: true,
        labelled: true,
        text: names.iter().map(|name| anchor(name).to_pem()).collect(),
        current: names.first().map(|name| anchor(name).fingerprint()),
        records: None,
        retired,
    }
}

fn expect_write(action: AnchorAction) -> BundleContents {
    match action {
        AnchorAction::Write { contents, .. } => contents,
        other => panic!("nothing is written: {other:?}"),
    }
}

fn names(contents: &BundleContents) -> Vec<String> {
    let name = |anchor: &TrustAnchor| String::from_utf8(anchor.der.clone()).unwrap();
    contents.anchors.iter().map(name).collect()
}

fn record<'a>(contents: &'a BundleContents, name: &str) -> &'a AnchorRecord {
    &contents.records[&anchor(name).fingerprint()]
}

/// Publishes anchor `a`, then replaces it with `b`.
fn replaced() -> BundleContents {
    let first = expect_write(decide(None, anchor("a"), &policy(NOW)));
    expect_write(decide(Some(&existing_bundle(&first)), anchor("b"), &policy(NOW)))
}

#[test]
fn the_first_anchor_is_not_awaited() {
    let first = expect_write(decide(None, anchor("a"), &policy(NOW)));
    let wanted = AnchorRecord { max_duration_seconds: DAY.as_secs(), ..AnchorRecord::default() };
    assert_eq!((names(&first), record(&first, "a")), (vec!["a".to_owned()], &wanted));
    let again = decide(Some(&existing_bundle(&first)), anchor("a"), &policy(NOW + HOUR));
    assert_eq!(again, AnchorAction::Keep { again: None });
}

#[test]
fn an_anchor_stays_until_its_last_certificate_has_expired() {
    let both = replaced();
    assert_eq!(names(&both), ["b", "a"]);
    let (hold, retain) = (NOW + 5 * MINUTE, NOW + 5 * MINUTE + DAY + HOUR);
    assert_eq!(record(&both, "b").hold_until, Some(hold));
    assert_eq!(record(&both, "a").retain_until, Some(retain));
    let both = existing_bundle(&both);
    let keep = decide(Some(&both), anchor("b"), &policy(NOW));
    assert_eq!(keep, AnchorAction::Keep { again: Some(5 * MINUTE) });
    // Only the overlap has passed; an earlier version removed the old anchor at this point.
    let late = expect_write(decide(Some(&both), anchor("b"), &policy(NOW + HOUR)));
    assert_eq!((names(&late), record(&late, "b").hold_until), (vec!["b".into(), "a".into()], None));
    let late = existing_bundle(&late);
    let last = decide(Some(&late), anchor("b"), &policy(retain - MINUTE));
    assert_eq!(last, AnchorAction::Keep { again: Some(MINUTE) });
    let gone = expect_write(decide(Some(&late), anchor("b"), &policy(retain)));
    assert_eq!(names(&gone), ["b"]);
    assert_eq!(gone.records.len(), 1);
}

#[test]
fn a_new_ca_is_held_until_nodes_have_it() {
    let both = existing_bundle(&replaced());
    let delivered = AnchorPolicy { delivered: true, ..policy(NOW) };
    let open = expect_write(decide(Some(&both), anchor("b"), &delivered));
    assert_eq!(record(&open, "b").hold_until, None);
    assert_eq!(record(&open, "a"), &both.records.as_ref().unwrap()[&anchor("a").fingerprint()]);
    // A shorter timeout applies immediately.
    let hasty = AnchorPolicy { timeout: Duration::ZERO, ..policy(NOW) };
    let open = expect_write(decide(Some(&both), anchor("b"), &hasty));
    assert_eq!(record(&open, "b").hold_until, None);
    let first = expect_write(decide(None, anchor("a"), &hasty));
    let open = expect_write(decide(Some(&existing_bundle(&first)), anchor("b"), &hasty));
    assert_eq!(record(&open, "b").hold_until, None);
}

#[test]
fn cas_that_are_replaced_again_keep_their_time() {
    let both = existing_bundle(&replaced());
    let retain = NOW + 5 * MINUTE + DAY + HOUR;
    // a, b, c: the first CA still signs, so its anchor stays as long as the second one.
    let later = NOW + 2 * MINUTE;
    let signing = Some(anchor("a").fingerprint());
    let third = decide(Some(&both), anchor("c"), &AnchorPolicy { signing, ..policy(later) });
    let third = expect_write(third);
    assert_eq!(names(&third), ["c", "b", "a"]);
    for name in ["a", "b"] {
        assert_eq!(record(&third, name).retain_until, Some(retain + 2 * MINUTE), "{name}");
    }
    // An anchor that returns before nodes received it keeps its original hold.
    let second = expect_write(decide(Some(&existing_bundle(&third)), anchor("b"), &policy(later)));
    assert_eq!(record(&second, "b").hold_until, Some(NOW + 5 * MINUTE));
    // If the first CA no longer signs, its retention time does not change.
    let third = expect_write(decide(Some(&both), anchor("c"), &policy(later)));
    assert_eq!(record(&third, "a").retain_until, Some(retain));
    // a, b, a: the anchor was published all the time, so it is not held.
    let back = expect_write(decide(Some(&both), anchor("a"), &policy(later)));
    assert_eq!(names(&back), ["a", "b"]);
    let record_a = record(&back, "a");
    assert_eq!((record_a.retain_until, record_a.hold_until), (None, None));
    assert_eq!(record(&back, "b").retain_until, Some(retain + 2 * MINUTE));
}

#[test]
fn a_lifetime_that_was_granted_counts_after_it_was_shortened() {
    let long = AnchorPolicy { max_duration: 9 * DAY, ..policy(NOW) };
    let first = existing_bundle(&expect_write(decide(None, anchor("a"), &long)));
    let keep = decide(Some(&first), anchor("a"), &policy(NOW));
    assert_eq!(keep, AnchorAction::Keep { again: None });
    let both = expect_write(decide(Some(&first), anchor("b"), &policy(NOW)));
    assert_eq!(record(&both, "a").retain_until, Some(NOW + 5 * MINUTE + 9 * DAY + HOUR));
    assert_eq!(record(&both, "b").max_duration_seconds, DAY.as_secs());
    // A longer maximum duration is recorded before it is needed.
    let grown = expect_write(decide(Some(&existing_bundle(&both)), anchor("b"), &long));
    assert_eq!(record(&grown, "b").max_duration_seconds, (9 * DAY).as_secs());
}

#[test]
fn no_anchor_stays_for_long_after_it_has_expired() {
    let validity = windlass_pki::Validity::new(NOW - DAY, NOW + 2 * HOUR).unwrap();
    let old = windlass_testkit::ca_with_validity("ca", validity);
    let old = TrustAnchor::from_certificate(old.certificate());
    let first = expect_write(decide(None, old.clone(), &policy(NOW)));
    let both = expect_write(decide(Some(&existing_bundle(&first)), anchor("b"), &policy(NOW)));
    assert_eq!(both.records[&old.fingerprint()].retain_until, Some(NOW + 3 * HOUR));
}

#[test]
fn bundles_of_earlier_versions_are_taken_over() {
    let one = expect_write(decide(Some(&legacy_bundle(&["a"], None)), anchor("a"), &policy(NOW)));
    assert_eq!((names(&one), record(&one, "a").hold_until), (vec!["a".to_owned()], None));
    // The CA was replaced together with the version.
    let two = expect_write(decide(Some(&legacy_bundle(&["a"], None)), anchor("b"), &policy(NOW)));
    assert_eq!(names(&two), ["b", "a"]);
    assert_eq!(record(&two, "a").retain_until, Some(NOW + 5 * MINUTE + DAY + HOUR));
    // The CA was replaced earlier, so the old one no longer signed.
    let since = NOW - 2 * HOUR;
    let two = expect_write(decide(Some(&legacy_bundle(&["b", "a"], Some(since))), anchor("b"), &policy(NOW)));
    assert_eq!(names(&two), ["b", "a"]);
    assert_eq!(record(&two, "a").retain_until, Some(since + DAY + HOUR));
    assert_eq!(record(&two, "b").hold_until, None, "it signs already");
    let three = decide(Some(&legacy_bundle(&["b", "a"], Some(since))), anchor("c"), &policy(NOW));
    let three = expect_write(three);
    assert_eq!(names(&three), ["c", "b", "a"]);
    assert_eq!(record(&three, "b").retain_until, Some(NOW + 5 * MINUTE + DAY + HOUR));
    // An earlier version ran in between: its contents take precedence over the records.
    let between = ExistingBundle {
        records: Some(expect_write(decide(None, anchor("a"), &policy(NOW))).records),
        ..legacy_bundle(&["b", "a"], Some(since))
    };
    assert_eq!(names(&expect_write(decide(Some(&between), anchor("c"), &policy(NOW)))), ["c", "b", "a"]);
}

#[test]
fn external_changes_are_reverted() {
    let both = replaced();
    let with = |names: &[&str]| ExistingBundle {
        text: names.iter().map(|name| anchor(name).to_pem()).collect(),
        ..existing_bundle(&both)
    };
    let right = |found: &ExistingBundle| expect_write(decide(Some(found), anchor("b"), &policy(NOW)));
    assert_eq!(names(&right(&with(&["b", "evil", "a"]))), ["b", "a"]);
    assert_eq!(names(&right(&with(&["a"]))), ["b", "a"]);
    assert_eq!(names(&right(&ExistingBundle { labelled: false, ..existing_bundle(&both) })), ["b", "a"]);
    // An anchor that an operator removed is not added again, and its record is dropped.
    let without = right(&with(&["b"]));
    assert_eq!((names(&without), without.records.len()), (vec!["b".to_owned()], 1));
    // Without annotations the anchors of other managers cannot be told apart, so all are kept.
    let bare = ExistingBundle { current: None, records: None, ..with(&["a", "x"]) };
    assert_eq!(names(&right(&bare)), ["b", "a", "x"]);
    let theirs = ExistingBundle { ours: false, ..existing_bundle(&both) };
    assert_eq!(decide(Some(&theirs), anchor("b"), &policy(NOW)), AnchorAction::LeaveAlone);
}

#[test]
fn a_full_bundle_loses_no_anchor_that_is_needed() {
    let texts: Vec<String> = (0..30).map(|i| format!("{i:02}").repeat(20_000)).collect();
    let mut last = expect_write(decide(None, anchor(&texts[0]), &policy(NOW)));
    let full = texts.iter().skip(1).find_map(|text| {
        match decide(Some(&existing_bundle(&last)), anchor(text), &policy(NOW)) {
            AnchorAction::Write { contents, .. } => last = contents,
            other => return Some(other),
        }
        None
    });
    assert!(last.anchors.len() > 10 && last.to_pem().len() <= MAX_TRUST_BUNDLE_BYTES);
    let count = last.anchors.len() + 1;
    assert_eq!(full, Some(AnchorAction::Full { anchors: count, again: Some(5 * MINUTE) }));
    // When the old anchors are removed, the new one fits.
    let later = policy(NOW + 2 * DAY);
    let room = expect_write(decide(Some(&existing_bundle(&last)), anchor("new"), &later));
    assert_eq!(room.anchors.len(), 2);
}

#[test]
fn there_are_never_too_many_anchors() {
    let first = anchor("first");
    let old = (1..MAX_ANCHORS).map(|i| (anchor(&i.to_string()), record_until(NOW + HOUR)));
    let many = build_contents((first.clone(), AnchorRecord::default()), old.collect());
    let again = decide(Some(&existing_bundle(&many)), first, &policy(NOW));
    assert!(!matches!(again, AnchorAction::Full { .. }));
    let full = decide(Some(&existing_bundle(&many)), anchor("one more"), &policy(NOW));
    assert!(matches!(full, AnchorAction::Full { anchors, .. } if anchors == MAX_ANCHORS + 1));
}

fn record_until(until: OffsetDateTime) -> AnchorRecord {
    AnchorRecord { retain_until: Some(until), ..AnchorRecord::default() }
}
