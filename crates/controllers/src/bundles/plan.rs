//! What is to be done about all targets of a Bundle.

use windlass_api::trust_bundle::BundleMeta;

use super::reach::Place;
use super::status::TargetFailure;
use super::target::{Action, Desired, Kind, Why, Wish, decide};
use super::targets::Targets;
use crate::namespaced::Namespaced;

/// What is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// How many targets there should be.
    pub wanted: usize,
    /// What is to be done about those that are not as they should be.
    pub steps: Vec<Step>,
    /// Where nothing can be done.
    pub blocked: Vec<TargetFailure>,
}

/// What is to be done about one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Of what kind it is.
    pub kind: Kind,
    /// Where it is; the namespace is empty for the cluster.
    pub at: Namespaced,
    /// What is to be done.
    pub deed: Deed,
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Apply what is wanted.
    Write,
    /// The same, where no target is known: there may be an object that is none.
    Create,
    /// Take back what was written.
    Release,
    /// Delete it.
    Delete,
}

const KINDS: [Kind; 3] = [Kind::ConfigMap, Kind::Secret, Kind::ClusterTrustBundle];

/// Compares what there is with what should be. `namespaces` are all there are, in order, and whether
/// the Bundle goes there.
pub fn plan(
    owner: &BundleMeta,
    desired: &[Desired],
    namespaces: &[(&str, Place)],
    targets: &Targets,
) -> Plan {
    let mut plan = Plan::default();
    for each in desired {
        match each.kind {
            Kind::ConfigMap | Kind::Secret => {
                let inside = namespaces.iter().filter(|(_, place)| *place == Place::Inside);
                inside.for_each(|(namespace, _)| plan.want(owner, each, namespace, targets));
            }
            Kind::ClusterTrustBundle => plan.want(owner, each, "", targets),
        }
    }
    for kind in KINDS {
        let wanted = desired.iter().find(|each| each.kind == kind);
        for (at, found) in targets.of(kind, owner) {
            let place = match kind {
                Kind::ClusterTrustBundle => Place::Inside,
                // One that is not there is gone, and the target with it.
                Kind::ConfigMap | Kind::Secret => namespaces
                    .binary_search_by(|(name, _)| (*name).cmp(&at.namespace))
                    .ok()
                    .and_then(|index| namespaces.get(index))
                    .map_or(Place::Ending, |(_, place)| *place),
            };
            let named = wanted.is_some_and(|wanted| wanted.name == at.name);
            let wish = match place {
                Place::Ending => Wish::Ending,
                Place::Inside if named => continue,
                Place::Inside | Place::Outside => Wish::Unwanted,
            };
            plan.add(decide(owner, wish, kind, Some(found)), kind, at);
        }
    }
    plan
}

impl Deed {
    /// Whether what is wanted is applied.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Create)
    }
}

impl Plan {
    fn want(&mut self, owner: &BundleMeta, desired: &Desired, namespace: &str, known: &Targets) {
        self.wanted += 1;
        let (kind, name) = (desired.kind, &desired.name);
        let found = known.get(kind, namespace, name);
        let at = Namespaced { namespace: namespace.to_owned(), name: name.clone() };
        self.add(decide(owner, Wish::Wanted(desired), kind, found), kind, at);
    }

    fn add(&mut self, action: Action, kind: Kind, at: Namespaced) {
        let deed = match action {
            Action::Leave => return,
            Action::Write(why) => {
                tracing::debug!(%kind, %at, ?why, "a target is to be written");
                if why == Why::Missing { Deed::Create } else { Deed::Write }
            }
            Action::Release => Deed::Release,
            Action::Delete => Deed::Delete,
            Action::Blocked(error) => {
                let Namespaced { namespace, name } = at;
                self.blocked.push(TargetFailure { kind, namespace, name, error });
                return;
            }
        };
        self.steps.push(Step { kind, at, deed });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::bundles::pool::{Filters, Pool};
    use crate::bundles::samples::{self, P256};
    use crate::bundles::target::{Found, desire};

    fn found(kind: Kind, uid: &str) -> Found {
        let owner = json!({
            "apiVersion": "v1", "kind": "Bundle", "name": "o", "uid": uid, "controller": true,
        });
        let labels = json!({"trust.cert-manager.io/bundle": "bundle"});
        let metadata = json!({"labels": labels, "ownerReferences": [owner]});
        Found::read(kind, &serde_json::from_value(metadata).unwrap())
    }

    fn at(namespace: &str, name: &str) -> Namespaced {
        Namespaced { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// What is planned with these targets of the Bundle with uid 123.
    fn planned(target: Value, known: &[(Kind, &str, &str, &str)]) -> (Vec<String>, Plan) {
        let bundle = samples::bundle(json!([{"inLine": "x"}]), target);
        let mut pool = Pool::new(Filters::default(), samples::now());
        pool.add(P256.as_bytes()).unwrap();
        let mut targets = Targets::default();
        for (kind, namespace, name, uid) in known {
            targets.put(*kind, &at(namespace, name), found(*kind, uid));
        }
        let namespaces = [("end", Place::Ending), ("in", Place::Inside), ("out", Place::Outside)];
        let plan = plan(&bundle.metadata, &desire(&bundle, &pool), &namespaces, &targets);
        let steps = plan.steps.iter();
        let steps = steps.map(|step| format!("{:?} {} {}", step.deed, step.kind, step.at));
        (steps.collect(), plan)
    }

    #[test]
    fn what_should_be_is_written_and_the_rest_is_taken_back() {
        let (map, secret, anchors) = (Kind::ConfigMap, Kind::Secret, Kind::ClusterTrustBundle);
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
    fn what_belongs_to_others_is_told() {
        let known = [(Kind::ConfigMap, "in", "bundle", "9")];
        let (steps, plan) = planned(json!({"configMap": {"key": "k"}}), &known);
        assert!(steps.is_empty());
        let [failure] = plan.blocked.as_slice() else { panic!("{:?}", plan.blocked) };
        assert_eq!(failure.error, "it is controlled by Bundle o");
        let known = [(Kind::ConfigMap, "in", "bundle", "123")];
        assert_eq!(planned(Value::Null, &known).0, ["Release ConfigMap in/bundle"]);
    }
}
