//! The default package: `useDefaultCAs`, and a package that changes, is missing or invalid.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::bundle_fixture::{BundleFixture, joined, root};
use crate::server::TestDataDir;

fn write(path: &Path, version: &str, text: &str) {
    // Replaced atomically, as a deployment tool does.
    let new = path.with_extension("new");
    let package = json!({"name": "own", "version": version, "bundle": text});
    fs::write(&new, package.to_string()).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn a_package_is_used_and_followed() {
    let place = TestDataDir::new();
    let path = place.path().join("package.json");
    let [one, two, own] = ["one", "two", "own"].map(root);
    write(&path, "1", &one);
    let mut scene =
        BundleFixture::in_data_dir(place, &["--default-package-location", &path.display().to_string()]);
    let sources = json!([{"useDefaultCAs": true}, {"inLine": own}]);
    scene.bundle("roots", sources, json!({"configMap": {"key": "ca.pem"}}));
    scene.wait_for_targets_everywhere("configmaps", "roots", "ca.pem", &joined(&[&one, &own]));
    let version = |scene: &BundleFixture| {
        scene.synced("roots");
        scene.kubectl_ok(&["get", "bundle", "roots", "-o", "jsonpath={.status.defaultCAVersion}"])
    };
    let first = version(&scene);
    assert!(first.starts_with("own-1-") && first.len() == "own-1-".len() + 16, "{first}");

    // A new version needs no restart, and an invalid one is not used.
    write(&path, "2", &two);
    scene.wait_for_targets_everywhere("configmaps", "roots", "ca.pem", &joined(&[&two, &own]));
    super::bundle_fixture::wait_for(|| {
        let found = version(&scene);
        found.starts_with("own-2-").then_some(()).ok_or(found)
    });
    fs::write(&path, "{").unwrap();
    super::bundle_fixture::wait_for(|| {
        let log = scene.admin().server.place().log();
        log.contains("default CA package rejected").then_some(()).ok_or(log)
    });
    scene.kubectl_ok(&["create", "namespace", "later"]);
    scene.wait_for_targets_everywhere("configmaps", "roots", "ca.pem", &joined(&[&two, &own]));

    // Without a package, the error says what is missing, and existing targets stay.
    scene.restart(&[]);
    let message = scene.failed("roots", "SourceNotFound");
    assert!(message.contains("no default package was specified"), "{message}");
    scene.wait_for_targets_everywhere("configmaps", "roots", "ca.pem", &joined(&[&two, &own]));
}

#[test]
fn an_invalid_package_fails_the_start() {
    let place = TestDataDir::new();
    let path = place.path().join("package.json");
    write(&path, "1", "-----BEGIN THING-----\nAAAA\n-----END THING-----\n");
    let mut command = place.restart_command();
    command.arg("--default-package-location").arg(&path);
    let Err(place) = place.try_launch(command) else { panic!("it has started") };
    let log = place.log();
    assert!(log.contains("--default-package-location"), "{log}");
    assert!(log.contains("only CERTIFICATE blocks are permitted but found 'THING'"), "{log}");
}
