//! Node health: sets the conditions of a node to Unknown when its lease and its status stop changing, as
//! kube-controller-manager's node-lifecycle-controller does. It neither taints nodes nor evicts pods.
//!
//! Times of other machines are compared for equality only: a node is lost when nothing about it has
//! changed for the grace period by the clock of this process. Before a verdict is written, lease and
//! Node are read again, so that a watch that lags condemns nobody.

mod conditions;
mod health;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::Instant;

use crate::csr::{is_conflict, is_not_found};
use crate::event_recorder::{EventRecorder, WarningEvent};
use crate::metrics::NODE_LIFECYCLE;
use crate::options::Clock;
use crate::resource_watch;
use crate::work_queue::{RetryBackoff, WorkQueue};
use crate::workers::{self, ReconcileOutcome};

use health::{NodeHealth, NodeHeartbeat};

/// Where node agents and kubelets renew their leases.
const LEASES: &str = "kube-node-lease";
const WORKERS: usize = 4;
/// Pause of a worker after each write: a cluster that loses all its nodes at once causes at most
/// WORKERS / PAUSE = 400 writes a second.
const PAUSE: Duration = Duration::from_millis(10);
const BACKOFF: RetryBackoff =
    RetryBackoff::new(Duration::from_millis(200), Duration::from_secs(15));

/// When a node counts as lost. The defaults are those of kube-controller-manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMonitor {
    /// How often all nodes are checked.
    pub period: Duration,
    /// How long a node may go without a renewal of its lease or its status.
    pub grace: Duration,
    /// The same for a node that has never had a Ready condition.
    pub startup_grace: Duration,
}

impl Default for NodeMonitor {
    fn default() -> NodeMonitor {
        let [period, grace, startup_grace] = [5, 50, 60].map(Duration::from_secs);
        NodeMonitor { period, grace, startup_grace }
    }
}

/// Runs the loop; does not end.
pub async fn run(client: Client, monitor: NodeMonitor, clock: Clock) {
    let queue = Arc::new(WorkQueue::new(&NODE_LIFECYCLE, BACKOFF));
    let controller = Arc::new(NodeController {
        nodes: Api::all_with(client.clone(), &ApiResource::erase::<Node>(&())),
        leases: Api::namespaced(client.clone(), LEASES),
        health: Mutex::new(NodeHealth::new(monitor)),
        notices: EventRecorder::new(client.clone(), "node-lifecycle"),
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
        workers::run(queue, WORKERS, reconcile),
    );
}

struct NodeController {
    nodes: Api<DynamicObject>,
    leases: Api<Lease>,
    health: Mutex<NodeHealth>,
    notices: EventRecorder,
    queue: Arc<WorkQueue<String>>,
    clock: Clock,
}

impl NodeController {
    async fn watch_nodes(&self, api: Api<Node>) {
        let mut listed = HashSet::new();
        let on = |event: Result<Event<Node>, &watcher::Error>| {
            let (mut health, now) = (self.lock(), Instant::now());
            let Ok(event) = event else { return health.mark_disconnected(now) };
            health.mark_connected(now);
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(node) => {
                    health.observe_node(&node.name_any(), NodeHeartbeat::from_node(&node), now);
                    listed.insert(node.name_any());
                }
                Event::InitDone => health.retain_nodes(&std::mem::take(&mut listed)),
                Event::Apply(node) => {
                    health.observe_node(&node.name_any(), NodeHeartbeat::from_node(&node), now)
                }
                Event::Delete(node) => health.remove_node(&node.name_any()),
            }
        };
        resource_watch::watch_with_config(api, "nodes", Config::default(), &NODE_LIFECYCLE, on)
            .await;
    }

    async fn watch_leases(&self) {
        let mut listed = HashSet::new();
        let on = |event: Result<Event<Lease>, &watcher::Error>| {
            let (mut health, now) = (self.lock(), Instant::now());
            let Ok(event) = event else { return health.mark_disconnected(now) };
            health.mark_connected(now);
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(lease) => {
                    health.observe_lease(&lease.name_any(), health::renew_time(&lease), now);
                    listed.insert(lease.name_any());
                }
                Event::InitDone => health.retain_leases(&std::mem::take(&mut listed)),
                Event::Apply(lease) => {
                    health.observe_lease(&lease.name_any(), health::renew_time(&lease), now);
                }
                Event::Delete(lease) => health.remove_lease(&lease.name_any()),
            }
        };
        let api = self.leases.clone();
        resource_watch::watch_with_config(api, "leases", Config::default(), &NODE_LIFECYCLE, on)
            .await;
    }

    /// Queues the nodes that are lost, once a period; does not end.
    async fn run_checks(&self, period: Duration) {
        loop {
            tokio::time::sleep(period).await;
            let lost = self.lock().lost_nodes(Instant::now());
            lost.into_iter().for_each(|name| self.queue.add(name));
        }
    }

    async fn reconcile(&self, name: &str) -> anyhow::Result<ReconcileOutcome> {
        let read = tokio::try_join!(self.nodes.get_opt(name), self.leases.get_opt(name));
        let (node, lease) = match read {
            Ok(read) => read,
            Err(error) => {
                self.lock().mark_disconnected(Instant::now());
                return Err(error.into());
            }
        };
        let Some(mut node) = node else { return Ok(ReconcileOutcome::Done) };
        if !self.is_lost(name, &node, lease.as_ref()) {
            return Ok(ReconcileOutcome::Done);
        }
        let now = (self.clock)();
        if !conditions::set_unknown(&mut node, now) {
            return Ok(ReconcileOutcome::Done);
        }
        let written = self.nodes.replace_status(name, &PostParams::default(), &node).await;
        tokio::time::sleep(PAUSE).await;
        match written {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => return Ok(ReconcileOutcome::Done),
            Err(error) if is_conflict(&error) => {
                return Ok(ReconcileOutcome::Requeue("the node was changed meanwhile".into()));
            }
            Err(error) => return Err(error.into()),
        }
        let (action, reason) = ("MonitoringHealth", "NodeNotReady");
        let note = format!("Node {name} status is now: NodeNotReady");
        self.notices
            .warn_about(object_reference(&node), WarningEvent { action, reason, note: &note }, now)
            .await;
        Ok(ReconcileOutcome::Done)
    }

    /// Whether a node is lost by what was read just now.
    fn is_lost(&self, name: &str, node: &DynamicObject, lease: Option<&Lease>) -> bool {
        let (mut health, now) = (self.lock(), Instant::now());
        health.mark_connected(now);
        match serde_json::to_value(node).and_then(serde_json::from_value::<Node>) {
            Ok(node) => health.observe_node(name, NodeHeartbeat::from_node(&node), now),
            // No kubelet of this world wrote that; the watch could not read it either.
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
