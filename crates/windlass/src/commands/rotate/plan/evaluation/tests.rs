//! Plans of rotations, and their text.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde_json::{Value, json};
use windlass_api::trust_bundle::Bundle;
use windlass_ledger::{
    IssuanceRecord, KeyHash, LedgerChain, LedgerEntry, ObjectUid, RequestKind, RequestReference,
    SegmentHeader, SerialNumber,
};
use windlass_node::volume::trust_anchors::TrustBundle;

use super::super::super::rotations::tests::rotation;
use super::super::text;
use super::*;
use crate::commands::cert::ledger::LedgerContents;
use crate::commands::trust::delivery::NodeState;
use crate::commands::trust::server_watch::trust_report;

const NOW: OffsetDateTime = time::macros::datetime!(2026-03-01 12:00 UTC);
const BUNDLE: &str = "example.com:web:anchors";
const OLD: &str = "0707070707070707070707070707070707070707";

fn signer(ready: &str) -> Value {
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "Signer", "metadata": {"name": "web"},
        "spec": {"signerName": "example.com/web", "ca": {"selfSigned": {}}, "pods": {"serviceNames": true}, "publish": {}},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "reason": "SecretNotFound", "message": "no Secret",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "authorities": [{"id": OLD, "state": "Active", "subject": "CN=web", "notAfter": "2026-06-01T00:00:00Z"}],
        },
    })
}

fn trust() -> TrustState {
    let mut trust = TrustState::default();
    let labels = BTreeMap::from([("purpose".to_owned(), "web".to_owned())]);
    trust.set_bundle(TrustBundle::new(BUNDLE, 1, "example.com/web", labels, ""));
    trust.set_bundle(TrustBundle::new(
        "example.com:other:anchors",
        1,
        "example.com/other",
        BTreeMap::new(),
        "",
    ));
    for (name, ours) in [("n1", true), ("n2", true), ("k1", false)] {
        trust.nodes.insert(name.to_owned(), NodeState { ours, lost: None });
    }
    trust
}

/// A source of a report that has the current content of a bundle.
fn source(trust: &TrustState, more: Value) -> Value {
    let digest = &trust.known[BUNDLE].digest;
    let mut source = json!({"signerName": "example.com/web", "labelSelector": {}, "digest": digest,
                            "bundles": [{"name": BUNDLE, "digest": digest}]});
    source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    source
}

fn snapshot(trust: TrustState, reports: &[(&str, Value)], records: Vec<IssuanceRecord>) -> RotationSnapshot {
    let mut trust = trust;
    for (node, sources) in reports {
        let report = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeTrust", "metadata": {"name": node},
                            "status": {"volumes": 1, "blocked": 0, "bundles": 1, "sources": sources}});
        let report: DynamicObject = serde_json::from_value(report).unwrap();
        trust.reports.extend([trust_report(&report)]);
    }
    let mut index = CertificateIndex::new();
    let entries: Vec<LedgerEntry> =
        records.into_iter().map(|record| LedgerEntry::Issuance(Box::new(record))).collect();
    index.add_segment(&SegmentHeader::first(LedgerChain::Short), &entries);
    RotationSnapshot {
        signer: serde_json::from_value(signer("True")).unwrap(),
        rotations: Vec::new(),
        trust: Ok(trust),
        bundles: Ok(Vec::new()),
        ledger: Ok(LedgerContents { index, revocations: None }),
    }
}

fn record(serial: u8, node: Option<&str>, hours: i64) -> IssuanceRecord {
    let now = NOW.unix_timestamp();
    IssuanceRecord {
        signer: "example.com/web".to_owned(),
        authority: OLD.parse().unwrap(),
        serial: SerialNumber::from_bytes(&[serial]).unwrap(),
        not_before: now - 60,
        not_after: now + hours * 3600,
        subject: format!("CN=holder-{serial}"),
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        email_addresses: Vec::new(),
        uris: Vec::new(),
        omitted_names: 0,
        usages: Vec::new(),
        key_hash: KeyHash([serial; 32]),
        requester: "alice".to_owned(),
        approver: None,
        request: RequestReference {
            kind: RequestKind::CertificateSigningRequest,
            namespace: String::new(),
            name: format!("csr-{serial}"),
            uid: ObjectUid::from("uid"),
        },
        node: node.map(str::to_owned),
        pod: None,
        recorded: now - 60,
    }
}

fn holds(plan: &RotationPlan) -> Vec<String> {
    plan.holds.iter().map(|hold| format!("{} {}", hold.reason, hold.name)).collect()
}

#[test]
fn a_cluster_without_problems_would_not_be_held() {
    let trust = trust();
    let read =
        json!({"volumes": ["host/nginx", "shop/web-0/trust"], "readVolumes": 2, "notObservableVolumes": 0});
    let other = json!([{"signerName": "example.com/other", "labelSelector": {}, "volumes": ["host/x"]}]);
    let reports = [("n1", json!([source(&trust, read)])), ("n2", other)];
    let snapshot = snapshot(trust, &reports, vec![record(1, Some("n1"), 1)]);
    let plan = evaluate(&snapshot, NOW);
    assert_eq!(holds(&plan), Vec::<String>::new());
    assert_eq!(
        text::text(&plan, NOW),
        format!(
            "\
Rotation of example.com/web
Old CA: {OLD} CN=web, expires 2026-06-01T00:00:00Z
Consumers: 2 volumes on 1 node, 0 Bundles
NODE   VOLUMES   READ   NOT-READ   NOT-OBSERVABLE
n1     2         2      0          0
Certificates: 1 outstanding, the last until 2026-03-01T13:00:00Z; renewed by agents: 1, by holders that cannot be told: 0
Expected end: 2026-03-01T12:10:00Z (in 10m)
Nothing would hold it
Note: nodes without a Windlass agent: 1; their consumers are not known
"
        )
    );
}

#[test]
fn consumers_that_would_lag_are_named() {
    let trust = trust();
    let reports = [
        (
            "n1",
            json!([
                source(&trust, json!({"volumes": ["host/blocked"], "message": "disk full"})),
                source(
                    &trust,
                    json!({"volumes": ["host/a", "host/b"], "readVolumes": 1,
                                      "notReadVolumes": ["host/b"], "notReadSince": "2026-01-01T00:00:00Z"})
                ),
                source(&trust, json!({"volumes": ["host/stale"], "bundles": []})),
                json!({"name": "example.com:web:gone", "volumes": ["host/waits"]}),
                json!({"name": "example.com:web:gone", "optional": true, "volumes": ["host/optional"]}),
            ]),
        ),
        ("n9", json!([source(&trust, json!({"volumes": ["host/a"], "moreVolumes": 2}))])),
    ];
    let snapshot = snapshot(trust, &reports, Vec::new());
    let plan = evaluate(&snapshot, NOW);
    assert_eq!(
        holds(&plan),
        [
            "ConsumersLagging node/n1/host/blocked",
            "ConsumersNotRead node/n1/host/b",
            "ConsumersLagging node/n1/host/stale",
            "ConsumersLagging node/n1/host/waits",
            "ConsumersLagging node/n9",
            "ConsumersLagging node/n2",
        ]
    );
    let [n1, n9] = &plan.nodes[..] else { panic!("{:?}", plan.nodes) };
    assert_eq!((n1.volume_count(), n1.read, n1.not_read.len(), n1.not_observable), (5, 1, 1, 3));
    assert_eq!((n9.volume_count(), n9.not_observable), (3, 3));
    let consequences = text::consequences(&plan);
    assert!(consequences.contains("node/n1/host/b"), "{consequences}");
}

#[test]
fn numbers_of_any_size_are_shown() {
    let trust = trust();
    let most =
        source(&trust, json!({"volumes": ["host/a"], "moreVolumes": u32::MAX, "readVolumes": u32::MAX}));
    let reports = [("n1", json!([most, most])), ("n2", json!([most]))];
    let plan = evaluate(&snapshot(trust, &reports, Vec::new()), NOW);
    assert!(text::text(&plan, NOW).contains("4,294,967,295 volumes on 2 nodes"));
}

#[test]
fn certificates_of_others_are_waited_for() {
    let records = vec![
        record(1, Some("n1"), 100),
        record(2, None, 5),
        record(3, Some("k1"), 20),
        record(4, Some("n7"), 7),
        record(5, None, -1),
        IssuanceRecord { authority: AuthorityId::from_bytes(&[8; 20]).unwrap(), ..record(6, None, 50) },
    ];
    let snapshot = snapshot(trust(), &[("n1", json!([])), ("n2", json!([]))], records);
    let plan = evaluate(&snapshot, NOW);
    let leaves = plan.leaves.as_ref().unwrap();
    assert_eq!((leaves.outstanding, leaves.renewed_by_agents), (4, 1));
    assert_eq!(leaves.latest_expiry.as_deref(), Some("2026-03-05T16:00:00Z"));
    let found: Vec<_> =
        leaves.not_renewable.iter().map(|leaf| (leaf.holder.as_str(), leaf.message)).collect();
    assert_eq!(
        found,
        [
            ("node/k1", "renewed by a kubelet in its own time"),
            ("node/n7", "its node does not exist"),
            ("CN=holder-2", "held in files; nobody can be told"),
        ]
    );
    assert_eq!(holds(&plan), ["LeavesOutstanding node/k1"]);
    assert_eq!(plan.expected_end.as_deref(), Some("2026-03-02T08:00:00Z"));
    let consequences = text::consequences(&plan);
    assert!(consequences.contains("Certificates that will be revoked: 4; 1 of them"), "{consequences}");
}

#[test]
fn bundles_with_the_signer_as_source_are_consumers() {
    let bundle = |name: &str, source: Value| {
        let object =
            json!({"metadata": {"name": name}, "spec": {"sources": [{"clusterTrustBundle": source}]}});
        Bundle::from_value(&object).unwrap()
    };
    let mut snapshot = snapshot(trust(), &[("n1", json!([])), ("n2", json!([]))], Vec::new());
    snapshot.bundles = Ok(vec![
        bundle("by-name", json!({"name": BUNDLE})),
        bundle("by-signer", json!({"signerName": "example.com/web"})),
        bundle(
            "by-labels",
            json!({"signerName": "example.com/web", "labelSelector": {"matchLabels": {"purpose": "web"}}}),
        ),
        bundle(
            "other-labels",
            json!({"signerName": "example.com/web", "labelSelector": {"matchLabels": {"a": "b"}}}),
        ),
        bundle("other", json!({"signerName": "example.com/other"})),
    ]);
    let plan = evaluate(&snapshot, NOW);
    assert_eq!(plan.bundles, ["by-name", "by-signer", "by-labels"]);
    assert!(text::text(&plan, NOW).contains("Bundles: by-name, by-signer, by-labels\n"));
}

#[test]
fn what_cannot_be_read_would_hold() {
    let mut snapshot = snapshot(trust(), &[], Vec::new());
    snapshot.trust = Err("forbidden".into());
    snapshot.ledger = Err("the server does not serve LedgerSegments".into());
    snapshot.bundles = Err("forbidden".into());
    snapshot.signer = serde_json::from_value(signer("False")).unwrap();
    snapshot.rotations = vec![rotation("web-1", "example.com/web", json!({"phase": "Renewing"}))];
    let plan = evaluate(&snapshot, NOW);
    let wanted =
        ["CaUnavailable signer/web", "ReportsUnavailable nodetrusts", "LedgerUnavailable ledgersegments"];
    assert_eq!(holds(&plan), wanted);
    assert_eq!(plan.notes.len(), 2, "{:?}", plan.notes);
    let text = text::text(&plan, NOW);
    for words in ["Expected end: not known", "rotation web-1 is running", "Bundles cannot be listed"] {
        assert!(text.contains(words), "{text}");
    }
    assert!(text::consequences(&plan).contains("not known, because the ledger cannot be read"));
}
