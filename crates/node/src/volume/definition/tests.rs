//! Tests of accepted definitions, and of the errors of others.

use k8s_openapi::api::core::v1::ProjectedVolumeSource;
use serde_json::{Value, json};
use windlass_api::field::FieldPath;

use super::super::trust_anchors::BundleSelector;
use super::{DefinitionError, ProjectedSource, VolumeDefinition};

/// Parses a definition in the form of a pod's.
pub fn read(volume: Value) -> Result<VolumeDefinition, DefinitionError> {
    let volume = serde_json::from_value::<ProjectedVolumeSource>(volume).unwrap();
    VolumeDefinition::parse(&volume, &FieldPath::new("v"))
}

/// Parses a definition with these sources.
pub fn sources(sources: &[Value]) -> Result<VolumeDefinition, DefinitionError> {
    read(json!({ "sources": sources }))
}

fn bundle(more: Value) -> Value {
    let mut bundle = json!({"path": "p"});
    bundle.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "clusterTrustBundle": bundle })
}

fn certificate(more: Value) -> Value {
    let mut source = json!({"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k"});
    source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "podCertificate": source })
}

/// Returns the errors of a source without their paths; empty if it is valid.
fn error_messages(source: Value) -> Vec<String> {
    match sources(&[source]) {
        Ok(_) => Vec::new(),
        Err(errors) => {
            let texts = errors.0.iter().map(ToString::to_string);
            texts.map(|text| text.replacen("v.sources[0].", "", 1)).collect()
        }
    }
}

fn check(cases: &[(Value, &str)]) {
    for (source, expected) in cases {
        let said = error_messages(source.clone());
        match (said.first(), *expected) {
            (None, "") => {}
            (Some(first), expected) if !expected.is_empty() => {
                assert!(first.contains(expected), "{source}: {said:?}");
            }
            _ => panic!("{source}: {said:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn bundles_are_named_or_selected() {
    let long = "v".repeat(63);
    let domain = vec!["d".repeat(60); 3].join(".");
    let labels = (0..900).map(|n| (format!("{domain}/key-{n}"), json!(long)));
    let labels = Value::Object(labels.collect());
    check(&[
        (bundle(json!({"name": "a"})), ""),
        (bundle(json!({"name": "a.b:c:d"})), ""),
        (bundle(json!({"signerName": "a.b/c"})), ""),
        (bundle(json!({"signerName": "a.b/c", "labelSelector": {}})), ""),
        (bundle(json!({})), "clusterTrustBundle: Required value: either name or signerName"),
        (bundle(json!({"name": "a", "signerName": "a.b/c"})), "only one of name and signerName may be used"),
        (bundle(json!({"name": ""})), "name: Required value: must be a valid object name"),
        (bundle(json!({"name": "A"})), "not a valid clustertrustbundlename: "),
        (bundle(json!({"name": "a.b:c:D"})), "not a valid clustertrustbundlename: "),
        (
            bundle(json!({"name": "a", "labelSelector": {}})),
            "labelSelector must be unset if name is specified",
        ),
        (bundle(json!({"signerName": ""})), "signerName: Required value: must be a valid signer"),
        (bundle(json!({"signerName": "a"})), "must be a fully qualified domain and path"),
        (bundle(json!({"signerName": "a.b/c/d"})), "must be a fully qualified domain and path"),
        (bundle(json!({"signerName": "a/c"})), "signerName: Invalid value: \"a"),
        (
            bundle(json!({"signerName": "a.b/c", "labelSelector": {"matchLabels": {"!": "a"}}})),
            "labelSelector.matchLabels",
        ),
        (
            bundle(json!({"signerName": "a.b/c", "labelSelector": {"matchExpressions": [
                {"key": "a", "operator": "Like", "values": ["b"]},
            ]}})),
            "not a valid selector operator",
        ),
        (
            bundle(json!({"signerName": "a.b/c", "labelSelector": {"matchLabels": labels}})),
            "is larger than 102400",
        ),
    ]);
}

#[test]
fn absent_and_empty_selectors_are_distinguished() {
    let select = |more: Value| match sources(&[bundle(more)]).unwrap().sources.remove(0).1 {
        ProjectedSource::Bundle(bundle) => bundle.select,
        other => panic!("{other:?}"),
    };
    let BundleSelector::Signer(_, absent) = select(json!({"signerName": "a.b/c"})) else { panic!() };
    assert!(absent.is_nothing());
    let empty = select(json!({"signerName": "a.b/c", "labelSelector": {}}));
    let BundleSelector::Signer(_, empty) = empty else { panic!() };
    assert!(empty.is_everything());
}

#[test]
fn paths_stay_inside() {
    let at = |path: &str| bundle(json!({"name": "a", "path": path}));
    let long = "a".repeat(256);
    let longer = "a/".repeat(2049);
    check(&[
        (at("a/b/c.pem"), ""),
        (at(""), "clusterTrustBundle.path: Required value"),
        (at("/a"), "clusterTrustBundle.path: Invalid value: \"/a\": must be a relative path"),
        (at("../a"), "must not contain '..'"),
        (at("a/../b"), "must not contain '..'"),
        (at("..a"), "must not start with '..'"),
        (at("./..data"), "must not start with '..'"),
        (at(&long), "must be less than or equal to 255 characters"),
        (at(&longer), "must be less than or equal to 4096 characters"),
    ]);
    let bad = "../x";
    check(&[
        (json!({"secret": {"name": "s", "items": [{"key": "k", "path": bad}]}}), "'..'"),
        (json!({"configMap": {"name": "s", "items": [{"key": "k", "path": bad}]}}), "'..'"),
        (json!({"serviceAccountToken": {"path": bad}}), "v.path: Invalid value"),
        (
            json!({"downwardAPI": {"items": [
                {"path": bad, "fieldRef": {"fieldPath": "metadata.name"}},
            ]}}),
            "'..'",
        ),
        (certificate(json!({"keyPath": bad})), "podCertificate.keyPath: Invalid value"),
        (certificate(json!({"credentialBundlePath": bad})), "credentialBundlePath: Invalid"),
        (certificate(json!({"certificateChainPath": bad})), "certificateChainPath: Invalid"),
    ]);
}

#[test]
fn paths_are_taken_once() {
    let by_name = bundle(json!({"name": "a"}));
    let item = json!({"name": "s", "items": [{"key": "k", "path": "./p"}]});
    let others = [
        by_name.clone(),
        json!({ "secret": item }),
        json!({ "configMap": item }),
        json!({"serviceAccountToken": {"path": "p"}}),
        json!({"downwardAPI": {"items": [
            {"path": "p", "fieldRef": {"fieldPath": "metadata.name"}},
        ]}}),
        certificate(json!({"keyPath": "p"})),
    ];
    for other in others {
        let error = sources(&[by_name.clone(), other.clone()]).unwrap_err().to_string();
        assert!(error.starts_with("v: Invalid value: "), "{other}: {error}");
        assert!(error.ends_with(": conflicting duplicate paths"), "{other}: {error}");
    }
    check(&[(certificate(json!({"certificateChainPath": "k"})), "conflicting duplicate paths")]);
}

#[test]
fn certificates_have_their_rules() {
    let key_types = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    for key_type in key_types {
        check(&[(certificate(json!({ "keyType": key_type })), "")]);
    }
    let kubernetes = "kubernetes.io/kube-apiserver-client-pod";
    let lifetime = |seconds: i32| certificate(json!({ "maxExpirationSeconds": seconds }));
    let lasting =
        |seconds: i32| certificate(json!({"maxExpirationSeconds": seconds, "signerName": kubernetes}));
    check(&[
        (certificate(json!({"keyType": "RSA1024"})), "keyType: Unsupported value: \"RSA1024\""),
        (certificate(json!({"signerName": ""})), "signerName: Required value"),
        (certificate(json!({"keyPath": ""})), "specify at least one of credentialBundlePath"),
        (certificate(json!({"keyPath": "", "credentialBundlePath": "b"})), ""),
        (lifetime(3600), ""),
        (lifetime(3599), "if provided, maxExpirationSeconds must be >= 3600"),
        (lifetime(7_862_400), ""),
        (lifetime(7_862_401), "if provided, maxExpirationSeconds must be <= 7862400"),
        (lasting(86400), ""),
        (lasting(86401), "if provided, maxExpirationSeconds must be <= 86400"),
        (certificate(json!({"userAnnotations": {"a.b/c": "d"}})), ""),
        (certificate(json!({"userAnnotations": {"c": "d"}})), "userAnnotations"),
        (
            certificate(json!({"userAnnotations": {"a.b/c": "d".repeat(256 * 1024)}})),
            "userAnnotations: Too long",
        ),
    ]);
}

#[test]
fn the_rest_has_its_rules() {
    let downward = |item: Value| json!({"downwardAPI": {"items": [item]}});
    let field = json!({"fieldPath": "metadata.name"});
    check(&[
        (json!({}), ""),
        (json!({"secret": {"name": "s"}}), ""),
        (json!({"secret": {"name": ""}}), "secret.name: Required value"),
        (json!({"configMap": {"name": ""}}), "configMap.name: Required value"),
        (
            json!({"secret": {"name": "s", "items": [{"key": "", "path": "p"}]}}),
            "secret.items[0].key: Required value",
        ),
        (
            json!({"secret": {"name": "s", "items": [{"key": "k", "path": "p", "mode": 512}]}}),
            "secret.items[0].mode: Invalid value: 512: must be a number between 0 and 0777",
        ),
        (
            json!({"secret": {"name": "s", "items": [{"key": "k", "path": "p", "user": -1}]}}),
            "secret.items[0].user: Invalid value: -1",
        ),
        (
            json!({"secret": {"name": "s"}, "configMap": {"name": "c"}}),
            "may not specify more than 1 volume type per source",
        ),
        (json!({"serviceAccountToken": {"path": "t"}}), ""),
        (
            json!({"serviceAccountToken": {"path": "t", "expirationSeconds": 599}}),
            "may not specify a duration less than 10 minutes",
        ),
        (
            json!({"serviceAccountToken": {"path": "t", "expirationSeconds": 4_294_967_297_i64}}),
            "may not specify a duration larger than 2^32 seconds",
        ),
        (downward(json!({"path": "p", "fieldRef": field})), ""),
        (downward(json!({"path": "p"})), "one of fieldRef and resourceFieldRef is required"),
        (
            downward(json!({"path": "p", "resourceFieldRef": {"resource": "limits.cpu"}})),
            "containerName: Required value",
        ),
        (
            downward(json!({"path": "p", "fieldRef": field, "resourceFieldRef": {
                "resource": "limits.cpu", "containerName": "c",
            }})),
            "fieldRef and resourceFieldRef can not be specified simultaneously",
        ),
        (
            downward(json!({"path": "p", "resourceFieldRef": {
                "resource": "limits.cpu", "containerName": "c", "divisor": "one",
            }})),
            "divisor: Invalid value: \"one\"",
        ),
    ]);
}

#[test]
fn modes_have_a_default() {
    assert_eq!(read(json!({})).unwrap().default_mode, 0o644);
    assert_eq!(read(json!({"defaultMode": 0o400})).unwrap().default_mode, 0o400);
    for mode in [-1, 0o1000] {
        let error = read(json!({ "defaultMode": mode })).unwrap_err().to_string();
        assert!(error.contains("v.defaultMode: Invalid value"), "{error}");
    }
}

#[test]
fn all_errors_are_reported() {
    let error = sources(&[bundle(json!({"path": "/p"}))]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "[v.sources[0].clusterTrustBundle: Required value: either name or signerName must be \
         specified, v.sources[0].clusterTrustBundle.path: Invalid value: \"/p\": must be a \
         relative path]"
    );
}
