//! Consumers of a bundle, according to the NodeTrust reports.

use std::collections::BTreeSet;

use windlass_api::ca_rotation::LaggardKind;
use windlass_api::timestamp;

use super::observation::{BundleConsumer, ConsumerProof};
use crate::publisher::anchors::{ExpectedBundle, NodeReports, ReportedDelivery};

/// Lists the consumers of a bundle; `None` if the reports are not known.
pub fn list_consumers(reports: &NodeReports, expected: ExpectedBundle<'_>) -> Option<Vec<BundleConsumer>> {
    let deliveries = reports.deliveries(expected)?;
    let mut consumers = Vec::new();
    for delivery in deliveries {
        consumers.extend(expand_delivery(delivery, expected.bundle));
    }
    Some(consumers)
}

/// Lists the names of the volumes that have the present content of a bundle.
pub fn list_current(reports: &NodeReports, expected: ExpectedBundle<'_>) -> BTreeSet<String> {
    let mut current = BTreeSet::new();
    for ReportedDelivery { node, source, is_current } in reports.deliveries(expected).unwrap_or_default() {
        let volumes = source.filter(|_| is_current).into_iter().flat_map(|source| &source.volumes);
        current.extend(volumes.map(|volume| format!("node/{node}/{volume}")));
    }
    current
}

/// Splits what a node reports into volumes of one state each.
fn expand_delivery(delivery: ReportedDelivery<'_>, bundle: &str) -> Vec<BundleConsumer> {
    let ReportedDelivery { node, source, is_current } = delivery;
    let blocked = source.map(|source| source.message.clone()).filter(|message| !message.is_empty());
    let all = |volumes: u32, proof: ConsumerProof| BundleConsumer {
        kind: LaggardKind::Node,
        name: format!("node/{node}"),
        node: node.to_owned(),
        volumes,
        proof,
        failure: blocked.clone(),
        blocked: blocked.clone().unwrap_or_default(),
    };
    let one = |volume: &String, proof: ConsumerProof| BundleConsumer {
        name: format!("node/{node}/{volume}"),
        ..all(1, proof)
    };
    let Some(source) = source else {
        let message = "the report of the node is truncated or cannot be read".to_owned();
        return vec![all(1, ConsumerProof::Stale(message))];
    };
    let listed = u32::try_from(source.volumes.len()).unwrap_or(u32::MAX);
    let total = listed.saturating_add(source.more_volumes).max(1);
    if !is_current {
        let message = match source.message.as_str() {
            "" => format!(
                "the file has another content than ClusterTrustBundle {bundle}; check the agent of the node"
            ),
            blocked => format!("the volume is blocked: {blocked}"),
        };
        let stale = || ConsumerProof::Stale(message.clone());
        let mut consumers: Vec<_> = source.volumes.iter().map(|volume| one(volume, stale())).collect();
        if total > listed {
            consumers.push(all(total - listed, stale()));
        }
        return consumers;
    }
    let since = source.not_read_since.as_deref().and_then(|time| timestamp::parse(time).ok());
    let mut consumers: Vec<_> =
        source.not_read_volumes.iter().map(|volume| one(volume, ConsumerProof::NotRead { since })).collect();
    let unread = u32::try_from(consumers.len()).unwrap_or(u32::MAX);
    let read = source.read_volumes.unwrap_or(0).min(total.saturating_sub(unread));
    let hidden = total.saturating_sub(unread).saturating_sub(read);
    if !source.message.is_empty() {
        // Who is blocked is named. Which of them have read does not matter.
        let others = source.volumes.iter().filter(|volume| !source.not_read_volumes.contains(volume));
        let proofs = std::iter::repeat_n(ConsumerProof::Read, usize::try_from(read).unwrap_or(usize::MAX));
        let proofs = proofs.chain(std::iter::repeat(ConsumerProof::NotObservable));
        consumers.extend(others.zip(proofs).map(|(volume, proof)| one(volume, proof)));
        if total > listed {
            consumers.push(all(total - listed, ConsumerProof::NotObservable));
        }
        return consumers;
    }
    let rest = [(read, ConsumerProof::Read), (hidden, ConsumerProof::NotObservable)];
    consumers
        .extend(rest.into_iter().filter(|(count, _)| *count > 0).map(|(count, proof)| all(count, proof)));
    consumers
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::api::DynamicObject;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::publisher::anchors::node_trusts;

    fn consumers(source: Value) -> Vec<(String, u32, ConsumerProof)> {
        let mut report = DynamicObject::new("n1", &node_trusts());
        report.data = json!({"status": {"sources": [source]}});
        let mut reports = NodeReports::default();
        reports.observe(Ok(Event::InitApply(report)), |_, _| true);
        reports.observe(Ok(Event::InitDone), |_, _| true);
        let labels = BTreeMap::new();
        let expected = ExpectedBundle { bundle: "b", signer: "a.b/c", labels: &labels, digest: "new" };
        let found = list_consumers(&reports, expected).unwrap();
        found.into_iter().map(|each| (each.name, each.volumes, each.proof)).collect()
    }

    #[test]
    fn volumes_are_counted_by_what_is_proven() {
        let since = timestamp::parse("2026-11-18T12:00:00Z").ok();
        let current = json!([{"name": "b", "digest": "new"}]);
        let old = json!([{"name": "b", "digest": "old"}]);
        let all = |count, proof| vec![("node/n1".to_owned(), count, proof)];
        // An agent without read proof.
        let found =
            consumers(json!({"name": "b", "bundles": current, "volumes": ["x/y/z"], "moreVolumes": 2}));
        assert_eq!(found, all(3, ConsumerProof::NotObservable));
        let found =
            consumers(json!({"name": "b", "bundles": current, "volumes": ["x/y/z", "host/h", "x/y/v"],
            "readVolumes": 1, "notReadVolumes": ["host/h"], "notReadSince": "2026-11-18T12:00:00Z",
            "notObservableVolumes": 1}));
        let unread = ("node/n1/host/h".to_owned(), 1, ConsumerProof::NotRead { since });
        let rest = [all(1, ConsumerProof::Read), all(1, ConsumerProof::NotObservable)].concat();
        assert_eq!(found, [vec![unread], rest].concat());
        let found =
            consumers(json!({"name": "b", "bundles": old, "volumes": ["x/y/z"], "message": "disk full"}));
        let stale = ConsumerProof::Stale("the volume is blocked: disk full".to_owned());
        assert_eq!(found, [("node/n1/x/y/z".to_owned(), 1, stale)]);
        let found =
            consumers(json!({"name": "b", "bundles": current, "volumes": ["x/y/z", "host/h", "x/y/v"],
            "readVolumes": 1, "notReadVolumes": ["host/h"], "message": "disk full"}));
        let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["node/n1/host/h", "node/n1/x/y/z", "node/n1/x/y/v"]);
    }
}
