//! Bundles in kubectl: validation errors in trust-manager's wording, columns, explanations,
//! definitions.

use serde_json::{Value, json};

use super::bundle_fixture::{BundleFixture, bundle, root};
use crate::issue;

#[test]
fn errors_have_the_messages_of_trust_manager() {
    let scene = BundleFixture::start();
    let target = json!({"configMap": {"key": "ca.pem"}});
    let line = json!({"inLine": "x"});
    let cases: &[(Value, Value, &str)] = &[
        (
            json!([]),
            target.clone(),
            "spec.sources: Invalid value: 0: spec.sources in body should have at least 1 items",
        ),
        (
            json!([{"inLine": "x", "useDefaultCAs": true}]),
            target.clone(),
            "spec.sources[0]: Invalid value: exactly one of the fields in [configMap secret inLine \
             useDefaultCAs] must be set",
        ),
        (
            json!([{"useDefaultCAs": false}]),
            target.clone(),
            "spec.sources: Forbidden: must define at least one source",
        ),
        (
            json!([{"useDefaultCAs": true}, {"useDefaultCAs": true}]),
            target.clone(),
            "spec.sources: Forbidden: must request default CAs either once or not at all but got 2 requests",
        ),
        (
            json!([{"configMap": {"name": "a", "selector": {}, "key": "k"}}]),
            target.clone(),
            "spec.sources[0].configMap: Invalid value: exactly one of the fields in [name \
             selector] must be set",
        ),
        (
            json!([{"secret": {"name": "a"}}]),
            target.clone(),
            "spec.sources[0].secret: Invalid value: \"key: ' ', includeAllKeys: false\": source \
             secret key must be defined when includeAllKeys is false",
        ),
        (
            json!([{"configMap": {"name": "a", "key": "k", "includeAllKeys": true}}]),
            target.clone(),
            "spec.sources[0].configMap: Invalid value: \"key: k, includeAllKeys: true\": source \
             configMap key cannot be defined when includeAllKeys is true",
        ),
        (
            json!([{"configMap": {"name": "test", "key": "ca.pem"}}]),
            target.clone(),
            "spec.sources[0].configMap.test.ca.pem: Forbidden: cannot define the same source as target",
        ),
        (
            json!([line]),
            json!({}),
            "spec.target: Invalid value: at least one of the fields in [configMap secret] must be set",
        ),
        (
            json!([line]),
            json!({"configMap": {"key": "a"}, "additionalFormats": {"jks": {"key": "a"}}}),
            "spec.target.additionalFormats.jks.key: Invalid value: \"a\": key must be unique across \
             all target output keys",
        ),
        (
            json!([line]),
            json!({"configMap": {"key": "a"},
                   "additionalFormats": {"pkcs12": {"key": "p", "profile": "Modern"}}}),
            "spec.target.additionalFormats.pkcs12.profile: Unsupported value: \"Modern\": supported \
             values: \"LegacyRC2\", \"LegacyDES\", \"Modern2023\"",
        ),
        (
            json!([line]),
            json!({"secret": {"key": "a", "metadata": {"labels": {"trust-manager.io/x": "y"}}}}),
            "spec.target.secret.metadata.labels: Invalid value: \"trust-manager.io/x\": \
             trust-manager.io/* labels are not allowed",
        ),
        (
            json!([{"clusterTrustBundle": {"signerName": "example.com/ca"}}]),
            target.clone(),
            "spec.sources[0].clusterTrustBundle: Invalid value: labelSelector must be set if and \
             only if signerName is; {} selects all",
        ),
    ];
    for (sources, target, words) in cases {
        let object = bundle("test", sources.clone(), target.clone()).to_string();
        let reported = scene.admin().fails_with(&object, &["create", "-f", "-"]);
        let first = reported.lines().next().unwrap();
        // kubectl prints several errors on separate lines.
        let whole = reported.replace("\n* ", " ");
        assert!(first.starts_with("The Bundle \"test\" is invalid: "), "{reported}");
        assert!(whole.contains(words), "wanted {words}, told {reported}");
    }
    let long = "a".repeat(64);
    let object = bundle(&long, json!([line]), target.clone()).to_string();
    let reported = scene.admin().fails_with(&object, &["create", "-f", "-"]);
    assert!(reported.contains("metadata.name: Invalid value: "), "{reported}");
    assert!(reported.contains("must be no more than 63 characters"), "{reported}");
    // Updates are validated, too, and an update without changes is not stored.
    scene.bundle("test", json!([{"inLine": root("one")}]), target);
    let patch = json!({"spec": {"sources": [{"useDefaultCAs": false}]}}).to_string();
    let reported = scene.admin().fails(&["patch", "bundle", "test", "--type=merge", "-p", &patch]);
    assert!(reported.contains("must define at least one source"), "{reported}");
}

#[test]
fn columns_explanations_and_definitions() {
    let scene = BundleFixture::start();
    scene.bundle("good", json!([{"inLine": root("one")}]), json!({"configMap": {"key": "ca.pem"}}));
    scene.bundle("bad", json!([{"inLine": "none"}]), json!({"secret": {"key": "ca.crt"}}));
    scene.synced("good");
    scene.failed("bad", "SourceNotFound");
    let table = scene.kubectl_ok(&["get", "bundles"]);
    let columns = |line: &str| {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = table.lines().map(columns).collect::<Vec<_>>();
    let head = ["NAME", "CONFIGMAP TARGET", "SECRET TARGET", "SYNCED", "REASON", "AGE"];
    assert_eq!(lines[0], head, "{table}");
    assert_eq!(lines[1][..4], ["bad", "ca.crt", "False", "SourceNotFound"], "{table}");
    assert_eq!(lines[2][..4], ["good", "ca.pem", "True", "Synced"], "{table}");
    scene.kubectl_ok(&["wait", "--for=condition=Synced", "bundle/good", "--timeout=30s"]);

    let described = scene.kubectl_ok(&["describe", "bundle", "bad"]);
    // In the condition and as an event.
    assert_eq!(described.matches("SourceNotFound").count(), 2, "{described}");

    let explained = scene.kubectl_ok(&["explain", "bundle.spec.sources"]);
    for word in ["configMap", "secret", "inLine", "useDefaultCAs", "clusterTrustBundle", "optional"] {
        assert!(explained.contains(word), "{word} in {explained}");
    }
    let explained = scene.kubectl_ok(&["explain", "bundle.spec.target.additionalFormats.pkcs12.profile"]);
    assert!(explained.contains("FIELD: profile"), "{explained}");

    let definitions = issue::windlass_ok(scene.admin(), &["crds"]);
    let documents = definitions.split("\n---\n").map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    // Some definitions come with policies.
    let definitions = documents.filter(|document| document["kind"] == "CustomResourceDefinition");
    let names: Vec<String> =
        definitions.map(|document| document["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    assert!(names.contains(&"bundles.trust.cert-manager.io".to_owned()), "{names:?}");
}
