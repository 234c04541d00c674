//! Migration from trust-manager in a running cluster: targets that trust-manager wrote are not
//! rewritten.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};

use super::bundle_fixture::{bundle, joined, root, wait_for};
use crate::controllers::server;
use crate::kubectl::Kubectl;
use crate::server::TestDataDir;

fn sha256(text: &str) -> String {
    let mut command = Command::new("sha256sum");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    output.split_whitespace().next().unwrap().to_owned()
}

/// Returns a target as trust-manager applies it.
fn target(uid: &str, text: &str) -> String {
    let owner = json!({"apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle",
                       "name": "roots", "uid": uid, "controller": true,
                       "blockOwnerDeletion": true});
    // Content, then key and value of the annotation and of the label.
    let hash = sha256(&format!("{text}notehereteamtrust"));
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.pem": text}, "metadata": {
        "name": "roots", "ownerReferences": [owner],
        "labels": {"trust.cert-manager.io/bundle": "roots", "team": "trust"},
        "annotations": {"trust.cert-manager.io/hash": hash, "note": "here"}}})
    .to_string()
}

#[test]
fn nothing_is_written_again() {
    // No other controller reconciles Bundles here.
    let admin = Kubectl::with_server(server(TestDataDir::new(), [""; 0]));
    let one = root("one");
    let metadata = json!({"labels": {"team": "trust"}, "annotations": {"note": "here"}});
    let wanted = bundle(
        "roots",
        json!([{"inLine": one}]),
        json!({"configMap": {"key": "ca.pem", "metadata": metadata}}),
    );
    admin.ok_with(&wanted.to_string(), &["create", "-f", "-"]);
    let uid = admin.ok(&["get", "bundle", "roots", "-o", "jsonpath={.metadata.uid}"]);
    let namespaces = admin.ok(&["get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}"]);
    let object = target(&uid, &joined(&[&one]));
    for namespace in namespaces.split_whitespace() {
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-", "-n", namespace];
        admin.ok_with(&object, &[&apply[..], &["--field-manager=trust-manager"]].concat());
    }
    let targets = |admin: &Kubectl| -> Vec<Value> {
        let named = "--field-selector=metadata.name=roots";
        let list = admin.json(&["get", "configmaps", "-A", named, "--show-managed-fields"]);
        list["items"].as_array().unwrap().clone()
    };
    let before = targets(&admin);
    assert_eq!(before.len(), 4, "{before:#?}");

    let Kubectl { server, .. } = admin;
    let place = Arc::into_inner(server).unwrap().stop();
    let (log, mut command) = (place.path().join("audit.log"), place.restart_command());
    command.arg("--audit-log-path").arg(&log);
    let admin = Kubectl::with_server(place.launch(command));
    wait_for(|| {
        let found = admin.json(&["get", "bundle", "roots"]);
        let synced = found["status"]["conditions"][0]["reason"] == "Synced";
        synced.then_some(()).ok_or(format!("{found:#}"))
    });
    assert_eq!(targets(&admin), before);
    // The resourceVersion does not show a write without changes; the audit log does.
    let events = fs::read_to_string(log).unwrap();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let about = |event: &Value| event["objectRef"]["name"] == "roots" && event["verb"] == "patch";
    let written = events.filter(about).map(|event| event["objectRef"]["resource"].clone());
    let written = written.collect::<Vec<_>>();
    assert!(!written.is_empty() && written.iter().all(|it| it == "bundles"), "{written:?}");
}
