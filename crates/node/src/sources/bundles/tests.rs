use std::time::Duration;

use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use time::macros::datetime;
use windlass_pki::PrivateKey;

use super::*;
use crate::testing::{CertificateFixture, START};
use crate::volume::trust_anchors::BundleSelector;

fn time_at(seconds: u64) -> ClockReading {
    let since = Duration::from_secs(seconds);
    ClockReading { wall: START + since, since }
}

fn object(name: &str, version: u64, label: &str, text: &str) -> DynamicObject {
    let value: Value = json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": {
            "name": name, "resourceVersion": version.to_string(), "generation": 1,
            "labels": {"l": label}, "managedFields": [
                {"manager": "a", "time": "2026-02-01T00:00:00Z"},
                {"manager": "b", "time": "2026-02-03T00:00:00Z"},
                {"manager": "c"}, {"manager": "d", "time": "2026-02-02T00:00:00Z"},
            ],
        },
        "spec": {"signerName": "s/x", "trustBundle": text},
    });
    serde_json::from_value(value).unwrap()
}

fn certificate() -> String {
    CertificateFixture::client(START).pem(PrivateKey::generate().unwrap().public_key())
}

/// Formats names, labels and numbers of certificates, and the arrival times of changes.
fn shown(known: &BundleCache) -> String {
    let view = known.view();
    let bundles = match &view.bundles {
        OptionalApi::Off => "off".to_owned(),
        OptionalApi::Missing => "missing".to_owned(),
        OptionalApi::Unsynced => "unsynced".to_owned(),
        OptionalApi::Synced(bundles) => {
            let all = BundleSelector::Signer("s/x".into(), selector());
            let shown = bundles
                .select(&all)
                .into_iter()
                .map(|bundle| format!("{}{}:{}", bundle.name, bundle.labels["l"], bundle.anchors.len()));
            shown.collect::<Vec<_>>().join(" ")
        }
    };
    let arrivals = view.arrivals.iter().map(|(name, arrival)| {
        assert_eq!(arrival.written, Some(datetime!(2026-02-03 0:00 UTC)));
        format!(" {name}@{}", arrival.received.since.as_secs())
    });
    bundles + &arrivals.collect::<String>()
}

fn selector() -> windlass_api::selector::labels::LabelSelector {
    windlass_api::selector::labels::LabelSelector::from_object(&json!({})).unwrap()
}

#[test]
fn events_come_to_a_view() {
    use Event::{Apply, Delete, Init, InitApply, InitDone};
    let (one, two) = (certificate(), certificate() + &certificate());
    let table = [
        (Init, false, "unsynced"),
        (InitApply(object("a", 1, "1", &one)), false, "unsynced"),
        (InitApply(object("b", 2, "1", &one)), false, "unsynced"),
        (InitDone, true, "a1:1 b1:1"),
        (Apply(object("a", 3, "1", &two)), true, "a1:2 b1:1 a@5"),
        // The same object again, and one with an irrelevant change.
        (Apply(object("a", 3, "1", &two)), false, "a1:2 b1:1 a@5"),
        (Apply(object("a", 4, "1", &two)), false, "a1:2 b1:1 a@5"),
        // A changed label is a change.
        (Apply(object("a", 5, "2", &two)), true, "a2:2 b1:1 a@8"),
        // A list that differs only in `b`, and adds `c`.
        (Init, false, "a2:2 b1:1 a@8"),
        (InitApply(object("a", 5, "2", &two)), false, "a2:2 b1:1 a@8"),
        (InitApply(object("b", 6, "1", &two)), false, "a2:2 b1:1 a@8"),
        (InitApply(object("c", 7, "1", &one)), false, "a2:2 b1:1 a@8"),
        (InitDone, true, "a2:2 b1:2 c1:1 a@8 b@13 c@13"),
        (Delete(object("a", 8, "2", &two)), true, "b1:2 c1:1 b@13 c@13"),
        (Delete(object("a", 8, "2", &two)), false, "b1:2 c1:1 b@13 c@13"),
        // An interrupted list, one without `b`, and one without changes.
        (Init, false, "b1:2 c1:1 b@13 c@13"),
        (Init, false, "b1:2 c1:1 b@13 c@13"),
        (InitApply(object("c", 7, "1", &one)), false, "b1:2 c1:1 b@13 c@13"),
        (InitDone, true, "c1:1 c@13"),
        (Init, false, "c1:1 c@13"),
        (InitApply(object("c", 7, "1", &one)), false, "c1:1 c@13"),
        (InitDone, false, "c1:1 c@13"),
    ];
    let mut known = BundleCache::default();
    for (row, (event, changed, expected)) in table.into_iter().enumerate() {
        assert_eq!(known.apply(event, time_at(row as u64 + 1)), changed, "row {row}");
        assert_eq!(shown(&known), expected, "row {row}");
    }
    known.mark_missing();
    assert_eq!(shown(&known), "missing");
    assert!(!known.apply(Init, time_at(99)));
    assert!(known.apply(InitDone, time_at(99)), "there are none, but that is known");
    assert_eq!(shown(&known), "");
}

#[test]
fn unchanged_bundle_is_not_reparsed() {
    let text = certificate();
    let mut known = BundleCache::default();
    let anchors = |known: &BundleCache| match &known.view().bundles {
        OptionalApi::Synced(bundles) => {
            let bundle = bundles.get("a").unwrap();
            (bundle.anchors.der().next().unwrap().as_ptr(), bundle.labels["l"].clone())
        }
        other => panic!("{other:?}"),
    };
    known.apply(Event::Init, time_at(0));
    known.apply(Event::InitApply(object("a", 1, "1", &text)), time_at(0));
    known.apply(Event::InitDone, time_at(0));
    let (first, _) = anchors(&known);
    for (version, label) in [(1, "1"), (2, "1"), (3, "2")] {
        known.apply(Event::Apply(object("a", version, label, &text)), time_at(1));
        assert_eq!(anchors(&known), (first, label.to_owned()));
    }
    // Another text with the same anchors is no change either.
    assert!(!known.apply(Event::Apply(object("a", 4, "2", &(text.clone() + "x"))), time_at(1)));
    assert_eq!(anchors(&known).0, first);
    assert!(known.apply(Event::Apply(object("a", 5, "2", &certificate())), time_at(1)));
    assert_ne!(anchors(&known).0, first);
}

#[test]
fn tainted_authorities_are_read_from_the_annotation() {
    let mut cache = BundleCache::default();
    let text = certificate();
    let annotated = |version: u64, annotation: Option<&str>| {
        let mut object = object("a", version, "1", &text);
        let annotation =
            annotation.map(|text| ("windlass.dev/tainted-authorities".to_owned(), text.to_owned()));
        object.metadata.annotations = Some(annotation.into_iter().collect());
        object
    };
    for event in [Event::Init, Event::InitApply(annotated(1, None)), Event::InitDone] {
        cache.apply(event, time_at(0));
    }
    let taint = r#"{"0a": {"since": "2026-03-01T12:00:00Z", "window": "10m"}}"#;
    // The annotation alone is a change of the bundle, and an invalid one is none.
    for (version, annotation, is_changed, count) in
        [(2, Some(taint), true, 1), (3, Some(taint), false, 1), (4, Some("no"), true, 0), (5, None, false, 0)]
    {
        let event = Event::Apply(annotated(version, annotation));
        assert_eq!(cache.apply(event, time_at(version)), is_changed, "{annotation:?}");
        assert_eq!(cache.view().taints("s/x").len(), count, "{annotation:?}");
        assert!(cache.view().taints("other/x").is_empty());
        let OptionalApi::Synced(bundles) = &cache.view().bundles else { panic!() };
        assert_eq!(bundles.get("a").unwrap().anchors.len(), 1, "{annotation:?}");
    }
}
