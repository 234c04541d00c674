//! Volumes survive restarts of the agent and the server, and are removed with their pods.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::volume_fixture::{
    VolumeFixture, anchor, bundle, bundle_source_by_name, certificate, pod_object, read, wait_for_text,
    wait_until,
};

/// Returns what changes when a volume is rewritten: the target of its link, and the inode of the
/// directory.
fn generation(volume: &Path) -> (PathBuf, u64) {
    let data = volume.join("..data");
    (fs::read_link(&data).unwrap(), fs::metadata(&data).unwrap().ino())
}

#[test]
fn the_agent_is_killed_and_starts_again_without_the_server() {
    let mut world = VolumeFixture::start();
    let (one, two) = (anchor(), anchor());
    let token = json!({"serviceAccountToken": {"path": "token", "audience": "db"}});
    world.apply(&[
        bundle("roots", &one),
        pod_object("p", json!([bundle_source_by_name("roots"), certificate(), token])),
    ]);
    world.wait_until_ready("p");
    let volume = world.volume("p");
    let [anchors, pair, token] = ["ca.pem", "pod.pem", "token"].map(|name| volume.join(name));
    let before = (generation(&volume), read(&pair), read(&token));
    assert_eq!(world.count("podcertificaterequests"), 1);
    let look = || (generation(&volume), read(&pair), read(&token));

    world.stop_server();
    world.kill_agent();
    assert_eq!(look(), before);
    world.start_agent("");
    // It has tried to reach the server, and has not changed the existing files.
    world.wait_for_agent_status("it does not miss the server", |said| {
        !said["registration"]["error"].is_null()
    });
    assert_eq!((look(), read(&anchors)), (before.clone(), one));

    world.start_server();
    world.has_delivered(1.0);
    world.wait_until_ready("p");
    assert_eq!(look(), before);
    world.apply(&[bundle("roots", &two)]);
    wait_for_text(&anchors, &two);
    assert_ne!(generation(&volume), before.0);
    assert_eq!((read(&pair), read(&token)), (before.1, before.2));
    assert_eq!(world.count("podcertificaterequests"), 1);
}

/// Marks a pod as succeeded, as its runtime would.
fn succeed(world: &VolumeFixture, pod: &str) {
    let phase = r#"{"status":{"phase":"Succeeded"}}"#;
    if world.admin().minor() >= 24 {
        world.kubectl_ok(&["patch", "pod", pod, "--subresource=status", "--type=merge", "-p", phase]);
        return;
    }
    let mut object = world.admin().json(&["get", "pod", pod]);
    object["status"]["phase"] = json!("Succeeded");
    let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
    world.admin().ok_with(&object.to_string(), &["replace", "--raw", &path, "-f", "-"]);
}

#[test]
fn nothing_is_left_of_a_pod_that_is_gone_or_has_ended() {
    let mut world = VolumeFixture::start();
    let sources = json!([bundle_source_by_name("roots"), certificate()]);
    let all = ["deleted", "ended"].map(|name| pod_object(name, sources.clone()));
    world.apply(&[&[bundle("roots", &anchor())], &all[..]].concat());
    let [deleted, ended] = ["deleted", "ended"].map(|pod| {
        world.wait_until_ready(pod);
        world.directory(pod)
    });
    assert!(deleted.exists() && ended.exists());
    assert_eq!(world.count("podcertificaterequests"), 2);

    // kubectl waits until the object is gone, which the node must confirm.
    world.kubectl_ok(&["delete", "pod", "deleted", "--grace-period=1", "--timeout=30s"]);
    assert!(!deleted.exists());
    succeed(&world, "ended");
    wait_until("the volume of a pod that has ended is still there", || (!ended.exists()).then_some(()));

    // A pod that ended before the agent observed it requests nothing.
    world.stop_agent();
    world.apply(&[pod_object("over", sources.clone())]);
    succeed(&world, "over");
    world.start_agent("");
    world.apply(&[pod_object("late", sources)]);
    world.wait_until_ready("late");
    let requests = world.admin().json(&["get", "podcertificaterequests"]);
    let requests = requests["items"].as_array().unwrap().iter();
    let mut asked = requests.map(|one| one["spec"]["podName"].as_str().unwrap());
    assert!(!asked.any(|pod| pod == "over"));
    assert!(!world.directory("over").exists());
    assert!(!ended.exists());
}
