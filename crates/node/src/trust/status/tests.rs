use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use windlass_api::selector::labels::LabelSelector;

use super::*;
use crate::testing::START;
use crate::volume::id::{VolumeId, VolumeOwner};
use crate::volume_manager::report::{AnchorsReport, DeliveredAnchors, DeliveredBundle};

pub fn pod(name: &str) -> VolumeId {
    let uid = format!("uid-of-{name}");
    let owner = VolumeOwner::Pod { namespace: "default".into(), name: name.into(), uid };
    VolumeId { owner, name: "trust".into() }
}

pub fn named(bundle: &str, version: u8) -> AnchorsReport {
    AnchorsReport {
        select: BundleSelector::Name(bundle.into()),
        optional: false,
        path: "ca.crt".into(),
        carried: Some(carried(bundle, version)),
    }
}

fn carried(bundle: &str, version: u8) -> DeliveredAnchors {
    let digest = [version; 32];
    let one = DeliveredBundle { name: bundle.into(), generation: version.into(), digest };
    DeliveredAnchors { digest, bundles: vec![one] }
}

fn signed(labels: &Value) -> AnchorsReport {
    let select = BundleSelector::Signer("a.b/c".into(), LabelSelector::from_object(labels).unwrap());
    AnchorsReport { select, ..named("a.b:c:d", 2) }
}

pub fn volume(anchors: Vec<AnchorsReport>, blocked: Option<&str>) -> Arc<VolumeReport> {
    Arc::new(VolumeReport {
        directory: PathBuf::from("/x"),
        sources: vec!["ClusterTrustBundle"; anchors.len()],
        ready: true,
        blocked: blocked.map(str::to_owned),
        changed: None,
        anchors,
        certificates: Vec::new(),
    })
}

fn reports<const N: usize>(volumes: [(VolumeId, Arc<VolumeReport>); N]) -> VolumeReports {
    Arc::new(volumes.into())
}

fn written(reports: &VolumeReports) -> Value {
    serde_json::to_value(status_of(reports, &PreviousReport::default(), &ReadStates::default())).unwrap()
}

fn sha(digit: &str) -> String {
    format!("sha256:{}", digit.repeat(32))
}

#[test]
fn volumes_with_the_same_are_one_source() {
    let host = VolumeId { owner: VolumeOwner::Host, name: "web".into() };
    let unknown = AnchorsReport { carried: None, optional: true, ..named("b", 1) };
    let found = written(&reports([
        (pod("p2"), volume(vec![named("a", 1), unknown], None)),
        (pod("p1"), volume(vec![named("a", 1)], None)),
        (host, volume(vec![named("a", 1)], Some("no disk"))),
        (pod("p3"), volume(Vec::new(), Some("nobody asks for anchors here"))),
        (pod("p4"), volume(vec![named("a", 3)], None)),
    ]));
    let a1 = json!([{"name": "a", "generation": 1, "digest": sha("01")}]);
    let a3 = json!([{"name": "a", "generation": 3, "digest": sha("03")}]);
    let expected = json!({"volumes": 4, "blocked": 1, "bundles": 1, "sources": [
        {"name": "a", "digest": sha("01"), "bundles": a1,
         "volumes": ["default/p1/trust", "default/p2/trust"],
         "notReadVolumes": ["default/p1/trust", "default/p2/trust"]},
        {"name": "a", "digest": sha("01"), "bundles": a1, "volumes": ["host/web"],
         "message": "no disk", "notReadVolumes": ["host/web"]},
        {"name": "a", "digest": sha("03"), "bundles": a3, "volumes": ["default/p4/trust"],
         "notReadVolumes": ["default/p4/trust"]},
        {"name": "b", "optional": true, "volumes": ["default/p2/trust"]},
    ]});
    assert_eq!(found, expected);
    assert_eq!(written(&VolumeReports::default()), json!({"volumes": 0, "blocked": 0, "bundles": 0}));
}

#[test]
fn selectors_are_as_they_were_written() {
    for (labels, shown) in [
        (json!(null), None),
        (json!({}), Some(json!({}))),
        (json!({"matchLabels": {"a": "b"}}), Some(json!({"matchLabels": {"a": "b"}}))),
    ] {
        let found = written(&reports([(pod("p"), volume(vec![signed(&labels)], None))]));
        let source = &found["sources"][0];
        assert_eq!(source["signerName"], "a.b/c");
        assert_eq!(source.get("name"), None);
        assert_eq!(source.get("labelSelector").cloned(), shown);
        let read: NodeTrustSource = serde_json::from_value(source.clone()).unwrap();
        assert_eq!(parse_selector(&read), Some(signed(&labels).select));
    }
}

#[test]
fn unknown_volumes_keep_previous_report() {
    let labels = json!({"matchExpressions": [{"key": "k", "operator": "In", "values": ["b", "a"]}]});
    let known = reports([
        (pod("p1"), volume(vec![named("a", 1), signed(&labels)], None)),
        (pod("gone"), volume(vec![named("a", 1)], None)),
    ]);
    let before = status_of(&known, &PreviousReport::default(), &ReadStates::default());
    let earlier = PreviousReport::new(&before);
    let blank = |report: AnchorsReport| AnchorsReport { carried: None, ..report };
    let blanks = || vec![blank(named("a", 1)), blank(signed(&labels))];

    let after = status_of(&reports([(pod("p1"), volume(blanks(), None))]), &earlier, &ReadStates::default());
    assert_eq!(after.sources.len(), 2);
    let digests = |status: &NodeTrustStatus| {
        status.sources.iter().map(|source| source.digest.clone()).collect::<Vec<_>>()
    };
    assert_eq!(digests(&after), [sha("02"), sha("01")]);
    let all_of_it = reports([
        (pod("p1"), volume(blanks(), None)),
        (pod("gone"), volume(vec![blank(named("a", 1))], None)),
    ]);
    assert_eq!(status_of(&all_of_it, &earlier, &ReadStates::default()), before, "a restart changes nothing");

    let empty = VolumeReport { ready: false, ..(*volume(blanks(), None)).clone() };
    let new = status_of(&reports([(pod("p1"), Arc::new(empty))]), &earlier, &ReadStates::default());
    assert_eq!(digests(&new), ["", ""], "another pod of the same name");
    let newer = status_of(
        &reports([(pod("p1"), volume(vec![named("a", 3)], None))]),
        &earlier,
        &ReadStates::default(),
    );
    assert_eq!(digests(&newer), [sha("03")]);
    let other = AnchorsReport { optional: true, ..blank(named("a", 1)) };
    let other =
        status_of(&reports([(pod("p1"), volume(vec![other], None))]), &earlier, &ReadStates::default());
    assert_eq!(digests(&other), [""], "another source");
}

#[test]
fn the_report_size_is_bounded() {
    let same = (0..300).map(|i| (pod(&format!("p{i:03}")), volume(vec![named("a", 1)], None)));
    let status = status_of(&Arc::new(same.collect()), &PreviousReport::default(), &ReadStates::default());
    assert_eq!(status.sources.len(), 1);
    assert_eq!((status.sources[0].volumes.len(), status.sources[0].more_volumes), (256, 44));

    let message = "ü".repeat(2000);
    let mut every = BTreeMap::new();
    for i in 0..2000 {
        let mut anchors = named(&format!("bundle-{i:04}"), 1);
        if let Some(carried) = &mut anchors.carried {
            let one = carried.bundles[0].clone();
            carried.bundles = vec![one; 20];
        }
        every.insert(pod(&format!("p{i:04}")), volume(vec![anchors], Some(&message)));
    }
    let status = status_of(&Arc::new(every), &PreviousReport::default(), &ReadStates::default());
    assert_eq!((status.volumes, status.blocked, status.bundles), (2000, 2000, 2000));
    assert_eq!(status.sources[0].message.len(), 1024);
    assert!(status.more_sources > 0);
    assert_eq!(status.sources.len() + status.more_sources as usize, 2000);
    let size = serde_json::to_string(&status).unwrap().len();
    assert!((900_000..1_200_000).contains(&size), "{size}");
    let mut refused = windlass_api::field::FieldErrors::new();
    let validate = windlass_server::NODETRUSTS_KIND.validate_create;
    validate(&json!({"status": status}), &mut refused);
    assert!(refused.is_empty(), "{:?}", refused.iter().next());
}

#[test]
fn reads_are_counted_for_each_source() {
    let at = |minute: i64| START + time::Duration::minutes(minute);
    let host = VolumeId { owner: VolumeOwner::Host, name: "web".into() };
    let second = AnchorsReport { path: "other.crt".into(), ..named("a", 1) };
    let unwritten = AnchorsReport { carried: None, ..named("b", 1) };
    let all = reports([
        (pod("late"), volume(vec![named("a", 1)], None)),
        (pod("early"), volume(vec![named("a", 1)], None)),
        (pod("read"), volume(vec![named("a", 1)], None)),
        // Only one of two files was read.
        (pod("half"), volume(vec![named("a", 1), second], None)),
        (pod("unknown"), volume(vec![named("a", 1)], None)),
        (host.clone(), volume(vec![named("a", 1), unwritten], None)),
        (pod("new"), volume(vec![named("a", 2)], None)),
    ]);
    let unread =
        |minute| AnchorReads { changed: at(minute), state: ReadState::NotRead { since: at(minute) } };
    let known = [
        ((pod("late"), "ca.crt"), unread(7)),
        ((pod("early"), "ca.crt"), unread(3)),
        ((pod("read"), "ca.crt"), AnchorReads { changed: at(9), state: ReadState::Read }),
        ((pod("half"), "ca.crt"), AnchorReads { changed: at(9), state: ReadState::Read }),
        ((pod("half"), "other.crt"), unread(8)),
        ((host, "ca.crt"), AnchorReads { changed: at(1), state: ReadState::NotObservable }),
        ((pod("new"), "ca.crt"), AnchorReads { changed: at(10), state: ReadState::Read }),
    ];
    let known = known.into_iter().map(|((id, path), reads)| ((id, path.to_owned()), reads));
    let status = status_of(&all, &PreviousReport::default(), &Arc::new(known.collect()));
    let [first, new, none] = &status.sources[..] else { panic!("{status:#?}") };
    assert_eq!((first.read_volumes, first.not_observable_volumes), (1, 1));
    let names = ["early", "half", "late", "unknown"].map(|name| format!("default/{name}/trust"));
    assert_eq!(first.not_read_volumes, names);
    assert_eq!(first.not_read_since.as_deref(), Some("2026-03-01T12:03:00Z"));
    assert_eq!(first.last_update_time.as_deref(), Some("2026-03-01T12:09:00Z"));
    assert_eq!((new.read_volumes, new.not_read_volumes.len(), &new.not_read_since), (1, 0, &None));
    assert_eq!(new.last_update_time.as_deref(), Some("2026-03-01T12:10:00Z"));
    let nothing =
        NodeTrustSource { name: "b".into(), volumes: none.volumes.clone(), ..NodeTrustSource::default() };
    assert_eq!(*none, nothing, "there is nothing to read");
}
