//! Tests of cluster role aggregation.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::fixture::{TestCluster, object, wait_until};

fn roles(client: &Client) -> Api<ClusterRole> {
    Api::all(client.clone())
}

fn rule(resource: &str) -> Value {
    json!({"verbs": ["get"], "apiGroups": ["example.com"], "resources": [resource]})
}

/// Whether a rule of the role covers this resource.
fn allows(role: Option<&ClusterRole>, resource: &str) -> bool {
    let rules = role.and_then(|role| role.rules.as_ref()).into_iter().flatten();
    rules.flat_map(|rule| rule.resources.iter().flatten()).any(|each| each == resource)
}

#[tokio::test]
async fn the_default_roles_get_their_rules() {
    let world = TestCluster::start().await;
    let roles = roles(&world.client);
    for (name, resource) in [("view", "pods/log"), ("edit", "pods/eviction"), ("admin", "rolebindings")] {
        wait_until(&roles, name, "have rules", |role| allows(role, resource)).await;
    }
    // The broader role includes all rules of the narrower one.
    wait_until(&roles, "admin", "have all rules", |role| allows(role, "pods/log")).await;
    let view = roles.get("view").await.unwrap();
    assert!(!allows(Some(&view), "secrets") && !allows(Some(&view), "rolebindings"));
    world.shut_down().await;
}

#[tokio::test]
async fn a_sum_follows_its_parts() {
    let world = TestCluster::start().await;
    let roles = roles(&world.client);
    let sum: ClusterRole = object(json!({
        "metadata": {"name": "sum", "labels": {"kept": "yes"}},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part-of": "sum"}}]},
        "rules": [rule("own")],
    }));
    roles.create(&PostParams::default(), &sum).await.unwrap();
    let empty = |role: Option<&ClusterRole>| {
        role.is_some_and(|role| role.rules.as_deref().unwrap_or_default().is_empty())
    };
    wait_until(&roles, "sum", "lose its own rules", empty).await;
    let part: ClusterRole = object(json!({
        "metadata": {"name": "part", "labels": {"part-of": "sum"}},
        "rules": [rule("ships")],
    }));
    roles.create(&PostParams::default(), &part).await.unwrap();
    wait_until(&roles, "sum", "get the part's rules", |role| allows(role, "ships")).await;

    let more = Patch::Merge(json!({"rules": [rule("ships"), rule("boats")]}));
    roles.patch("part", &PatchParams::default(), &more).await.unwrap();
    let sum = wait_until(&roles, "sum", "follow", |role| allows(role, "boats")).await.unwrap();
    assert_eq!(sum.labels()["kept"], "yes");
    let stomped = Patch::Merge(json!({"rules": [rule("all")]}));
    roles.patch("sum", &PatchParams::default(), &stomped).await.unwrap();
    wait_until(&roles, "sum", "get its rules back", |role| allows(role, "boats")).await;
    let _ = roles.delete("part", &DeleteParams::default()).await.unwrap();
    wait_until(&roles, "sum", "lose the rules of what is gone", empty).await;
    world.shut_down().await;
}

#[tokio::test]
async fn a_sum_in_order_is_not_written() {
    let world = TestCluster::start().await;
    let roles = roles(&world.client);
    let view = wait_until(&roles, "view", "have rules", |role| allows(role, "pods/log")).await.unwrap();
    // All roles are reconciled together, so a change to `sum` shows that `view` was checked too.
    let sum: ClusterRole = object(json!({
        "metadata": {"name": "sum"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part-of": "sum"}}]},
        "rules": [rule("own")],
    }));
    roles.create(&PostParams::default(), &sum).await.unwrap();
    wait_until(&roles, "sum", "lose its rules", |role| role.is_some() && !allows(role, "own")).await;
    assert_eq!(roles.get("view").await.unwrap().resource_version(), view.resource_version());
    world.shut_down().await;
}
