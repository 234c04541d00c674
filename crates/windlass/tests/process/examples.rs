//! Every YAML file under `examples/` is accepted by the component that reads it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_testkit::retry;

use crate::issue::{windlass, windlass_ok};
use crate::kubectl::Kubectl;

fn yaml_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    found
}

fn wait_until_synced(admin: &Kubectl, bundle: &str) {
    retry(|| {
        let output = windlass(admin, &["bundle", "status", bundle]).output().unwrap();
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stdout).into_owned())
        }
    });
}

#[test]
fn every_example_is_valid() {
    let admin = Kubectl::new();
    admin.ok(&["create", "namespace", "cert-manager"]);
    let mut files = yaml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples"));
    // The sources of a Bundle may be created after it.
    files.sort();
    let (mut kinds, mut bundles) = (Vec::new(), Vec::new());
    for file in files {
        let path = file.to_str().unwrap();
        let document: Value = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let kind = document["kind"].as_str().unwrap().to_owned();
        match kind.as_str() {
            "Signers" => {
                let checked = windlass_ok(&admin, &["signer", "check", "--files-only", "--signers", path]);
                assert!(checked.contains("will be created at start"), "{path}: {checked}");
            }
            "Projections" => {
                let read = windlass_node::projections::read(&file, &Default::default());
                assert!(read.is_ok(), "{path}: {:?}", read.err());
            }
            _ => drop(admin.ok(&["apply", "-f", path])),
        }
        if kind == "Bundle" {
            bundles.push(document["metadata"]["name"].as_str().unwrap().to_owned());
        }
        kinds.push(kind);
    }
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds, ["Bundle", "ConfigMap", "Projections", "Signers"]);
    bundles.iter().for_each(|bundle| wait_until_synced(&admin, bundle));
}
