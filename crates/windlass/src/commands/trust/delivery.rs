//! Delivery of bundles to nodes: a pure function of the server's objects.
//!
//! All views derive from [`overview`], so that a list and a detail view cannot disagree. In doubt,
//! a bundle counts as not delivered: a node that is blocked, stale or silent does not have it.

#[cfg(test)]
pub mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};
use windlass_api::selector::labels::LabelSelector;
use windlass_node::trust::object::{
    NodeTrustBundle, NodeTrustSource, NodeTrustStatus, digest_text, parse_selector,
};
use windlass_node::volume::trust_anchors::{BundleSelector, TrustBundle, TrustBundleIndex};

/// Message for a node whose report is truncated.
const CUT: &str = "report does not list all volumes";
/// Message for a node with a Windlass agent but without a report.
const NO_REPORT: &str = "agent has not reported";

/// Bundles, node reports and Nodes of the server, kept current by the watch.
#[derive(Debug, Default)]
pub struct TrustState {
    /// Bundles by name, with what deliveries are compared with.
    pub known: BTreeMap<String, BundleInfo>,
    /// The same bundles, indexed for selection.
    pub bundles: TrustBundleIndex,
    pub reports: BTreeMap<String, NodeReport>,
    /// All Nodes of the cluster, by name.
    pub nodes: BTreeMap<String, NodeState>,
}

/// State of an agent according to its Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Whether a Windlass agent registered it. Other nodes run a kubelet, with or without an agent
    /// next to it.
    pub ours: bool,
    /// Since when its Ready condition is Unknown, as RFC 3339: its lease has expired.
    pub lost: Option<String>,
}

/// A ClusterTrustBundle, reduced to what deliveries are compared with.
#[derive(Debug, Clone)]
pub struct BundleInfo {
    /// Signer of the bundle; may be empty.
    pub signer: String,
    /// `metadata.generation`; 0 if the server does not set it.
    pub generation: i64,
    pub digest: String,
    /// Number of trust anchors in the bundle.
    pub certificates: usize,
}

/// The NodeTrust object of one node.
#[derive(Debug, Clone, Default)]
pub struct NodeReport {
    pub status: NodeTrustStatus,
    /// Time of the last write as RFC 3339; empty if unknown.
    pub at: String,
}

/// Delivery of all bundles, and uncertainties that may concern any of them.
#[derive(Debug, Default)]
pub struct DeliveryOverview {
    /// All bundles by name: existing ones, and others that nodes carry or wait for.
    pub deliveries: Vec<BundleDelivery>,
    /// Blocked volumes whose selection matches no bundle, nor a signer that has one.
    pub unmatched: Vec<NodeVolumes>,
    /// Nodes whose report is missing or truncated, and why that is so.
    pub unreported: Vec<UnreportedNode>,
    /// Nodes without a report that no Windlass agent registered. Nothing is expected from them.
    pub agentless: Vec<String>,
}

/// A node whose expected bundles are unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreportedNode {
    #[serde(rename = "nodeName")]
    pub node: String,
    /// Why the report is missing or incomplete.
    pub message: String,
}

#[derive(Debug, Default)]
pub struct BundleDelivery {
    /// Name of the ClusterTrustBundle that is delivered.
    pub name: String,
    /// Signer of the bundle; may be empty.
    pub signer: String,
    /// Whether the bundle exists on the server.
    pub exists: bool,
    /// `metadata.generation`; 0 if the bundle does not exist or has none.
    pub generation: i64,
    pub digest: String,
    /// Number of trust anchors in the bundle.
    pub certificates: usize,
    /// Number of nodes that should have it; if it does not exist, of those that have it or wait for
    /// it.
    pub nodes: usize,
    /// Number of these nodes that have it.
    pub have: usize,
    /// Nodes that should have the bundle and do not.
    pub lacking: Vec<NodeVolumes>,
    /// Nodes that have the bundle and should not: it was deleted, or nothing selects it any more.
    pub leftover: Vec<NodeVolumes>,
    pub carriers: Vec<NodeVolumes>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeVolumes {
    #[serde(rename = "nodeName")]
    pub node: String,
    /// Time of its last report as RFC 3339.
    #[serde(rename = "lastReportTime", skip_serializing_if = "String::is_empty")]
    pub reported: String,
    /// Why it lacks the expected content; `None` if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<DeliveryShortfall>,
    /// Its volumes, grouped by equal content.
    pub volumes: Vec<VolumeGroup>,
}

/// Why a node does not have a bundle. If several reasons apply, the last in this order is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum DeliveryShortfall {
    /// Its volumes have older content or none yet.
    Stale,
    /// Its report does not list all volumes.
    Truncated,
    /// An error prevents a volume from being updated.
    Blocked,
    /// Its agent has stopped reporting.
    Silent,
}

/// Volumes with the same content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeGroup {
    /// Content of the bundle in these volumes.
    #[serde(rename = "content")]
    pub carries: CarriedContent,
    /// Volume names as the node reports them; `more` counts the rest.
    pub names: Vec<String>,
    /// Number of volumes that are not named.
    #[serde(rename = "moreNames")]
    pub more: u32,
    /// Why they lack the expected content; empty if they do not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Content of a bundle in volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
pub enum CarriedContent {
    /// The report does not say what the volumes hold.
    Unknown,
    /// The volumes hold no anchors of the bundle.
    Nothing,
    /// Content with this digest, of this generation unless it is 0.
    Bundle {
        /// `metadata.generation` of the content; 0 if unknown.
        generation: i64,
        /// Digest of the anchors in the volume.
        digest: String,
    },
}

/// Evaluates the delivery of all bundles.
pub fn overview(world: &TrustState) -> DeliveryOverview {
    let known = world.known.iter().map(|(name, known)| (name.clone(), known.delivery(name)));
    let mut all = known.collect::<BTreeMap<_, _>>();
    let mut overview = world.unreported();
    for (node, reported) in &world.reports {
        let silent = world.silence_reason(node);
        let mut wanted = BTreeSet::new();
        for source in &reported.status.sources {
            let look = SourceInspection { world, node, reported, source, silent: silent.as_deref() };
            look.sort(&mut all, &mut wanted, &mut overview.unmatched);
        }
        for name in &wanted {
            let delivery = delivery_entry(&mut all, name);
            if reported.status.more_sources > 0 {
                let (carries, message) = (CarriedContent::Unknown, CUT.to_owned());
                let unlisted = VolumeGroup { carries, names: Vec::new(), more: 0, message };
                let state = Some(DeliveryShortfall::Truncated);
                add(&mut delivery.lacking, node, reported, state, unlisted);
            }
            delivery.nodes += 1;
            // Nodes are visited in order, so this node would be the last entry.
            let lacks = delivery.lacking.last().is_some_and(|at| at.node == *node);
            delivery.have += usize::from(!lacks);
        }
    }
    overview.deliveries = all.into_values().map(BundleDelivery::with_counts).collect();
    overview
}

/// Evaluation of one source in the report of a node.
struct SourceInspection<'a> {
    world: &'a TrustState,
    node: &'a str,
    reported: &'a NodeReport,
    source: &'a NodeTrustSource,
    /// Why the node no longer reports, if it does not.
    silent: Option<&'a str>,
}

impl SourceInspection<'_> {
    fn sort(
        &self,
        all: &mut BTreeMap<String, BundleDelivery>,
        wanted: &mut BTreeSet<String>,
        unmatched: &mut Vec<NodeVolumes>,
    ) {
        let Self { world, node, reported, source, .. } = self;
        let carried: BTreeMap<&str, &NodeTrustBundle> =
            source.bundles.iter().map(|bundle| (bundle.name.as_str(), bundle)).collect();
        let select = parse_selector(source);
        let selected = select.as_ref().map(|select| world.bundles.select(select));
        let selected = selected.unwrap_or_default();
        for TrustBundle { name, .. } in &selected {
            wanted.insert(name.clone());
            let found = carried.get(name.as_str()).copied();
            let current = world.known.get(name).map(|known| known.digest.as_str());
            if self.silent.is_some() || found.map(|found| found.digest.as_str()) != current {
                let volumes = self.volumes(found, None);
                add(&mut delivery_entry(all, name).lacking, node, reported, self.state(), volumes);
            }
        }
        if selected.is_empty() && !source.optional {
            self.blocked(all, wanted, unmatched, &carried);
        }
        for bundle in carried.values().copied() {
            let delivery = delivery_entry(all, &bundle.name);
            let volumes = self.volumes(Some(bundle), None);
            add(&mut delivery.carriers, node, reported, None, volumes.clone());
            if !selected.iter().any(|selected| selected.name == bundle.name) {
                add(&mut delivery.leftover, node, reported, None, volumes);
            }
        }
    }

    /// Handles a selection that matches no bundle, so that the volume is blocked. It may have been
    /// meant to match any bundle of the signer, so it counts against all of these. If there are
    /// none, the signer's name may be wrong, and the volume counts against every bundle.
    fn blocked(
        &self,
        all: &mut BTreeMap<String, BundleDelivery>,
        wanted: &mut BTreeSet<String>,
        unmatched: &mut Vec<NodeVolumes>,
        carried: &BTreeMap<&str, &NodeTrustBundle>,
    ) {
        let Self { world, node, reported, source, .. } = self;
        let state = self.silent.map_or(DeliveryShortfall::Blocked, |_| DeliveryShortfall::Silent);
        let why = format!("no bundle matches {}", selection(source));
        let lacks = |delivery: &mut BundleDelivery| {
            let found = carried.get(delivery.name.as_str()).copied();
            let volumes = self.volumes(found, Some(&why));
            add(&mut delivery.lacking, node, reported, Some(state), volumes);
        };
        // A bundle selected by name that never existed.
        if !source.name.is_empty() && !carried.contains_key(source.name.as_str()) {
            wanted.insert(source.name.clone());
            lacks(delivery_entry(all, &source.name));
        }
        let related = BundleSelector::Signer(source_signer(source), LabelSelector::everything());
        let related = world.bundles.select(&related);
        if related.is_empty() {
            let volumes = self.volumes(None, Some(&why));
            add(unmatched, node, reported, Some(state), volumes);
        }
        for TrustBundle { name, .. } in related {
            lacks(delivery_entry(all, name));
            wanted.insert(name.clone());
        }
    }

    fn state(&self) -> Option<DeliveryShortfall> {
        Some(match self.silent {
            Some(_) => DeliveryShortfall::Silent,
            None if self.source.message.is_empty() => DeliveryShortfall::Stale,
            None => DeliveryShortfall::Blocked,
        })
    }

    fn volumes(&self, found: Option<&NodeTrustBundle>, why: Option<&str>) -> VolumeGroup {
        let carries = match found {
            Some(NodeTrustBundle { generation, digest, .. }) => {
                CarriedContent::Bundle { generation: *generation, digest: digest.clone() }
            }
            None if self.source.digest.is_empty() => CarriedContent::Unknown,
            None => CarriedContent::Nothing,
        };
        let NodeTrustSource { volumes, more_volumes, message, .. } = self.source;
        let reasons = [self.silent, why.or(Some(message.as_str()))];
        let reasons = reasons.into_iter().flatten().filter(|reason| !reason.is_empty());
        let message = reasons.collect::<Vec<_>>().join("; ");
        VolumeGroup { carries, names: volumes.clone(), more: *more_volumes, message }
    }
}

/// Describes what a source selects, for people.
fn selection(source: &NodeTrustSource) -> String {
    let labels = source.label_selector.as_ref();
    match (parse_selector(source), labels) {
        (Some(BundleSelector::Name(name)), _) => format!("name={name}"),
        (_, None) => format!("signerName={} without a labelSelector", source.signer_name),
        (Some(BundleSelector::Signer(signer, labels)), Some(_)) => {
            format!("signerName={signer}, labelSelector {labels}")
        }
        (None, Some(labels)) => {
            format!("signerName={}, labelSelector {labels}", source.signer_name)
        }
    }
}

/// Returns the signer whose bundles a source selects; empty for a bundle without one. The name of a
/// bundle with a signer starts with the signer's name.
fn source_signer(source: &NodeTrustSource) -> String {
    let signer = source.name.rsplit_once(':').and_then(|(signer, _)| signer.split_once(':'));
    match signer {
        _ if source.name.is_empty() => source.signer_name.clone(),
        Some((domain, path)) => format!("{domain}/{path}"),
        None => String::new(),
    }
}

fn delivery_entry<'a>(all: &'a mut BTreeMap<String, BundleDelivery>, name: &str) -> &'a mut BundleDelivery {
    let absent = || BundleDelivery { name: name.to_owned(), ..BundleDelivery::default() };
    all.entry(name.to_owned()).or_insert_with(absent)
}

fn add(
    list: &mut Vec<NodeVolumes>,
    node: &str,
    reported: &NodeReport,
    state: Option<DeliveryShortfall>,
    volumes: VolumeGroup,
) {
    match list.last_mut() {
        Some(last) if last.node == node => {
            last.state = last.state.max(state);
            last.volumes.push(volumes);
        }
        Some(_) | None => {
            let (node, reported) = (node.to_owned(), reported.at.clone());
            list.push(NodeVolumes { node, reported, state, volumes: vec![volumes] });
        }
    }
}

impl TrustState {
    /// Adds a bundle, replacing the one of the same name.
    pub fn set_bundle(&mut self, bundle: TrustBundle) {
        let known = BundleInfo {
            signer: bundle.signer.clone(),
            generation: bundle.generation,
            digest: digest_text(&bundle.anchors.digest()),
            certificates: bundle.anchors.len(),
        };
        self.known.insert(bundle.name.clone(), known);
        self.bundles.set(bundle);
    }

    /// Removes a deleted bundle from the state.
    pub fn remove_bundle(&mut self, name: &str) {
        self.known.remove(name);
        self.bundles.remove(name);
    }

    /// Returns why a node no longer reports, if it does not. Its report then shows an earlier
    /// state.
    pub fn silence_reason(&self, node: &str) -> Option<String> {
        match self.nodes.get(node) {
            Some(NodeState { lost: None, .. }) => None,
            Some(NodeState { lost: Some(since), .. }) => Some(match since.as_str() {
                "" => "node status Unknown".to_owned(),
                since => format!("node status Unknown since {since}"),
            }),
            None => Some("the Node does not exist".to_owned()),
        }
    }

    /// Returns the nodes whose report is missing or truncated.
    fn unreported(&self) -> DeliveryOverview {
        let mut overview = DeliveryOverview::default();
        let cut = self.reports.iter().filter(|(_, report)| report.status.more_sources > 0);
        overview.unreported = cut.map(|(node, _)| UnreportedNode::new(node, CUT)).collect();
        for (node, state) in self.nodes.iter().filter(|(node, _)| !self.reports.contains_key(*node)) {
            match state.ours {
                true => overview.unreported.push(UnreportedNode::new(node, NO_REPORT)),
                false => overview.agentless.push(node.clone()),
            }
        }
        overview.unreported.sort_by(|a, b| a.node.cmp(&b.node));
        overview
    }
}

impl UnreportedNode {
    fn new(node: &str, message: &str) -> Self {
        Self { node: node.to_owned(), message: message.to_owned() }
    }
}

impl BundleInfo {
    fn delivery(&self, name: &str) -> BundleDelivery {
        BundleDelivery {
            name: name.to_owned(),
            signer: self.signer.clone(),
            exists: true,
            generation: self.generation,
            digest: self.digest.clone(),
            certificates: self.certificates,
            ..BundleDelivery::default()
        }
    }
}

impl BundleDelivery {
    /// Fills in the counts. No node should have a bundle that does not exist: then the nodes that
    /// have it or wait for it are counted.
    fn with_counts(mut self) -> Self {
        if !self.exists {
            let carriers = self.carriers.iter().map(|at| at.node.as_str());
            let concerned = self.lacking.iter().map(|at| at.node.as_str()).chain(carriers);
            self.nodes = concerned.collect::<BTreeSet<_>>().len();
            self.have = self.carriers.len();
        }
        self
    }

    /// Returns whether exactly the expected nodes have the bundle.
    pub fn is_complete(&self) -> bool {
        self.lacking.is_empty() && self.leftover.is_empty()
    }

    /// Returns whether the bundle belongs to this signer. For a deleted bundle, its name decides.
    pub fn is_from_signer(&self, signer: &str) -> bool {
        match self.exists {
            true => self.signer == signer,
            false => self.name.starts_with(&(signer.replace('/', ":") + ":")),
        }
    }

    /// Describes the progress in one word, as JSON states it; text is in lower case.
    pub fn state(&self) -> &'static str {
        match (self.exists, self.nodes) {
            (false, _) if self.carriers.is_empty() => "Absent",
            (false, _) => "Gone",
            (true, _) if !self.lacking.is_empty() => "Incomplete",
            (true, _) if !self.leftover.is_empty() => "Leftover",
            (true, 0) => "Unused",
            (true, _) => "Delivered",
        }
    }

    /// JSON of the delivery without its per-node lists.
    pub fn summary(&self) -> Value {
        let mut document = json!({
            "name": self.name,
            "exists": self.exists,
            "state": self.state(),
            "generation": self.generation,
            "certificates": self.certificates,
            "nodes": self.nodes,
            "upToDateNodes": self.have,
            "outdatedNodes": self.lacking.len(),
            "leftoverNodes": self.leftover.len(),
        });
        for (field, text) in [("signerName", &self.signer), ("digest", &self.digest)] {
            if !text.is_empty() {
                document[field] = json!(text);
            }
        }
        document
    }

    /// JSON of the delivery with its per-node lists.
    pub fn document(&self) -> Value {
        let mut document = self.summary();
        document["outdated"] = json!(self.lacking);
        document["leftover"] = json!(self.leftover);
        document
    }
}
