//! Tests of pods without a scheduler.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use windlass_controllers::ControllerOptions;
use windlass_server::system_clock;

use crate::fixture::{PATIENCE, TestCluster, object};

fn options() -> ControllerOptions {
    ControllerOptions {
        unscheduled_after: Duration::from_millis(100),
        ..ControllerOptions::new(system_clock())
    }
}

fn build_pod(name: &str, node: Option<&str>) -> Pod {
    let containers = json!([{"name": "c", "image": "i"}]);
    let spec = json!({"containers": containers, "nodeName": node});
    object(json!({"metadata": {"name": name}, "spec": spec}))
}

async fn create_pod(world: &TestCluster, pod: &Pod) {
    world.api("default").create(&PostParams::default(), pod).await.unwrap();
}

/// Lists the events on a pod, or on all pods.
async fn events(world: &TestCluster, name: Option<&str>) -> Vec<Event> {
    let mut fields = "involvedObject.kind=Pod,reason=NotScheduled".to_owned();
    if let Some(name) = name {
        fields.push_str(&format!(",involvedObject.name={name}"));
    }
    let events: Api<Event> = world.api("default");
    events.list(&ListParams::default().fields(&fields)).await.unwrap().items
}

async fn wait_for_events(world: &TestCluster, name: Option<&str>, count: usize) -> Vec<Event> {
    let started = Instant::now();
    loop {
        let found = events(world, name).await;
        if found.len() >= count {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{} of {count} events", found.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_unscheduled_pod_gets_the_reason() {
    let mut world = TestCluster::without_controllers().await;
    world.run_controllers_with(options());
    create_pod(&world, &build_pod("bound", Some("n1"))).await;
    create_pod(&world, &build_pod("waits", None)).await;
    let found = wait_for_events(&world, Some("waits"), 1).await;
    let message = found[0].message.as_deref().unwrap();
    assert!(message.contains("no scheduler is running"), "{message}");
    assert!(message.contains("spec.nodeName"), "{message}");
    // After a restart no event is repeated; the event for a later pod shows that the earlier ones
    // were processed.
    world.stop_controllers().await;
    world.run_controllers_with(options());
    create_pod(&world, &build_pod("z-later", None)).await;
    wait_for_events(&world, Some("z-later"), 1).await;
    assert_eq!(events(&world, Some("waits")).await.len(), 1);
    assert!(events(&world, Some("bound")).await.is_empty());
    world.shut_down().await;
}

#[tokio::test]
async fn a_burst_of_pods_is_no_burst_of_events() {
    let mut world = TestCluster::without_controllers().await;
    for number in 0..100 {
        create_pod(&world, &build_pod(&format!("p{number}"), None)).await;
    }
    let started = Instant::now();
    world.run_controllers_with(options());
    let found = wait_for_events(&world, None, 10).await.len();
    // Five per second, plus one that no pause follows yet.
    let most = started.elapsed().as_millis() / 200 + 1;
    assert!(found as u128 <= most, "{found} events, {most} are allowed");
}
