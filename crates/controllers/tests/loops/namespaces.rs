//! Tests of namespace deletion.

use std::time::Instant;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::fixture::{TestCluster, object, wait_until, wait_until_removed};

#[tokio::test]
async fn deleting_a_namespace_deletes_its_contents() {
    let world = TestCluster::start().await;
    world.create_namespace("team").await;
    let post = PostParams::default();
    let there = |found: Option<&ServiceAccount>| found.is_some();
    wait_until(&world.api::<ServiceAccount>("team"), "default", "appear", there).await;
    for name in ["a", "b"] {
        let map: ConfigMap = object(json!({"metadata": {"name": name}}));
        world.api("team").create(&post, &map).await.unwrap();
        let secret: Secret = object(json!({"metadata": {"name": name}}));
        world.api("team").create(&post, &secret).await.unwrap();
        let pod: Pod = object(json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]}
        }));
        world.api("team").create(&post, &pod).await.unwrap();
    }
    let begun = Instant::now();
    let _ = world.namespaces().delete("team", &DeleteParams::default()).await.unwrap();
    wait_until_removed(&world.namespaces(), "team").await;
    println!("a namespace with six objects is gone after {:?}", begun.elapsed());
    let left = world.api::<ConfigMap>("team").list(&ListParams::default()).await.unwrap();
    assert!(left.items.is_empty());
    let left = world.api::<ServiceAccount>("team").list(&ListParams::default()).await.unwrap();
    assert!(left.items.is_empty(), "no service account comes back in a namespace that goes");
    world.shut_down().await;
}

#[tokio::test]
async fn an_empty_namespace_is_deleted_at_once() {
    let world = TestCluster::start().await;
    world.create_namespace("team").await;
    let there = |found: Option<&ServiceAccount>| found.is_some();
    wait_until(&world.api::<ServiceAccount>("team"), "default", "appear", there).await;
    let begun = Instant::now();
    let _ = world.namespaces().delete("team", &DeleteParams::default()).await.unwrap();
    wait_until_removed(&world.namespaces(), "team").await;
    println!("an empty namespace is gone after {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_partially_deleted_namespace_is_deleted() {
    let mut world = TestCluster::without_controllers().await;
    world.create_namespace("team").await;
    let _ = world.namespaces().delete("team", &DeleteParams::default()).await.unwrap();
    world.run_controllers();
    wait_until_removed(&world.namespaces(), "team").await;
}

#[tokio::test]
async fn a_finalizer_blocks_namespace_deletion_and_is_reported() {
    let world = TestCluster::start().await;
    world.create_namespace("team").await;
    let maps = world.api::<ConfigMap>("team");
    let map = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    maps.create(&PostParams::default(), &object(map)).await.unwrap();
    let _ = world.namespaces().delete("team", &DeleteParams::default()).await.unwrap();

    let reported = |found: Option<&Namespace>| {
        condition(found, "NamespaceFinalizersRemaining").is_some_and(|c| c.status == "True")
    };
    let held = wait_until(&world.namespaces(), "team", "say what it waits for", reported).await.unwrap();
    let words = |kind| {
        let c = condition(Some(&held), kind).unwrap();
        format!("{} {}: {}", c.status, c.reason.unwrap(), c.message.unwrap())
    };
    assert_eq!(
        words("NamespaceFinalizersRemaining"),
        "True SomeFinalizerRemain: Some finalizers are remaining: example.com/hold in 1 resource instances"
    );
    assert_eq!(
        words("NamespaceContentRemaining"),
        "True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances"
    );
    assert_eq!(
        words("NamespaceDeletionContentFailure"),
        "False ContentDeleted: All content successfully deleted, may be waiting on finalization"
    );
    assert_eq!(
        words("NamespaceDeletionDiscoveryFailure"),
        "False ResourcesDiscovered: All resources successfully discovered"
    );
    assert_eq!(
        words("NamespaceDeletionGroupVersionParsingFailure"),
        "False ParsedGroupVersions: All legacy kube types successfully parsed"
    );

    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let begun = Instant::now();
    maps.patch("held", &PatchParams::default(), &release).await.unwrap();
    wait_until_removed(&world.namespaces(), "team").await;
    println!("released, the namespace is gone after {:?}", begun.elapsed());
    world.shut_down().await;
}

fn condition(
    namespace: Option<&Namespace>,
    kind: &str,
) -> Option<k8s_openapi::api::core::v1::NamespaceCondition> {
    let conditions = namespace?.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind).cloned()
}
