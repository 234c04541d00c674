//! The Node object as a watch last delivered it, and whether it must be reported again.
//!
//! Other processes change the Node: a controller marks it as lost when heartbeats stay out, an administrator deletes it, a
//! kubelet starts on the machine. With the watch, the agent answers at once instead of with its next regular report.

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;

use super::object::{is_ready, is_reported_by_kubelet};

/// State of the Node object, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObservedNode {
    /// Not read yet, or reported since it was read.
    #[default]
    Unknown,
    /// The Node does not exist.
    Missing,
    /// A kubelet reports the status of the Node.
    OfKubelet,
    /// The Node has the status of this agent.
    Ready,
    /// The Ready condition is missing or not `True`.
    NotReady,
}

impl ObservedNode {
    /// Applies an event of a watch that selects only this Node.
    pub fn observe(&mut self, event: &Event<Node>) {
        *self = match event {
            // The list may be empty; its end does not say so by itself.
            Event::Init => Self::Missing,
            Event::InitDone => *self,
            Event::Delete(_) => Self::Missing,
            Event::InitApply(node) | Event::Apply(node) if is_reported_by_kubelet(node) => Self::OfKubelet,
            Event::InitApply(node) | Event::Apply(node) if is_ready(node) => Self::Ready,
            Event::InitApply(_) | Event::Apply(_) => Self::NotReady,
        };
    }

    /// Whether the Node must be reported again. `to_kubelet` is whether it is left to a kubelet: then this agent neither
    /// creates the Node nor changes its conditions.
    pub fn requires_report(self, to_kubelet: bool) -> bool {
        match self {
            Self::Unknown => false,
            Self::Missing | Self::NotReady | Self::OfKubelet => !to_kubelet,
            Self::Ready => to_kubelet,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(kubelet: &str, ready: &str) -> Node {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let status = json!({"conditions": conditions, "nodeInfo": {"kubeletVersion": kubelet}});
        serde_json::from_value(json!({"metadata": {"name": "n1"}, "status": status})).unwrap()
    }

    #[test]
    fn changes_by_others_require_a_report() {
        let ours = |ready| node("v0.1.0+windlass", ready);
        let kubelet = |ready| node("v1.37.0", ready);
        // Events, and whether a report is required while this agent reports, or while a kubelet does.
        let table = [
            (vec![], (false, false)),
            (vec![Event::Init, Event::InitDone], (true, false)),
            (vec![Event::Init, Event::InitApply(ours("True")), Event::InitDone], (false, true)),
            (vec![Event::Apply(ours("True")), Event::Apply(ours("Unknown"))], (true, false)),
            (vec![Event::Apply(ours("Unknown")), Event::Apply(ours("True"))], (false, true)),
            (vec![Event::Apply(kubelet("False"))], (true, false)),
            (vec![Event::Apply(ours("True")), Event::Delete(ours("True"))], (true, false)),
        ];
        for (events, wanted) in table {
            let mut observed = ObservedNode::default();
            events.iter().for_each(|event| observed.observe(event));
            let found = (observed.requires_report(false), observed.requires_report(true));
            assert_eq!(found, wanted, "{observed:?}");
        }
    }
}
