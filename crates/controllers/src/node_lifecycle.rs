//! Node health: sets the conditions of a node to Unknown when its lease and its status stop changing, as
//! kube-controller-manager's node-lifecycle-controller does. It neither taints nodes nor evicts pods.
//!
//! Times of other machines are compared for equality only: a node is lost when nothing about it has changed for the
//! grace period by the clock of this process. Before conditions are written, Lease and Node are read again, so that a
//! delayed watch has no effect.

mod conditions;
mod health;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::Instant;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::events::{CONTROLLER_EVENT_LIMIT, EventRecorder, EventReporter, NewEvent};
use windlass_runtime::metrics::ControllerMetrics;
use windlass_runtime::watch::{ListTracker, TrackedEvent, WatchError, watch_objects};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use crate::csr::{is_conflict, is_not_found, requeue_changed};
use crate::options::Clock;

use health::{NodeHealth, NodeHeartbeat};

/// Namespace in which node agents and kubelets renew their leases.
const LEASES: &str = "kube-node-lease";
const WORKERS: usize = 4;
/// Pause of a worker after each write: a cluster that loses all its nodes at once causes at most
/// WORKERS / PAUSE = 400 writes a second.
const PAUSE: Duration = Duration::from_millis(10);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(15));

/// Thresholds for lost nodes. The defaults are those of kube-controller-manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMonitor {
    /// Interval between checks of all nodes.
    pub period: Duration,
    /// Time without a renewal of lease or status after which a node is lost.
    pub grace: Duration,
    /// Grace period of a node that never had a Ready condition.
    pub startup_grace: Duration,
}

impl Default for NodeMonitor {
    fn default() -> NodeMonitor {
        let [period, grace, startup_grace] = [5, 50, 60].map(Duration::from_secs);
        NodeMonitor { period, grace, startup_grace }
    }
}

/// Sets the conditions of nodes that stop reporting; does not return.
pub async fn run(
    client: Client,
    monitor: NodeMonitor,
    clock: Clock,
    metrics: Arc<ControllerMetrics>,
) -> Infallible {
    let queue = Arc::new(WorkQueue::new(metrics, BACKOFF));
    let controller = Arc::new(NodeController {
        nodes: Api::all_with(client.clone(), &ApiResource::erase::<Node>(&())),
        leases: Api::namespaced(client.clone(), LEASES),
        health: Mutex::new(NodeHealth::new(monitor)),
        events: EventRecorder::new(
            client.clone(),
            EventReporter::controller("node-lifecycle"),
            CONTROLLER_EVENT_LIMIT,
        ),
        queue: queue.clone(),
        clock,
    });
    let reconcile = |name: String| {
        let controller = controller.clone();
        async move { controller.reconcile(&name).await }
    };
    tokio::join!(
        controller.watch_nodes(Api::all(client.clone())),
        controller.watch_leases(),
        controller.run_checks(monitor.period),
        run_workers(queue, WORKERS, reconcile),
    )
    .0
}

struct NodeController {
    nodes: Api<DynamicObject>,
    leases: Api<Lease>,
    health: Mutex<NodeHealth>,
    events: EventRecorder,
    queue: Arc<WorkQueue<String>>,
    clock: Clock,
}

impl NodeController {
    async fn watch_nodes(&self, api: Api<Node>) -> Infallible {
        let mut tracker = ListTracker::default();
        let on = |event: Result<Event<Node>, &WatchError>| {
            let (mut health, now) = (self.lock(), Instant::now());
            let Ok(event) = event else { return health.mark_disconnected(now) };
            health.mark_connected(now);
            match tracker.track(event, Node::name_any) {
                Some(TrackedEvent::Applied(name, node)) => {
                    health.observe_node(&name, NodeHeartbeat::from_node(&node), now);
                }
                Some(TrackedEvent::Deleted(name, _)) => health.remove_node(&name),
                Some(TrackedEvent::Listed(names)) => health.retain_nodes(&names),
                None => {}
            }
        };
        watch_objects(api, "nodes", Config::default(), self.queue.metrics(), on).await
    }

    async fn watch_leases(&self) -> Infallible {
        let mut tracker = ListTracker::default();
        let on = |event: Result<Event<Lease>, &WatchError>| {
            let (mut health, now) = (self.lock(), Instant::now());
            let Ok(event) = event else { return health.mark_disconnected(now) };
            health.mark_connected(now);
            match tracker.track(event, Lease::name_any) {
                Some(TrackedEvent::Applied(name, lease)) => {
                    health.observe_lease(&name, health::renew_time(&lease), now);
                }
                Some(TrackedEvent::Deleted(name, _)) => health.remove_lease(&name),
                Some(TrackedEvent::Listed(names)) => health.retain_leases(&names),
                None => {}
            }
        };
        let (api, metrics) = (self.leases.clone(), self.queue.metrics());
        watch_objects(api, "leases", Config::default(), metrics, on).await
    }

    /// Enqueues the nodes that are lost, once per period.
    async fn run_checks(&self, period: Duration) -> Infallible {
        loop {
            tokio::time::sleep(period).await;
            let lost = self.lock().lost_nodes(Instant::now());
            lost.into_iter().for_each(|name| self.queue.add(name));
        }
    }

    async fn reconcile(&self, name: &str) -> anyhow::Result<Requeue> {
        let read = tokio::try_join!(self.nodes.get_opt(name), self.leases.get_opt(name));
        let (node, lease) = match read {
            Ok(read) => read,
            Err(error) => {
                self.lock().mark_disconnected(Instant::now());
                return Err(error.into());
            }
        };
        let Some(mut node) = node else { return Ok(Requeue::Done) };
        if !self.is_lost(name, &node, lease.as_ref()) {
            return Ok(Requeue::Done);
        }
        let now = (self.clock)();
        if !conditions::set_unknown(&mut node, now) {
            return Ok(Requeue::Done);
        }
        let written = self.nodes.replace_status(name, &PostParams::default(), &node).await;
        tokio::time::sleep(PAUSE).await;
        match written {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => return Ok(Requeue::Done),
            Err(error) if is_conflict(&error) => {
                return Ok(requeue_changed());
            }
            Err(error) => return Err(error.into()),
        }
        let note = format!("Node {name} status is now: NodeNotReady");
        let event = NewEvent::warning("MonitoringHealth", "NodeNotReady", note);
        self.events.warn(object_reference(&node), event, now).await;
        Ok(Requeue::Done)
    }

    /// Whether a node is lost according to the objects that were just read.
    fn is_lost(&self, name: &str, node: &DynamicObject, lease: Option<&Lease>) -> bool {
        let (mut health, now) = (self.lock(), Instant::now());
        health.mark_connected(now);
        match serde_json::to_value(node).and_then(serde_json::from_value::<Node>) {
            Ok(node) => health.observe_node(name, NodeHeartbeat::from_node(&node), now),
            // Not a valid Node, which the watch could not parse either.
            Err(_) => return false,
        }
        if let Some(lease) = lease {
            health.observe_lease(name, health::renew_time(lease), now);
        }
        health.is_lost(name, now)
    }

    fn lock(&self) -> MutexGuard<'_, NodeHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn object_reference(node: &DynamicObject) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: node.metadata.name.clone(),
        uid: node.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
