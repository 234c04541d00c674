//! Whether applications have read trust anchors, as the server learns it.

use std::fs;

use serde_json::Value;

use super::volume_fixture::{
    VolumeFixture, anchor, bundle, bundle_source_by_name, pod_object, wait_for_text, wait_until,
};

/// Waits until the node reports this many volumes as read and these as not read; returns the source.
fn wait_for_reads(world: &VolumeFixture, read: u64, not_read: &[&str]) -> Value {
    wait_until(&format!("{read} read, {not_read:?} not read"), || {
        let report = world.admin().json(&["get", "nodetrusts", "-A"]);
        let source = report["items"][0]["status"]["sources"][0].clone();
        let names = source["notReadVolumes"].as_array().cloned().unwrap_or_default();
        let is_such = source["readVolumes"].as_u64().unwrap_or_default() == read && names == not_read;
        is_such.then_some(source)
    })
}

#[test]
fn a_volume_is_read_when_a_process_opens_it() {
    let mut world = VolumeFixture::start();
    let roots = [anchor(), anchor()];
    world.apply(&[bundle("roots", &roots[0]), pod_object("web", [bundle_source_by_name("roots")].into())]);
    world.wait_until_ready("web");
    let source = wait_for_reads(&world, 0, &["default/web/v"]);
    assert_eq!(source["notReadSince"], source["lastUpdateTime"]);
    let file = world.volume("web").join("ca.pem");
    let cat = |world: &VolumeFixture| {
        assert!(world.shell(&format!("cat {} > /dev/null", file.display())).status().unwrap().success());
    };
    cat(&world);
    let source = wait_for_reads(&world, 1, &[]);
    assert_eq!(source.get("notReadSince"), None);

    world.apply(&[bundle("roots", &roots[1])]);
    wait_for_reads(&world, 0, &["default/web/v"]);
    wait_for_text(&file, &roots[1]);
    wait_for_reads(&world, 1, &[]);
    // The next agent knows it.
    let record = world.path().join("windlass-node/pki/trust-reads.json");
    wait_until("the read is not recorded", || {
        fs::read_to_string(&record).ok()?.contains("\"read\":true").then_some(())
    });
    world.kill_agent();
    world.start_agent("");
    world.has_delivered(1.0);
    wait_for_reads(&world, 1, &[]);
}
