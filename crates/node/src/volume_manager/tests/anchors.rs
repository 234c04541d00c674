//! Anchors in pod volumes, as bundles are created, changed and deleted.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use serde_json::json;

use super::{VolumeTestNode, bundle, named, pod, pod_of, selected, text};
use crate::volume::trust_anchors::TrustBundle;
use crate::volume_manager::report::VolumeReport;

fn carries(report: &VolumeReport, bundle: &TrustBundle) -> bool {
    let carried = report.anchors.iter().filter_map(|anchors| anchors.carried.as_ref());
    let mut names = carried.flat_map(|carried| &carried.bundles);
    names.any(|one| one.name == bundle.name && one.digest == bundle.anchors.digest())
}

#[tokio::test(start_paused = true)]
async fn by_name_and_what_becomes_of_it() {
    let node = VolumeTestNode::new();
    let _running = node.start();
    node.set_pods(&[pod("u1", json!([named("a", false)]))]);
    node.until("default/pod-u1/v", |report| report.blocked.is_some()).await;
    assert!(!node.volume("u1", "v").join("ca.pem").exists());
    // The bundle is created, and changes.
    for _ in 0..2 {
        let a = bundle("a", "", &[]);
        node.set_bundles(&[a.clone(), bundle("b", "", &[])]);
        node.until("default/pod-u1/v", |report| report.ready && carries(report, &a)).await;
        assert_eq!(node.file("u1", "ca.pem"), text(&[&a]));
    }
    let before = node.file("u1", "ca.pem");
    // The bundle is deleted: the last good content stays, and the report shows what is in the file.
    node.set_bundles(&[]);
    node.until("default/pod-u1/v", |report| report.blocked.is_some()).await;
    assert_eq!(node.file("u1", "ca.pem"), before);
    let reports = node.reports.borrow().clone();
    let report = reports.values().next().unwrap();
    assert!(report.ready && report.anchors[0].carried.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_generation_alone_is_reported_and_not_written() {
    let node = VolumeTestNode::new();
    let mut a = bundle("a", "", &[]);
    node.set_bundles(std::slice::from_ref(&a));
    node.set_pods(&[pod("u1", json!([named("a", false)]))]);
    let _running = node.start();
    node.until_good("default/pod-u1/v").await;
    let before = std::fs::metadata(node.volume("u1", "v").join("ca.pem")).unwrap();
    a.generation = 7;
    node.set_bundles(&[a]);
    let generation = |report: &VolumeReport| {
        report.anchors[0].carried.as_ref().map(|carried| carried.bundles[0].generation)
    };
    node.until("default/pod-u1/v", |report| generation(report) == Some(7)).await;
    let after = std::fs::metadata(node.volume("u1", "v").join("ca.pem")).unwrap();
    assert_eq!(after.ino(), before.ino());
}

#[tokio::test(start_paused = true)]
async fn nothing_and_everything_of_a_signer_side_by_side() {
    let node = VolumeTestNode::new();
    let (x, y) = (bundle("x", "a.b/c", &[("k", "1")]), bundle("y", "a.b/c", &[("k", "2")]));
    let other = bundle("z", "d.e/f", &[("k", "1")]);
    node.set_bundles(&[x.clone(), y.clone(), other]);
    node.set_pods(&[
        pod("none", json!([selected("ca.pem", None)])),
        pod("all", json!([selected("ca.pem", Some(json!({})))])),
        pod("some", json!([selected("ca.pem", Some(json!({"matchLabels": {"k": "2"}})))])),
        pod("both", json!([selected("none.pem", None), selected("all.pem", Some(json!({})))])),
    ]);
    let _running = node.start();
    for uid in ["none", "all", "some", "both"] {
        node.until_good(&format!("default/pod-{uid}/v")).await;
    }
    assert_eq!(node.file("none", "ca.pem"), "");
    assert_eq!(node.file("all", "ca.pem"), text(&[&x, &y]));
    assert_eq!(node.file("some", "ca.pem"), text(&[&y]));
    assert_eq!(node.file("both", "none.pem"), "");
    assert_eq!(node.file("both", "all.pem"), text(&[&x, &y]));
    // Labels decide, also when they change.
    let mut x2 = x.clone();
    x2.labels.insert("k".into(), "2".into());
    node.set_bundles(&[x2.clone(), y.clone()]);
    node.until("default/pod-some/v", |report| carries(report, &x2)).await;
    assert_eq!(node.file("some", "ca.pem"), text(&[&x, &y]));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_optional_is_empty_without() {
    let node = VolumeTestNode::new();
    let _running = node.start();
    node.set_pods(&[pod("u1", json!([named("a", true)]))]);
    node.until_good("default/pod-u1/v").await;
    assert_eq!(node.file("u1", "ca.pem"), "");
    let a = bundle("a", "", &[]);
    node.set_bundles(std::slice::from_ref(&a));
    node.until("default/pod-u1/v", |report| carries(report, &a)).await;
    assert_eq!(node.file("u1", "ca.pem"), text(&[&a]));
    node.set_bundles(&[]);
    node.until("default/pod-u1/v", |report| !carries(report, &a)).await;
    assert_eq!(node.file("u1", "ca.pem"), "");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_and_fifty_bundles() {
    let node = VolumeTestNode::new();
    let all = (0..150).map(|n| bundle(&format!("b{n}"), "a.b/c", &[])).collect::<Vec<_>>();
    node.set_pods(&[pod("u1", json!([selected("ca.pem", Some(json!({})))]))]);
    let _running = node.start();
    node.until_good("default/pod-u1/v").await;
    for count in [1, 149, 150] {
        node.set_bundles(&all[..count]);
        let last = &all[count - 1];
        node.until("default/pod-u1/v", |report| carries(report, last)).await;
        let found = node.file("u1", "ca.pem");
        assert_eq!(found.matches("BEGIN CERTIFICATE").count(), count);
        assert_eq!(found, text(&all[..count].iter().collect::<Vec<_>>()));
    }
}

#[tokio::test(start_paused = true)]
async fn only_affected_volumes_are_rewritten_and_deliveries_are_counted() {
    let node = VolumeTestNode::new();
    node.set_bundles(&[bundle("a", "", &[]), bundle("b", "", &[])]);
    let pods = [pod("u1", json!([named("a", false)])), pod("u2", json!([named("b", false)]))];
    tokio::time::advance(Duration::from_secs(1)).await;
    node.set_pods(&pods);
    let _running = node.start();
    node.until_good("default/pod-u1/v").await;
    node.until_good("default/pod-u2/v").await;
    let count = |what: &str| {
        let out = node.registry.encode();
        let mut lines = out.lines().filter_map(|line| line.strip_prefix(what));
        lines.next().map(|rest| rest.trim().parse::<u64>().unwrap()).unwrap_or_default()
    };
    let refreshes = "projectedvolumesource_refresh_count\
                     {projected_volume_source_type=\"ClusterTrustBundle\",status=\"OK\"}";
    let deliveries = "windlass_node_trust_delivery_seconds_count{from=\"arrival\"}";
    // The bundles arrived before the pods.
    assert_eq!((count(refreshes), count(deliveries)), (2, 0));
    tokio::time::advance(Duration::from_secs(1)).await;
    let b = node.bundles.borrow().bundles.clone();
    let crate::volume::plan::OptionalApi::Synced(b) = b else { panic!("no bundles") };
    let b = b.select(&crate::volume::trust_anchors::BundleSelector::Name("b".into()))[0].clone();
    let a = bundle("a", "", &[]);
    node.set_bundles(&[a.clone(), b]);
    node.until("default/pod-u1/v", |report| carries(report, &a)).await;
    assert_eq!((count(refreshes), count(deliveries)), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_day_without_a_change_touches_nothing() {
    let node = VolumeTestNode::new();
    let all = [bundle("x", "a.b/c", &[]), bundle("y", "a.b/c", &[]), bundle("z", "a.b/c", &[])];
    node.set_bundles(&all);
    node.set_pods(&[pod("u1", json!([selected("ca.pem", Some(json!({})))]))]);
    let _running = node.start();
    node.until_good("default/pod-u1/v").await;
    let directory = node.volume("u1", "v");
    let facts = || {
        let mut facts = Vec::new();
        for name in [".", "..data", "ca.pem", "..data/ca.pem"] {
            let link = std::fs::symlink_metadata(directory.join(name)).unwrap();
            let file = std::fs::metadata(directory.join(name)).unwrap();
            facts.push((link.ino(), link.mtime_nsec(), file.ino(), file.mtime_nsec(), file.ctime()));
        }
        facts
    };
    let before = facts();
    for hour in 0..24 {
        // The same set in new objects, as after a restarted watch.
        node.set_bundles(&all);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(facts(), before, "after {hour} hours");
    }
    // The periodic check still repairs damage.
    std::fs::write(directory.join("..data/ca.pem"), "damaged").unwrap();
    let mut tries = 0;
    while node.file("u1", "ca.pem") != text(&[&all[0], &all[1], &all[2]]) {
        tries += 1;
        assert!(tries < 7, "it stays damaged");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_lead_elsewhere_are_refused() {
    let node = VolumeTestNode::new();
    let a = bundle("a", "", &[]);
    node.set_bundles(&[a]);
    let hostile = |uid: &str, volume: &str, path: &str| {
        let source = json!({"clusterTrustBundle": {"name": "a", "path": path}});
        pod_of(json!({
            "metadata": {"name": "hostile", "namespace": "default", "uid": uid},
            "spec": {"containers": [], "volumes": [
                {"name": volume, "projected": {"sources": [source]}},
            ]},
        }))
    };
    let long = "x".repeat(300);
    let cases = [
        ("../../out", "v1", "ca.pem"),
        ("..", "v2", "ca.pem"),
        ("", "v3", "ca.pem"),
        ("u4", "../../../../out", "ca.pem"),
        ("u5", "..", "ca.pem"),
        ("u6", &long, "ca.pem"),
        ("u7", "v7", "../out"),
        ("u8", "v8", "/etc/out"),
        ("u9", "v9", "..data/out"),
        ("u10", "a\0b", "ca.pem"),
    ];
    let mut pods = cases.map(|(uid, volume, path)| hostile(uid, volume, path)).to_vec();
    pods.push(pod("good", json!([named("a", false)])));
    node.set_pods(&pods);
    let _running = node.start();
    node.until_good("default/pod-good/v").await;
    for (_, volume, _) in cases {
        let name = format!("default/hostile/{volume}");
        node.until(&name, |report| report.blocked.is_some() && !report.ready).await;
    }
    // Also while pods are removed.
    node.set_pods(&pods[pods.len() - 1..]);
    let gone = |reports: &crate::volume_manager::report::VolumeReports| reports.len() == 1;
    node.reports.subscribe().wait_for(gone).await.unwrap();
    node.until_gone(&node.dir.path().join("pods/u9")).await;
    let names = |path: &std::path::Path| {
        let entries = std::fs::read_dir(path).unwrap();
        let mut names = entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        names.sort();
        names
    };
    assert_eq!(names(node.dir.path()), ["pods"]);
    assert_eq!(names(&node.dir.path().join("pods")), [".windlass", "good"]);
}
