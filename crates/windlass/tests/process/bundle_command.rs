//! Bundles on the command line: `kubectl`, `windlass bundle status` and `windlass trust package`.

use std::fs;

use serde_json::{Value, json};

use crate::issue::{windlass, windlass_fails, windlass_ok};
use crate::kubectl::Kubectl;
use crate::server::TestDataDir;

const ROOT: &str = include_str!("../../../pki/tests/verdicts/ca-p256.pem");
const OTHER: &str = include_str!("../../../pki/tests/verdicts/ca-ed25519.pem");

fn bundle(name: &str, sources: Value) -> String {
    json!({
        "apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": name},
        "spec": {"sources": sources, "target": {"configMap": {"key": "ca.crt"}}},
    })
    .to_string()
}

#[test]
fn a_bundle_is_applied_listed_and_explained() {
    let admin = Kubectl::new();
    let manifest = bundle("roots", json!([{"inLine": ROOT}]));
    let applied = admin.ok_with(&manifest, &["apply", "--server-side", "-f", "-"]);
    assert_eq!(applied, "bundle.trust.cert-manager.io/roots serverside-applied\n");
    admin.ok(&["wait", "--for=condition=Synced", "bundle/roots", "--timeout=30s"]);
    let table = admin.ok(&["get", "bundles"]);
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let head = ["NAME", "CONFIGMAP", "TARGET", "SECRET", "TARGET", "SYNCED", "REASON", "AGE"];
    assert_eq!(rows.next().unwrap(), head);
    assert_eq!(rows.next().unwrap()[..4], ["roots", "ca.crt", "True", "Synced"]);
    let map = admin.json(&["get", "configmap", "roots", "-n", "kube-public"]);
    assert_eq!(map["data"]["ca.crt"], ROOT.trim_end());
    let explained = admin.ok(&["explain", "bundle.spec.target.additionalFormats.pkcs12"]);
    assert!(explained.contains("without a password the store is neither"), "{explained}");
    let said = windlass_ok(&admin, &["bundle", "status", "roots"]);
    for words in ["Synced:   True (Synced)", "inLine", "Certificates: 1", "up to date"] {
        assert!(said.contains(words), "{words} in\n{said}");
    }
    let said: Value =
        serde_json::from_str(&windlass_ok(&admin, &["bundle", "status", "roots", "-o", "json"])).unwrap();
    assert_eq!((&said["targets"], &said["outdated"]), (&said["upToDate"], &json!([])));
    assert_eq!(said["certificates"][0]["notAfter"], "2056-01-01T00:00:00Z");
    let said = windlass_ok(&admin, &["bundle", "status", "roots", "-n", "kube-public"]);
    assert!(said.contains("Targets: 1 of 1 up to date"), "{said}");
    let said = windlass_fails(&admin, &["bundle", "status", "roots", "-n", "nowhere"]);
    assert!(said.contains("namespace \"nowhere\" not found"), "{said}");
    // Problems are reported with their location.
    let missing = bundle("missing", json!([{"configMap": {"name": "none", "key": "k"}}]));
    admin.ok_with(&missing, &["apply", "-f", "-"]);
    admin.ok(&["wait", "--for=condition=Synced=False", "bundle/missing", "--timeout=30s"]);
    let output = windlass(&admin, &["bundle", "status", "missing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("SourceNotFound: Bundle source was not found: "), "{said}");
    assert!(said.contains("default/missing"), "{said}");
    let said = windlass_fails(&admin, &["bundle", "status", "nobody"]);
    assert!(said.contains("Bundle \"nobody\" not found"), "{said}");
    let printed = windlass_ok(&admin, &["crds"]);
    assert!(printed.contains("\n---\n# Bundle of trust-manager"), "{printed}");
}

#[test]
fn a_machine_s_store_is_a_package() {
    let place = TestDataDir::new();
    let (store, file) = (place.path().join("store.pem"), place.path().join("package.json"));
    fs::write(&store, format!("{ROOT}{OTHER}")).unwrap();
    let from = store.to_str().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
    let made = command.args(["trust", "package", "--from", from, "--edition", "7"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::write(&file, made.stdout).unwrap();
    let admin =
        Kubectl::with_server(place.start_with(["--default-package-location".as_ref(), file.as_os_str()]));
    admin.ok_with(&bundle("roots", json!([{"useDefaultCAs": true}])), &["apply", "-f", "-"]);
    admin.ok(&["wait", "--for=condition=Synced", "bundle/roots", "--timeout=30s"]);
    let status = || admin.json(&["get", "bundle", "roots"])["status"].clone();
    assert_eq!(status()["certificates"], 2);
    let version = status()["defaultCAVersion"].as_str().unwrap().to_owned();
    assert!(version.starts_with("system-7-"), "{version}");
    // The file is reloaded on change.
    let package = json!({"name": "system", "version": "8", "bundle": ROOT}).to_string();
    fs::write(&file, package).unwrap();
    let smaller = "--for=jsonpath={.status.certificates}=1";
    admin.ok(&["wait", smaller, "bundle/roots", "--timeout=30s"]);
}
