//! Bundles of trust-manager that read the bundles of a signer: whether their targets have the present content.
//!
//! The status of a Bundle lists the ClusterTrustBundles that were read with their digests. It is written after the
//! targets, at once with the condition `Synced`, so both together prove the content of the targets. The condition alone
//! may be older than the ClusterTrustBundle.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use windlass_api::ca_rotation::LaggardKind;
use windlass_api::selector::labels::LabelSelector;
use windlass_api::trust_bundle::{
    Bundle, BundleStatus, SYNCED, SourceStatusBundle, TrustBundleSource, is_reserved_name,
};
use windlass_runtime::watch::{ListTracker, TrackedEvent, WatchError, WatchErrorKind};

use super::observation::{BundleConsumer, ConsumerProof};
use crate::publisher::anchors::ExpectedBundle;

/// What is known about all Bundles, reduced to those that read bundles of our signers.
#[derive(Debug, Default)]
pub struct BundleTargets {
    /// Whether all Bundles are known, or the server does not have the kind.
    is_known: bool,
    bundles: BTreeMap<String, TargetReport>,
    tracker: ListTracker<String>,
}

/// What the status of a Bundle proves.
#[derive(Clone, Debug, PartialEq)]
struct TargetReport {
    /// Sources that read ClusterTrustBundles; `None` if the Bundle cannot be parsed.
    sources: Option<Vec<TrustBundleSource>>,
    /// Content of all targets, or why it is not known.
    read: Result<Vec<SourceStatusBundle>, String>,
}

impl BundleTargets {
    /// Applies a watch event. `matters` is called with bundle and signer name; Bundles with other sources only are not
    /// kept.
    pub fn observe(
        &mut self,
        event: Result<Event<DynamicObject>, &WatchError>,
        matters: impl Fn(&str, &str) -> bool,
    ) {
        match event.map(|event| self.tracker.track(event, DynamicObject::name_any)) {
            Ok(Some(TrackedEvent::Applied(name, object))) => match TargetReport::new(&object, matters) {
                Some(report) => drop(self.bundles.insert(name, report)),
                None => drop(self.bundles.remove(&name)),
            },
            Ok(Some(TrackedEvent::Deleted(name, _))) => drop(self.bundles.remove(&name)),
            Ok(Some(TrackedEvent::Listed(listed))) => {
                self.bundles.retain(|name, _| listed.contains(name));
                self.is_known = true;
            }
            Err(error) if error.kind == WatchErrorKind::NotServed => {
                self.bundles.clear();
                self.is_known = true;
            }
            Ok(None) | Err(_) => {}
        }
    }

    /// Lists the Bundles that read a ClusterTrustBundle; `None` if they are not known.
    pub fn list_consumers(&self, expected: ExpectedBundle<'_>) -> Option<Vec<BundleConsumer>> {
        let reading = self.bundles.iter().filter(|(_, report)| report.reads(expected));
        let consumers = reading.map(|(name, report)| BundleConsumer {
            kind: LaggardKind::BundleTarget,
            name: format!("bundle/{name}"),
            node: String::new(),
            volumes: 1,
            proof: report.prove(expected),
            failure: None,
            blocked: String::new(),
        });
        self.is_known.then(|| consumers.collect())
    }
}

impl TargetReport {
    /// Reads a Bundle; `None` if it has no targets, or does not read bundles of our signers.
    fn new(object: &DynamicObject, matters: impl Fn(&str, &str) -> bool) -> Option<TargetReport> {
        let parsed = serde_json::to_value(object).and_then(|value| Bundle::from_value(&value));
        let Ok(bundle) = parsed else {
            return Some(TargetReport { sources: None, read: Err("the Bundle cannot be parsed".to_owned()) });
        };
        let target = bundle.spec.target.as_ref()?;
        let has_targets =
            target.config_map.is_some() || target.secret.is_some() || target.cluster_trust_bundle.is_some();
        let is_deleted = bundle.metadata.deletion_timestamp.is_some();
        if !has_targets || is_deleted || is_reserved_name(&bundle.metadata.name) {
            return None;
        }
        let sources = bundle.spec.sources.iter().filter_map(|source| source.cluster_trust_bundle.clone());
        let sources: Vec<TrustBundleSource> =
            sources.filter(|source| matters(name_of(source), signer_of(source))).collect();
        let status = bundle.status.clone().unwrap_or_default();
        let read = read_bundles(&status, bundle.metadata.generation);
        (!sources.is_empty()).then_some(TargetReport { sources: Some(sources), read })
    }

    fn reads(&self, expected: ExpectedBundle<'_>) -> bool {
        let selects = |source: &TrustBundleSource| match name_of(source) {
            "" => {
                let selector = source.label_selector.clone().unwrap_or_default();
                let get = |key: &str| expected.labels.get(key).map(String::as_str);
                let is_selected =
                    LabelSelector::from_object(&selector).map_or(true, |labels| labels.matches(get));
                signer_of(source) == expected.signer && is_selected
            }
            name => name == expected.bundle,
        };
        self.sources.as_ref().is_none_or(|sources| sources.iter().any(selects))
    }

    fn prove(&self, expected: ExpectedBundle<'_>) -> ConsumerProof {
        let name = expected.bundle;
        let read = match &self.read {
            Ok(read) => read,
            Err(problem) => return ConsumerProof::Stale(problem.clone()),
        };
        let digests: Vec<&str> =
            read.iter().filter(|each| each.name == name).map(|each| each.digest.as_str()).collect();
        match digests.as_slice() {
            [] => ConsumerProof::Stale(format!(
                "its status does not say that the targets contain ClusterTrustBundle {name}; update the kind with \
                 windlass crds bundles if it lacks the field clusterTrustBundles"
            )),
            digests if digests.iter().all(|digest| *digest == expected.digest) => {
                ConsumerProof::NotObservable
            }
            _ => ConsumerProof::Stale(format!(
                "its targets have another content than ClusterTrustBundle {name}; check that the bundle controller runs"
            )),
        }
    }
}

/// Lists what the targets contain according to a status, or says why that is not known.
fn read_bundles(status: &BundleStatus, generation: i64) -> Result<Vec<SourceStatusBundle>, String> {
    let Some(synced) = status.conditions.iter().find(|condition| condition.kind == SYNCED) else {
        return Err("the Bundle was not reconciled yet; check that the bundle controller runs".to_owned());
    };
    if synced.observed_generation != Some(generation) {
        return Err(
            "the Bundle was not reconciled since it was changed; check that the bundle controller runs"
                .to_owned(),
        );
    }
    if synced.status != "True" {
        return Err(format!("{}: {}", synced.reason, synced.message));
    }
    Ok(status.sources.iter().flat_map(|source| source.cluster_trust_bundles.clone()).collect())
}

fn name_of(source: &TrustBundleSource) -> &str {
    source.name.as_deref().unwrap_or_default()
}

fn signer_of(source: &TrustBundleSource) -> &str {
    source.signer_name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kube::core::ApiResource;
    use serde_json::{Value, json};
    use windlass_runtime::discovery::TRUST_MANAGER_BUNDLES;

    use super::*;

    fn bundle(spec: Value, status: Value) -> DynamicObject {
        let resource: ApiResource = TRUST_MANAGER_BUNDLES.resources().next().unwrap();
        let mut object = DynamicObject::new("web", &resource);
        (object.metadata.uid, object.metadata.generation) = (Some("u".to_owned()), Some(2));
        object.data = json!({"spec": spec, "status": status});
        object
    }

    fn synced(status: &str, generation: i64, read: Value) -> Value {
        json!({
            "conditions": [{"type": "Synced", "status": status, "reason": "R", "message": "m",
                "observedGeneration": generation, "lastTransitionTime": "2026-11-18T12:00:00Z"}],
            "sources": [{"source": "s", "objects": 1, "certificates": 1, "clusterTrustBundles": read}],
        })
    }

    /// Whether the Bundle is a consumer, and whether its targets are proven to have the bundle.
    fn proof(spec: Value, status: Value) -> Option<bool> {
        let labels = BTreeMap::from([("purpose".to_owned(), "web".to_owned())]);
        let expected =
            ExpectedBundle { bundle: "a.b:c:anchors", signer: "a.b/c", labels: &labels, digest: "new" };
        let mut targets = BundleTargets::default();
        targets.observe(Ok(Event::InitApply(bundle(spec, status))), |_, _| true);
        assert_eq!(targets.list_consumers(expected), None, "not all are known");
        targets.observe(Ok(Event::InitDone), |_, _| true);
        let consumers = targets.list_consumers(expected).unwrap();
        assert!(consumers.iter().all(|each| each.name == "bundle/web"));
        consumers.first().map(|consumer| consumer.proof == ConsumerProof::NotObservable)
    }

    #[test]
    fn targets_are_proven_by_the_digests_that_a_synced_bundle_has_read() {
        let target = json!({"configMap": {"key": "k"}});
        let by_name =
            || json!({"sources": [{"clusterTrustBundle": {"name": "a.b:c:anchors"}}], "target": target});
        let by_signer = |purpose: &str| {
            let selector = json!({"matchLabels": {"purpose": purpose}});
            let source = json!({"signerName": "a.b/c", "labelSelector": selector});
            json!({"sources": [{"clusterTrustBundle": source}], "target": target})
        };
        let read = |digest: &str| json!([{"name": "other", "digest": "x"}, {"name": "a.b:c:anchors", "digest": digest}]);
        let new = || synced("True", 2, read("new"));
        let table = [
            (by_name(), new(), Some(true)),
            (by_signer("web"), new(), Some(true)),
            (by_signer("mail"), new(), None),
            // It was synced before the bundle changed.
            (by_name(), synced("True", 2, read("old")), Some(false)),
            // The sources were read, and a target was not written.
            (by_name(), synced("False", 2, read("new")), Some(false)),
            // The sources or targets have changed since.
            (by_name(), synced("True", 1, read("new")), Some(false)),
            (by_name(), json!({}), Some(false)),
            // A kind without the field.
            (by_name(), synced("True", 2, json!([])), Some(false)),
            (json!({"sources": [{"inLine": "x"}], "target": target}), new(), None),
            (json!({"sources": [{"clusterTrustBundle": {"name": "other"}}], "target": target}), new(), None),
            // Without targets, nobody reads it.
            (json!({"sources": [{"clusterTrustBundle": {"name": "a.b:c:anchors"}}]}), new(), None),
            (json!({"sources": "?"}), new(), Some(false)),
        ];
        for (number, (spec, status, wanted)) in table.into_iter().enumerate() {
            assert_eq!(proof(spec, status), wanted, "case {number}");
        }
    }
}
