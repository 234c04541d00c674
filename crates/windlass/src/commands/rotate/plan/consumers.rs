//! Consumers of a signer's trust anchors: volumes of nodes, and Bundles. Pure functions of the server's
//! objects.

use serde::Serialize;
use windlass_api::ca_rotation::HeldReason;
use windlass_api::selector::labels::LabelSelector;
use windlass_api::trust_bundle::{Bundle, TrustBundleSource};
use windlass_node::trust::object::{NodeTrustSource, parse_selector};
use windlass_node::volume::trust_anchors::{BundleSelector, TrustBundle};

use super::evaluation::PlannedHold;
use crate::commands::trust::delivery::{TrustState, overview};

/// Volumes of one node that select the signer's bundles.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedNode {
    pub node_name: String,
    /// Volumes as the node names them; `more_volumes` counts the rest.
    pub volumes: Vec<String>,
    pub more_volumes: u32,
    /// Number of volumes that were read since their files last changed.
    pub read: u32,
    pub not_read: Vec<String>,
    /// Number of volumes whose reads cannot be observed.
    pub not_observable: u32,
}

impl PlannedNode {
    pub fn volume_count(&self) -> u32 {
        u32::try_from(self.volumes.len()).unwrap_or(u32::MAX).saturating_add(self.more_volumes)
    }
}

/// Evaluates the consumers of one signer.
pub struct ConsumerSurvey<'a> {
    pub signer: &'a str,
    pub trust: &'a TrustState,
}

impl ConsumerSurvey<'_> {
    /// Lists the nodes with volumes that select the signer's bundles, and adds what would hold a rotation.
    pub fn nodes(&self, holds: &mut Vec<PlannedHold>) -> Vec<PlannedNode> {
        let mut found = Vec::new();
        for (node, report) in &self.trust.reports {
            let mut planned = PlannedNode { node_name: node.clone(), ..PlannedNode::default() };
            for source in &report.status.sources {
                if let Some(selected) = self.selected(source) {
                    planned.add(source, holds);
                    self.check_source(node, source, &selected, holds);
                }
            }
            if planned.volume_count() == 0 {
                continue;
            }
            if let Some(reason) = self.trust.silence_reason(node) {
                holds.push(PlannedHold::new(HeldReason::ConsumersLagging, format!("node/{node}"), reason));
            }
            found.push(planned);
        }
        for unreported in overview(self.trust).unreported {
            let name = format!("node/{}", unreported.node);
            holds.push(PlannedHold::new(HeldReason::ConsumersLagging, name, unreported.message));
        }
        found
    }

    /// Nodes without an agent, whose consumers are not known.
    pub fn agentless(&self) -> Vec<String> {
        overview(self.trust).agentless
    }

    /// Lists the Bundles with a source that selects a bundle of the signer.
    pub fn bundles(&self, bundles: &[Bundle]) -> Vec<String> {
        let is_consumer = |bundle: &&Bundle| {
            let sources =
                bundle.spec.sources.iter().filter_map(|source| source.cluster_trust_bundle.as_ref());
            sources.into_iter().any(|source| self.is_source(source))
        };
        bundles.iter().filter(is_consumer).map(|bundle| bundle.metadata.name.clone()).collect()
    }

    fn is_source(&self, source: &TrustBundleSource) -> bool {
        let selector = match (&source.name, &source.signer_name, &source.label_selector) {
            (Some(name), ..) => BundleSelector::Name(name.clone()),
            (None, Some(signer), labels) => {
                // Without a selector, trust-manager reads all bundles of the signer.
                let labels = labels.as_ref().map(LabelSelector::from_object);
                let labels =
                    labels.transpose().ok().map(|labels| labels.unwrap_or_else(LabelSelector::everything));
                match labels {
                    Some(labels) => BundleSelector::Signer(signer.clone(), labels),
                    None => return false,
                }
            }
            (None, None, _) => return false,
        };
        self.trust.bundles.select(&selector).iter().any(|bundle| bundle.signer == self.signer)
    }

    /// Returns the bundles of the signer that a source selects; `None` if it is no consumer. A volume that
    /// waits for a bundle of the signer that does not exist is one.
    fn selected(&self, source: &NodeTrustSource) -> Option<Vec<&TrustBundle>> {
        let selector = parse_selector(source)?;
        let mut selected = self.trust.bundles.select(&selector);
        selected.retain(|bundle| bundle.signer == self.signer);
        let prefix = format!("{}:", self.signer.replace('/', ":"));
        let waits = !source.optional
            && match &selector {
                BundleSelector::Name(name) => name.starts_with(&prefix),
                BundleSelector::Signer(signer, _) => signer == self.signer,
            };
        (!selected.is_empty() || waits).then_some(selected)
    }

    /// Adds a hold if the volumes of a source do not have the current anchors: they would not get new ones
    /// either.
    fn check_source(
        &self,
        node: &str,
        source: &NodeTrustSource,
        selected: &[&TrustBundle],
        holds: &mut Vec<PlannedHold>,
    ) {
        let has_current = |bundle: &&TrustBundle| {
            let current = self.trust.known.get(&bundle.name).map(|known| known.digest.as_str());
            source.bundles.iter().any(|has| has.name == bundle.name && Some(has.digest.as_str()) == current)
        };
        let message = if !source.message.is_empty() {
            source.message.clone()
        } else if selected.is_empty() {
            "no bundle of the signer matches its selection".to_owned()
        } else if !selected.iter().all(has_current) {
            "does not have the current trust anchors".to_owned()
        } else {
            return;
        };
        for volume in &source.volumes {
            let name = format!("node/{node}/{volume}");
            holds.push(PlannedHold::new(HeldReason::ConsumersLagging, name, message.clone()));
        }
    }
}

impl PlannedNode {
    fn add(&mut self, source: &NodeTrustSource, holds: &mut Vec<PlannedHold>) {
        self.volumes.extend(source.volumes.iter().cloned());
        // Nodes report these numbers, so they may be of any size.
        self.more_volumes = self.more_volumes.saturating_add(source.more_volumes);
        self.not_read.extend(source.not_read_volumes.iter().cloned());
        self.read = self.read.saturating_add(source.read_volumes);
        let count = |list: &[String]| u32::try_from(list.len()).unwrap_or(u32::MAX);
        let all = count(&source.volumes).saturating_add(source.more_volumes);
        // Agents that do not observe reads report none of them.
        let observed = source.read_volumes.saturating_add(count(&source.not_read_volumes));
        self.not_observable = self.not_observable.saturating_add(all.saturating_sub(observed));
        for volume in &source.not_read_volumes {
            let since = source.not_read_since.as_ref().map(|since| format!(" at {since}"));
            let message = format!(
                "has not opened its file since it last changed{}; it may do the same with the new CA",
                since.unwrap_or_default()
            );
            let name = format!("node/{}/{volume}", self.node_name);
            holds.push(PlannedHold::new(HeldReason::ConsumersNotRead, name, message));
        }
    }
}
