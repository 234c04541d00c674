//! Nodes that have the current bundle of a signer, according to their NodeTrust reports.
//!
//! NodeTrusts are watched only while a CA waits for nodes.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use serde::Deserialize;
use serde_json::Value;
use windlass_api::node_trust::RESOURCE;
use windlass_api::selector::labels::LabelSelector;
use windlass_runtime::watch::{ListTracker, TrackedEvent, WatchError, WatchErrorKind};

/// A published bundle that nodes are expected to carry.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedBundle<'a> {
    /// Name of the ClusterTrustBundle object.
    pub bundle: &'a str,
    /// Signer of the bundle.
    pub signer: &'a str,
    /// Labels of the ClusterTrustBundle, which volumes select.
    pub labels: &'a BTreeMap<String, String>,
    /// Digest of the anchors, as nodes report it.
    pub digest: &'a str,
}

/// NodeTrust reports of all nodes, reduced to our bundles.
#[derive(Debug, Default)]
pub struct NodeReports {
    state: ReportsState,
    nodes: BTreeMap<String, NodeReport>,
    tracker: ListTracker<String>,
}

#[derive(Debug, Default, PartialEq)]
enum ReportsState {
    /// The reports were not listed yet.
    #[default]
    Unknown,
    /// All reports are known.
    Known,
    /// The server does not serve NodeTrusts: no node reports.
    Absent,
}

/// The part of a `NodeTrustStatus` that is read here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeReport {
    sources: Vec<ReportedSource>,
    more_sources: u32,
}

/// Volumes of a node that select the same bundles and have the same content.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedSource {
    name: String,
    signer_name: String,
    label_selector: Value,
    bundles: Vec<ReportedBundle>,
    /// Volumes, in the form `namespace/pod/volume` or `host/name`.
    pub volumes: Vec<String>,
    /// Number of volumes that are not listed.
    pub more_volumes: u32,
    /// Why the volumes are blocked; empty if they are not.
    pub message: String,
    /// Number of volumes that were read since they changed; `None` if the agent does not observe reads.
    pub read_volumes: Option<u32>,
    /// Volumes that were not read since they changed.
    pub not_read_volumes: Vec<String>,
    /// When the first of these changed.
    pub not_read_since: Option<String>,
}

/// What a node reports about a bundle.
#[derive(Clone, Copy, Debug)]
pub struct ReportedDelivery<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// Volumes that select the bundle; `None` if the report is truncated or cannot be parsed.
    pub source: Option<&'a ReportedSource>,
    /// Whether the files have the present content of the bundle.
    pub is_current: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReportedBundle {
    name: String,
    digest: String,
}

/// Returns the API resource of NodeTrust objects.
pub fn resource() -> ApiResource {
    ApiResource {
        group: RESOURCE.group.into(),
        version: RESOURCE.version.into(),
        api_version: RESOURCE.api_version.into(),
        kind: RESOURCE.kind.into(),
        plural: RESOURCE.plural.into(),
    }
}

impl NodeReports {
    /// Applies a watch event. `matters` is called with bundle and signer name; other sources of a report are not kept.
    pub fn observe(
        &mut self,
        event: Result<Event<DynamicObject>, &WatchError>,
        matters: impl Fn(&str, &str) -> bool,
    ) {
        match event.map(|event| self.tracker.track(event, DynamicObject::name_any)) {
            Ok(Some(TrackedEvent::Applied(node, report))) => {
                self.insert_report(node, &report, matters);
            }
            Ok(Some(TrackedEvent::Deleted(node, _))) => {
                self.nodes.remove(&node);
            }
            Ok(Some(TrackedEvent::Listed(listed))) => {
                self.nodes.retain(|node, _| listed.contains(node));
                self.state = ReportsState::Known;
            }
            Err(error) if error.kind == WatchErrorKind::NotServed => {
                self.nodes.clear();
                self.state = ReportsState::Absent;
            }
            Ok(None) | Err(_) => {}
        }
    }

    /// Lists the nodes that select a bundle but do not have it; `None` if that is not known.
    pub fn nodes_lacking(&self, wanted: ExpectedBundle<'_>) -> Option<Vec<&str>> {
        if self.state == ReportsState::Unknown {
            return None;
        }
        let lacking = self.nodes.iter().filter(|(_, report)| report.lacks(wanted));
        Some(lacking.map(|(node, _)| node.as_str()).collect())
    }

    /// Whether a node has a report; `None` if that is not known, or if the server has no reports.
    pub fn has_reported(&self, node: &str) -> Option<bool> {
        (self.state == ReportsState::Known).then(|| self.nodes.contains_key(node))
    }

    /// Lists what nodes report about a bundle; `None` if that is not known.
    pub fn deliveries(&self, wanted: ExpectedBundle<'_>) -> Option<Vec<ReportedDelivery<'_>>> {
        if self.state == ReportsState::Unknown {
            return None;
        }
        let mut deliveries = Vec::new();
        for (node, report) in &self.nodes {
            let selecting = report.sources.iter().filter(|source| source.selects(wanted));
            deliveries.extend(selecting.map(|source| ReportedDelivery {
                node,
                source: Some(source),
                is_current: source.carries(wanted),
            }));
            if report.more_sources > 0 {
                deliveries.push(ReportedDelivery { node, source: None, is_current: false });
            }
        }
        Some(deliveries)
    }

    fn insert_report(&mut self, node: String, object: &DynamicObject, matters: impl Fn(&str, &str) -> bool) {
        let status = object.data.get("status").cloned().unwrap_or_default();
        // A report that does not parse counts as lacking the bundle.
        let unreadable = || NodeReport { more_sources: 1, ..NodeReport::default() };
        let mut report: NodeReport = serde_json::from_value(status).unwrap_or_else(|_| unreadable());
        report.sources.retain(|source| matters(&source.name, &source.signer_name));
        self.nodes.insert(node, report);
    }
}

impl NodeReport {
    /// A truncated report may omit just this bundle.
    fn lacks(&self, wanted: ExpectedBundle<'_>) -> bool {
        let mut selecting = self.sources.iter().filter(|source| source.selects(wanted));
        self.more_sources > 0 || selecting.any(|source| !source.carries(wanted))
    }
}

impl ReportedSource {
    fn selects(&self, wanted: ExpectedBundle<'_>) -> bool {
        if !self.name.is_empty() {
            return self.name == wanted.bundle;
        }
        let get = |key: &str| wanted.labels.get(key).map(String::as_str);
        self.signer_name == wanted.signer
            && LabelSelector::from_object(&self.label_selector).map_or(true, |labels| labels.matches(get))
    }

    fn carries(&self, wanted: ExpectedBundle<'_>) -> bool {
        let mut found = self.bundles.iter().filter(|bundle| bundle.name == wanted.bundle);
        found.any(|bundle| bundle.digest == wanted.digest)
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher;
    use serde_json::json;

    use super::*;

    fn report(node: &str, status: Value) -> DynamicObject {
        let mut object = DynamicObject::new(node, &resource());
        object.data = json!({ "status": status });
        object
    }

    fn lacking(reports: &NodeReports) -> Option<Vec<&str>> {
        let labels = BTreeMap::from([("purpose".to_owned(), "web".to_owned())]);
        let (bundle, signer) = ("a.b:c:anchors", "a.b/c");
        reports.nodes_lacking(ExpectedBundle { bundle, signer, labels: &labels, digest: "new" })
    }

    #[test]
    fn nodes_that_select_the_bundle_must_have_it_as_it_is() {
        let bundle = |digest: &str| json!([{"name": "a.b:c:anchors", "digest": digest}]);
        let by_name = |digest| json!({"name": "a.b:c:anchors", "bundles": bundle(digest)});
        let by_labels = |value: &str, digest| {
            let labels = json!({"matchLabels": {"purpose": value}});
            json!({"signerName": "a.b/c", "labelSelector": labels, "bundles": bundle(digest)})
        };
        let table = [
            (json!({}), false),
            (json!({"sources": [by_name("new")]}), false),
            (json!({"sources": [by_name("old")]}), true),
            (json!({"sources": [by_name("new"), by_name("old")]}), true),
            (json!({"sources": [{"name": "a.b:c:anchors", "message": "cannot write"}]}), true),
            (json!({"sources": [{"name": "another"}]}), false),
            (json!({"sources": [by_labels("web", "new")]}), false),
            (json!({"sources": [by_labels("web", "old")]}), true),
            (json!({"sources": [by_labels("mail", "old")]}), false),
            // Without a selector, no bundle of the signer is requested.
            (json!({"sources": [{"signerName": "a.b/c"}]}), false),
            (json!({"sources": [{"signerName": "a.b/c", "labelSelector": {}}]}), true),
            (json!({"sources": [by_name("new")], "moreSources": 1}), true),
            (json!({"sources": "?"}), true),
        ];
        for (status, lacks) in table {
            let mut reports = NodeReports::default();
            reports.observe(Ok(Event::InitApply(report("n", status.clone()))), |_, _| true);
            assert_eq!(lacking(&reports), None, "not all are known");
            reports.observe(Ok(Event::InitDone), |_, _| true);
            let wanted: &[&str] = if lacks { &["n"] } else { &[] };
            assert_eq!(lacking(&reports).unwrap(), wanted, "{status}");
        }
    }

    #[test]
    fn nodes_come_and_go() {
        let stale = || json!({"sources": [{"name": "a.b:c:anchors"}]});
        let mut reports = NodeReports::default();
        reports.observe(Ok(Event::InitDone), |_, _| true);
        assert_eq!(lacking(&reports), Some(vec![]));
        reports.observe(Ok(Event::Apply(report("n", stale()))), |_, _| true);
        reports.observe(Ok(Event::Apply(report("m", stale()))), |_, _| true);
        assert_eq!(lacking(&reports), Some(vec!["m", "n"]));
        reports.observe(Ok(Event::Delete(report("n", stale()))), |_, _| true);
        assert_eq!(lacking(&reports), Some(vec!["m"]));
        reports.observe(Ok(Event::Init), |_, _| true);
        reports.observe(Ok(Event::InitDone), |_, _| true);
        assert_eq!(lacking(&reports), Some(vec![]));
        // Irrelevant reports are not cached.
        reports.observe(Ok(Event::Apply(report("n", stale()))), |_, _| false);
        assert_eq!(lacking(&reports), Some(vec![]));
        let failed = |code| {
            let status = kube::core::Status::failure("", "").with_code(code).boxed();
            WatchError::from(&watcher::Error::InitialListFailed(kube::Error::Api(status)))
        };
        let absent = failed(404);
        let mut reports = NodeReports::default();
        reports.observe(Err(&absent), |_, _| true);
        assert_eq!(lacking(&reports), Some(vec![]));
        let refused = failed(403);
        let mut reports = NodeReports::default();
        reports.observe(Err(&refused), |_, _| true);
        assert_eq!(lacking(&reports), None);
    }
}
