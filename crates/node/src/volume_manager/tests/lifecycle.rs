//! Tests of created and deleted pods, restarted processes and failing disks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::{VolumeTestNode, bundle, named, pod, pod_of, text};
use crate::clock;
use crate::projections::HostProjection;
use crate::testing::START;
use crate::volume::definition::VolumeDefinition;
use crate::volume::plan::VolumeReaders;
use windlass_runtime::durable::{DiskOperation, FileSystem};

/// A node with one bundle and one pod, `u1`, whose volume is ready.
async fn start_with_pod() -> (VolumeTestNode, super::RunningVolumeManager, Pod) {
    let node = VolumeTestNode::new();
    node.set_bundles(&[bundle("a", "", &[])]);
    let pod = pod("u1", json!([named("a", false)]));
    node.set_pods(std::slice::from_ref(&pod));
    let running = node.start();
    node.until_good("default/pod-u1/v").await;
    (node, running, pod)
}

fn deleted(pod: &Pod, after: Duration) -> Pod {
    let mut pod = pod.clone();
    let at = clock::text(START + after);
    pod.metadata.deletion_timestamp = serde_json::from_value(json!(at)).unwrap();
    pod
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_leaves_nothing() {
    let (node, _running, pod) = start_with_pod().await;
    let directory = node.dir.path().join("pods/u1");
    std::fs::create_dir_all(directory.join("certificates")).unwrap();
    node.set_pods(&[]);
    node.until_gone(&directory).await;
    assert!(node.reports.borrow().is_empty());
    // The same for a terminated pod; its volume returns if it runs again.
    node.set_pods(std::slice::from_ref(&pod));
    node.until_good("default/pod-u1/v").await;
    let mut over = pod.clone();
    over.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    node.set_pods(&[over]);
    node.until_gone(&directory).await;
    let deletes = node.asked.borrow().iter().filter(|one| one.method == Method::DELETE).count();
    assert_eq!(deletes, 0, "its deletion was not requested");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_deleted_keeps_what_it_has_until_its_time() {
    let (node, _running, pod) = start_with_pod().await;
    let late = super::pod("u2", json!([named("a", false)]));
    let times = Duration::from_secs(300);
    node.set_pods(&[deleted(&pod, times), deleted(&late, times)]);
    // The volume is still maintained.
    let a = bundle("a", "", &[]);
    node.set_bundles(std::slice::from_ref(&a));
    node.until("default/pod-u1/v", |report| {
        let carried = report.anchors[0].carried.as_ref();
        carried.is_some_and(|carried| carried.digest == a.anchors.digest())
    })
    .await;
    assert_eq!(node.file("u1", "ca.pem"), text(&[&a]));
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(node.volume("u1", "v").join("ca.pem").exists());
    // A volume that was never written is not created.
    assert!(!node.volume("u2", "v").exists());
    let deletes = node.until_asked(Method::DELETE, "/pods/pod-u1", 1).await;
    assert!((node.clock())().since >= times);
    assert!(!node.dir.path().join("pods/u1").exists());
    let options = &deletes[0].body;
    assert_eq!(options["gracePeriodSeconds"], 0);
    assert_eq!(options["preconditions"]["uid"], "u1");
    node.until_asked(Method::DELETE, "/pods/pod-u2", 1).await;
    node.set_pods(&[]);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let deletes = node.asked.borrow().iter().filter(|one| one.method == Method::DELETE).count();
    assert_eq!(deletes, 2);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_begins_without_the_server_removes_nothing() {
    let (node, running, pod) = start_with_pod().await;
    running.kill().await;
    let before = node.file("u1", "ca.pem");
    std::fs::create_dir_all(node.dir.path().join("pods/orphan/volumes")).unwrap();
    node.pods.send_replace(None);
    node.bundles.send_replace(super::initial_view(Default::default()));
    node.reports.send_replace(Default::default());
    node.registration.send_replace(Default::default());
    let _running = node.start();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(node.file("u1", "ca.pem"), before);
    assert!(node.dir.path().join("pods/orphan").exists());
    // The pods are known, but not the bundles: nothing changes for the volumes.
    node.set_pods(&[pod]);
    node.registration.send_modify(|known| known.heartbeat = Some(START));
    node.until("default/pod-u1/v", |report| report.ready && report.blocked.is_some()).await;
    assert_eq!(node.file("u1", "ca.pem"), before);
    node.until_gone(&node.dir.path().join("pods/orphan")).await;
    let a = bundle("a", "", &[]);
    node.set_bundles(std::slice::from_ref(&a));
    node.until_good("default/pod-u1/v").await;
    assert_eq!(node.file("u1", "ca.pem"), text(&[&a]));
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_kubelet_are_not_managed() {
    let (node, _running, _) = start_with_pod().await;
    node.registration.send_modify(|known| known.kubelet = true);
    node.until_gone(&node.dir.path().join("pods/u1")).await;
    assert!(node.reports.borrow().is_empty());
    let deletes = node.asked.borrow().iter().filter(|one| one.method == Method::DELETE).count();
    assert_eq!(deletes, 0);
    // The kubelet is gone again.
    node.registration.send_modify(|known| known.kubelet = false);
    node.until_good("default/pod-u1/v").await;
}

#[tokio::test(start_paused = true)]
async fn foreign_files_are_not_touched() {
    let mut node = VolumeTestNode::new();
    node.files = FileSystem::default();
    let theirs = node.dir.path().join("pods/theirs/volumes");
    std::fs::create_dir_all(&theirs).unwrap();
    node.set_bundles(&[bundle("a", "", &[])]);
    node.set_pods(&[pod("u1", json!([named("a", false)]))]);
    let _running = node.start();
    let refused = |why: &String| why.contains("choose another --root-dir");
    node.until("default/pod-u1/v", |report| report.blocked.as_ref().is_some_and(refused)).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(theirs.exists());
    assert!(!node.dir.path().join("pods/u1").exists());
}

#[tokio::test(start_paused = true)]
async fn a_disk_failure_is_retried_and_reported() {
    let mut node = VolumeTestNode::new();
    let broken = Arc::new(AtomicBool::new(true));
    let breaks = broken.clone();
    node.files = FileSystem::with_hook(Arc::new(move |operation, _| match operation {
        DiskOperation::Write if breaks.load(SeqCst) => Err(std::io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    }));
    node.set_bundles(&[bundle("a", "", &[])]);
    node.set_pods(&[pod("u1", json!([named("a", false)]))]);
    let _running = node.start();
    node.until("default/pod-u1/v", |report| report.blocked.is_some()).await;
    node.until_asked(Method::POST, "/events", 1).await;
    broken.store(false, SeqCst);
    node.until_good("default/pod-u1/v").await;
    assert!((node.clock())().since < Duration::from_secs(300));
}

#[tokio::test(start_paused = true)]
async fn downward_api_follows_pod_changes() {
    let node = VolumeTestNode::new();
    let label = json!({"downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
    ]}});
    let mut pod = pod("u1", json!([label]));
    let _running = node.start();
    for value in ["one", "two"] {
        let labels = json!({"label": value});
        pod.metadata.labels = serde_json::from_value(labels).unwrap();
        node.set_pods(std::slice::from_ref(&pod));
        let expected = format!("label=\"{value}\"");
        let mut tries = 0;
        while !std::fs::read_to_string(node.volume("u1", "v").join("labels"))
            .is_ok_and(|found| found == expected)
        {
            tries += 1;
            assert!(tries < 1000, "{value} does not come");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_gets_no_anchors() {
    let node = VolumeTestNode::new();
    node.set_bundles(&[bundle("a", "", &[])]);
    let mut pod = serde_json::to_value(pod("u1", json!([named("a", true)]))).unwrap();
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    node.set_pods(&[pod_of(pod)]);
    let _running = node.start();
    node.until("default/pod-u1/v", |report| {
        report.blocked.as_ref().is_some_and(|why| why.contains("static pods"))
    })
    .await;
    assert!(!node.volume("u1", "v").join("ca.pem").exists());
}

#[tokio::test(start_paused = true)]
async fn the_machines_own_need_no_server_and_their_files_stay() {
    let node = VolumeTestNode::new();
    node.registration.send_replace(Default::default());
    node.pods.send_replace(None);
    let a = bundle("a", "", &[]);
    node.set_bundles(std::slice::from_ref(&a));
    let sources = json!({"sources": [named("a", false)]});
    let source = serde_json::from_value(sources).unwrap();
    let definition = VolumeDefinition::parse(&source, &windlass_api::field::FieldPath::new("p")).unwrap();
    let projection = |name: &str| HostProjection {
        name: name.into(),
        directory: node.dir.path().join("out").join(name),
        namespace: "default".into(),
        definition: definition.clone(),
        readers: VolumeReaders::default(),
        common_name: None,
        names: Default::default(),
        stores: Vec::new(),
        notify: Vec::new(),
    };
    let both = [projection("one"), projection("two")].map(Arc::new);
    node.projections.send_replace(Arc::new(both.to_vec()));
    let _running = node.start();
    node.until_good("host/one").await;
    node.until_good("host/two").await;
    let file =
        |name: &str| std::fs::read_to_string(node.dir.path().join("out").join(name).join("ca.pem")).unwrap();
    assert_eq!((file("one"), file("two")), (text(&[&a]), text(&[&a])));
    let state = node.dir.path().join("projections/one");
    std::fs::create_dir_all(&state).unwrap();
    node.projections.send_replace(Arc::new(both[1..].to_vec()));
    node.until_gone(&state).await;
    assert_eq!(node.reports.borrow().len(), 1);
    let next = bundle("a", "", &[]);
    node.set_bundles(std::slice::from_ref(&next));
    node.until("host/two", |report| {
        let carried = report.anchors[0].carried.as_ref();
        carried.is_some_and(|carried| carried.digest == next.anchors.digest())
    })
    .await;
    assert_eq!((file("one"), file("two")), (text(&[&a]), text(&[&next])));
}
