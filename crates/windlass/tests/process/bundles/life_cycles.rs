//! trust-manager's two smoke tests, and the life cycle of targets from creation to deletion.

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::bundle_fixture::{BundleFixture, TRUST, authority_until, joined, root, wait_for};
use crate::server::TestDataDir;
use crate::volumes::volume_fixture::{metric, wait_until};

/// From the documentation of trust-manager, except for the certificate.
const MANIFEST: &str = r#"
apiVersion: trust.cert-manager.io/v1alpha1
kind: Bundle
metadata:
  name: my-org.com
spec:
  sources:
  - configMap:
      name: "my-org.net"
      key: "root-certs.pem"
  - secret:
      name: "my-db-tls"
      key: "ca.crt"
  - inLine: |
      CERTIFICATE
  target:
    TARGET:
      key: "root-certs.pem"
"#;

const NAME: &str = "my-org.com";
const KEY: &str = "root-certs.pem";

/// The placeholder also occurs in the PEM header.
fn manifest(target: &str, certificate: &str) -> String {
    let (before, after) = MANIFEST.split_once("CERTIFICATE").unwrap();
    let text = certificate.trim_end().replace('\n', "\n      ");
    format!("{before}{text}{}", after.replace("TARGET", target))
}

#[test]
fn config_maps() {
    life("configMap", "configmaps", &[]);
}

#[test]
fn secrets() {
    life("secret", "secrets", &["--secret-targets-enabled"]);
}

/// Runs the life cycle of a Bundle with one kind of targets.
fn life(target: &str, kind: &str, flags: &[&str]) {
    let place = TestDataDir::new();
    let package = place.path().join("package.json");
    let default = root("default");
    let json = json!({"name": "own", "version": "1", "bundle": default});
    std::fs::write(&package, json.to_string()).unwrap();
    let location = format!("--default-package-location={}", package.display());
    let flags = [flags, &[location.as_str()]].concat();
    let scene = BundleFixture::in_data_dir(place, &flags);

    let [one, two, three] = ["one", "two", "three"].map(root);
    scene.source("my-org.net", KEY, &one);
    scene.secret_source("my-db-tls", "ca.crt", &two);
    scene.apply(&manifest(target, &three));
    let condition = scene.synced(NAME);
    assert_eq!(condition["message"], "Successfully synced Bundle to all namespaces");
    scene.wait_for_targets_everywhere(kind, NAME, KEY, &joined(&[&one, &two, &three]));
    assert_trust_manager_metadata(&scene.target(kind, "default", NAME), target);

    let text = sources_change(&scene, kind, &default);
    drift_is_repaired(&scene, kind, &text);
    selectors_narrow(&scene, kind, &text);

    scene.kubectl_ok(&["delete", "bundle", NAME]);
    wait_until("there are still targets", || scene.target_namespaces(kind, NAME).is_empty().then_some(()));
    // The sources stay.
    scene.kubectl_ok(&["get", "configmap", "my-org.net", "-n", TRUST]);
    scene.kubectl_ok(&["get", "secret", "my-db-tls", "-n", TRUST]);
}

fn assert_trust_manager_metadata(object: &Value, target: &str) {
    let metadata = &object["metadata"];
    assert_eq!(metadata["labels"]["trust.cert-manager.io/bundle"], NAME);
    let hash = metadata["annotations"]["trust.cert-manager.io/hash"].as_str().unwrap();
    assert_eq!(hash.len(), 64, "{hash}");
    let owner = &metadata["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Bundle"), &json!(NAME)));
    assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &json!(true)));
    let kind = if target == "secret" { "Secret" } else { "ConfigMap" };
    assert_eq!(object["kind"], kind);
}

/// Changes every kind of source in turn; returns the final text.
fn sources_change(scene: &BundleFixture, kind: &str, default: &str) -> String {
    let [four, five, six] = ["four", "five", "six"].map(root);
    let sources = |more: &[Value]| {
        let own = [
            json!({"configMap": {"name": "my-org.net", "key": KEY}}),
            json!({"secret": {"name": "my-db-tls", "key": "ca.crt"}}),
            json!({"inLine": six}),
        ];
        let all = [&own, more].concat();
        json!({"spec": {"sources": all}})
    };
    scene.source("my-org.net", KEY, &four);
    scene.secret_source("my-db-tls", "ca.crt", &five);
    scene.patch(NAME, sources(&[]));
    scene.wait_for_targets_everywhere(kind, NAME, KEY, &joined(&[&four, &five, &six]));
    scene.patch(NAME, sources(&[json!({"useDefaultCAs": true})]));
    let text = joined(&[&four, &five, &six, default]);
    scene.wait_for_targets_everywhere(kind, NAME, KEY, &text);
    scene.synced(NAME);
    let bundle = scene.admin().json(&["get", "bundle", NAME]);
    let version = bundle["status"]["defaultCAVersion"].as_str().unwrap();
    assert!(version.starts_with("own-1-"), "{version}");

    scene.kubectl_ok(&["create", "namespace", "later"]);
    scene.wait_for_targets_everywhere(kind, NAME, KEY, &text);
    text
}

/// Each in another namespace: repeated changes of the same target cause a back-off.
fn drift_is_repaired(scene: &BundleFixture, kind: &str, text: &str) {
    let field = if kind == "secrets" { "stringData" } else { "data" };
    let edit = |namespace: &str, patch: Value| {
        let patch = patch.to_string();
        scene.kubectl_ok(&["patch", kind, NAME, "-n", namespace, "--type=merge", "-p", &patch]);
    };
    edit("default", json!({field: {KEY: "nothing"}}));
    scene.wait_for_targets_everywhere(kind, NAME, KEY, text);
    edit("later", json!({"data": null}));
    scene.wait_for_targets_everywhere(kind, NAME, KEY, text);
    scene.kubectl_ok(&["delete", kind, NAME, "-n", "kube-public"]);
    scene.wait_for_targets_everywhere(kind, NAME, KEY, text);
    // Checks not only the content, but also owner and hash.
    let is_marked = |namespace: &str| {
        wait_for(|| {
            let found = scene.target(kind, namespace, NAME);
            let metadata = &found["metadata"];
            let good = metadata["ownerReferences"][0]["name"] == NAME
                && metadata["labels"]["trust.cert-manager.io/bundle"] == NAME
                && metadata["annotations"]["trust.cert-manager.io/hash"].is_string();
            good.then_some(()).ok_or(format!("{found:#}"))
        });
    };
    edit(TRUST, json!({"metadata": {"annotations": null, "ownerReferences": null}}));
    is_marked(TRUST);
    scene.kubectl_ok(&["label", kind, NAME, "-n", "kube-system", "trust.cert-manager.io/bundle-"]);
    is_marked("kube-system");
    // Keys of other owners in a target are preserved.
    edit("kube-node-lease", json!({field: {"mine": "stays", KEY: "nothing"}}));
    scene.wait_for_targets_everywhere(kind, NAME, KEY, text);
    assert!(scene.target(kind, "kube-node-lease", NAME)["data"]["mine"].is_string());
    edit("kube-node-lease", json!({"data": {"mine": null}}));
}

fn selectors_narrow(scene: &BundleFixture, kind: &str, text: &str) {
    let selector = json!({"matchLabels": {"foo": "bar"}});
    scene.kubectl_ok(&["label", "namespace", "default", "foo=bar"]);
    scene.patch(NAME, json!({"spec": {"target": {"namespaceSelector": selector}}}));
    let only = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        scene.wait_for_targets(&names, kind, NAME, KEY, text);
    };
    only(&["default"]);
    let condition = scene.synced(NAME);
    assert_eq!(
        condition["message"],
        "Successfully synced Bundle to namespaces that match this label selector: foo=bar"
    );
    scene.kubectl_ok(&["label", "namespace", "later", "foo=bar"]);
    only(&["default", "later"]);
    scene.kubectl_ok(&["label", "namespace", "default", "foo-"]);
    only(&["later"]);
    scene.kubectl_ok(&["delete", "namespace", "later"]);
    only(&[]);
    scene.patch(NAME, json!({"spec": {"target": {"namespaceSelector": null}}}));
    scene.wait_for_targets_everywhere(kind, NAME, KEY, text);
}

#[test]
fn keys_are_renamed_and_metadata_is_kept() {
    let scene = BundleFixture::start();
    let one = root("one");
    let metadata = json!({"labels": {"team": "trust"}, "annotations": {"note": "of all"}});
    let target = |key: &str| json!({"configMap": {"key": key, "metadata": metadata}});
    // An existing object is adopted when it is handed over, and keeps its other contents.
    scene.kubectl_ok(&["create", "configmap", "roots", "--from-literal=mine=stays"]);
    scene.kubectl_ok(&["label", "configmap", "roots", "trust.cert-manager.io/bundle=roots"]);
    scene.bundle("roots", json!([{"inLine": one}]), target("a.pem"));
    scene.wait_for_targets_everywhere("configmaps", "roots", "a.pem", &joined(&[&one]));
    scene.bundle("roots", json!([{"inLine": one}]), target("b.pem"));
    scene.wait_for_targets_everywhere("configmaps", "roots", "b.pem", &joined(&[&one]));
    for found in scene.list_named("configmaps", "roots") {
        assert!(found["data"]["a.pem"].is_null(), "{found}");
        assert_eq!(found["metadata"]["labels"]["team"], "trust");
        assert_eq!(found["metadata"]["annotations"]["note"], "of all");
    }
    scene.kubectl_ok(&["label", "configmap", "roots", "team=other", "--overwrite"]);
    scene.kubectl_ok(&["annotate", "configmap", "roots", "note-"]);
    wait_until("labels and annotations stay changed", || {
        let metadata = &scene.target("configmaps", "default", "roots")["metadata"];
        let good = metadata["labels"]["team"] == "trust" && metadata["annotations"]["note"] == "of all";
        good.then_some(())
    });
    // Without a target, only the contents of other owners remain, and the object is no longer a
    // target.
    scene.patch("roots", json!({"spec": {"target": null}}));
    wait_until("there are still targets", || {
        (scene.target_namespaces("configmaps", "roots") == ["default"]).then_some(())
    });
    wait_until("it is still a target", || {
        let left = scene.target("configmaps", "default", "roots");
        let free = left["metadata"]["ownerReferences"].is_null();
        (free && left["data"] == json!({"mine": "stays"})).then_some(())
    });
}

#[test]
fn disabling_secrets_reports_orphaned_targets() {
    let mut scene = BundleFixture::with_flags(&["--secret-targets-enabled"]);
    let one = root("one");
    scene.bundle("roots", json!([{"inLine": one}]), json!({"secret": {"key": "ca.crt"}}));
    scene.wait_for_targets_everywhere("secrets", "roots", "ca.crt", &joined(&[&one]));
    scene.restart(&[]);
    let message = scene.failed("roots", "SecretTargetsDisabled");
    assert_eq!(message, "Bundle has Secret targets but the feature is disabled");
    scene.wait_for_targets_everywhere("secrets", "roots", "ca.crt", &joined(&[&one]));
    // ConfigMaps replace the Secrets, which are removed.
    scene.patch(
        "roots",
        json!({"spec": {"target": {
        "secret": null, "configMap": {"key": "ca.crt"}}}}),
    );
    scene.wait_for_targets_everywhere("configmaps", "roots", "ca.crt", &joined(&[&one]));
    wait_until("there are orphans", || scene.target_namespaces("secrets", "roots").is_empty().then_some(()));
}

#[test]
fn only_where_it_is_allowed() {
    let mut scene = BundleFixture::start();
    let one = root("one");
    scene.bundle("roots", json!([{"inLine": one}]), json!({"configMap": {"key": "ca.crt"}}));
    scene.wait_for_targets_everywhere("configmaps", "roots", "ca.crt", &joined(&[&one]));
    scene.restart(&["--target-namespaces=default,kube-public"]);
    let allowed = ["default", "kube-public"].map(str::to_owned);
    scene.wait_for_targets(&allowed, "configmaps", "roots", "ca.crt", &joined(&[&one]));
    wait_for(|| {
        let condition = scene.synced("roots");
        let message = condition["message"].as_str().unwrap().to_owned();
        let want = "Successfully synced Bundle to all allowed namespaces";
        (message == want).then_some(()).ok_or(message)
    });
}

#[test]
fn expired_certificates_are_removed() {
    let scene = BundleFixture::with_flags(&["--filter-expired-certificates"]);
    let (long, end) = (root("long"), OffsetDateTime::now_utc() + Duration::seconds(10));
    let short = authority_until("short", end).certificate().to_pem();
    let line = format!("{long}{short}");
    scene.bundle("roots", json!([{"inLine": line}]), json!({"configMap": {"key": "ca.crt"}}));
    scene.wait_for_targets_everywhere("configmaps", "roots", "ca.crt", &joined(&[&long, &short]));
    let reported = |name: &str| {
        let page = scene.kubectl_ok(&["get", "--raw", "/metrics"]);
        metric(&page, name).ok_or(format!("no {name} in {page}"))
    };
    let certificates = "windlass_bundle_certificates{bundle=\"roots\"}";
    let expiry = "windlass_bundle_earliest_expiration_timestamp_seconds{bundle=\"roots\"}";
    let is = |name: &str, value: f64| {
        wait_for(|| match reported(name)? {
            found if (found - value).abs() < 1.0 => Ok(()),
            found => Err(format!("{name} is {found}, not {value}")),
        });
    };
    is(certificates, 2.0);
    is(expiry, f64::from(u32::try_from(end.unix_timestamp()).unwrap()));
    scene.wait_for_targets_everywhere("configmaps", "roots", "ca.crt", &joined(&[&long]));
    assert!(OffsetDateTime::now_utc() >= end - Duration::SECOND);
    is(certificates, 1.0);
    is("windlass_bundle_targets{bundle=\"roots\",state=\"synced\"}", 5.0);
    is("windlass_bundle_targets{bundle=\"roots\",state=\"failed\"}", 0.0);
    assert!(reported("windlass_bundle_sync_latency_seconds_count").unwrap() >= 2.0);
}

#[test]
fn a_target_does_not_feed_itself() {
    let scene = BundleFixture::start();
    let [one, two] = ["one", "two"].map(root);
    let picked = |text: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"root.pem": text},
            "metadata": {"name": "source", "namespace": TRUST, "labels": {"pick": "yes"}}});
        scene.apply(&object.to_string());
    };
    picked(&format!("{one}{two}"));
    let selector = json!({"matchLabels": {"pick": "yes"}});
    let sources = json!([{"configMap": {"selector": selector, "includeAllKeys": true}}]);
    let metadata = json!({"labels": {"pick": "yes"}});
    scene.bundle("roots", sources, json!({"configMap": {"key": "ca.crt", "metadata": metadata}}));
    scene.wait_for_targets_everywhere("configmaps", "roots", "ca.crt", &joined(&[&one, &two]));
    // If the target were used as a source, it would preserve the removed certificate forever.
    picked(&one);
    scene.wait_for_targets_everywhere("configmaps", "roots", "ca.crt", &joined(&[&one]));
}
