//! Last heartbeat of each node by the clock of this process, and which nodes are lost.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use tokio::time::Instant;

use super::NodeMonitor;

#[derive(Debug)]
pub struct NodeHealth {
    monitor: NodeMonitor,
    nodes: HashMap<String, ObservedValue<NodeHeartbeat>>,
    leases: HashMap<String, ObservedValue<Option<MicroTime>>>,
    /// Time since which requests to the server fail.
    disconnected: Option<Instant>,
    checked: Option<Instant>,
}

/// Fields of a Node that show its health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeHeartbeat {
    uid: Option<String>,
    /// Time at which kubelet or agent last wrote the Ready condition, by their clock.
    heartbeat: Option<Time>,
    ready: ReadyState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadyState {
    /// The Node has no Ready condition.
    Missing,
    Unknown,
    Known,
}

/// An observed value and the time of its last change.
#[derive(Debug)]
struct ObservedValue<T> {
    value: T,
    changed: Instant,
}

impl NodeHeartbeat {
    /// Reads UID, heartbeat time and Ready status of a Node.
    pub fn from_node(node: &Node) -> NodeHeartbeat {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().find(|one| one.type_ == "Ready");
        NodeHeartbeat {
            uid: node.metadata.uid.clone(),
            heartbeat: ready.and_then(|ready| ready.last_heartbeat_time.clone()),
            ready: match ready.map(|ready| ready.status.as_str()) {
                None => ReadyState::Missing,
                Some("Unknown") => ReadyState::Unknown,
                Some(_) => ReadyState::Known,
            },
        }
    }

    /// Whether a difference is a heartbeat. The conditions that this controller writes are not.
    fn is_newer_than(&self, before: &NodeHeartbeat) -> bool {
        let posted = self.ready == ReadyState::Known && self.heartbeat != before.heartbeat;
        let recovered = self.ready == ReadyState::Known && before.ready != ReadyState::Known;
        self.uid != before.uid || posted || recovered
    }
}

/// Returns the time of the last renewal, by the clock of the holder.
pub fn renew_time(lease: &Lease) -> Option<MicroTime> {
    lease.spec.as_ref().and_then(|spec| spec.renew_time.clone())
}

impl NodeHealth {
    /// Starts without nodes; every node gets a full grace period when it is first seen.
    pub fn new(monitor: NodeMonitor) -> NodeHealth {
        let (nodes, leases) = (HashMap::new(), HashMap::new());
        NodeHealth { monitor, nodes, leases, disconnected: None, checked: None }
    }

    /// Records the state of a Node.
    pub fn observe_node(&mut self, name: &str, signs: NodeHeartbeat, now: Instant) {
        match self.nodes.get_mut(name) {
            Some(seen) => {
                if signs.is_newer_than(&seen.value) {
                    seen.changed = now;
                }
                seen.value = signs;
            }
            None => {
                self.nodes.insert(name.to_owned(), ObservedValue { value: signs, changed: now });
            }
        }
    }

    /// Records the state of a Lease.
    pub fn observe_lease(&mut self, name: &str, renewed: Option<MicroTime>, now: Instant) {
        match self.leases.get_mut(name) {
            Some(seen) if seen.value == renewed => {}
            _ => {
                let seen = ObservedValue { value: renewed, changed: now };
                self.leases.insert(name.to_owned(), seen);
            }
        }
    }

    /// Removes a Node that was deleted from the API.
    pub fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Removes a Lease that was deleted from the API.
    pub fn remove_lease(&mut self, name: &str) {
        self.leases.remove(name);
    }

    /// Removes all Nodes that a relist did not return.
    pub fn retain_nodes(&mut self, names: &HashSet<String>) {
        self.nodes.retain(|name, _| names.contains(name));
    }

    /// Removes all Leases that a relist did not return.
    pub fn retain_leases(&mut self, names: &HashSet<String>) {
        self.leases.retain(|name, _| names.contains(name));
    }

    /// Records that a request to the server failed.
    pub fn mark_disconnected(&mut self, now: Instant) {
        self.disconnected.get_or_insert(now);
    }

    /// Records that the server responded. During an outage nodes cannot renew their leases either, so after a long one
    /// all of them get another grace period.
    pub fn mark_connected(&mut self, now: Instant) {
        let since = self.disconnected.take();
        if since.is_some_and(|since| now.duration_since(since) >= self.tolerance()) {
            self.restart_grace_periods(now);
        }
    }

    /// Lists the nodes to mark as lost. Call it once per period.
    pub fn lost_nodes(&mut self, now: Instant) -> Vec<String> {
        let before = self.checked.replace(now);
        let stalled = self.monitor.period + self.tolerance();
        // The process was suspended or starved, and received nothing meanwhile.
        if before.is_some_and(|before| now.duration_since(before) >= stalled) {
            self.restart_grace_periods(now);
        }
        self.nodes.keys().filter(|name| self.is_lost(name, now)).cloned().collect()
    }

    /// Whether a node must be marked as lost.
    pub fn is_lost(&self, name: &str, now: Instant) -> bool {
        let Some(node) = self.nodes.get(name) else { return false };
        let grace = match node.value.ready {
            ReadyState::Missing => self.monitor.startup_grace,
            ReadyState::Known => self.monitor.grace,
            ReadyState::Unknown => return false,
        };
        let leased = self.leases.get(name).map(|lease| lease.changed);
        let seen = leased.map_or(node.changed, |leased| leased.max(node.changed));
        now.duration_since(seen) >= grace
    }

    /// Longest interruption that does not affect nodes that renew in time.
    fn tolerance(&self) -> Duration {
        self.monitor.grace / 2
    }

    fn restart_grace_periods(&mut self, now: Instant) {
        self.nodes.values_mut().for_each(|node| node.changed = now);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node_heartbeat(uid: &str, ready: Option<(&str, u32)>) -> NodeHeartbeat {
        let ready = ready.map(|(status, second)| {
            json!({"type": "Ready", "status": status,
                "lastHeartbeatTime": format!("2026-03-01T12:00:{second:02}Z")})
        });
        let conditions = ready.into_iter().collect::<Vec<_>>();
        let node = json!({"metadata": {"name": "n", "uid": uid}, "status": {"conditions": conditions}});
        NodeHeartbeat::from_node(&serde_json::from_value(node).unwrap())
    }

    fn renewal(second: u32) -> Option<MicroTime> {
        let time = format!("2026-03-01T12:00:{second:02}.000000Z");
        let lease = json!({"metadata": {"name": "n"}, "spec": {"renewTime": time}});
        renew_time(&serde_json::from_value(lease).unwrap())
    }

    struct HealthTimeline {
        health: NodeHealth,
        start: Instant,
    }

    impl HealthTimeline {
        fn new() -> HealthTimeline {
            HealthTimeline { health: NodeHealth::new(NodeMonitor::default()), start: Instant::now() }
        }

        fn at_second(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        /// Returns the nodes that are lost at second `until`, checking every five seconds from
        /// `from`.
        fn lost(&mut self, from: u64, until: u64) -> Vec<String> {
            let mut lost = Vec::new();
            for second in (from..=until).step_by(5) {
                lost = self.health.lost_nodes(self.at_second(second));
            }
            lost
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_lost_when_nothing_changes_for_the_grace_period() {
        let mut line = HealthTimeline::new();
        let live = node_heartbeat("u", Some(("True", 0)));
        line.health.observe_node("n", live.clone(), line.at_second(0));
        line.health.observe_lease("n", renewal(0), line.at_second(0));
        // A renewal counts from when it is observed, whatever its timestamp.
        line.health.observe_lease("n", renewal(59), line.at_second(30));
        assert!(line.lost(5, 75).is_empty());
        assert_eq!(line.lost(80, 80), ["n"]);
        // An observation without a change is no heartbeat.
        line.health.observe_lease("n", renewal(59), line.at_second(80));
        line.health.observe_node("n", live, line.at_second(80));
        assert!(line.health.is_lost("n", line.at_second(80)));
        // Marking the node is no heartbeat either, and is not repeated.
        line.health.observe_node("n", node_heartbeat("u", Some(("Unknown", 0))), line.at_second(81));
        assert!(line.lost(85, 200).is_empty());
        // The node recovers and is lost again.
        line.health.observe_node("n", node_heartbeat("u", Some(("True", 20))), line.at_second(200));
        assert!(line.lost(205, 245).is_empty());
        assert_eq!(line.lost(250, 250), ["n"]);
    }

    #[tokio::test(start_paused = true)]
    async fn status_alone_keeps_a_node_and_a_new_one_has_longer() {
        let mut line = HealthTimeline::new();
        line.health.observe_node("old", node_heartbeat("u", Some(("False", 0))), line.at_second(0));
        line.health.observe_node("new", node_heartbeat("v", None), line.at_second(0));
        line.health.observe_node("old", node_heartbeat("u", Some(("False", 40))), line.at_second(40));
        assert!(line.lost(5, 55).is_empty());
        assert_eq!(line.lost(60, 60), ["new"]);
        // A new node of the same name gets a new grace period.
        line.health.observe_node("new", node_heartbeat("w", None), line.at_second(61));
        assert_eq!(line.lost(65, 115), ["old"]);
        line.health.remove_node("old");
        line.health.retain_nodes(&["new".to_owned()].into());
        assert_eq!(line.lost(120, 125), ["new"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_the_server_is_not_held_against_nodes() {
        let mut line = HealthTimeline::new();
        line.health.observe_node("n", node_heartbeat("u", Some(("True", 0))), line.at_second(0));
        line.health.mark_disconnected(line.at_second(10));
        line.health.mark_disconnected(line.at_second(40));
        line.health.mark_connected(line.at_second(45));
        assert!(line.lost(5, 90).is_empty());
        assert_eq!(line.lost(95, 95), ["n"]);
        // A short disconnect changes nothing.
        let mut line = HealthTimeline::new();
        line.health.observe_node("n", node_heartbeat("u", Some(("True", 0))), line.at_second(0));
        line.health.mark_disconnected(line.at_second(10));
        line.health.mark_connected(line.at_second(20));
        assert_eq!(line.lost(5, 50), ["n"]);
        // Time during which this process was suspended does not count against nodes.
        let mut line = HealthTimeline::new();
        line.health.observe_node("n", node_heartbeat("u", Some(("True", 0))), line.at_second(0));
        assert!(line.lost(5, 20).is_empty());
        assert!(line.lost(100, 145).is_empty());
        assert_eq!(line.lost(150, 150), ["n"]);
    }
}
