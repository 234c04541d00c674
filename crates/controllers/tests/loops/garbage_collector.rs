//! Tests of objects whose owners are deleted.

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::fixture::{TestCluster, object, owner_reference, wait_until, wait_until_removed};

const ABSENT: &str = "00000000-0000-4000-8000-000000000000";

fn owners(map: &ConfigMap) -> Vec<&str> {
    map.owner_references().iter().map(|owner| &*owner.name).collect()
}

#[tokio::test]
async fn dependents_follow_their_owner() {
    let world = TestCluster::start().await;
    let maps: Api<ConfigMap> = world.api("default");
    let a = world.create_config_map(json!({"name": "a"})).await;
    let b =
        world.create_config_map(json!({"name": "b", "ownerReferences": [owner_reference(&a, false)]})).await;
    world.create_config_map(json!({"name": "c", "ownerReferences": [owner_reference(&b, false)]})).await;
    world.delete_config_map("a", DeleteParams::default()).await;
    wait_until_removed(&maps, "b").await;
    wait_until_removed(&maps, "c").await;
    world.shut_down().await;
}

#[tokio::test]
async fn one_of_two_owners_is_enough() {
    let world = TestCluster::start().await;
    let maps: Api<ConfigMap> = world.api("default");
    let a = world.create_config_map(json!({"name": "a"})).await;
    let b = world.create_config_map(json!({"name": "b"})).await;
    let both = json!([owner_reference(&a, false), owner_reference(&b, false)]);
    world.create_config_map(json!({"name": "c", "ownerReferences": both})).await;
    world.delete_config_map("a", DeleteParams::default()).await;
    wait_until(&maps, "c", "lose an owner", |c| c.is_some_and(|c| owners(c) == ["b"])).await;
    world.delete_config_map("b", DeleteParams::default()).await;
    wait_until_removed(&maps, "c").await;
}

#[tokio::test]
async fn orphans_stay() {
    let world = TestCluster::start().await;
    let maps: Api<ConfigMap> = world.api("default");
    let a = world.create_config_map(json!({"name": "a"})).await;
    let owned = |name| json!({"name": name, "ownerReferences": [owner_reference(&a, true)]});
    world.create_config_map(owned("b")).await;
    world.create_config_map(owned("c")).await;
    world.delete_config_map("a", DeleteParams::orphan()).await;
    wait_until_removed(&maps, "a").await;
    for name in ["b", "c"] {
        let map = maps.get(name).await.unwrap();
        assert!(map.owner_references().is_empty() && map.metadata.deletion_timestamp.is_none());
    }
}

#[tokio::test]
async fn foreground_deletion_removes_the_owner_last() {
    let world = TestCluster::start().await;
    let maps: Api<ConfigMap> = world.api("default");
    let a = world.create_config_map(json!({"name": "a"})).await;
    let mut held = json!({"name": "held", "ownerReferences": [owner_reference(&a, true)]});
    held["finalizers"] = json!(["example.com/hold"]);
    world.create_config_map(held).await;
    world.create_config_map(json!({"name": "free", "ownerReferences": [owner_reference(&a, false)]})).await;
    world.delete_config_map("a", DeleteParams::foreground()).await;
    wait_until(&maps, "held", "be deleted", |held| {
        held.is_some_and(|held| held.metadata.deletion_timestamp.is_some())
    })
    .await;
    wait_until_removed(&maps, "free").await;
    let a = maps.get("a").await.unwrap();
    assert_eq!(a.finalizers(), ["foregroundDeletion"], "it waits for what blocks it");
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &release).await.unwrap();
    wait_until_removed(&maps, "a").await;
    assert!(maps.get_opt("held").await.unwrap().is_none());
}

#[tokio::test]
async fn a_nonblocking_dependent_does_not_delay_its_owner() {
    let world = TestCluster::start().await;
    let maps: Api<ConfigMap> = world.api("default");
    let a = world.create_config_map(json!({"name": "a"})).await;
    let mut held = json!({"name": "held", "ownerReferences": [owner_reference(&a, false)]});
    held["finalizers"] = json!(["example.com/hold"]);
    world.create_config_map(held).await;
    world.delete_config_map("a", DeleteParams::foreground()).await;
    wait_until_removed(&maps, "a").await;
    wait_until(&maps, "held", "be deleted", |held| {
        held.is_some_and(|held| held.metadata.deletion_timestamp.is_some())
    })
    .await;
}

#[tokio::test]
async fn a_cycle_of_owners_is_deleted() {
    let world = TestCluster::start().await;
    let maps: Api<ConfigMap> = world.api("default");
    let a = world.create_config_map(json!({"name": "a"})).await;
    let b =
        world.create_config_map(json!({"name": "b", "ownerReferences": [owner_reference(&a, true)]})).await;
    let close = Patch::Merge(json!({"metadata": {"ownerReferences": [owner_reference(&b, true)]}}));
    maps.patch("a", &PatchParams::default(), &close).await.unwrap();
    world.delete_config_map("a", DeleteParams::foreground()).await;
    wait_until_removed(&maps, "a").await;
    wait_until_removed(&maps, "b").await;
}

#[tokio::test]
async fn an_owner_that_never_existed_counts_as_deleted() {
    let world = TestCluster::start().await;
    let maps: Api<ConfigMap> = world.api("default");
    let a = world.create_config_map(json!({"name": "a"})).await;
    let mut impostor = owner_reference(&a, false);
    impostor["uid"] = json!(ABSENT);
    world.create_config_map(json!({"name": "b", "ownerReferences": [impostor]})).await;
    wait_until_removed(&maps, "b").await;
    world.create_namespace("team").await;
    let elsewhere = json!({"metadata": {"name": "c", "ownerReferences": [owner_reference(&a, false)]}});
    let team: Api<ConfigMap> = world.api("team");
    team.create(&PostParams::default(), &object(elsewhere)).await.unwrap();
    wait_until_removed(&team, "c").await;
    assert!(maps.get_opt("a").await.unwrap().is_some());
}

#[tokio::test]
async fn dependents_of_unknown_owners_are_kept() {
    let world = TestCluster::start().await;
    let maps: Api<ConfigMap> = world.api("default");
    let nodes: Api<Node> = Api::all(world.client.clone());
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": ABSENT});
    world.create_config_map(json!({"name": "unknown", "ownerReferences": [unknown]})).await;
    let a = world.create_config_map(json!({"name": "a"})).await;
    let node = json!({"metadata": {"name": "node", "ownerReferences": [owner_reference(&a, false)]}});
    nodes.create(&PostParams::default(), &object(node)).await.unwrap();
    world.delete_config_map("a", DeleteParams::default()).await;
    // A later entry in the queue shows that these were processed.
    let x = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": ABSENT});
    world.create_config_map(json!({"name": "last", "ownerReferences": [x]})).await;
    wait_until_removed(&maps, "last").await;
    assert!(maps.get_opt("unknown").await.unwrap().is_some(), "its owner's kind is unknown");
    assert!(nodes.get_opt("node").await.unwrap().is_some(), "its owner cannot be");
    world.shut_down().await;
}

#[tokio::test]
async fn owners_deleted_during_downtime_are_detected_at_start() {
    let mut world = TestCluster::without_controllers().await;
    let maps: Api<ConfigMap> = world.api("default");
    let a = world.create_config_map(json!({"name": "a"})).await;
    world.create_config_map(json!({"name": "b", "ownerReferences": [owner_reference(&a, false)]})).await;
    world.delete_config_map("a", DeleteParams::default()).await;
    world.run_controllers();
    wait_until_removed(&maps, "b").await;
}
