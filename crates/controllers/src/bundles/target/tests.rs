//! Which targets are written, as trust-manager's own tests have it, and what we do beyond.

use serde_json::{Value, json};

use super::*;
use crate::bundles::pool::Filters;
use crate::bundles::samples::{self, P256, RSA};

fn pool(text: &str) -> Pool {
    let mut pool = Pool::new(Filters::default(), samples::now());
    pool.add(text.as_bytes()).unwrap();
    pool
}

fn template(kind: Kind) -> Value {
    let metadata = json!({"labels": {"l": "1"}, "annotations": {"a": "2"}});
    match kind {
        Kind::ConfigMap => json!({"configMap": {"key": "ca.crt", "metadata": metadata}}),
        Kind::Secret => json!({"secret": {"key": "ca.crt", "metadata": metadata}}),
        Kind::ClusterTrustBundle => {
            json!({"clusterTrustBundle": {"signerName": "example.com/ca", "metadata": metadata}})
        }
    }
}

fn bundle(target: Value) -> Bundle {
    samples::bundle(json!([{"inLine": "x"}]), target)
}

/// A target as it is after it has been applied.
fn synced(bundle: &Bundle, desired: &Desired) -> Value {
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
        Kind::ConfigMap => {
            managed["f:data"] = json!({"f:ca.crt": {}});
            if !stores.is_empty() {
                managed["f:binaryData"] = stores.into();
            }
        }
        Kind::Secret => {
            managed["f:data"] = stores.into();
            managed["f:data"]["f:ca.crt"] = json!({});
        }
        Kind::ClusterTrustBundle => {
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

fn read(kind: Kind, metadata: &Value) -> Found {
    Found::read(kind, &serde_json::from_value(metadata.clone()).unwrap())
}

const KINDS: [Kind; 3] = [Kind::ConfigMap, Kind::Secret, Kind::ClusterTrustBundle];

#[test]
fn a_target_is_written_if_it_is_not_as_it_should_be() {
    for kind in KINDS {
        let bundle = bundle(template(kind));
        let desired = &desire(&bundle, &pool(P256))[0];
        let decided = |metadata: &Value| {
            decide(&bundle.metadata, Wish::Wanted(desired), kind, Some(&read(kind, metadata)))
        };
        let good = synced(&bundle, desired);
        assert_eq!(decided(&good), Action::Leave, "{kind}");
        assert_eq!(
            decide(&bundle.metadata, Wish::Wanted(desired), kind, None),
            Action::Write(Why::Missing)
        );
        type Change = fn(&mut Value);
        let changes: &[(Why, Change)] = &[
            (Why::Owner, |meta| meta["ownerReferences"] = json!([])),
            (Why::Owner, |meta| meta["ownerReferences"][0]["controller"] = false.into()),
            (Why::Label, |meta| meta["labels"][BUNDLE_LABEL] = "other".into()),
            (Why::Content, |meta| meta["annotations"][HASH_ANNOTATION] = "wrong".into()),
            (Why::Content, |meta| meta["annotations"] = json!({})),
            (Why::Keys, |meta| meta["managedFields"] = json!([])),
            (Why::Metadata, |meta| meta["labels"]["l"] = "changed".into()),
            (Why::Metadata, |meta| {
                meta["labels"].as_object_mut().unwrap().remove("l");
                let managed = &mut meta["managedFields"][1]["fieldsV1"]["f:metadata"]["f:labels"];
                managed.as_object_mut().unwrap().remove("f:l");
            }),
            (Why::Metadata, |meta| meta["annotations"]["a"] = "changed".into()),
        ];
        for (index, (why, change)) in changes.iter().enumerate() {
            let mut metadata = good.clone();
            change(&mut metadata);
            assert_eq!(decided(&metadata), Action::Write(*why), "{kind} {index}");
        }
        // What is not ours may be anything.
        let mut more = good.clone();
        more["labels"]["users"] = "x".into();
        more["annotations"]["users"] = "x".into();
        assert_eq!(decided(&more), Action::Leave, "{kind}");
    }
}

#[test]
fn keys_are_known_by_who_manages_them() {
    let formats = json!({"jks": {"key": "j"}, "pkcs12": {"key": "p"}});
    for kind in [Kind::ConfigMap, Kind::Secret] {
        let mut target = template(kind);
        let plain = bundle(target.clone());
        target["additionalFormats"] = formats.clone();
        let rich = bundle(target);
        let decided = |wanted: &Bundle, metadata: &Value| {
            let desired = &desire(wanted, &pool(P256))[0];
            // The hash is as it should be, so that only the keys differ.
            let mut metadata = metadata.clone();
            metadata["annotations"] = json!(desired.annotations);
            decide(&wanted.metadata, Wish::Wanted(desired), kind, Some(&read(kind, &metadata)))
        };
        let as_plain = synced(&plain, &desire(&plain, &pool(P256))[0]);
        let as_rich = synced(&rich, &desire(&rich, &pool(P256))[0]);
        assert_eq!(decided(&plain, &as_plain), Action::Leave);
        assert_eq!(decided(&rich, &as_rich), Action::Leave);
        assert_eq!(decided(&rich, &as_plain), Action::Write(Why::Keys));
        assert_eq!(decided(&plain, &as_rich), Action::Write(Why::Keys));
        // Somebody has changed the text: it is managed by them now.
        let mut changed = as_plain.clone();
        changed["managedFields"][0]["fieldsV1"]["f:data"]["f:ca.crt"] = json!({});
        changed["managedFields"][1]["fieldsV1"]["f:data"] = json!({});
        assert_eq!(decided(&plain, &changed), Action::Write(Why::Keys));
    }
}

#[test]
fn another_content_is_another_target() {
    let plain = bundle(template(Kind::ConfigMap));
    let old = &desire(&plain, &pool(P256))[0];
    let found = read(Kind::ConfigMap, &synced(&plain, old));
    let new = &desire(&plain, &pool(RSA))[0];
    let decided = decide(&plain.metadata, Wish::Wanted(new), Kind::ConfigMap, Some(&found));
    assert_eq!(decided, Action::Write(Why::Content));
    assert!(found.is_current(&plain.metadata, old) && !found.is_current(&plain.metadata, new));
    let hash = hex(&target_hash(P256.trim_end(), None, None));
    let bare = bundle(json!({"configMap": {"key": "ca.crt"}}));
    assert_eq!(desire(&bare, &pool(P256))[0].annotations[HASH_ANNOTATION], hash);
    // A ClusterTrustBundle holds authorities only.
    let anchors = bundle(template(Kind::ClusterTrustBundle));
    let mixed = pool(&format!("{P256}{}", samples::leaf()));
    let [one, other] = [pool(P256), mixed].map(|pool| desire(&anchors, &pool).remove(0));
    assert_eq!(one.annotations, other.annotations);
    let leaves = &desire(&anchors, &pool(&samples::leaf()))[0];
    assert_eq!(
        decide(&anchors.metadata, Wish::Wanted(leaves), Kind::ClusterTrustBundle, None),
        Action::Blocked("no certificate of an authority in bundle".to_owned())
    );
}

#[test]
fn what_others_control_is_left_to_them() {
    for kind in KINDS {
        let bundle = bundle(template(kind));
        let desired = &desire(&bundle, &pool(P256))[0];
        let wish = Wish::Wanted(desired);
        let mut foreign = synced(&bundle, desired);
        foreign["ownerReferences"][0]["uid"] = "456".into();
        foreign["ownerReferences"][0]["kind"] = "Operator".into();
        let found = read(kind, &foreign);
        assert_eq!(
            decide(&bundle.metadata, wish, kind, Some(&found)),
            Action::Blocked("it is controlled by Operator bundle".to_owned())
        );
        assert_eq!(decide(&bundle.metadata, Wish::Unwanted, kind, Some(&found)), Action::Leave);
        // One that nobody controls is left alone until somebody hands it over.
        let found = read(kind, &json!({"name": desired.name}));
        let Action::Blocked(why) = decide(&bundle.metadata, wish, kind, Some(&found)) else {
            panic!("{kind} was taken");
        };
        assert!(why.starts_with("it exists and is not of this Bundle"), "{why}");
        assert!(why.ends_with("trust.cert-manager.io/bundle=bundle"), "{why}");
        let labels = json!({BUNDLE_LABEL: "bundle"});
        let found = read(kind, &json!({"name": desired.name, "labels": labels}));
        let decided = decide(&bundle.metadata, wish, kind, Some(&found));
        assert_eq!(decided, Action::Write(Why::Owner));
    }
}

#[test]
fn what_is_no_longer_wanted_is_taken_back() {
    for kind in KINDS {
        let bundle = bundle(template(kind));
        let desired = &desire(&bundle, &pool(P256))[0];
        let mut metadata = synced(&bundle, desired);
        let found = read(kind, &metadata);
        let decided = |wish, found| decide(&bundle.metadata, wish, kind, found);
        let gone = match kind {
            Kind::ConfigMap | Kind::Secret => Action::Release,
            Kind::ClusterTrustBundle => Action::Delete,
        };
        assert_eq!(decided(Wish::Unwanted, Some(&found)), gone);
        assert_eq!(decided(Wish::Unwanted, None), Action::Leave);
        assert_eq!(decided(Wish::Ending, Some(&found)), Action::Leave);
        assert_eq!(decided(Wish::Ending, None), Action::Leave);
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        metadata["annotations"] = json!({});
        let found = read(kind, &metadata);
        assert_eq!(decided(Wish::Unwanted, Some(&found)), Action::Leave);
        assert_eq!(decided(Wish::Wanted(desired), Some(&found)), Action::Leave);
    }
    assert!(desire(&bundle(Value::Null), &pool(P256)).is_empty());
    let mut going = bundle(template(Kind::ConfigMap));
    going.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
    let desired = &desire(&going, &pool(P256))[0];
    let decided = decide(&going.metadata, Wish::Wanted(desired), Kind::ConfigMap, None);
    assert_eq!(decided, Action::Leave);
}
