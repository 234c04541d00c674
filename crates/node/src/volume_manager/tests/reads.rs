//! Whether applications read trust anchors, with real files and real processes.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{PATIENCE, VolumeTestNode, bundle, named, pod};
use crate::projections;
use crate::read_observer::{AnchorReads, ReadState};

const VOLUME: &str = "default/pod-u1/v";

/// Returns the state of the only source.
fn reads(node: &VolumeTestNode) -> AnchorReads {
    let observer = node.reads.lock().unwrap().clone().unwrap();
    let states = observer.states().borrow().clone();
    let mut states = states.values();
    let found = *states.next().unwrap();
    assert_eq!(states.next(), None);
    found
}

fn is_unread(node: &VolumeTestNode) -> bool {
    matches!(reads(node).state, ReadState::NotRead { .. })
}

async fn until_read(node: &VolumeTestNode) {
    let mut states = node.reads.lock().unwrap().clone().unwrap().states();
    let is_read = |states: &crate::read_observer::ReadStates| {
        states.values().all(|reads| reads.state == ReadState::Read)
    };
    let waited = tokio::time::timeout(PATIENCE, states.wait_for(is_read)).await;
    assert!(waited.is_ok(), "{:?}", reads(node));
}

/// Lets the agent check its files, for which it reads them.
async fn check_files() {
    tokio::time::sleep(Duration::from_secs(15 * 60)).await;
}

/// Reads a file in another process, through the symlinks.
fn cat(file: &Path) {
    assert!(Command::new("cat").arg(file).output().unwrap().status.success());
}

/// Reads a file of a directory in another process that has it mounted elsewhere, in its own mount namespace.
fn cat_in_namespace(directory: &Path, name: &str) {
    let mount = tempfile::tempdir().unwrap();
    let script = "mount --bind \"$1\" \"$2\" && mount -o remount,ro,bind \"$2\" && cat \"$2/$3\"";
    let mut shell = Command::new("unshare");
    // Without root, a user namespace permits the mounts.
    if !rustix::process::geteuid().is_root() {
        shell.args(["--user", "--map-root-user"]);
    }
    shell.args(["--mount", "sh", "-c", script, "sh"]).args([directory, mount.path()]).arg(name);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn change_anchors(node: &VolumeTestNode) {
    let before = node.reports.borrow().values().next().and_then(|report| report.changed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.set_bundles(&[bundle("a", "", &[])]);
    let volume = node.reports.borrow().keys().next().unwrap().to_string();
    node.until(&volume, |report| report.blocked.is_none() && report.changed > before).await;
}

#[tokio::test(start_paused = true)]
async fn applications_count_and_the_agent_does_not() {
    let node = VolumeTestNode::new();
    node.set_bundles(&[bundle("a", "", &[])]);
    node.set_pods(&[pod("u1", json!([named("a", false)]))]);
    let _running = node.start();
    node.until_good(VOLUME).await;
    let file = node.volume("u1", "v").join("ca.pem");
    check_files().await;
    assert!(is_unread(&node), "the agent's own reads count");
    cat(&file);
    until_read(&node).await;
    let first = reads(&node).changed;
    // It stays read while the anchors are the same.
    check_files().await;
    assert_eq!(reads(&node), AnchorReads { changed: first, state: ReadState::Read });

    // A process that holds the old file open has not opened the new one.
    let held = File::open(&file).unwrap();
    change_anchors(&node).await;
    let AnchorReads { changed, state } = reads(&node);
    assert!(changed > first);
    assert_eq!(state, ReadState::NotRead { since: changed });
    assert!(std::io::copy(&mut &held, &mut std::io::sink()).is_ok());
    check_files().await;
    assert_eq!(reads(&node).state, ReadState::NotRead { since: changed });
    cat_in_namespace(&node.volume("u1", "v"), "ca.pem");
    until_read(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_another_file_does_not_ask_for_another_read() {
    let node = VolumeTestNode::new();
    node.set_bundles(&[bundle("a", "", &[])]);
    let labels =
        json!({"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}});
    let mut labelled = pod("u1", json!([named("a", false), labels]));
    node.set_pods(std::slice::from_ref(&labelled));
    let _running = node.start();
    node.until_good(VOLUME).await;
    let mut set_label = async |value: &str| {
        labelled.metadata.labels = Some([("k".to_owned(), value.to_owned())].into());
        node.set_pods(std::slice::from_ref(&labelled));
        while node.file("u1", "labels") != format!("k=\"{value}\"") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The observer learns of it after the files have changed.
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let before = reads(&node);
    set_label("1").await;
    assert_eq!(reads(&node), before, "not read, since the same time");
    cat(&node.volume("u1", "v").join("ca.pem"));
    until_read(&node).await;
    set_label("2").await;
    assert_eq!(reads(&node).state, ReadState::Read);
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_what_was_read_and_nothing_else() {
    let node = VolumeTestNode::new();
    node.set_bundles(&[bundle("a", "", &[])]);
    node.set_pods(&[pod("u1", json!([named("a", false)]))]);
    let running = node.start();
    node.until_good(VOLUME).await;
    let file = node.volume("u1", "v").join("ca.pem");
    let restart = async |running: super::RunningVolumeManager| {
        // The state is saved after a moment.
        tokio::time::sleep(Duration::from_secs(10)).await;
        running.kill().await;
        // Nobody observes this.
        cat(&file);
        node.reports.send_replace(Arc::default());
        let running = node.start();
        node.until(VOLUME, |report| report.blocked.is_none() && report.anchors[0].carried.is_some()).await;
        running
    };
    let before = reads(&node);
    let running = restart(running).await;
    assert_eq!(reads(&node), before, "opened while no agent was running");
    cat(&file);
    until_read(&node).await;
    let running = restart(running).await;
    assert_eq!(reads(&node), AnchorReads { state: ReadState::Read, ..before });
    // Without the record, it is not read, since the time at which the files were written.
    running.kill().await;
    std::fs::remove_file(node.dir.path().join("trust-reads.json")).unwrap();
    let _running = restart(node.start()).await;
    let since = before.changed.replace_nanosecond(0).unwrap();
    assert_eq!(reads(&node), AnchorReads { changed: since, state: ReadState::NotRead { since } });
    cat(&file);
    until_read(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_trust_store_counts_as_its_anchors() {
    let node = VolumeTestNode::new();
    node.set_bundles(&[bundle("a", "", &[])]);
    let directory = node.dir.path().join("web");
    let text = format!(
        "apiVersion: windlass.dev/v1\nkind: Projections\nprojections:\n- name: web\n  directory: {}\n  \
         projected: {{sources: [{{clusterTrustBundle: {{name: a, path: ca.pem}}}}]}}\n  \
         keystores: [{{path: trust.p12, format: PKCS12, trustAnchorsPath: ca.pem}}]\n",
        directory.display()
    );
    let file = node.dir.path().join("projections.yaml");
    std::fs::write(&file, text).unwrap();
    node.projections.send_replace(Arc::new(projections::read(&file, &node.files).unwrap()));
    let _running = node.start();
    node.until_good("host/web").await;
    for name in ["trust.p12", "ca.pem"] {
        assert!(is_unread(&node), "{name}");
        cat(&directory.join(name));
        until_read(&node).await;
        change_anchors(&node).await;
    }
    // A projection that is removed is not observed any more.
    node.projections.send_replace(Arc::default());
    let mut states = node.reads.lock().unwrap().clone().unwrap().states();
    assert!(tokio::time::timeout(PATIENCE, states.wait_for(|states| states.is_empty())).await.is_ok());
}
