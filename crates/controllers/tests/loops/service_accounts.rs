//! Tests of the default service account in every namespace.

use std::time::Instant;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};

use crate::fixture::{TestCluster, wait_until};

#[tokio::test]
async fn every_namespace_gets_one_and_gets_it_back() {
    let world = TestCluster::start().await;
    world.create_namespace("team").await;
    let begun = Instant::now();
    let accounts: Api<ServiceAccount> = world.api("team");
    let there = |found: Option<&ServiceAccount>| found.is_some();
    let first = wait_until(&accounts, "default", "appear", there).await.unwrap();
    println!("a default service account after {:?}", begun.elapsed());
    let _ = accounts.delete("default", &DeleteParams::default()).await.unwrap();
    let another = |found: Option<&ServiceAccount>| found.is_some_and(|a| a.uid() != first.uid());
    wait_until(&accounts, "default", "come back", another).await;
    wait_until(&world.api::<ServiceAccount>("kube-system"), "default", "appear", there).await;
    world.shut_down().await;
}
