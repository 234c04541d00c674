//! What a volume depends on: objects, tokens, certificates, and which bundles it selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::{DeliveredAnchors, DeliveredBundle};
use crate::sources::objects::{ObjectId, ObjectKind};
use crate::volume::definition::{
    BundleSource, CertificateSource, ObjectSource, ProjectedSource, TokenSource, VolumeDefinition,
};
use crate::volume::plan::OptionalApi;
use crate::volume::trust_anchors::{BundleSelector, Digest, TrustAnchors, TrustBundleIndex};

/// What a selection of bundles comes to. Files that were made from the same need not be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectionState {
    /// There is no telling, because the feature gate is off.
    Off,
    /// The server does not have bundles.
    Missing,
    /// It is not known yet.
    Unsynced,
    /// The selector resolved to these anchors, which may be empty.
    Resolved(DeliveredAnchors),
}

/// Finds out what selections come to. Many volumes select the same, so each is looked at once.
#[derive(Default)]
pub struct SelectionResolver {
    seen: Vec<(BundleSelector, Arc<SelectionState>)>,
    digests: BTreeMap<String, Digest>,
}

impl SelectionResolver {
    /// What the selections of a volume come to, in their order.
    pub fn resolve(
        &mut self,
        definition: &VolumeDefinition,
        bundles: &OptionalApi<TrustBundleIndex>,
    ) -> Vec<Arc<SelectionState>> {
        bundle_sources(definition)
            .map(|source| self.resolve_selector(&source.select, bundles))
            .collect()
    }

    fn resolve_selector(
        &mut self,
        select: &BundleSelector,
        bundles: &OptionalApi<TrustBundleIndex>,
    ) -> Arc<SelectionState> {
        if let Some((_, seen)) = self.seen.iter().find(|(other, _)| other == select) {
            return seen.clone();
        }
        let seen = Arc::new(match bundles {
            OptionalApi::Off => SelectionState::Off,
            OptionalApi::Missing => SelectionState::Missing,
            OptionalApi::Unsynced => SelectionState::Unsynced,
            OptionalApi::Synced(bundles) => SelectionState::Resolved(self.carried(select, bundles)),
        });
        self.seen.push((select.clone(), seen.clone()));
        seen
    }

    fn carried(&mut self, select: &BundleSelector, bundles: &TrustBundleIndex) -> DeliveredAnchors {
        let mut anchors = TrustAnchors::default();
        let mut names = Vec::new();
        for bundle in bundles.select(select) {
            anchors.add(&bundle.anchors);
            let digest = match self.digests.get(&bundle.name) {
                Some(digest) => *digest,
                None => {
                    let digest = bundle.anchors.digest();
                    self.digests.insert(bundle.name.clone(), digest);
                    digest
                }
            };
            let (name, generation) = (bundle.name.clone(), bundle.generation);
            names.push(DeliveredBundle { name, generation, digest });
        }
        DeliveredAnchors { digest: anchors.digest(), bundles: names }
    }
}

/// Returns the `clusterTrustBundle` sources of a definition, in order.
pub fn bundle_sources(definition: &VolumeDefinition) -> impl Iterator<Item = &BundleSource> {
    definition.sources.iter().filter_map(|(_, source)| match source {
        ProjectedSource::Bundle(source) => Some(source),
        _ => None,
    })
}

/// The ConfigMaps and Secrets, which are in this namespace.
pub fn objects<'a>(
    definition: &'a VolumeDefinition,
    namespace: &'a str,
) -> impl Iterator<Item = ObjectId> + 'a {
    let id = |kind, source: &ObjectSource| {
        let (namespace, name) = (namespace.to_owned(), source.name.clone());
        Some(ObjectId { kind, namespace, name })
    };
    definition.sources.iter().filter_map(move |(_, source)| match source {
        ProjectedSource::ConfigMap(source) => id(ObjectKind::ConfigMap, source),
        ProjectedSource::Secret(source) => id(ObjectKind::Secret, source),
        _ => None,
    })
}

/// The tokens, each with its place.
pub fn tokens(definition: &VolumeDefinition) -> impl Iterator<Item = (usize, &TokenSource)> {
    definition.sources.iter().filter_map(|(index, source)| match source {
        ProjectedSource::Token(source) => Some((*index, source)),
        _ => None,
    })
}

/// The certificates, each with its place.
pub fn certificates(
    definition: &VolumeDefinition,
) -> impl Iterator<Item = (usize, &CertificateSource)> {
    definition.sources.iter().filter_map(|(index, source)| match source {
        ProjectedSource::Certificate(source) => Some((*index, source)),
        _ => None,
    })
}

/// Whether it says what the pod says of itself, which changes with it.
pub fn has_downward(definition: &VolumeDefinition) -> bool {
    definition.sources.iter().any(|(_, source)| matches!(source, ProjectedSource::Downward(_)))
}

/// What a pod that no server knows cannot have: nobody can tell what it may see.
pub fn needs_server(definition: &VolumeDefinition) -> bool {
    let is_such = |source: &ProjectedSource| {
        matches!(source, ProjectedSource::Bundle(_) | ProjectedSource::Certificate(_))
    };
    definition.sources.iter().any(|(_, source)| is_such(source))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use windlass_api::field::FieldPath;

    use super::*;
    use crate::volume::trust_anchors::TrustBundle;

    fn definition(sources: Value) -> VolumeDefinition {
        let source = serde_json::from_value(json!({ "sources": sources })).unwrap();
        VolumeDefinition::parse(&source, &FieldPath::new("v")).unwrap()
    }

    fn everything() -> VolumeDefinition {
        definition(json!([
            {"clusterTrustBundle": {"name": "a", "path": "a.pem"}},
            {"configMap": {"name": "m"}},
            {"serviceAccountToken": {"path": "token"}},
            {"secret": {"name": "s"}},
            {"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k"}},
            {"downwardAPI": {"items": [
                {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
            ]}},
            {"configMap": {"name": "m", "items": [{"key": "k", "path": "other"}]}},
        ]))
    }

    fn bundles(all: &[(&str, i64, &str)]) -> OptionalApi<TrustBundleIndex> {
        let mut bundles = TrustBundleIndex::default();
        for (name, generation, label) in all {
            let labels = BTreeMap::from([("k".to_owned(), (*label).to_owned())]);
            bundles.set(TrustBundle::new(name, *generation, "a.b/c", labels, ""));
        }
        OptionalApi::Synced(bundles)
    }

    #[test]
    fn dependencies_of_all_source_types() {
        let all = everything();
        let object = |kind, name: &str| ObjectId { kind, namespace: "n".into(), name: name.into() };
        let named = objects(&all, "n").collect::<std::collections::BTreeSet<_>>();
        let expected = [object(ObjectKind::ConfigMap, "m"), object(ObjectKind::Secret, "s")];
        assert_eq!(named, expected.into());
        // By their places in the list, which is how others know them.
        assert_eq!(tokens(&all).map(|(index, _)| index).collect::<Vec<_>>(), [2]);
        assert_eq!(certificates(&all).map(|(index, _)| index).collect::<Vec<_>>(), [4]);
        assert!(has_downward(&all) && needs_server(&all));
        let plain = definition(json!([{"configMap": {"name": "m"}}]));
        assert!(!has_downward(&plain) && !needs_server(&plain));
    }

    #[test]
    fn a_change_is_seen_by_those_whom_it_concerns() {
        let select = |selector: Value| {
            let source = json!({"signerName": "a.b/c", "path": "p", "labelSelector": selector});
            definition(json!([{ "clusterTrustBundle": source }]))
        };
        let by_name = definition(json!([{"clusterTrustBundle": {"name": "x", "path": "p"}}]));
        let (one, all) = (select(json!({"matchLabels": {"k": "1"}})), select(json!({})));
        let before = bundles(&[("x", 1, "1"), ("y", 1, "2")]);
        // What there is then; whether those see it that have `x`, all with `k=1`, and all.
        let table = [
            (bundles(&[("x", 1, "1"), ("y", 1, "2")]), false, false, false),
            (bundles(&[("x", 2, "1"), ("y", 1, "2")]), true, true, true),
            (bundles(&[("x", 1, "1"), ("y", 2, "2")]), false, false, true),
            (bundles(&[("x", 1, "1"), ("y", 1, "1")]), false, true, false),
            (bundles(&[("x", 1, "2"), ("y", 1, "2")]), false, true, false),
            (bundles(&[("x", 1, "1")]), false, false, true),
            (bundles(&[("y", 1, "2")]), true, true, true),
            (bundles(&[]), true, true, true),
            (OptionalApi::Unsynced, true, true, true),
            (OptionalApi::Missing, true, true, true),
            (OptionalApi::Off, true, true, true),
        ];
        for (after, name, some, whole) in table {
            for (definition, expected) in [(&by_name, name), (&one, some), (&all, whole)] {
                let look = |bundles| SelectionResolver::default().resolve(definition, bundles);
                assert_eq!(look(&before) != look(&after), expected, "{after:?} {definition:?}");
            }
        }
    }

    #[test]
    fn many_volumes_that_select_the_same_look_once() {
        let all = bundles(&[("x", 1, "1")]);
        let mut looker = SelectionResolver::default();
        let first = looker.resolve(
            &definition(json!([
                {"clusterTrustBundle": {"name": "x", "path": "p"}},
            ])),
            &all,
        );
        let second = looker.resolve(
            &definition(json!([
                {"clusterTrustBundle": {"name": "x", "path": "elsewhere"}},
            ])),
            &all,
        );
        assert!(Arc::ptr_eq(&first[0], &second[0]));
    }
}
