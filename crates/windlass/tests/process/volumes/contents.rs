//! All sources in one volume: contents, owners and modes of the files.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;
use serde_json::{Value, json};

use super::volume_fixture::{
    VolumeFixture, anchor, bundle, bundle_source_by_name, pod_object, read, wait_for_text,
};

const GROUP: u32 = 12_345;
const USER: u32 = 54_321;

/// Returns every kind of source; files without a mode have that of the volume.
fn all_sources() -> Value {
    json!([
        bundle_source_by_name("roots"),
        {"podCertificate": {"signerName": "example.com/workloads", "keyType": "ED25519",
                            "keyPath": "tls/tls.key", "certificateChainPath": "tls/tls.crt"}},
        {"configMap": {"name": "map", "items": [
            {"key": "greeting", "path": "etc/greeting.txt", "mode": 0o640},
            {"key": "parting", "path": "etc/parting.txt"}]}},
        {"secret": {"name": "secret"}},
        {"secret": {"name": "none", "optional": true}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600, "audience": "db"}},
        {"downwardAPI": {"items": [
            {"path": "labels", "mode": 0o444, "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "cpu", "resourceFieldRef": {
                "containerName": "c", "resource": "limits.cpu", "divisor": "1m"}}]}},
    ])
}

fn object(kind: &str, name: &str, data: Value) -> Value {
    let field = if kind == "Secret" { "stringData" } else { "data" };
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, field: data})
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().mode() & 0o7777
}

#[test]
fn all_sources_with_their_modes_and_owners() {
    let world = VolumeFixture::start();
    let text = anchor();
    let mut plain = pod_object("plain", all_sources());
    plain["metadata"]["labels"] = json!({"app": "web"});
    plain["spec"]["volumes"][0]["projected"]["defaultMode"] = json!(0o400);
    plain["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1500m"}});
    let mut shared = plain.clone();
    shared["metadata"]["name"] = json!("shared");
    shared["spec"]["securityContext"] = json!({"fsGroup": GROUP, "runAsUser": USER});
    let map = |greeting| object("ConfigMap", "map", json!({"greeting": greeting, "parting": "bye"}));
    let root = geteuid().is_root();
    world.apply(&[
        bundle("roots", &text),
        map("hello"),
        object("Secret", "secret", json!({"password": "x"})),
        plain,
    ]);
    world.wait_until_ready("plain");
    let volume = world.volume("plain");
    for (path, expected) in [
        ("ca.pem", text.as_str()),
        ("etc/greeting.txt", "hello"),
        ("etc/parting.txt", "bye"),
        ("password", "x"),
        ("labels", "app=\"web\""),
        ("cpu", "1500"),
    ] {
        assert_eq!(read(&volume.join(path)), expected, "{path}");
    }
    assert_eq!(read(&volume.join("token")).split('.').count(), 3);
    key_and_chain_match(&volume);
    for (path, expected) in [
        ("ca.pem", 0o400),
        ("tls/tls.key", 0o400),
        ("tls/tls.crt", 0o400),
        ("etc/greeting.txt", 0o640),
        ("etc/parting.txt", 0o400),
        ("password", 0o400),
        ("token", 0o400),
        ("labels", 0o444),
    ] {
        assert_eq!(mode(&volume.join(path)), expected, "{path}");
    }
    // Everything changes atomically, including files in subdirectories.
    let before = fs::read_link(volume.join("..data")).unwrap();
    world.apply(&[map("hello again")]);
    wait_for_text(&volume.join("etc/greeting.txt"), "hello again");
    assert_ne!(fs::read_link(volume.join("..data")).unwrap(), before);
    key_and_chain_match(&volume);

    if root {
        world.apply(&[shared]);
        world.wait_until_ready("shared");
        owners(&world.volume("shared"));
    } else {
        // Printed, because a skipped part of the test must not look like one that passed.
        eprintln!("not root; owners and groups are not verified");
    }
}

/// Credentials are readable by one user and the group; all files are readable by the group.
fn owners(volume: &Path) {
    for (path, user, expected) in [
        ("ca.pem", USER, 0o640),
        ("tls/tls.key", USER, 0o640),
        ("token", USER, 0o640),
        ("password", 0, 0o440),
        ("etc/greeting.txt", 0, 0o640),
        ("labels", 0, 0o444),
    ] {
        let facts = fs::metadata(volume.join(path)).unwrap();
        assert_eq!((facts.uid(), facts.gid()), (user, GROUP), "{path}");
        assert_eq!(facts.mode() & 0o7777, expected, "{path}");
    }
    let folder = fs::metadata(volume.join("..data")).unwrap();
    assert_eq!((folder.gid(), folder.mode() & 0o7777), (GROUP, 0o2755));
}

fn key_and_chain_match(volume: &Path) {
    let public = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(volume).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let key = public(&["pkey", "-in", "tls/tls.key", "-pubout"]);
    assert_eq!(public(&["x509", "-in", "tls/tls.crt", "-noout", "-pubkey"]), key);
}

#[test]
fn conflicting_paths_of_two_sources_are_reported() {
    let world = VolumeFixture::start();
    let item = json!({"configMap": {"name": "map", "items": [{"key": "k", "path": "ca.pem"}]}});
    let both = pod_object("both", json!([bundle_source_by_name("roots"), item])).to_string();
    let refused = world.admin().fails_with(&both, &["create", "-f", "-"]);
    let why = "spec.volumes[0].projected: Invalid value: \"map\": conflicting duplicate paths";
    assert!(refused.contains(why), "{refused}");

    // Only the node knows the keys of the ConfigMap, so these conflicts are found there.
    world.apply(&[
        bundle("roots", &anchor()),
        object("ConfigMap", "map", json!({"ca.pem": "x"})),
        pod_object("both", json!([bundle_source_by_name("roots"), {"configMap": {"name": "map"}}])),
        pod_object(
            "below",
            json!([bundle_source_by_name("roots"), {"downwardAPI": {"items": [
            {"path": "ca.pem/name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]),
        ),
    ]);
    for (pod, path) in [("both", "ca.pem"), ("below", "ca.pem/name")] {
        let why = world.wait_until_not_ready(pod, "FailedMount");
        let expected =
            format!("MountVolume.SetUp failed for volume \"v\" : conflicting duplicate paths: {path}");
        assert_eq!(why, expected, "{pod}");
        assert_eq!(world.failed_mounts(pod), [expected]);
        assert!(!world.volume(pod).join("..data").exists());
    }
    world.apply(&[object("ConfigMap", "map", json!({"other": "x"}))]);
    world.wait_until_ready("both");
    assert_eq!(read(&world.volume("both").join("other")), "x");
}
