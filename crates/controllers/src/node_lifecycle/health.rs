//! When each node last showed a sign of life, by the clock of this process; and which are lost.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use tokio::time::Instant;

use super::NodeMonitor;

/// What is known of all nodes.
#[derive(Debug)]
pub struct Health {
    monitor: NodeMonitor,
    nodes: HashMap<String, Observed<NodeSigns>>,
    leases: HashMap<String, Observed<Option<MicroTime>>>,
    /// Since when requests to the server fail.
    disconnected: Option<Instant>,
    checked: Option<Instant>,
}

/// What matters of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSigns {
    uid: Option<String>,
    /// When the kubelet or the agent last wrote the Ready condition, by its own clock.
    heartbeat: Option<Time>,
    ready: Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    /// There is no such condition.
    Missing,
    Unknown,
    /// True or False.
    Known,
}

/// Something that was seen, and when it was last seen to change.
#[derive(Debug)]
struct Observed<T> {
    value: T,
    changed: Instant,
}

impl NodeSigns {
    /// Those of a Node.
    pub fn of(node: &Node) -> NodeSigns {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().find(|one| one.type_ == "Ready");
        NodeSigns {
            uid: node.metadata.uid.clone(),
            heartbeat: ready.and_then(|ready| ready.last_heartbeat_time.clone()),
            ready: match ready.map(|ready| ready.status.as_str()) {
                None => Ready::Missing,
                Some("Unknown") => Ready::Unknown,
                Some(_) => Ready::Known,
            },
        }
    }

    /// Whether the difference is a sign of life. The verdict of this controller is none.
    fn lives_since(&self, before: &NodeSigns) -> bool {
        let posted = self.ready == Ready::Known && self.heartbeat != before.heartbeat;
        let recovered = self.ready == Ready::Known && before.ready != Ready::Known;
        self.uid != before.uid || posted || recovered
    }
}

/// When a lease was last renewed, by the clock of its holder.
pub fn renewed(lease: &Lease) -> Option<MicroTime> {
    lease.spec.as_ref().and_then(|spec| spec.renew_time.clone())
}

impl Health {
    /// Nothing is known; every node that is seen gets a whole grace period.
    pub fn new(monitor: NodeMonitor) -> Health {
        let (nodes, leases) = (HashMap::new(), HashMap::new());
        Health { monitor, nodes, leases, disconnected: None, checked: None }
    }

    /// A Node as the server has it now.
    pub fn see_node(&mut self, name: &str, signs: NodeSigns, now: Instant) {
        match self.nodes.get_mut(name) {
            Some(seen) => {
                if signs.lives_since(&seen.value) {
                    seen.changed = now;
                }
                seen.value = signs;
            }
            None => {
                self.nodes.insert(name.to_owned(), Observed { value: signs, changed: now });
            }
        }
    }

    /// A lease as the server has it now.
    pub fn see_lease(&mut self, name: &str, renewed: Option<MicroTime>, now: Instant) {
        match self.leases.get_mut(name) {
            Some(seen) if seen.value == renewed => {}
            _ => {
                let seen = Observed { value: renewed, changed: now };
                self.leases.insert(name.to_owned(), seen);
            }
        }
    }

    /// A Node was deleted.
    pub fn forget_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// A lease was deleted.
    pub fn forget_lease(&mut self, name: &str) {
        self.leases.remove(name);
    }

    /// These are all Nodes.
    pub fn retain_nodes(&mut self, names: &HashSet<String>) {
        self.nodes.retain(|name, _| names.contains(name));
    }

    /// These are all leases.
    pub fn retain_leases(&mut self, names: &HashSet<String>) {
        self.leases.retain(|name, _| names.contains(name));
    }

    /// A request to the server failed.
    pub fn disconnected(&mut self, now: Instant) {
        self.disconnected.get_or_insert(now);
    }

    /// The server answered. While it did not, nodes could not renew their leases either: after a long
    /// outage all of them get another grace period.
    pub fn connected(&mut self, now: Instant) {
        let since = self.disconnected.take();
        if since.is_some_and(|since| now.duration_since(since) >= self.tolerance()) {
            self.excuse_all(now);
        }
    }

    /// The nodes that are to be marked as lost. Called once a period.
    pub fn check(&mut self, now: Instant) -> Vec<String> {
        let before = self.checked.replace(now);
        let stalled = self.monitor.period + self.tolerance();
        // This process was stopped, or had no processor: it has heard nothing meanwhile.
        if before.is_some_and(|before| now.duration_since(before) >= stalled) {
            self.excuse_all(now);
        }
        self.nodes.keys().filter(|name| self.is_lost(name, now)).cloned().collect()
    }

    /// Whether a node is to be marked as lost.
    pub fn is_lost(&self, name: &str, now: Instant) -> bool {
        let Some(node) = self.nodes.get(name) else { return false };
        let grace = match node.value.ready {
            Ready::Missing => self.monitor.startup_grace,
            Ready::Known => self.monitor.grace,
            Ready::Unknown => return false,
        };
        let leased = self.leases.get(name).map(|lease| lease.changed);
        let seen = leased.map_or(node.changed, |leased| leased.max(node.changed));
        now.duration_since(seen) >= grace
    }

    /// How long an interruption may be without an effect on nodes that renew in time.
    fn tolerance(&self) -> Duration {
        self.monitor.grace / 2
    }

    fn excuse_all(&mut self, now: Instant) {
        self.nodes.values_mut().for_each(|node| node.changed = now);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn signs(uid: &str, ready: Option<(&str, u32)>) -> NodeSigns {
        let ready = ready.map(|(status, second)| {
            json!({"type": "Ready", "status": status,
                "lastHeartbeatTime": format!("2026-03-01T12:00:{second:02}Z")})
        });
        let conditions = ready.into_iter().collect::<Vec<_>>();
        let node =
            json!({"metadata": {"name": "n", "uid": uid}, "status": {"conditions": conditions}});
        NodeSigns::of(&serde_json::from_value(node).unwrap())
    }

    fn renewal(second: u32) -> Option<MicroTime> {
        let time = format!("2026-03-01T12:00:{second:02}.000000Z");
        let lease = json!({"metadata": {"name": "n"}, "spec": {"renewTime": time}});
        renewed(&serde_json::from_value(lease).unwrap())
    }

    struct Timeline {
        health: Health,
        start: Instant,
    }

    impl Timeline {
        fn new() -> Timeline {
            Timeline { health: Health::new(NodeMonitor::default()), start: Instant::now() }
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        /// The nodes that are lost at this second, checked every five seconds until then.
        fn lost(&mut self, from: u64, until: u64) -> Vec<String> {
            let mut lost = Vec::new();
            for second in (from..=until).step_by(5) {
                lost = self.health.check(self.at(second));
            }
            lost
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_lost_when_nothing_changes_for_the_grace_period() {
        let mut line = Timeline::new();
        let live = signs("u", Some(("True", 0)));
        line.health.see_node("n", live.clone(), line.at(0));
        line.health.see_lease("n", renewal(0), line.at(0));
        // A renewal counts from when it is seen, whatever its time says.
        line.health.see_lease("n", renewal(59), line.at(30));
        assert!(line.lost(5, 75).is_empty());
        assert_eq!(line.lost(80, 80), ["n"]);
        // What is seen again without a change is no sign of life.
        line.health.see_lease("n", renewal(59), line.at(80));
        line.health.see_node("n", live, line.at(80));
        assert!(line.health.is_lost("n", line.at(80)));
        // The verdict itself is none either, and is not repeated.
        line.health.see_node("n", signs("u", Some(("Unknown", 0))), line.at(81));
        assert!(line.lost(85, 200).is_empty());
        // It comes back, and is lost again.
        line.health.see_node("n", signs("u", Some(("True", 20))), line.at(200));
        assert!(line.lost(205, 245).is_empty());
        assert_eq!(line.lost(250, 250), ["n"]);
    }

    #[tokio::test(start_paused = true)]
    async fn status_alone_keeps_a_node_and_a_new_one_has_longer() {
        let mut line = Timeline::new();
        line.health.see_node("old", signs("u", Some(("False", 0))), line.at(0));
        line.health.see_node("new", signs("v", None), line.at(0));
        line.health.see_node("old", signs("u", Some(("False", 40))), line.at(40));
        assert!(line.lost(5, 55).is_empty());
        assert_eq!(line.lost(60, 60), ["new"]);
        // Another node of the same name begins anew.
        line.health.see_node("new", signs("w", None), line.at(61));
        assert_eq!(line.lost(65, 115), ["old"]);
        line.health.forget_node("old");
        line.health.retain_nodes(&["new".to_owned()].into());
        assert_eq!(line.lost(120, 125), ["new"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_the_server_is_not_held_against_nodes() {
        let mut line = Timeline::new();
        line.health.see_node("n", signs("u", Some(("True", 0))), line.at(0));
        line.health.disconnected(line.at(10));
        line.health.disconnected(line.at(40));
        line.health.connected(line.at(45));
        assert!(line.lost(5, 90).is_empty());
        assert_eq!(line.lost(95, 95), ["n"]);
        // A short one changes nothing.
        let mut line = Timeline::new();
        line.health.see_node("n", signs("u", Some(("True", 0))), line.at(0));
        line.health.disconnected(line.at(10));
        line.health.connected(line.at(20));
        assert_eq!(line.lost(5, 50), ["n"]);
        // Nor is it held against them that this process stood still.
        let mut line = Timeline::new();
        line.health.see_node("n", signs("u", Some(("True", 0))), line.at(0));
        assert!(line.lost(5, 20).is_empty());
        assert!(line.lost(100, 145).is_empty());
        assert_eq!(line.lost(150, 150), ["n"]);
    }
}
