//! Tests of the watches of pods and bundles.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_node::feature_gates::FeatureGates;
use windlass_node::sources::bundles::{self, BundleView};
use windlass_node::sources::pods;
use windlass_node::volume::plan::OptionalApi;
use windlass_node::volume::trust_anchors::TrustBundle;
use windlass_server::ServerFeatureGates;
use windlass_testkit::self_signed_ca;

use crate::fixture::{WatchingFixture, change, create, delete, pass, until};

#[tokio::test]
async fn a_node_sees_its_pods() {
    let world = WatchingFixture::start().await;
    world.create_pod("here", "n1", json!([])).await;
    world.create_pod("there", "n2", json!([])).await;
    let (out, mut delivered) = watch::channel(None);
    let mut tasks = JoinSet::new();
    tasks.spawn(pods::watch_pods(world.node(), "n1".into(), out));
    let names = |pods: &pods::NodePods| {
        let pods = pods.iter().flat_map(|pods| pods.values());
        let names = pods.map(|pod| pod.metadata.name.clone().unwrap());
        names.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let first = until(&mut delivered, "it is known", Option::is_some).await;
    assert_eq!(names(&first), ["here"]);
    for (uid, pod) in &*first.unwrap() {
        assert_eq!(pod.metadata.uid.as_ref(), Some(uid));
        assert_eq!(pod.metadata.managed_fields, None);
    }
    world.create_pod("there-too", "n2", json!([])).await;
    world.create_pod("later", "n1", json!([])).await;
    until(&mut delivered, "one came", |pods| names(pods) == ["here", "later"]).await;
    change(&world.api::<Pod>(), "here", json!({"metadata": {"labels": {"a": "b"}}})).await;
    until(&mut delivered, "a label came", |pods| {
        let mut pods = pods.iter().flat_map(|pods| pods.values());
        pods.any(|pod| pod.metadata.labels.iter().any(|labels| labels.contains_key("a")))
    })
    .await;
    delete(&world.api::<Pod>(), "here").await;
    until(&mut delivered, "one went", |pods| names(pods) == ["later"]).await;
}

fn authority() -> String {
    self_signed_ca("test").certificate().to_pem()
}

fn bundle<'a>(view: &'a BundleView, name: &str) -> Option<&'a TrustBundle> {
    match &view.bundles {
        OptionalApi::Synced(bundles) => bundles.get(name),
        OptionalApi::Off | OptionalApi::Missing | OptionalApi::Unsynced => None,
    }
}

fn without_bundles() -> ServerFeatureGates {
    let off = ["ClusterTrustBundle", "ClusterTrustBundleProjection"].map(|gate| (gate, false));
    ServerFeatureGates::with(off.into_iter()).unwrap()
}

#[tokio::test]
async fn a_node_sees_bundles() {
    let world = WatchingFixture::start().await;
    let api: Api<ClusterTrustBundle> = Api::all(world.admin());
    let first = authority();
    let named = |name: &str| json!({"metadata": {"name": name}, "spec": {"trustBundle": first}});
    create(&api, named("early")).await;
    let (out, mut delivered) = watch::channel(bundles::initial_view(FeatureGates::default()));
    let mut tasks = JoinSet::new();
    tasks.spawn(bundles::watch_bundles(world.node(), world.clock(), out));
    let view = until(&mut delivered, "early is there", |view| bundle(view, "early").is_some()).await;
    assert!(view.arrivals.is_empty(), "{view:?}");
    let before = (world.clock())().wall;
    create(&api, named("late")).await;
    let view = until(&mut delivered, "late is there", |view| bundle(view, "late").is_some()).await;
    assert_eq!(view.arrivals.keys().collect::<Vec<_>>(), ["late"]);
    let arrival = view.arrivals["late"];
    assert!(arrival.received.wall >= before);
    assert!((arrival.written.unwrap() - before).abs() < time::Duration::seconds(30));
    let both = first.clone() + &authority();
    change(&api, "early", json!({"spec": {"trustBundle": both}})).await;
    let has_two =
        |view: &Arc<BundleView>| bundle(view, "early").is_some_and(|bundle| bundle.anchors.len() == 2);
    let view = until(&mut delivered, "early has two", has_two).await;
    assert_eq!(view.arrivals.keys().collect::<Vec<_>>(), ["early", "late"]);
    delete(&api, "early").await;
    let view = until(&mut delivered, "early is gone", |view| bundle(view, "early").is_none()).await;
    assert!(bundle(&view, "late").is_some());
}

#[tokio::test]
async fn bundles_may_come_later_and_go() {
    let (without, with) =
        (WatchingFixture::start_with(without_bundles()).await, WatchingFixture::start().await);
    let api: Api<ClusterTrustBundle> = Api::all(with.admin());
    create(&api, json!({"metadata": {"name": "a"}, "spec": {"trustBundle": authority()}})).await;
    let line = without.line();
    let (out, mut delivered) = watch::channel(bundles::initial_view(FeatureGates::default()));
    let mut tasks = JoinSet::new();
    tasks.spawn(bundles::watch_bundles(line.client(), without.clock(), out));
    let is_missing = |view: &Arc<BundleView>| matches!(view.bundles, OptionalApi::Missing);
    until(&mut delivered, "they are missing", is_missing).await;
    line.switch(&with);
    pass(Duration::from_secs(13)).await;
    until(&mut delivered, "they are there", |view| bundle(view, "a").is_some()).await;
    line.switch(&without);
    with.shut_down();
    until(&mut delivered, "they are missing again", is_missing).await;
}
