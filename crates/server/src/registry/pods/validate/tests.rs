use serde_json::{Value, json};
use windlass_api::field::FieldErrors;

use super::super::{defaults, prepare};
use super::*;

mod changes;

/// Returns a valid pod with `change` merged into its spec.
fn pod(change: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    for (field, value) in change.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let mut pod = json!({"metadata": {"name": "p"}, "spec": spec});
    defaults::default_pod(&mut pod);
    prepare::create(&mut pod);
    pod
}

fn container(change: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    for (field, value) in change.as_object().unwrap() {
        container[field] = value.clone();
    }
    pod(json!({
        "containers": [container],
        "volumes": [{"name": "v"}, {"name": "w", "persistentVolumeClaim": {"claimName": "x"}}]
    }))
}

fn volume(source: Value) -> Value {
    let mut volume = source;
    volume["name"] = json!("v");
    pod(json!({"volumes": [volume]}))
}

fn error_texts(pod: &Value) -> Vec<String> {
    let mut errors = FieldErrors::new();
    create(pod, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn every_part_is_validated() {
    let cases: Vec<&str> =
        include_str!("tests/cases.txt").lines().filter(|line| !line.starts_with('#')).collect();
    for case in cases.chunk_by(|_, next| next.starts_with("  ")) {
        let (kind, value) = case[0].split_once(' ').unwrap();
        let value: Value = serde_json::from_str(value).unwrap();
        let pod = match kind {
            "pod" => pod(value),
            "container" => container(value),
            "resources" => container(json!({"resources": value})),
            "volume" => volume(value),
            other => panic!("{other}"),
        };
        let expected: Vec<&str> = case[1..].iter().map(|line| line.trim_start()).collect();
        assert_eq!(error_texts(&pod), expected, "{}", case[0]);
    }
}

#[test]
fn names_are_checked() {
    for (field, label) in [("nodeName", false), ("serviceAccountName", false), ("hostname", true)] {
        let words = error_texts(&pod(json!({field: "A_b"})));
        let grammar = if label { "RFC 1123 label" } else { "RFC 1123 subdomain" };
        assert_eq!(words.len(), 1, "{field}");
        let start = format!("spec.{field}: Invalid value: \"A_b\": a lowercase {grammar} must");
        assert!(words[0].starts_with(&start), "{words:?}");
    }
}

#[test]
fn annotations_that_mean_something() {
    let mut mirror = pod(json!({}));
    mirror["metadata"]["annotations"] = json!({
        "kubernetes.io/config.mirror": "x",
        "controller.kubernetes.io/pod-deletion-cost": "+1"
    });
    assert_eq!(
        error_texts(&mirror),
        [
            "metadata.annotations[kubernetes.io/config.mirror]: Invalid value: \"x\": must set \
           spec.nodeName if mirror pod annotation is set",
            "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \
           \"+1\": must be a 32bit integer",
        ]
    );
}

#[test]
fn projections_beyond_the_recorded_ones() {
    let source = |value: Value| volume(json!({"projected": {"sources": [value]}}));
    let at = "spec.volumes[0].projected.sources[0]";
    let certificate = |change: Value| {
        let mut value = json!({"signerName": "example.com/pods", "keyType": "ED25519", "keyPath": "k"});
        for (field, change) in change.as_object().unwrap() {
            value[field] = change.clone();
        }
        source(json!({"podCertificate": value}))
    };
    let cases: &[(Value, Vec<String>)] = &[
        (
            source(json!({"clusterTrustBundle": {"name": "", "path": "p"}})),
            vec![
                format!("{at}.clusterTrustBundle.name: Required value: must be a valid object name"),
                format!(
                    "{at}.clusterTrustBundle.name: Invalid value: \"\": not a valid \
                     clustertrustbundlename: {}",
                    names::dns1123_subdomain("")[0]
                ),
            ],
        ),
        (source(json!({"clusterTrustBundle": {"name": "example.com:a:b", "path": "p"}})), vec![]),
        (
            source(
                json!({"clusterTrustBundle": {"name": "a", "signerName": "b", "path": "p", "optional": true,
                "labelSelector": {"matchExpressions": [{"key": "k", "operator": "Exists"}], "matchLabels": {"a": "<"}}}}),
            ),
            vec![format!(
                "{at}.clusterTrustBundle: Invalid value: {{\"Name\":\"a\",\"SignerName\":\"b\",\
                 \"LabelSelector\":{{\"matchLabels\":{{\"a\":\"\\u003c\"}},\"matchExpressions\":\
                 [{{\"key\":\"k\",\"operator\":\"Exists\"}}]}},\"Optional\":true,\"Path\":\"p\",\
                 \"User\":null}}: only one of name and signerName may be used"
            )],
        ),
        (
            certificate(json!({"maxExpirationSeconds": 7_862_401})),
            vec![format!(
                "{at}.podCertificate.maxExpirationSeconds: Invalid value: 7862401: if provided, \
                 maxExpirationSeconds must be <= 7862400"
            )],
        ),
        (
            certificate(json!({"signerName": "kubernetes.io/x", "maxExpirationSeconds": 86401})),
            vec![format!(
                "{at}.podCertificate.maxExpirationSeconds: Invalid value: 86401: if provided, \
                 maxExpirationSeconds must be <= 86400"
            )],
        ),
        (
            certificate(json!({"certificateChainPath": "k"})),
            vec!["spec.volumes[0].projected: Invalid value: \"k\": conflicting duplicate paths".to_owned()],
        ),
        (
            certificate(json!({"userAnnotations": {"plain": "x", "Example.com/A": "y"}})),
            vec![format!(
                "{at}.podCertificate.userAnnotations: Invalid value: \"plain\": must be a \
                 domain-prefixed key (such as \"acme.io/foo\")"
            )],
        ),
        (
            source(json!({"serviceAccountToken": {"path": "", "expirationSeconds": 599}})),
            vec![
                format!(
                    "{at}.serviceAccountToken.expirationSeconds: Invalid value: 599: may not \
                     specify a duration less than 10 minutes"
                ),
                "spec.volumes[0].projected.path: Required value".to_owned(),
                format!(
                    "{at}.serviceAccountToken: Forbidden: must not be specified when \
                     serviceAccountName is not set"
                ),
            ],
        ),
        (
            volume(json!({"projected": {"defaultMode": 512, "sources": [
                {"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}},
                {"configMap": {"name": "m", "items": [{"key": "k", "path": "p"}]}}]}})),
            vec![
                "spec.volumes[0].projected.defaultMode: Invalid value: 512: must be a number \
                 between 0 and 0777 (octal), both inclusive"
                    .to_owned(),
                "spec.volumes[0].projected: Invalid value: \"m\": conflicting duplicate paths".to_owned(),
            ],
        ),
    ];
    for (pod, expected) in cases {
        assert_eq!(error_texts(pod), *expected, "{pod}");
    }
}
