//! Tests of target drift, from trust-manager's own tests, and of our additions.

use serde_json::{Value, json};

use super::*;
use crate::bundles::certificate_set::CertificateFilter;
use crate::bundles::fixtures::{self, P256, RSA};

fn pool(text: &str) -> CertificateSet {
    let mut pool = CertificateSet::new(CertificateFilter::default(), fixtures::now());
    pool.add(text.as_bytes()).unwrap();
    pool
}

fn template(kind: TargetKind) -> Value {
    let metadata = json!({"labels": {"l": "1"}, "annotations": {"a": "2"}});
    match kind {
        TargetKind::ConfigMap => json!({"configMap": {"key": "ca.crt", "metadata": metadata}}),
        TargetKind::Secret => json!({"secret": {"key": "ca.crt", "metadata": metadata}}),
        TargetKind::ClusterTrustBundle => {
            json!({"clusterTrustBundle": {"signerName": "example.com/ca", "metadata": metadata}})
        }
    }
}

fn bundle(target: Value) -> Bundle {
    fixtures::bundle(json!([{"inLine": "x"}]), target)
}

/// Builds a target as it is after apply.
fn synced(bundle: &Bundle, desired: &DesiredTarget) -> Value {
    let fields = |names: &mut dyn Iterator<Item = &str>| {
        names.map(|name| (format!("f:{name}"), json!({}))).collect::<serde_json::Map<_, _>>()
    };
    let labels = fields(&mut desired.labels.keys().map(String::as_str));
    let annotations = fields(&mut desired.annotations.keys().map(String::as_str));
    let owner = json!({"k:{\"uid\":\"123\"}": {}});
    let mut managed = json!({
        "f:metadata": {"f:labels": labels, "f:annotations": annotations, "f:ownerReferences": owner},
    });
    let target = bundle.spec.target.as_ref().unwrap();
    let stores = fields(&mut target.keys("").skip(1));
    match desired.kind {
        TargetKind::ConfigMap => {
            managed["f:data"] = json!({"f:ca.crt": {}});
            if !stores.is_empty() {
                managed["f:binaryData"] = stores.into();
            }
        }
        TargetKind::Secret => {
            managed["f:data"] = stores.into();
            managed["f:data"]["f:ca.crt"] = json!({});
        }
        TargetKind::ClusterTrustBundle => {
            managed["f:spec"] = json!({"f:trustBundle": {}, "f:signerName": {}});
        }
    }
    json!({
        "name": desired.name,
        "labels": desired.labels,
        "annotations": desired.annotations,
        "ownerReferences": [{
            "apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle", "name": "bundle",
            "uid": "123", "controller": true, "blockOwnerDeletion": true,
        }],
        "managedFields": [
            {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:users": {}}}},
            {"manager": "trust-manager", "operation": "Apply", "fieldsV1": managed},
        ],
    })
}

fn read(kind: TargetKind, metadata: &Value) -> ObservedTarget {
    ObservedTarget::from_metadata(kind, &serde_json::from_value(metadata.clone()).unwrap())
}

const KINDS: [TargetKind; 3] = [TargetKind::ConfigMap, TargetKind::Secret, TargetKind::ClusterTrustBundle];

#[test]
fn a_target_is_written_if_it_has_drifted() {
    for kind in KINDS {
        let bundle = bundle(template(kind));
        let desired = &desired_targets(&bundle, &pool(P256))[0];
        let decided = |metadata: &Value| {
            decide(&bundle.metadata, TargetIntent::Wanted(desired), kind, Some(&read(kind, metadata)))
        };
        let good = synced(&bundle, desired);
        assert_eq!(decided(&good), TargetAction::Leave, "{kind}");
        assert_eq!(
            decide(&bundle.metadata, TargetIntent::Wanted(desired), kind, None),
            TargetAction::Write(DriftReason::Missing)
        );
        type Change = fn(&mut Value);
        let changes: &[(DriftReason, Change)] = &[
            (DriftReason::Owner, |meta| meta["ownerReferences"] = json!([])),
            (DriftReason::Owner, |meta| meta["ownerReferences"][0]["controller"] = false.into()),
            (DriftReason::Label, |meta| meta["labels"][BUNDLE_LABEL] = "other".into()),
            (DriftReason::Content, |meta| meta["annotations"][HASH_ANNOTATION] = "wrong".into()),
            (DriftReason::Content, |meta| meta["annotations"] = json!({})),
            (DriftReason::Keys, |meta| meta["managedFields"] = json!([])),
            (DriftReason::Metadata, |meta| meta["labels"]["l"] = "changed".into()),
            (DriftReason::Metadata, |meta| {
                meta["labels"].as_object_mut().unwrap().remove("l");
                let managed = &mut meta["managedFields"][1]["fieldsV1"]["f:metadata"]["f:labels"];
                managed.as_object_mut().unwrap().remove("f:l");
            }),
            (DriftReason::Metadata, |meta| meta["annotations"]["a"] = "changed".into()),
        ];
        for (index, (why, change)) in changes.iter().enumerate() {
            let mut metadata = good.clone();
            change(&mut metadata);
            assert_eq!(decided(&metadata), TargetAction::Write(*why), "{kind} {index}");
        }
        // Labels and annotations of other managers are ignored.
        let mut more = good.clone();
        more["labels"]["users"] = "x".into();
        more["annotations"]["users"] = "x".into();
        assert_eq!(decided(&more), TargetAction::Leave, "{kind}");
    }
}

#[test]
fn keys_are_attributed_by_field_manager() {
    let formats = json!({"jks": {"key": "j"}, "pkcs12": {"key": "p"}});
    for kind in [TargetKind::ConfigMap, TargetKind::Secret] {
        let mut target = template(kind);
        let plain = bundle(target.clone());
        target["additionalFormats"] = formats.clone();
        let rich = bundle(target);
        let decided = |wanted: &Bundle, metadata: &Value| {
            let desired = &desired_targets(wanted, &pool(P256))[0];
            // The hash matches, so only the keys differ.
            let mut metadata = metadata.clone();
            metadata["annotations"] = json!(desired.annotations);
            decide(&wanted.metadata, TargetIntent::Wanted(desired), kind, Some(&read(kind, &metadata)))
        };
        let as_plain = synced(&plain, &desired_targets(&plain, &pool(P256))[0]);
        let as_rich = synced(&rich, &desired_targets(&rich, &pool(P256))[0]);
        assert_eq!(decided(&plain, &as_plain), TargetAction::Leave);
        assert_eq!(decided(&rich, &as_rich), TargetAction::Leave);
        assert_eq!(decided(&rich, &as_plain), TargetAction::Write(DriftReason::Keys));
        assert_eq!(decided(&plain, &as_rich), TargetAction::Write(DriftReason::Keys));
        // Another manager changed the text and now owns it.
        let mut changed = as_plain.clone();
        changed["managedFields"][0]["fieldsV1"]["f:data"]["f:ca.crt"] = json!({});
        changed["managedFields"][1]["fieldsV1"]["f:data"] = json!({});
        assert_eq!(decided(&plain, &changed), TargetAction::Write(DriftReason::Keys));
    }
}

#[test]
fn another_content_is_another_target() {
    let plain = bundle(template(TargetKind::ConfigMap));
    let old = &desired_targets(&plain, &pool(P256))[0];
    let found = read(TargetKind::ConfigMap, &synced(&plain, old));
    let new = &desired_targets(&plain, &pool(RSA))[0];
    let decided = decide(&plain.metadata, TargetIntent::Wanted(new), TargetKind::ConfigMap, Some(&found));
    assert_eq!(decided, TargetAction::Write(DriftReason::Content));
    assert!(found.is_current(&plain.metadata, old) && !found.is_current(&plain.metadata, new));
    let hash = encode_hex(&target_hash(P256.trim_end(), None, None));
    let bare = bundle(json!({"configMap": {"key": "ca.crt"}}));
    assert_eq!(desired_targets(&bare, &pool(P256))[0].annotations[HASH_ANNOTATION], hash);
    // A ClusterTrustBundle contains only CA certificates.
    let anchors = bundle(template(TargetKind::ClusterTrustBundle));
    let mixed = pool(&format!("{P256}{}", fixtures::leaf_certificate()));
    let [one, other] = [pool(P256), mixed].map(|pool| desired_targets(&anchors, &pool).remove(0));
    assert_eq!(one.annotations, other.annotations);
    let leaves = &desired_targets(&anchors, &pool(&fixtures::leaf_certificate()))[0];
    assert_eq!(
        decide(&anchors.metadata, TargetIntent::Wanted(leaves), TargetKind::ClusterTrustBundle, None),
        TargetAction::Blocked("no CA certificate in bundle".to_owned())
    );
}

#[test]
fn objects_of_other_controllers_are_unchanged() {
    for kind in KINDS {
        let bundle = bundle(template(kind));
        let desired = &desired_targets(&bundle, &pool(P256))[0];
        let wish = TargetIntent::Wanted(desired);
        let mut foreign = synced(&bundle, desired);
        foreign["ownerReferences"][0]["uid"] = "456".into();
        foreign["ownerReferences"][0]["kind"] = "Operator".into();
        let found = read(kind, &foreign);
        assert_eq!(
            decide(&bundle.metadata, wish, kind, Some(&found)),
            TargetAction::Blocked("it is controlled by Operator bundle".to_owned())
        );
        assert_eq!(decide(&bundle.metadata, TargetIntent::Unwanted, kind, Some(&found)), TargetAction::Leave);
        // An object without a controller is left alone until it is handed over.
        let found = read(kind, &json!({"name": desired.name}));
        let TargetAction::Blocked(why) = decide(&bundle.metadata, wish, kind, Some(&found)) else {
            panic!("{kind} was taken");
        };
        assert!(why.starts_with("it exists and is not of this Bundle"), "{why}");
        assert!(why.ends_with("trust.cert-manager.io/bundle=bundle"), "{why}");
        let labels = json!({BUNDLE_LABEL: "bundle"});
        let found = read(kind, &json!({"name": desired.name, "labels": labels}));
        let decided = decide(&bundle.metadata, wish, kind, Some(&found));
        assert_eq!(decided, TargetAction::Write(DriftReason::Owner));
    }
}

#[test]
fn obsolete_targets_are_removed() {
    for kind in KINDS {
        let bundle = bundle(template(kind));
        let desired = &desired_targets(&bundle, &pool(P256))[0];
        let mut metadata = synced(&bundle, desired);
        let found = read(kind, &metadata);
        let decided = |wish, found| decide(&bundle.metadata, wish, kind, found);
        let gone = match kind {
            TargetKind::ConfigMap | TargetKind::Secret => TargetAction::Release,
            TargetKind::ClusterTrustBundle => TargetAction::Delete,
        };
        assert_eq!(decided(TargetIntent::Unwanted, Some(&found)), gone);
        assert_eq!(decided(TargetIntent::Unwanted, None), TargetAction::Leave);
        assert_eq!(decided(TargetIntent::Ending, Some(&found)), TargetAction::Leave);
        assert_eq!(decided(TargetIntent::Ending, None), TargetAction::Leave);
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        metadata["annotations"] = json!({});
        let found = read(kind, &metadata);
        assert_eq!(decided(TargetIntent::Unwanted, Some(&found)), TargetAction::Leave);
        assert_eq!(decided(TargetIntent::Wanted(desired), Some(&found)), TargetAction::Leave);
    }
    assert!(desired_targets(&bundle(Value::Null), &pool(P256)).is_empty());
    let mut going = bundle(template(TargetKind::ConfigMap));
    going.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
    let desired = &desired_targets(&going, &pool(P256))[0];
    let decided = decide(&going.metadata, TargetIntent::Wanted(desired), TargetKind::ConfigMap, None);
    assert_eq!(decided, TargetAction::Leave);
}
