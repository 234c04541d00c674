//! Tests of events and conditions on pods.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{RecordedRequest, VolumeTestNode, bundle, named, pod};

const TYPE: &str = "windlass.dev/VolumesReady";

fn condition(asked: &RecordedRequest) -> &Value {
    &asked.body["status"]["conditions"][0]
}

#[tokio::test(start_paused = true)]
async fn a_missing_bundle_is_reported_until_it_exists() {
    let node = VolumeTestNode::new();
    let _running = node.start();
    node.set_pods(&[pod("u1", json!([named("a", false)]))]);
    let events = node.until_asked(Method::POST, "/events", 1).await;
    let event = &events[0].body;
    assert_eq!(events[0].path, "/apis/events.k8s.io/v1/namespaces/default/events");
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["reason"], "FailedMount");
    assert_eq!(event["regarding"]["uid"], "u1");
    let why = "MountVolume.SetUp failed for volume \"v\" : while getting ClusterTrustBundle: \
               clustertrustbundle.certificates.k8s.io \"a\" not found";
    assert_eq!(event["note"], why);
    let patches = node.until_asked(Method::PATCH, "/pods/pod-u1/status", 1).await;
    assert_eq!(patches[0].body["metadata"]["uid"], "u1");
    let reported = condition(&patches[0]);
    assert_eq!(reported["type"], TYPE);
    assert_eq!((&reported["status"], &reported["reason"]), (&json!("False"), &json!("FailedMount")));
    assert_eq!(reported["message"], why);
    assert!(reported["lastTransitionTime"].is_string());
    // It is repeated on the same event.
    let repeated = node.until_asked(Method::PATCH, "/events/event-1", 2).await;
    let count = |asked: &RecordedRequest| asked.body["series"]["count"].clone();
    assert_eq!((count(&repeated[0]), count(&repeated[1])), (json!(2), json!(3)));
    node.set_bundles(&[bundle("a", "", &[])]);
    let patches = node.until_asked(Method::PATCH, "/pods/pod-u1/status", 2).await;
    assert_eq!(condition(&patches[1])["status"], "True");
    assert_eq!(condition(&patches[1])["message"], "");
    // The bundle is deleted: the volume keeps its files, and the same event is counted again.
    let is_repeat = |one: &&RecordedRequest| one.method == Method::PATCH && one.path.contains("/events/");
    let repeats = node.asked.borrow().iter().filter(is_repeat).count();
    node.set_bundles(&[]);
    let patches = node.until_asked(Method::PATCH, "/pods/pod-u1/status", 3).await;
    assert_eq!(condition(&patches[2])["status"], "False");
    assert_eq!(condition(&patches[2])["reason"], "KeepingOldContent");
    node.until_asked(Method::PATCH, "/events/event-1", repeats + 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_starts_normally_gets_one_condition() {
    let node = VolumeTestNode::new();
    node.set_bundles(&[bundle("a", "", &[])]);
    let mut pod = pod("u1", json!([named("a", false)]));
    node.set_pods(std::slice::from_ref(&pod));
    let running = node.start();
    let patches = node.until_asked(Method::PATCH, "/status", 1).await;
    // The pod has the condition from now on; the next process finds it.
    running.kill().await;
    let reported = condition(&patches[0]).clone();
    pod.status = serde_json::from_value(json!({"conditions": [reported]})).unwrap();
    node.set_pods(&[pod]);
    node.reports.send_replace(Default::default());
    let _running = node.start();
    node.until_good("default/pod-u1/v").await;
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!(node.asked.borrow().len(), 1, "{:?}", node.asked.borrow());
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_delays_nothing() {
    let node = VolumeTestNode::new();
    *node.refuse.lock().unwrap() = Some(500);
    node.set_pods(&[pod("u1", json!([named("a", false)])), pod("u2", json!([named("b", true)]))]);
    let _running = node.start();
    node.until_good("default/pod-u2/v").await;
    node.until_asked(Method::PATCH, "/pods/pod-u2/status", 3).await;
    node.set_bundles(&[bundle("a", "", &[])]);
    node.until_good("default/pod-u1/v").await;
    *node.refuse.lock().unwrap() = None;
    let before = node.asked.borrow().len();
    let mut asked = node.asked.subscribe();
    let good = |asked: &Vec<RecordedRequest>| {
        let later = asked.iter().skip(before).filter(|one| one.path.ends_with("/status"));
        later.filter(|one| condition(one)["status"] == "True").count() == 2
    };
    asked.wait_for(good).await.unwrap();
}
