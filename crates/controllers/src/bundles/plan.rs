//! Plan for all targets of a Bundle.

use windlass_api::trust_bundle::BundleMeta;

use super::namespace_filter::NamespaceMatch;
use super::status::TargetFailure;
use super::target::{DesiredTarget, DriftReason, TargetAction, TargetIntent, TargetKind, decide};
use super::target_index::TargetIndex;
use crate::namespaced_name::NamespacedName;

/// Operations on all targets of a Bundle.
#[derive(Debug, Default)]
pub struct TargetPlan {
    /// Number of desired targets.
    pub wanted: usize,
    /// Operations on targets that drifted.
    pub steps: Vec<TargetStep>,
    /// Targets that cannot be written.
    pub blocked: Vec<TargetFailure>,
}

/// Operation on one target, as the plan decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetStep {
    pub kind: TargetKind,
    /// Namespace and name; the namespace is empty for cluster-scoped targets.
    pub at: NamespacedName,
    pub operation: TargetOperation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetOperation {
    /// Apply the desired content to a known target.
    Write,
    /// Create the target where none is known: an object without the label may exist.
    Create,
    /// Remove what was written.
    Release,
    /// Delete the target object from the API server.
    Delete,
}

const KINDS: [TargetKind; 3] = [TargetKind::ConfigMap, TargetKind::Secret, TargetKind::ClusterTrustBundle];

/// Compares existing with desired targets. `namespaces` lists all namespaces in order, with whether the Bundle selects
/// them.
pub fn plan(
    owner: &BundleMeta,
    desired: &[DesiredTarget],
    namespaces: &[(&str, NamespaceMatch)],
    targets: &TargetIndex,
) -> TargetPlan {
    let mut plan = TargetPlan::default();
    for each in desired {
        match each.kind {
            TargetKind::ConfigMap | TargetKind::Secret => {
                let inside = namespaces.iter().filter(|(_, place)| *place == NamespaceMatch::Inside);
                inside.for_each(|(namespace, _)| plan.add_desired(owner, each, namespace, targets));
            }
            TargetKind::ClusterTrustBundle => plan.add_desired(owner, each, "", targets),
        }
    }
    for kind in KINDS {
        let wanted = desired.iter().find(|each| each.kind == kind);
        for (at, found) in targets.owned_by(kind, owner) {
            let place = match kind {
                TargetKind::ClusterTrustBundle => NamespaceMatch::Inside,
                // The namespace is gone, and the target with it.
                TargetKind::ConfigMap | TargetKind::Secret => namespaces
                    .binary_search_by(|(name, _)| (*name).cmp(&at.namespace))
                    .ok()
                    .and_then(|index| namespaces.get(index))
                    .map_or(NamespaceMatch::Ending, |(_, place)| *place),
            };
            let named = wanted.is_some_and(|wanted| wanted.name == at.name);
            let wish = match place {
                NamespaceMatch::Ending => TargetIntent::Ending,
                NamespaceMatch::Inside if named => continue,
                NamespaceMatch::Inside | NamespaceMatch::Outside => TargetIntent::Unwanted,
            };
            plan.add(decide(owner, wish, kind, Some(found)), kind, at);
        }
    }
    plan
}

impl TargetOperation {
    /// Whether the operation applies the desired content.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Create)
    }
}

impl TargetPlan {
    fn add_desired(
        &mut self,
        owner: &BundleMeta,
        desired: &DesiredTarget,
        namespace: &str,
        known: &TargetIndex,
    ) {
        self.wanted += 1;
        let (kind, name) = (desired.kind, &desired.name);
        let found = known.get(kind, namespace, name);
        let at = NamespacedName { namespace: namespace.to_owned(), name: name.clone() };
        self.add(decide(owner, TargetIntent::Wanted(desired), kind, found), kind, at);
    }

    fn add(&mut self, action: TargetAction, kind: TargetKind, at: NamespacedName) {
        let operation = match action {
            TargetAction::Leave => return,
            TargetAction::Write(why) => {
                tracing::debug!(%kind, %at, ?why, "target drifted; writing it");
                if why == DriftReason::Missing { TargetOperation::Create } else { TargetOperation::Write }
            }
            TargetAction::Release => TargetOperation::Release,
            TargetAction::Delete => TargetOperation::Delete,
            TargetAction::Blocked(error) => {
                let NamespacedName { namespace, name } = at;
                self.blocked.push(TargetFailure { kind, namespace, name, error });
                return;
            }
        };
        self.steps.push(TargetStep { kind, at, operation });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::bundles::certificate_set::{CertificateFilter, CertificateSet};
    use crate::bundles::fixtures::{self, P256};
    use crate::bundles::target::{ObservedTarget, desired_targets};

    fn observed_target(kind: TargetKind, uid: &str) -> ObservedTarget {
        let owner = json!({
            "apiVersion": "v1", "kind": "Bundle", "name": "o", "uid": uid, "controller": true,
        });
        let labels = json!({"trust.cert-manager.io/bundle": "bundle"});
        let metadata = json!({"labels": labels, "ownerReferences": [owner]});
        ObservedTarget::from_metadata(kind, &serde_json::from_value(metadata).unwrap())
    }

    fn namespaced_name(namespace: &str, name: &str) -> NamespacedName {
        NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Plans the changes to these targets of the Bundle with UID 123.
    fn planned(target: Value, known: &[(TargetKind, &str, &str, &str)]) -> (Vec<String>, TargetPlan) {
        let bundle = fixtures::bundle(json!([{"inLine": "x"}]), target);
        let mut pool = CertificateSet::new(CertificateFilter::default(), fixtures::now());
        pool.add(P256.as_bytes()).unwrap();
        let mut targets = TargetIndex::default();
        for (kind, namespace, name, uid) in known {
            targets.insert(*kind, &namespaced_name(namespace, name), observed_target(*kind, uid));
        }
        let namespaces = [
            ("end", NamespaceMatch::Ending),
            ("in", NamespaceMatch::Inside),
            ("out", NamespaceMatch::Outside),
        ];
        let plan = plan(&bundle.metadata, &desired_targets(&bundle, &pool), &namespaces, &targets);
        let steps = plan.steps.iter();
        let steps = steps.map(|step| format!("{:?} {} {}", step.operation, step.kind, step.at));
        (steps.collect(), plan)
    }

    #[test]
    fn targets_are_written_and_obsolete_ones_are_deleted() {
        let (map, secret, anchors) =
            (TargetKind::ConfigMap, TargetKind::Secret, TargetKind::ClusterTrustBundle);
        let target = json!({"configMap": {"key": "k"}, "clusterTrustBundle": {}});
        let known = [
            (map, "out", "bundle", "123"),
            (map, "end", "bundle", "123"),
            (map, "gone", "bundle", "123"),
            (map, "in", "copy", "123"),
            (map, "out", "foreign", "9"),
            (secret, "in", "bundle", "123"),
            (anchors, "", "old:name", "123"),
        ];
        let (steps, plan) = planned(target, &known);
        let want = [
            "Create ConfigMap in/bundle",
            "Create ClusterTrustBundle /bundle",
            "Release ConfigMap out/bundle",
            "Release ConfigMap in/copy",
            "Release Secret in/bundle",
            "Delete ClusterTrustBundle /old:name",
        ];
        assert_eq!(steps, want);
        assert_eq!((plan.wanted, plan.blocked), (2, Vec::new()));
    }

    #[test]
    fn targets_of_other_owners_are_reported() {
        let known = [(TargetKind::ConfigMap, "in", "bundle", "9")];
        let (steps, plan) = planned(json!({"configMap": {"key": "k"}}), &known);
        assert!(steps.is_empty());
        let [failure] = plan.blocked.as_slice() else { panic!("{:?}", plan.blocked) };
        assert_eq!(failure.error, "it is controlled by Bundle o");
        let known = [(TargetKind::ConfigMap, "in", "bundle", "123")];
        assert_eq!(planned(Value::Null, &known).0, ["Release ConfigMap in/bundle"]);
    }
}
