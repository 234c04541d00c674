//! Errors are reported in the condition and as an event, and the targets stay unchanged.

use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_pki::{AltName, KeyPurpose, LeafTemplate, PrivateKey, Validity, issue, pem};
use windlass_testkit::leaf_template;

use super::bundle_fixture::{BundleFixture, TRUST, authority, joined, root, wait_for};
use crate::volumes::volume_fixture::wait_until;

const KEY: &str = "ca.pem";

fn config_map() -> Value {
    json!({"configMap": {"key": KEY}})
}

fn by_name(kind: &str, name: &str) -> Value {
    json!([{kind: {"name": name, "key": KEY}}])
}

#[test]
fn invalid_certificates_are_reported() {
    let scene = BundleFixture::start();
    let [one, two] = ["one", "two"].map(root);
    let key = PrivateKey::generate().unwrap().to_pem().unwrap().to_string();
    let text = joined(&[&one]);
    let stays = |name: &str| scene.wait_for_targets_everywhere("configmaps", name, KEY, &text);

    scene.source("from-map", KEY, &one);
    scene.secret_source("from-secret", KEY, &one);
    scene.bundle("map", by_name("configMap", "from-map"), config_map());
    scene.bundle("secret", by_name("secret", "from-secret"), config_map());
    scene.bundle("line", json!([{"inLine": one}]), config_map());
    for name in ["map", "secret", "line"] {
        stays(name);
    }

    let bad = "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n";
    scene.source("from-map", KEY, &format!("{two}{bad}"));
    let message = scene.failed("map", "SourceBuildError");
    let words = format!(
        "Failed to build bundle sources: invalid PEM data in ConfigMap {TRUST}/from-map at key \
         \"{KEY}\": invalid PEM block in bundle; invalid PEM certificate: "
    );
    assert!(message.starts_with(&words), "{message}");
    stays("map");

    // A private key is neither distributed nor printed.
    scene.secret_source("from-secret", KEY, &format!("{two}{key}"));
    let message = scene.failed("secret", "SourceBuildError");
    let found = "invalid PEM block in bundle: only CERTIFICATE blocks are permitted but found 'PRIVATE KEY'";
    let place = format!("invalid PEM data in Secret {TRUST}/from-secret at key \"{KEY}\"");
    assert_eq!(message, format!("Failed to build bundle sources: {place}: {found}"));
    stays("secret");
    scene.bundle("line", json!([{"inLine": format!("{two}{key}")}]), config_map());
    let message = scene.failed("line", "SourceBuildError");
    let place = "inline source contains invalid PEM data";
    assert_eq!(message, format!("Failed to build bundle sources: {place}: {found}"));
    stays("line");
    let secret = key.lines().nth(1).unwrap();
    let message =
        scene.kubectl_ok(&["get", "bundle/secret", "-o", "yaml"]) + &scene.kubectl_ok(&["get", "events"]);
    let log = scene.admin().server.place().log();
    assert!(!message.contains(secret) && !log.contains(secret), "{message}\n{log}");

    // The Bundle is synced as soon as the sources are valid.
    scene.source("from-map", KEY, &one);
    scene.secret_source("from-secret", KEY, &one);
    scene.bundle("line", json!([{"inLine": one}]), config_map());
    for name in ["map", "secret", "line"] {
        scene.synced(name);
        stays(name);
    }
}

#[test]
fn missing_sources_are_reported() {
    let scene = BundleFixture::start();
    let [one, two] = ["one", "two"].map(root);
    scene.source("source", KEY, &one);
    scene.bundle("strict", by_name("configMap", "source"), config_map());
    let source = json!({"configMap": {"name": "source", "key": KEY}, "optional": true});
    scene.bundle("lenient", json!([source, {"inLine": two}]), config_map());
    scene.wait_for_targets_everywhere("configmaps", "strict", KEY, &joined(&[&one]));
    scene.wait_for_targets_everywhere("configmaps", "lenient", KEY, &joined(&[&one, &two]));

    scene.kubectl_ok(&["delete", "configmap", "source", "-n", TRUST]);
    let missing = format!("failed to get ConfigMap {TRUST}/source: configmaps \"source\" not found");
    let message = scene.failed("strict", "SourceNotFound");
    assert_eq!(message, format!("Bundle source was not found: {missing}"));
    scene.wait_for_targets_everywhere("configmaps", "strict", KEY, &joined(&[&one]));
    // A new namespace gets no target: its content is unknown.
    scene.kubectl_ok(&["create", "namespace", "later"]);
    scene.wait_for_targets_everywhere("configmaps", "lenient", KEY, &joined(&[&two]));
    scene.synced("lenient");
    let status = &scene.admin().json(&["get", "bundle", "lenient"])["status"];
    let name = "configMap source at key ca.pem";
    assert_eq!(
        status["sources"][0],
        json!({"source": name, "objects": 0, "certificates": 0, "problem": missing})
    );
    assert_eq!(status["sources"][1]["certificates"], 1);
    assert_eq!(status["certificates"], 1);
    assert!(!scene.target_namespaces("configmaps", "strict").contains(&"later".to_owned()));

    // A missing key is an error, too.
    scene.source("source", "other", &one);
    wait_for(|| {
        let message = scene.fails("strict", "SourceNotFound");
        message.contains("at key").then_some(()).ok_or(message)
    });
    scene.source("source", KEY, &one);
    scene.wait_for_targets_everywhere("configmaps", "strict", KEY, &joined(&[&one]));
    scene.wait_for_targets_everywhere("configmaps", "lenient", KEY, &joined(&[&one, &two]));
    scene.synced("strict");
}

#[test]
fn secrets_that_must_not_be_read_or_written() {
    let scene = BundleFixture::start();
    let (one, ca) = (root("one"), authority("ca"));
    scene.bundle("tls", json!([{"inLine": one}]), config_map());
    scene.wait_for_targets_everywhere("configmaps", "tls", KEY, &joined(&[&one]));
    let key = PrivateKey::generate().unwrap().to_pem().unwrap().to_string();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                        "metadata": {"name": "pair", "namespace": TRUST},
                        "stringData": {"tls.crt": ca.certificate().to_pem(), "tls.key": key}});
    scene.apply(&secret.to_string());
    let all = json!([{"secret": {"name": "pair", "includeAllKeys": true}}]);
    scene.bundle("tls", all, config_map());
    let message = scene.failed("tls", "SourceBuildError");
    assert_eq!(
        message,
        format!(
            "Failed to build bundle sources: includeAllKeys is not supported for TLS Secrets such \
             as {TRUST}/pair"
        )
    );
    scene.wait_for_targets_everywhere("configmaps", "tls", KEY, &joined(&[&one]));
    // Selecting one key works.
    let sources = json!([{"secret": {"name": "pair", "key": "tls.crt"}}]);
    scene.bundle("tls", sources, config_map());
    scene.wait_for_targets_everywhere("configmaps", "tls", KEY, &joined(&[&ca.certificate().to_pem()]));

    // Secrets are written only if a flag allows it. Otherwise nothing of the Bundle is written.
    let both = json!({"configMap": {"key": KEY}, "secret": {"key": KEY}});
    scene.bundle("tls", json!([{"inLine": one}]), both);
    let message = scene.failed("tls", "SecretTargetsDisabled");
    assert_eq!(message, "Bundle has Secret targets but the feature is disabled");
    assert!(scene.target_namespaces("secrets", "tls").is_empty());
    scene.wait_for_targets_everywhere("configmaps", "tls", KEY, &joined(&[&ca.certificate().to_pem()]));
}

/// Returns a certificate with so many names that about thirty exceed the size limit of an object.
fn long_certificate(number: usize) -> String {
    let (ca, key) = (authority("long"), PrivateKey::generate().unwrap());
    let names = (0..700).map(|name| AltName::Dns(format!("{number}-{name}-{}.example.com", "x".repeat(40))));
    let now = OffsetDateTime::now_utc();
    let leaf = LeafTemplate {
        alt_names: names.collect(),
        ..leaf_template(
            "long",
            &[KeyPurpose::ServerAuth],
            Validity::new(now - time::Duration::HOUR, now + time::Duration::DAY).unwrap(),
            &key,
        )
    };
    pem::encode_certificates([issue(&ca, &leaf).unwrap().as_slice()])
}

#[test]
fn more_than_an_object_holds() {
    let scene = BundleFixture::start();
    let one = root("one");
    scene.bundle("big", json!([{"inLine": one}]), config_map());
    scene.wait_for_targets_everywhere("configmaps", "big", KEY, &joined(&[&one]));
    for part in 0..2 {
        let text = (0..12).map(|number| long_certificate(part * 12 + number)).collect::<String>();
        assert!((600_000..1 << 20).contains(&text.len()), "{}", text.len());
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {KEY: text},
            "metadata": {"name": format!("part-{part}"), "namespace": TRUST,
                         "labels": {"part": "yes"}}});
        // The last-applied annotation of `apply` would be too long.
        scene.admin().ok_with(&object.to_string(), &["create", "-f", "-"]);
    }
    let selector = json!({"matchLabels": {"part": "yes"}});
    let sources = json!([{"configMap": {"selector": selector, "key": KEY}}]);
    scene.bundle("big", sources, config_map());
    let message = scene.failed("big", "SyncConfigMapTargetFailed");
    let words = "Failed to sync bundle ConfigMap to namespace \"cert-manager\": ConfigMap \"big\" \
                 is invalid: ";
    assert!(message.starts_with(words), "{message}");
    assert!(message.contains("Too long: may not be more than 1048576 bytes"), "{message}");
    assert!(message.contains(&format!("(and {} more: ", scene.namespaces().len() - 1)), "{message}");
    scene.wait_for_targets_everywhere("configmaps", "big", KEY, &joined(&[&one]));
    scene.kubectl_ok(&["delete", "configmap", "part-1", "-n", TRUST]);
    scene.synced("big");
}

#[test]
fn foreign_targets_are_not_overwritten() {
    let scene = BundleFixture::start();
    let one = root("one");
    scene.kubectl_ok(&["create", "configmap", "owner"]);
    let uid = scene.kubectl_ok(&["get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}"]);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid,
                       "controller": true});
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "theirs"},
                        "metadata": {"name": "roots", "ownerReferences": [owner]}});
    scene.apply(&theirs.to_string());
    let before = scene.target("configmaps", "default", "roots");
    scene.bundle("roots", json!([{"inLine": one}]), config_map());
    let message = scene.failed("roots", "SyncConfigMapTargetFailed");
    let words = "Failed to sync bundle ConfigMap to namespace \"default\": ";
    assert!(message.starts_with(words), "{message}");
    assert!(message.ends_with("it is controlled by ConfigMap owner"), "{message}");
    assert!(!message.contains("more: "), "{message}");
    assert_eq!(scene.target("configmaps", "default", "roots"), before);
    // The other targets are not delayed.
    assert_eq!(scene.target_namespaces("configmaps", "roots"), scene.namespaces());
    let others = scene.namespaces().into_iter().filter(|name| name != "default");
    for namespace in others {
        let found = scene.target("configmaps", &namespace, "roots");
        assert_eq!(found["data"][KEY], joined(&[&one]), "{namespace}");
    }
    // An object is garbage-collected with its owner, and then the name is free.
    scene.kubectl_ok(&["delete", "configmap", "owner"]);
    scene.wait_for_targets_everywhere("configmaps", "roots", KEY, &joined(&[&one]));
    scene.synced("roots");
}

#[test]
fn a_terminating_namespace() {
    let scene = BundleFixture::start();
    let [one, two] = ["one", "two"].map(root);
    scene.source("source", KEY, &one);
    scene.kubectl_ok(&["create", "namespace", "going"]);
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "held", "namespace": "going", "finalizers": ["example.com/wait"]}});
    scene.apply(&held.to_string());
    scene.bundle("roots", by_name("configMap", "source"), config_map());
    scene.wait_for_targets_everywhere("configmaps", "roots", KEY, &joined(&[&one]));

    scene.kubectl_ok(&["delete", "namespace", "going", "--wait=false"]);
    wait_until("the target is not gone", || {
        (!scene.target_namespaces("configmaps", "roots").contains(&"going".to_owned())).then_some(())
    });
    scene.source("source", KEY, &two);
    let others = scene.namespaces().into_iter().filter(|name| name != "going").collect::<Vec<_>>();
    scene.wait_for_targets(&others, "configmaps", "roots", KEY, &joined(&[&two]));
    let condition = scene.synced("roots");
    assert_eq!(condition["message"], "Successfully synced Bundle to all namespaces");
    let phase = ["get", "namespace", "going", "-o", "jsonpath={.status.phase}"];
    assert_eq!(scene.kubectl_ok(&phase), "Terminating");
    let release = r#"{"metadata": {"finalizers": null}}"#;
    scene.kubectl_ok(&["patch", "configmap", "held", "-n", "going", "--type=merge", "-p", release]);
    scene.kubectl_ok(&["wait", "--for=delete", "namespace/going", "--timeout=30s"]);
    // A recreated namespace is treated as new.
    scene.kubectl_ok(&["create", "namespace", "going"]);
    scene.wait_for_targets_everywhere("configmaps", "roots", KEY, &joined(&[&two]));
}
