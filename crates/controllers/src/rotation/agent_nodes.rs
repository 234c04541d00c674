//! Nodes that agents of Windlass have registered: one without a NodeTrust may have consumers that nobody knows.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use windlass_api::ca_rotation::LaggardKind;
use windlass_runtime::watch::{ListTracker, TrackedEvent, WatchError, WatchErrorKind};

use super::observation::{BundleConsumer, ConsumerProof};
use crate::publisher::anchors::NodeReports;

/// Part of `status.nodeInfo.kubeletVersion` of a Node that an agent has registered.
const AGENT_VERSION: &str = "+windlass";

/// The nodes of agents. Where Nodes may not be listed, there are none.
#[derive(Debug, Default)]
pub struct AgentNodes {
    /// Whether all are known, or none can be.
    is_known: bool,
    nodes: BTreeSet<String>,
    tracker: ListTracker<String>,
}

impl AgentNodes {
    /// Applies a watch event; returns whether a node was added or removed. Most events are heartbeats.
    pub fn observe(&mut self, event: Result<Event<Node>, &WatchError>) -> bool {
        match event.map(|event| self.tracker.track(event, Node::name_any)) {
            Ok(Some(TrackedEvent::Applied(name, node))) if is_agent(&node) => self.nodes.insert(name),
            Ok(Some(TrackedEvent::Applied(name, _) | TrackedEvent::Deleted(name, _))) => {
                self.nodes.remove(&name)
            }
            Ok(Some(TrackedEvent::Listed(listed))) => {
                self.nodes.retain(|name| listed.contains(name));
                self.is_known = true;
                true
            }
            Err(error) if error.kind == WatchErrorKind::Refused => {
                !std::mem::replace(&mut self.is_known, true)
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// Lists the nodes that have not reported, none where the server has no NodeTrusts; `None` if that is not known.
    pub fn list_silent(&self, reports: &NodeReports) -> Option<Vec<BundleConsumer>> {
        let silent = self.nodes.iter().filter(|node| reports.has_reported(node) == Some(false));
        let consumers = silent.map(|node| BundleConsumer {
            kind: LaggardKind::Node,
            name: format!("node/{node}"),
            node: node.clone(),
            volumes: 0,
            proof: ConsumerProof::NotReported,
            failure: None,
            blocked: String::new(),
        });
        self.is_known.then(|| consumers.collect())
    }
}

fn is_agent(node: &Node) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.is_some_and(|info| info.kubelet_version.contains(AGENT_VERSION))
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::json;

    use super::*;
    use crate::publisher::anchors::node_trusts;

    #[test]
    fn agents_without_a_report_are_listed() {
        let node = |name: &str, version: &str| -> Node {
            let info = json!({"kubeletVersion": version, "architecture": "", "bootID": "",
                "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
                "operatingSystem": "", "osImage": "", "systemUUID": ""});
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"nodeInfo": info}})).unwrap()
        };
        let mut nodes = AgentNodes::default();
        for (name, version) in [("n1", "v0.1.0+windlass"), ("n2", "v0.1.0+windlass"), ("n3", "v1.35.0")] {
            nodes.observe(Ok(Event::InitApply(node(name, version))));
        }
        let mut reports = NodeReports::default();
        assert_eq!(nodes.list_silent(&reports), None, "the nodes are not known");
        assert!(nodes.observe(Ok(Event::InitDone)));
        assert!(!nodes.observe(Ok(Event::Apply(node("n1", "v0.1.0+windlass")))), "a heartbeat");
        assert_eq!(nodes.list_silent(&reports), Some(vec![]), "the reports are not known");
        let report = DynamicObject::new("n1", &node_trusts());
        reports.observe(Ok(Event::InitApply(report)), |_, _| true);
        reports.observe(Ok(Event::InitDone), |_, _| true);
        let names = |nodes: &AgentNodes| -> Vec<String> {
            nodes.list_silent(&reports).unwrap().into_iter().map(|each| each.name).collect()
        };
        assert_eq!(names(&nodes), ["node/n2"]);
        assert!(nodes.observe(Ok(Event::Delete(node("n2", "v0.1.0+windlass")))));
        assert_eq!(names(&nodes), [""; 0]);
    }
}
