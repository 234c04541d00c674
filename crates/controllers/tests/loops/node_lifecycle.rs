//! Tests of nodes that stop reporting.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, NodeCondition};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use windlass_controllers::{ControllerOptions, NodeMonitor};
use windlass_server::system_clock;

use crate::fixture::{TestCluster, object, wait_until};

const MONITOR: NodeMonitor = NodeMonitor {
    period: Duration::from_millis(50),
    grace: Duration::from_secs(2),
    startup_grace: Duration::from_secs(1),
};

fn ready(node: Option<&Node>) -> Option<NodeCondition> {
    let conditions = node?.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready").cloned()
}

fn has_ready_status(status: &'static str) -> impl Fn(Option<&Node>) -> bool {
    move |node| ready(node).is_some_and(|ready| ready.status == status)
}

async fn register(world: &TestCluster, name: &str) -> (Api<Node>, Api<Lease>) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = object(json!({"metadata": {"name": name}}));
    nodes.create(&PostParams::default(), &node).await.unwrap();
    post_status(&nodes, name).await;
    (nodes, world.api("kube-node-lease"))
}

async fn post_status(nodes: &Api<Node>, name: &str) {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let ready = json!({"type": "Ready", "status": "True", "reason": "WindlassNodeReady",
        "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now});
    let patch = Patch::Merge(json!({"status": {"conditions": [ready]}}));
    nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Renews a lease until the future is dropped.
async fn renew(leases: Api<Lease>, name: &str) {
    let lease = |version: Option<String>| {
        let now = k8s_openapi::jiff::Timestamp::now();
        object(json!({"metadata": {"name": name, "resourceVersion": version},
            "spec": {"holderIdentity": name, "renewTime": now.strftime("%FT%T.%6fZ").to_string()}}))
    };
    let mut last: Lease = leases.create(&PostParams::default(), &lease(None)).await.unwrap();
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let next = lease(last.resource_version());
        last = leases.replace(name, &PostParams::default(), &next).await.unwrap();
    }
}

#[tokio::test]
async fn a_node_whose_lease_expires_becomes_unknown_and_comes_back() {
    let mut world = TestCluster::without_controllers().await;
    let (nodes, leases) = register(&world, "n1").await;
    register(&world, "n2").await;
    let never = object(json!({"metadata": {"name": "never"}}));
    nodes.create(&PostParams::default(), &never).await.unwrap();
    world.run_controllers_with(ControllerOptions {
        node_monitor: MONITOR,
        ..ControllerOptions::new(system_clock())
    });
    let renewing = tokio::spawn(renew(leases.clone(), "n1"));
    let lost = wait_until(&nodes, "n2", "become Unknown", has_ready_status("Unknown")).await.unwrap();
    let ready_now = ready(Some(&lost)).unwrap();
    assert_eq!(ready_now.reason.as_deref(), Some("NodeStatusUnknown"));
    assert_eq!(ready_now.message.as_deref(), Some("Kubelet stopped posting node status."));
    let never = wait_until(&nodes, "never", "become Unknown", has_ready_status("Unknown")).await.unwrap();
    let never = ready(Some(&never)).unwrap();
    assert_eq!(never.reason.as_deref(), Some("NodeStatusNeverUpdated"));
    let conditions = lost.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().all(|one| one.status == "Unknown") && conditions.len() == 4);
    // The node that renews its lease is unchanged.
    assert!(has_ready_status("True")(Some(&nodes.get("n1").await.unwrap())));
    renewing.abort();
    wait_until(&nodes, "n1", "become Unknown", has_ready_status("Unknown")).await;
    let events = world.api::<Event>("default");
    let selected = ListParams::default().fields("involvedObject.kind=Node,reason=NodeNotReady");
    let deadline = tokio::time::Instant::now() + crate::fixture::PATIENCE;
    while events.list(&selected).await.unwrap().items.len() < 3 {
        assert!(tokio::time::Instant::now() < deadline, "no event on each node");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // Only the node itself sets Ready again.
    post_status(&nodes, "n1").await;
    wait_until(&nodes, "n1", "be ready", has_ready_status("True")).await;
    wait_until(&nodes, "n1", "be lost again", has_ready_status("Unknown")).await;
    world.shut_down().await;
}

#[tokio::test]
async fn nothing_is_written_while_nothing_changes() {
    let mut world = TestCluster::without_controllers().await;
    let (nodes, _) = register(&world, "n1").await;
    let options = || ControllerOptions { node_monitor: MONITOR, ..ControllerOptions::new(system_clock()) };
    world.run_controllers_with(options());
    let lost = wait_until(&nodes, "n1", "become Unknown", has_ready_status("Unknown")).await.unwrap();
    // A new leader reaches the same verdict and does not write a node that is already marked.
    world.stop_controllers().await;
    world.run_controllers_with(options());
    register(&world, "n2").await;
    wait_until(&nodes, "n2", "become Unknown", has_ready_status("Unknown")).await;
    assert_eq!(nodes.get("n1").await.unwrap().resource_version(), lost.resource_version());
}
