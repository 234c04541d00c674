//! Index of the targets of all Bundles, by name and by Bundle.

use std::collections::{BTreeMap, BTreeSet};

use windlass_api::trust_bundle::BundleMeta;

use super::target::{ObservedTarget, TargetKind};
use crate::namespaced_name::NamespacedName;

/// Existing targets of all Bundles.
#[derive(Default)]
pub struct TargetIndex {
    kinds: BTreeMap<TargetKind, KindIndex>,
}

#[derive(Default)]
struct KindIndex {
    /// Targets by name, then by namespace: the targets of a Bundle have its name.
    named: BTreeMap<Box<str>, BTreeMap<Box<str>, ObservedTarget>>,
    /// Targets whose name differs from the Bundle in their label, of which there are few.
    odd: BTreeSet<NamespacedName>,
}

impl TargetIndex {
    /// Adds or updates a target; returns the previous state.
    pub fn insert(
        &mut self,
        kind: TargetKind,
        at: &NamespacedName,
        found: ObservedTarget,
    ) -> Option<ObservedTarget> {
        let of_kind = self.kinds.entry(kind).or_default();
        if found.bundle.as_deref() == Some(at.name.as_str()) {
            of_kind.odd.remove(at);
        } else {
            of_kind.odd.insert(at.clone());
        }
        let named = match of_kind.named.get_mut(at.name.as_str()) {
            Some(named) => named,
            None => of_kind.named.entry(at.name.as_str().into()).or_default(),
        };
        named.insert(at.namespace.as_str().into(), found)
    }

    /// Removes a target; returns the previous state.
    pub fn remove(&mut self, kind: TargetKind, at: &NamespacedName) -> Option<ObservedTarget> {
        let of_kind = self.kinds.get_mut(&kind)?;
        of_kind.odd.remove(at);
        let named = of_kind.named.get_mut(at.name.as_str())?;
        let found = named.remove(at.namespace.as_str());
        if named.is_empty() {
            of_kind.named.remove(at.name.as_str());
        }
        found
    }

    /// Returns the target of a kind; the namespace is empty for cluster-scoped kinds.
    pub fn get(&self, kind: TargetKind, namespace: &str, name: &str) -> Option<&ObservedTarget> {
        self.kinds.get(&kind)?.named.get(name)?.get(namespace)
    }

    /// Lists the locations of the targets of a kind, in one namespace or everywhere.
    pub fn names(&self, kind: TargetKind, namespace: Option<&str>) -> Vec<NamespacedName> {
        let all = self.kinds.get(&kind).into_iter().flat_map(|of_kind| &of_kind.named);
        let all = all.flat_map(|(name, places)| places.keys().map(move |place| (place, name)));
        let all = all.filter(|(place, _)| namespace.is_none_or(|wanted| wanted == &***place));
        all.map(|(namespace, name)| NamespacedName {
            namespace: namespace.to_string(),
            name: name.to_string(),
        })
        .collect()
    }

    /// Lists the targets of a kind that belong to a Bundle.
    pub fn owned_by(&self, kind: TargetKind, owner: &BundleMeta) -> Vec<(NamespacedName, &ObservedTarget)> {
        let Some(of_kind) = self.kinds.get(&kind) else { return Vec::new() };
        let named = of_kind.named.get(owner.name.as_str()).into_iter().flatten();
        let named = named.map(|(namespace, found)| {
            (NamespacedName { namespace: namespace.to_string(), name: owner.name.clone() }, found)
        });
        let odd = of_kind.odd.iter().filter(|at| at.name != owner.name);
        let odd = odd.filter_map(|at| Some((at.clone(), self.get(kind, &at.namespace, &at.name)?)));
        named.chain(odd).filter(|(_, found)| found.belongs_to(owner)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn observed_target(label: &str, uid: &str) -> ObservedTarget {
        let owner = json!({
            "apiVersion": "v1", "kind": "Bundle", "name": "b", "uid": uid, "controller": true,
        });
        let metadata = json!({
            "labels": {"trust.cert-manager.io/bundle": label}, "ownerReferences": [owner],
        });
        ObservedTarget::from_metadata(TargetKind::ConfigMap, &serde_json::from_value(metadata).unwrap())
    }

    fn namespaced_name(namespace: &str, name: &str) -> NamespacedName {
        NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn targets_are_found_by_name_and_by_owner() {
        let kind = TargetKind::ConfigMap;
        let owner = BundleMeta { name: "b".to_owned(), uid: "1".to_owned(), ..BundleMeta::default() };
        let mut targets = TargetIndex::default();
        let entries = [
            (namespaced_name("x", "b"), observed_target("b", "1")),
            (namespaced_name("y", "b"), observed_target("other", "1")),
            (namespaced_name("z", "b"), observed_target("b", "2")),
            (namespaced_name("x", "copy"), observed_target("b", "1")),
            (namespaced_name("x", "c"), observed_target("c", "3")),
        ];
        for (at, found) in entries {
            assert_eq!(targets.insert(kind, &at, found), None);
        }
        let of = |targets: &TargetIndex| {
            let of = targets.owned_by(kind, &owner);
            of.into_iter().map(|(at, _)| at.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(&targets), ["x/b", "y/b", "x/copy"]);
        assert!(targets.owned_by(TargetKind::Secret, &owner).is_empty());
        assert_eq!(targets.names(kind, Some("x")).len(), 3);
        assert_eq!(targets.names(kind, None).len(), 5);
        assert_eq!(
            targets.insert(kind, &namespaced_name("x", "copy"), observed_target("copy", "4")),
            Some(observed_target("b", "1"))
        );
        assert_eq!(targets.remove(kind, &namespaced_name("y", "b")), Some(observed_target("other", "1")));
        assert_eq!(targets.remove(kind, &namespaced_name("y", "b")), None);
        assert_eq!(of(&targets), ["x/b"]);
        assert!(targets.get(kind, "x", "copy").is_some_and(|found| !found.belongs_to(&owner)));
    }
}
