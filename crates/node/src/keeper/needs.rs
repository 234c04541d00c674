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
