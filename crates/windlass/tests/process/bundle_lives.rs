//! The lives of Bundles' targets with kubectl: what trust-manager's smoke tests do by hand.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kubectl::Kubectl;
use crate::server::{PATIENCE, Place};

const ONE: &str = include_str!("../../../pki/tests/verdicts/ca-p256.pem");
const TWO: &str = include_str!("../../../pki/tests/verdicts/ca-ed25519.pem");
const THREE: &str = include_str!("../../../pki/tests/verdicts/ca-rsa2048.pem");

/// A server with the trust namespace, a default package and Secret targets.
fn site() -> Kubectl {
    let place = Place::new();
    let file = place.path().join("package.json");
    fs::write(&file, json!({"name": "p", "version": "1", "bundle": THREE}).to_string()).unwrap();
    let mut command = place.up("127.0.0.1:0");
    command.arg("--secret-targets-enabled").arg("--default-package-location").arg(&file);
    let Ok(server) = place.launch(command) else { panic!("it did not start") };
    let admin = Kubectl::on(server);
    for namespace in ["cert-manager", "one", "two"] {
        admin.ok(&["create", "namespace", namespace]);
    }
    let root = format!("--from-literal=k={ONE}");
    admin.ok(&["create", "configmap", "source", "-n", "cert-manager", &root]);
    let root = format!("--from-literal=k={TWO}");
    admin.ok(&["create", "secret", "generic", "source", "-n", "cert-manager", &root]);
    admin
}

fn apply(admin: &Kubectl, target: &Value) {
    let sources = json!([
        {"configMap": {"name": "source", "key": "k"}},
        {"secret": {"name": "source", "key": "k"}},
        {"useDefaultCAs": true},
    ]);
    let bundle = json!({
        "apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": "roots"}, "spec": {"sources": sources, "target": target},
    });
    admin.ok_with(&bundle.to_string(), &["apply", "-f", "-"]);
}

/// Waits until the objects of a kind that are called `roots` are in these namespaces and have so many
/// certificates at this key and nothing else.
fn until(admin: &Kubectl, kind: &str, key: &str, wanted: &[(&str, usize)]) {
    let started = Instant::now();
    loop {
        let all = admin.json(&["get", kind, "-A", "--field-selector=metadata.name=roots"]);
        let found: Vec<(String, usize)> = all["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                let data = item["data"].as_object().cloned().unwrap_or_default();
                let count = match data.keys().map(String::as_str).collect::<Vec<_>>()[..] {
                    [only] if only == key => certificates(&data[key], kind),
                    _ => 0,
                };
                (item["metadata"]["namespace"].as_str().unwrap().to_owned(), count)
            })
            .collect();
        let among = |namespace: &str| found.iter().find(|(name, _)| name == namespace);
        let there = wanted.iter().filter(|(_, count)| *count > 0);
        let right = there.clone().all(|(n, count)| among(n).is_some_and(|(_, has)| has == count));
        let gone = wanted.iter().filter(|(_, count)| *count == 0).all(|(n, _)| among(n).is_none());
        if right && gone {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{kind}: {wanted:?}, but {found:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn certificates(data: &Value, kind: &str) -> usize {
    use base64::Engine as _;
    let text = data.as_str().unwrap();
    let text = match kind {
        "secrets" => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
            String::from_utf8(bytes).unwrap()
        }
        _ => text.to_owned(),
    };
    text.matches("BEGIN CERTIFICATE").count()
}

fn lives(kind: &str, field: &str) {
    let admin = site();
    let all = |count| [("default", count), ("one", count), ("two", count), ("cert-manager", count)];
    let keyed = |key: &str| json!({field: {"key": key}});
    apply(&admin, &keyed("a"));
    until(&admin, kind, "a", &all(3));
    admin.ok(&["wait", "--for=condition=Synced", "bundle/roots", "--timeout=30s"]);
    // Sources change.
    let both = json!({"data": {"k": format!("{ONE}{TWO}")}}).to_string();
    admin.ok(&["patch", "configmap", "source", "-n", "cert-manager", "--patch", &both]);
    let none = json!({"stringData": {"k": ONE}}).to_string();
    admin.ok(&["patch", "secret", "source", "-n", "cert-manager", "--patch", &none]);
    until(&admin, kind, "a", &all(3));
    let one = json!({"data": {"k": ONE}}).to_string();
    admin.ok(&["patch", "configmap", "source", "-n", "cert-manager", "--patch", &one]);
    until(&admin, kind, "a", &all(2));
    // The key, a new namespace, and somebody who deletes or empties a target.
    apply(&admin, &keyed("b"));
    until(&admin, kind, "b", &all(2));
    admin.ok(&["create", "namespace", "three"]);
    until(&admin, kind, "b", &[("three", 2)]);
    admin.ok(&["delete", kind, "roots", "-n", "one"]);
    until(&admin, kind, "b", &[("one", 2)]);
    admin.ok(&[
        "patch",
        kind,
        "roots",
        "-n",
        "two",
        "--type=merge",
        "--patch",
        r#"{"data": null}"#,
    ]);
    until(&admin, kind, "b", &[("two", 2)]);
    // Only namespaces with a label, which come and go.
    let mut some = keyed("b");
    some["namespaceSelector"] = json!({"matchLabels": {"trust": "yes"}});
    admin.ok(&["label", "namespace", "one", "trust=yes"]);
    apply(&admin, &some);
    until(&admin, kind, "b", &[("one", 2), ("two", 0), ("three", 0), ("default", 0)]);
    admin.ok(&["label", "namespace", "two", "trust=yes"]);
    until(&admin, kind, "b", &[("one", 2), ("two", 2)]);
    admin.ok(&["label", "namespace", "one", "trust-"]);
    until(&admin, kind, "b", &[("one", 0), ("two", 2)]);
    // The end.
    admin.ok(&["delete", "bundle", "roots"]);
    until(&admin, kind, "b", &[("one", 0), ("two", 0)]);
}

#[test]
fn of_config_maps() {
    lives("configmaps", "configMap");
}

#[test]
fn of_secrets() {
    lives("secrets", "secret");
}
