//! JKS and PKCS#12: other programs read them, and equal input produces identical bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::json;

use super::bundle_fixture::{BundleFixture, decoded, joined, root};

/// Bundle name, PKCS#12 profile and password of each case.
const PKCS12: [(&str, &str, &str); 6] = [
    ("rc2", "LegacyRC2", "secret"),
    ("des", "LegacyDES", "secret"),
    ("modern", "Modern2023", "secret"),
    ("rc2-open", "LegacyRC2", ""),
    ("des-open", "LegacyDES", ""),
    ("modern-open", "Modern2023", ""),
];

#[test]
fn others_open_them_and_they_stay_the_same() {
    let mut scene = BundleFixture::start();
    let roots = ["one", "two"].map(root);
    let text = joined(&[&roots[0], &roots[1]]);
    for (name, profile, password) in PKCS12 {
        let jks = if password.is_empty() { "changeit" } else { password };
        let formats = json!({
            "pkcs12": {"key": "t.p12", "profile": profile, "password": password},
            "jks": {"key": "t.jks", "password": jks},
        });
        let target = json!({"configMap": {"key": "ca.pem"}, "additionalFormats": formats});
        scene.bundle(name, json!([{"inLine": roots.concat()}]), target);
    }
    for (name, _, password) in PKCS12 {
        scene.wait_for_targets_everywhere("configmaps", name, "ca.pem", &text);
        let place = tempfile::tempdir().unwrap();
        for (key, bytes) in stores(&scene, name) {
            fs::write(place.path().join(key), bytes).unwrap();
        }
        openssl_reads(place.path(), password, &roots);
        keytool_reads(place.path(), password);
    }

    // Another process produces the same bytes, and up-to-date targets are not written.
    let before = PKCS12.map(|(name, ..)| (stores(&scene, name), versions(&scene, name)));
    scene.restart(&[]);
    for ((name, ..), (bytes, versions_before)) in PKCS12.into_iter().zip(before) {
        scene.kubectl_ok(&["delete", "configmap", name, "-n", "default"]);
        scene.wait_for_targets_everywhere("configmaps", name, "ca.pem", &text);
        assert_eq!(stores(&scene, name), bytes, "{name}");
        let mut versions_after = versions(&scene, name);
        versions_after.insert("default".to_owned(), versions_before["default"].clone());
        assert_eq!(versions_after, versions_before, "{name}");
    }
}

/// Returns the keystores of a Bundle in `default`.
fn stores(scene: &BundleFixture, name: &str) -> BTreeMap<String, Vec<u8>> {
    let object = scene.target("configmaps", "default", name);
    let entries = object["binaryData"].as_object().unwrap().iter();
    entries.map(|(key, text)| (key.clone(), decoded(text.as_str().unwrap()))).collect()
}

fn versions(scene: &BundleFixture, name: &str) -> BTreeMap<String, String> {
    let all = scene.list_named("configmaps", name);
    let text = |metadata: &serde_json::Value, field: &str| metadata[field].as_str().unwrap().to_owned();
    all.iter()
        .map(|it| &it["metadata"])
        .map(|metadata| (text(metadata, "namespace"), text(metadata, "resourceVersion")))
        .collect()
}

fn run(place: &Path, program: &str, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir(place).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // An empty response to password prompts.
    let _ = child.stdin.take().unwrap().write_all(b"\n");
    child.wait_with_output().unwrap()
}

fn openssl_reads(place: &Path, password: &str, roots: &[String; 2]) {
    let pass = format!("pass:{password}");
    let mut args = vec!["pkcs12", "-in", "t.p12", "-nokeys", "-passin", &pass];
    if password.is_empty() {
        args.push("-nomacver");
    }
    let mut output = run(place, "openssl", &args);
    if !output.status.success() {
        // OpenSSL 3 supports RC2 only with the legacy provider.
        args.push("-legacy");
        output = run(place, "openssl", &args);
    }
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {said}\n{complained}");
    for root in roots {
        assert!(said.contains(root.as_str()), "{args:?}: {said}\n{complained}");
    }
    assert_eq!(said.matches("BEGIN CERTIFICATE").count(), 2, "{said}");
    assert!(!password.is_empty() || complained.is_empty(), "{complained}");
    // A wrong password must be rejected.
    if !password.is_empty() {
        let args = ["pkcs12", "-in", "t.p12", "-nokeys", "-passin", "pass:wrong"];
        assert!(!run(place, "openssl", &args).status.success());
    }
}

/// Skipped where keytool is not installed: Java is optional.
fn keytool_reads(place: &Path, password: &str) {
    if Command::new("keytool").arg("-help").output().is_err() {
        eprintln!("keytool not found: not verified with Java");
        return;
    }
    let jks = if password.is_empty() { "changeit" } else { password };
    let list = |args: &[&str]| {
        let output = run(place, "keytool", &[&["-list"], args].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        assert_eq!(said.matches("trustedCertEntry").count(), 2, "{args:?}: {said}");
        assert!(said.contains("|cn=one") && said.contains("|cn=two"), "{args:?}: {said}");
    };
    list(&["-keystore", "t.jks", "-storetype", "JKS", "-storepass", jks]);
    if password.is_empty() {
        list(&["-keystore", "t.p12", "-storetype", "PKCS12"]);
    } else {
        list(&["-keystore", "t.p12", "-storetype", "PKCS12", "-storepass", password]);
    }
}
