//! What a volume depends on: objects, tokens, certificates, and which bundles it selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::{Carried, CarriedBundle};
use crate::sources::objects::{ObjectId, ObjectKind};
use crate::volume::content::{Anchors, Bundles, Digest, Select};
use crate::volume::definition::{
    BundleSource, CertificateSource, Definition, ObjectSource, Source, TokenSource,
};
use crate::volume::plan::Served;

/// What a selection of bundles comes to. Files that were made from the same need not be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// There is no telling, because the feature gate is off.
    Off,
    /// The server does not have bundles.
    Missing,
    /// It is not known yet.
    Unsynced,
    /// These.
    Is(Carried),
}

/// Finds out what selections come to. Many volumes select the same, so each is looked at once.
#[derive(Default)]
pub struct Looker {
    seen: Vec<(Select, Arc<Seen>)>,
    digests: BTreeMap<String, Digest>,
}

impl Looker {
    /// What the selections of a volume come to, in their order.
    pub fn look(&mut self, definition: &Definition, bundles: &Served<Bundles>) -> Vec<Arc<Seen>> {
        bundle_sources(definition).map(|source| self.one(&source.select, bundles)).collect()
    }

    fn one(&mut self, select: &Select, bundles: &Served<Bundles>) -> Arc<Seen> {
        if let Some((_, seen)) = self.seen.iter().find(|(other, _)| other == select) {
            return seen.clone();
        }
        let seen = Arc::new(match bundles {
            Served::Off => Seen::Off,
            Served::Missing => Seen::Missing,
            Served::Unsynced => Seen::Unsynced,
            Served::Synced(bundles) => Seen::Is(self.carried(select, bundles)),
        });
        self.seen.push((select.clone(), seen.clone()));
        seen
    }

    fn carried(&mut self, select: &Select, bundles: &Bundles) -> Carried {
        let mut anchors = Anchors::default();
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
            names.push(CarriedBundle { name, generation, digest });
        }
        Carried { digest: anchors.digest(), bundles: names }
    }
}

/// The sources of anchors.
pub fn bundle_sources(definition: &Definition) -> impl Iterator<Item = &BundleSource> {
    definition.sources.iter().filter_map(|(_, source)| match source {
        Source::Bundle(source) => Some(source),
        _ => None,
    })
}

/// The ConfigMaps and Secrets, which are in this namespace.
pub fn objects<'a>(
    definition: &'a Definition,
    namespace: &'a str,
) -> impl Iterator<Item = ObjectId> + 'a {
    let id = |kind, source: &ObjectSource| {
        let (namespace, name) = (namespace.to_owned(), source.name.clone());
        Some(ObjectId { kind, namespace, name })
    };
    definition.sources.iter().filter_map(move |(_, source)| match source {
        Source::ConfigMap(source) => id(ObjectKind::ConfigMap, source),
        Source::Secret(source) => id(ObjectKind::Secret, source),
        _ => None,
    })
}

/// The tokens, each with its place.
pub fn tokens(definition: &Definition) -> impl Iterator<Item = (usize, &TokenSource)> {
    definition.sources.iter().filter_map(|(index, source)| match source {
        Source::Token(source) => Some((*index, source)),
        _ => None,
    })
}

/// The certificates, each with its place.
pub fn certificates(definition: &Definition) -> impl Iterator<Item = (usize, &CertificateSource)> {
    definition.sources.iter().filter_map(|(index, source)| match source {
        Source::Certificate(source) => Some((*index, source)),
        _ => None,
    })
}

/// Whether it says what the pod says of itself, which changes with it.
pub fn has_downward(definition: &Definition) -> bool {
    definition.sources.iter().any(|(_, source)| matches!(source, Source::Downward(_)))
}

/// What a pod that no server knows cannot have: nobody can tell what it may see.
pub fn needs_server(definition: &Definition) -> bool {
    let is_such = |source: &Source| matches!(source, Source::Bundle(_) | Source::Certificate(_));
    definition.sources.iter().any(|(_, source)| is_such(source))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use windlass_api::field::Path;

    use super::*;
    use crate::volume::content::Bundle;

    fn definition(sources: Value) -> Definition {
        let source = serde_json::from_value(json!({ "sources": sources })).unwrap();
        Definition::read(&source, &Path::new("v")).unwrap()
    }

    fn everything() -> Definition {
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

    fn bundles(all: &[(&str, i64, &str)]) -> Served<Bundles> {
        let mut bundles = Bundles::default();
        for (name, generation, label) in all {
            let labels = BTreeMap::from([("k".to_owned(), (*label).to_owned())]);
            bundles.set(Bundle::new(name, *generation, "a.b/c", labels, ""));
        }
        Served::Synced(bundles)
    }

    #[test]
    fn what_a_volume_needs() {
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
            (Served::Unsynced, true, true, true),
            (Served::Missing, true, true, true),
            (Served::Off, true, true, true),
        ];
        for (after, name, some, whole) in table {
            for (definition, expected) in [(&by_name, name), (&one, some), (&all, whole)] {
                let look = |bundles| Looker::default().look(definition, bundles);
                assert_eq!(look(&before) != look(&after), expected, "{after:?} {definition:?}");
            }
        }
    }

    #[test]
    fn many_volumes_that_select_the_same_look_once() {
        let all = bundles(&[("x", 1, "1")]);
        let mut looker = Looker::default();
        let first = looker.look(
            &definition(json!([
                {"clusterTrustBundle": {"name": "x", "path": "p"}},
            ])),
            &all,
        );
        let second = looker.look(
            &definition(json!([
                {"clusterTrustBundle": {"name": "x", "path": "elsewhere"}},
            ])),
            &all,
        );
        assert!(Arc::ptr_eq(&first[0], &second[0]));
    }
}
