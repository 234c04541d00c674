//! Paths and links that lead out of a volume: nothing outside changes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::volume_fixture::{
    VolumeFixture, anchor, bundle, bundle_source_by_name, pod_object, read, wait_for_text, wait_until,
};

const BAD_PATHS: [&str; 6] = ["../x", "/etc/x", "a/../../x", "..", "..data/x", "..x"];

/// A directory that the agent must not touch, with its expected contents.
struct OutsideDirectory {
    path: PathBuf,
    before: BTreeMap<PathBuf, String>,
}

impl OutsideDirectory {
    fn new(path: PathBuf) -> Self {
        fs::create_dir_all(path.join("deep")).unwrap();
        for name in ["ca.pem", "other", "deep/file"] {
            fs::write(path.join(name), "theirs").unwrap();
        }
        let before = snapshot_tree(&path);
        Self { path, before }
    }

    fn assert_unchanged(&self) {
        assert_eq!(snapshot_tree(&self.path), self.before);
    }
}

/// Returns everything below a directory: files with their text, links with their targets.
fn snapshot_tree(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(snapshot_tree(&path));
        }
        let text = match () {
            () if kind.is_dir() => "directory".to_owned(),
            () if kind.is_symlink() => format!("link to {:?}", fs::read_link(&path).unwrap()),
            () => read(&path),
        };
        found.insert(path, text);
    }
    found
}

/// Field that holds the path in each of the `sources`.
const FIELDS: [&str; 4] = [
    "clusterTrustBundle.path",
    "configMap.items[0].path",
    "secret.items[0].path",
    "podCertificate.credentialBundlePath",
];

/// Returns a source of each kind that writes to a path.
fn sources(path: &str) -> Vec<Value> {
    let item = json!([{"key": "k", "path": path}]);
    vec![
        json!({"clusterTrustBundle": {"name": "roots", "path": path}}),
        json!({"configMap": {"name": "map", "items": item}}),
        json!({"secret": {"name": "map", "items": item}}),
        json!({"podCertificate": {"signerName": "example.com/workloads", "keyType": "ED25519",
                                  "credentialBundlePath": path}}),
    ]
}

#[test]
fn paths_that_lead_out_are_refused() {
    let mut world = VolumeFixture::start();
    let pod_only = |path: &str| {
        let field = json!({"fieldPath": "metadata.name"});
        [
            json!({"serviceAccountToken": {"path": path}}),
            json!({"downwardAPI": {"items": [{"path": path, "fieldRef": field}]}}),
        ]
    };
    for path in BAD_PATHS {
        let all = [sources(path), pod_only(path).to_vec()].concat();
        let text = pod_object("bad", json!(all)).to_string();
        let refused = world.admin().fails_with(&text, &["create", "-f", "-"]);
        // Kubernetes does not name the source of a token's path.
        for field in [&FIELDS[..], &["projected.path", "downwardAPI.path"]].concat() {
            assert!(refused.contains(&format!("{field}: Invalid value: {path:?}")), "{refused}");
        }
    }
    for key in ["../x", "a/b", ".."] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"},
                         "data": {key: "x"}});
        let refused = world.admin().fails_with(&map.to_string(), &["create", "-f", "-"]);
        assert!(refused.contains("data["), "{refused}");
    }

    // The same in a host projections file, with which the agent refuses to start.
    let below = world.path().join("below");
    world.stop_agent();
    for path in BAD_PATHS {
        let file = world.path().join("projections.json");
        let projection = json!({"name": "web", "directory": below.join("web"),
            "projected": {"sources": sources(path)},
            "keystores": [{"path": path, "format": "JKS", "trustAnchorsPath": "ca.pem", "password": "x"}]});
        let text = json!({"apiVersion": "windlass.dev/v1", "kind": "Projections",
                          "projections": [projection]});
        fs::write(&file, text.to_string()).unwrap();
        world.start_agent("--projections projections.json");
        let log = world.wait_for_agent_failure();
        for field in FIELDS {
            assert!(log.contains(&format!("{field}: Invalid value: {path:?}")), "{log}");
        }
        let keystore = format!("keystores[0].path: {path:?} is not a valid path: ");
        assert!(log.contains(&keystore), "{log}");
        world.agent = None;
    }
    assert!(!below.exists());
}

#[test]
fn links_of_other_users_are_not_followed() {
    let world = VolumeFixture::start();
    let mut text = anchor();
    world.apply(&[bundle("roots", &text), pod_object("p", json!([bundle_source_by_name("roots")]))]);
    world.wait_until_ready("p");
    let volume = world.volume("p");
    let file = volume.join("ca.pem");
    let outside = OutsideDirectory::new(world.path().join("outside"));
    let mut change = |wait: bool| {
        text = anchor();
        world.apply(&[bundle("roots", &text)]);
        if wait {
            wait_for_text(&file, &text);
        }
    };

    // In place of the `..data` link.
    fs::remove_file(volume.join("..data")).unwrap();
    symlink(&outside.path, volume.join("..data")).unwrap();
    change(true);
    outside.assert_unchanged();
    let data = fs::read_link(volume.join("..data")).unwrap();
    assert!(data.is_relative() && volume.join(&data).is_dir(), "{data:?}");

    // In place of a file, of a temporary file, and of unused directories.
    fs::remove_file(&file).unwrap();
    symlink(outside.path.join("ca.pem"), &file).unwrap();
    symlink(outside.path.join("other"), volume.join("..data_tmp")).unwrap();
    symlink(&outside.path, volume.join("..2020_01_01_00_00_00.1")).unwrap();
    change(true);
    outside.assert_unchanged();
    assert_eq!(fs::read_link(&file).unwrap(), Path::new("..data/ca.pem"));
    wait_until("what was put there is still there", || {
        let names = fs::read_dir(&volume).unwrap().count();
        // The directory, the link to it, and the link of the file.
        (names == 3).then_some(())
    });

    // In place of the volume itself: the link is not followed, and the pod has an error.
    let aside = volume.with_file_name("aside");
    fs::rename(&volume, &aside).unwrap();
    symlink(&outside.path, &volume).unwrap();
    change(false);
    let why = world.wait_until_not_ready("p", "KeepingOldContent");
    assert!(why.contains("MountVolume.SetUp failed for volume \"v\" : "), "{why}");
    outside.assert_unchanged();
    fs::remove_file(&volume).unwrap();
    fs::rename(&aside, &volume).unwrap();
    change(true);

    // During the removal of everything.
    symlink(&outside.path, volume.join("..2020_01_01_00_00_00.2")).unwrap();
    symlink(&outside.path, volume.parent().unwrap().join("link")).unwrap();
    world.kubectl_ok(&["delete", "pod", "p", "--grace-period=1", "--timeout=30s"]);
    assert!(!volume.exists());
    outside.assert_unchanged();
}
