use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use time::macros::datetime;
use windlass_api::trust_bundle::Bundle;

use super::super::text::text;
use super::*;
use crate::cli::OutputFormat;

const ROOT: &str = include_str!("../../../../../pki/tests/verdicts/ca-p256.pem");
const NOW: OffsetDateTime = datetime!(2026-06-01 00:00 UTC);

fn bundle(status: Value) -> Bundle {
    let target = json!({"configMap": {"key": "k"}, "namespaceSelector": {"matchLabels": {"t": "1"}}});
    let object = json!({
        "metadata": {"name": "roots", "uid": "1", "generation": 2},
        "spec": {"sources": [{"inLine": ROOT}], "target": target},
        "status": status,
    });
    Bundle::from_value(&object).unwrap()
}

fn condition(status: &str, generation: i64) -> Value {
    json!([{
        "type": "Synced", "status": status, "reason": "Because", "message": "words",
        "lastTransitionTime": "2026-05-31T00:00:00Z", "observedGeneration": generation,
    }])
}

fn metadata(value: Value) -> ObjectMeta {
    serde_json::from_value(value).unwrap()
}

/// Returns metadata of an up-to-date target.
fn target(bundle: &Bundle) -> ObjectMeta {
    let mut pool = CertificateSet::new(CertificateFilter::default(), NOW);
    pool.add(ROOT.as_bytes()).unwrap();
    let desired = desired_targets(bundle, &pool).remove(0);
    let names = |keys: Vec<&String>| -> Value {
        keys.into_iter().map(|key| (format!("f:{key}"), json!({}))).collect::<serde_json::Map<_, _>>().into()
    };
    let fields = json!({
        "f:data": {"f:k": {}},
        "f:metadata": {
            "f:labels": names(desired.labels.keys().collect()),
            "f:annotations": names(desired.annotations.keys().collect()),
        },
    });
    metadata(json!({
        "labels": desired.labels, "annotations": desired.annotations,
        "ownerReferences": [{
            "apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle", "name": "roots",
            "uid": "1", "controller": true,
        }],
        "managedFields": [{"manager": "trust-manager", "operation": "Apply", "fieldsV1": fields}],
    }))
}

fn snapshot(status: Value, targets: &[(&str, ObjectMeta)]) -> BundleSnapshot {
    let spaces = [("a", "1"), ("b", "1"), ("c", "0")];
    let spaces = spaces.map(|(name, t)| (name.to_owned(), metadata(json!({"labels": {"t": t}}))));
    let at = |namespace: &str| (TargetKind::ConfigMap, namespace.to_owned(), "roots".to_owned());
    BundleSnapshot {
        bundle: bundle(status),
        namespaces: spaces.into_iter().collect(),
        targets: targets.iter().map(|(place, found)| (at(place), found.clone())).collect(),
        content: Some(ROOT.to_owned()),
        unseen: Vec::new(),
    }
}

#[test]
fn a_synced_bundle_has_no_problems() {
    let status = json!({
        "conditions": condition("True", 2), "defaultCAVersion": "own-1-x",
        "sources": [{"source": "inLine", "objects": 0, "certificates": 1}],
    });
    let good = target(&bundle(json!({})));
    let seen = snapshot(status, &[("a", good.clone()), ("b", good)]);
    let verdict = BundleStatusReport::from_snapshot(&seen, NOW);
    assert!(verdict.is_healthy(), "{verdict:?}");
    assert_eq!((verdict.targets, verdict.up_to_date), (2, 2));
    let said = text(&verdict, None, NOW);
    let fingerprint = verdict.certificates[0].fingerprint.clone();
    let want = format!(
        "Name:          roots\n\
         Synced:        True (Because), for 24h\n\
         Default CAs:   own-1-x\n\
         \nSources:\n  SOURCE   OBJECTS   CERTIFICATES   PROBLEM\n  inLine   0         1\n\
         \nCertificates: 1\n  SHA-256            EXPIRES                SUBJECT\n  \
         {}   2056-01-01T00:00:00Z   {}\n\
         \nTargets: 2 of 2 up to date\n",
        &fingerprint[..16],
        verdict.certificates[0].subject,
    );
    assert_eq!(said, want);
    assert!(text(&verdict, Some(OutputFormat::Wide), NOW).contains(&fingerprint));
}

#[test]
fn problems_name_their_targets() {
    let good = target(&bundle(json!({})));
    let mut changed = good.clone();
    changed.labels.as_mut().unwrap().insert("trust.cert-manager.io/bundle".into(), "x".into());
    let seen = snapshot(json!({"conditions": condition("False", 1)}), &[("b", changed), ("c", good)]);
    let verdict = BundleStatusReport::from_snapshot(&seen, datetime!(2055-12-20 00:00 UTC));
    assert_eq!((verdict.targets, verdict.up_to_date), (2, 0));
    let wrong = verdict.outdated.iter().map(|w| format!("{}: {}", w.namespace, w.problem));
    let want = [
        "a: missing, or without the target label",
        "b: has the label of another Bundle",
        "c: no longer a target; to be deleted",
    ];
    assert_eq!(wrong.collect::<Vec<_>>(), want);
    let want = ["the controller has not reconciled the latest generation", "Because: words"];
    assert_eq!(verdict.problems, want);
    assert_eq!(verdict.notes, ["certificates expiring soon: 1"]);
    assert_eq!(text(&verdict, Some(OutputFormat::Name), NOW), "a/roots\nb/roots\nc/roots\n");
    let said = text(&verdict, None, NOW);
    assert!(said.contains("\nProblems:\n  the controller has not reconciled"), "{said}");
}

#[test]
fn a_missing_controller_is_reported() {
    let mut seen = snapshot(Value::Null, &[]);
    seen.content = None;
    seen.unseen.push((TargetKind::Secret, "no".into()));
    let verdict = BundleStatusReport::from_snapshot(&seen, NOW);
    assert_eq!((verdict.targets, verdict.up_to_date, verdict.certificates.len()), (2, 0, 0));
    let want = ["no controller has reconciled the Bundle; check that one is running and is the leader"];
    assert_eq!(verdict.problems, want);
    assert_eq!(verdict.notes, ["Secrets not checked: no"]);
}
