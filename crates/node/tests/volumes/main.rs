//! The volumes of a node on a real server in this process, from the object to the file.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use windlass_node::volume_manager::report::VolumeReport;
use windlass_pki::{PrivateKey, parse_certificate_blocks};

use fixture::{PATIENCE, SIGNER, VolumesFixture, anchor, object, until};

fn read(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).unwrap()
}

fn bundle(name: &str) -> Value {
    json!({"clusterTrustBundle": {"name": name, "path": "ca.pem"}})
}

/// Returns the status and reason of a pod's condition.
fn condition(pod: &Pod) -> Option<(&str, &str)> {
    let all = pod.status.as_ref()?.conditions.as_ref()?;
    let found = all.iter().find(|condition| condition.type_ == "windlass.dev/VolumesReady")?;
    Some((&found.status, found.reason.as_deref()?))
}

/// Waits until a file has this content.
async fn until_text(path: &Path, text: &str) {
    let waiting = async {
        while std::fs::read_to_string(path).ok().as_deref() != Some(text) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
        panic!("{path:?} has {:?}", std::fs::read_to_string(path));
    }
}

#[tokio::test]
async fn a_missing_bundle_is_reported_on_the_pod_until_it_exists() {
    let world = VolumesFixture::start().await;
    let _running = world.run();
    let directory = world.create_pod("p", json!([bundle("a")])).await;
    let pods: Api<Pod> = world.api();
    until(&pods, "p", |pod| pod.and_then(condition) == Some(("False", "FailedMount"))).await;
    let events: Api<Event> = world.api();
    let about = ListParams::default().fields("involvedObject.name=p,reason=FailedMount");
    let found = events.list(&about).await.unwrap().items;
    let expected = "MountVolume.SetUp failed for volume \"v\" : while getting ClusterTrustBundle: \
                    clustertrustbundle.certificates.k8s.io \"a\" not found";
    let messages = found.iter().map(|event| event.message.as_deref().unwrap());
    assert_eq!(messages.collect::<Vec<_>>(), [expected]);
    assert!(!directory.join("ca.pem").exists());
    for _ in 0..2 {
        let text = anchor();
        world.apply_bundle("a", &text).await;
        until_text(&directory.join("ca.pem"), &text).await;
        until(&pods, "p", |pod| pod.and_then(condition) == Some(("True", "VolumesReady"))).await;
    }
    let last = read(&directory, "ca.pem");
    let bundles: Api<k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle> =
        Api::all(world.admin.clone());
    let _ = bundles.delete("a", &DeleteParams::default()).await.unwrap();
    until(&pods, "p", |pod| pod.and_then(condition) == Some(("False", "KeepingOldContent"))).await;
    assert_eq!(read(&directory, "ca.pem"), last);
}

#[tokio::test]
async fn every_file_of_a_volume_follows_its_source() {
    let mut world = VolumesFixture::start().await;
    world.sign();
    let text = anchor();
    world.apply_bundle("a", &text).await;
    let map: ConfigMap = object(json!({"metadata": {"name": "map"}, "data": {"greeting": "hello"}}));
    let secret: Secret = object(json!({"metadata": {"name": "secret"}, "stringData": {"password": "x"}}));
    world.create(&map).await;
    world.create(&secret).await;
    let label = json!({"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}});
    let sources = json!([
        bundle("a"),
        {"configMap": {"name": "map"}},
        {"secret": {"name": "secret", "items": [{"key": "password", "path": "deep/password"}]}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600, "audience": "db"}},
        {"downwardAPI": {"items": [label]}},
        {"podCertificate": {
            "signerName": SIGNER, "keyType": "ECDSAP256", "keyPath": "tls.key",
            "certificateChainPath": "tls.crt",
        }},
    ]);
    let directory = world.create_pod("p", sources).await;
    let running = world.run();
    world.until_good("p").await;
    assert_eq!(read(&directory, "ca.pem"), text);
    assert_eq!(read(&directory, "greeting"), "hello");
    assert_eq!(read(&directory, "deep/password"), "x");
    assert_eq!(read(&directory, "token").split('.').count(), 3);
    assert_eq!(read(&directory, "labels"), "app=\"web\"");
    let chain = read(&directory, "tls.crt");
    let key = PrivateKey::from_pem(read(&directory, "tls.key").as_bytes()).unwrap();
    let leaf = parse_certificate_blocks(chain.as_bytes()).unwrap().remove(0);
    assert_eq!(leaf.public_key().as_der(), key.public_key().as_der());

    let params = PatchParams::default();
    let patch = Patch::Merge(json!({"data": {"greeting": "hello again"}}));
    world.api::<ConfigMap>().patch("map", &params, &patch).await.unwrap();
    until_text(&directory.join("greeting"), "hello again").await;
    let patch = Patch::Merge(json!({"stringData": {"password": "y"}}));
    world.api::<Secret>().patch("secret", &params, &patch).await.unwrap();
    until_text(&directory.join("deep/password"), "y").await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "db"}}}));
    world.api::<Pod>().patch("p", &params, &patch).await.unwrap();
    until_text(&directory.join("labels"), "app=\"db\"").await;

    // Another process finds the token and the certificate, and requests neither.
    let (token, before) = (read(&directory, "token"), std::fs::read_link(directory.join("..data")));
    drop(running);
    world.volumes.reports.send_replace(Default::default());
    let _running = world.run();
    world.until_good("p").await;
    assert_eq!((read(&directory, "token"), read(&directory, "tls.crt")), (token, chain));
    assert_eq!(std::fs::read_link(directory.join("..data")).unwrap(), before.unwrap());
}

#[tokio::test]
async fn a_deleted_pod_is_removed_from_disk_before_the_server() {
    let world = VolumesFixture::start().await;
    world.apply_bundle("a", &anchor()).await;
    let _running = world.run();
    let directory = world.create_pod("p", json!([bundle("a")])).await;
    world.until_good("p").await;
    let pods: Api<Pod> = world.api();
    // The server waits until the node confirms the deletion.
    let _ = pods.delete("p", &DeleteParams::default().grace_period(1)).await.unwrap();
    let found = pods.get("p").await.unwrap();
    assert!(found.metadata.deletion_timestamp.is_some());
    until(&pods, "p", |pod| pod.is_none()).await;
    let uid = found.metadata.uid.unwrap();
    assert!(!world.root().join("pods").join(uid).exists());
    assert!(!directory.exists());
    let none = |reports: &windlass_node::volume_manager::report::VolumeReports| reports.is_empty();
    world.volumes.reports.subscribe().wait_for(none).await.unwrap();
}

#[tokio::test]
async fn a_hundred_pods_have_a_changed_bundle_soon() {
    let world = VolumesFixture::start().await;
    world.apply_bundle("a", &anchor()).await;
    let _running = world.run();
    let mut directories = Vec::new();
    for number in 0..100 {
        directories.push(world.create_pod(&format!("p{number}"), json!([bundle("a")])).await);
    }
    for number in 0..100 {
        world.until_good(&format!("p{number}")).await;
    }
    let text = anchor();
    world.apply_bundle("a", &text).await;
    for directory in &directories {
        until_text(&directory.join("ca.pem"), &text).await;
    }
    let carried = |report: &VolumeReport| {
        report.anchors[0].carried.as_ref().map(|carried| carried.bundles[0].generation)
    };
    for number in 0..100 {
        world.until(&format!("p{number}"), |report| carried(report) == Some(2)).await;
    }
}
