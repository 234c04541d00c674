//! Resolves the ClusterTrustBundle selections of volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::dependencies::bundle_sources;
use super::report::{DeliveredAnchors, DeliveredBundle};
use crate::sources::bundles::BundleView;
use crate::volume::definition::VolumeDefinition;
use crate::volume::plan::OptionalApi;
use crate::volume::trust_anchors::{BundleSelector, Digest, TrustAnchors, TrustBundleIndex};

/// Result of a bundle selection. Files planned from the same state need not be written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectionState {
    /// The feature gate is off.
    Off,
    /// The server does not serve ClusterTrustBundles.
    Missing,
    /// The first list is not complete.
    Unsynced,
    /// The selector resolved to these anchors, which may be empty.
    Resolved(DeliveredAnchors),
}

impl SelectionState {
    /// Returns the anchors in a file that was planned from this state.
    pub fn delivered(&self) -> Option<&DeliveredAnchors> {
        match self {
            Self::Resolved(anchors) => Some(anchors),
            Self::Off | Self::Missing | Self::Unsynced => None,
        }
    }
}

/// Resolves selections against the current bundles. Many volumes select the same, so each selection is resolved once.
pub struct SelectionResolver {
    bundles: watch::Receiver<Arc<BundleView>>,
    /// The bundles that the fields below were computed from.
    view: Arc<BundleView>,
    resolved: Vec<(BundleSelector, Arc<SelectionState>)>,
    digests: BTreeMap<String, Digest>,
}

impl SelectionResolver {
    pub fn new(bundles: watch::Receiver<Arc<BundleView>>) -> Self {
        let view = bundles.borrow().clone();
        Self { bundles, view, resolved: Vec::new(), digests: BTreeMap::new() }
    }

    /// Waits until bundles change. Never returns after the sender is gone.
    pub async fn changed(&mut self) {
        if self.bundles.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub fn view(&mut self) -> &Arc<BundleView> {
        let view = self.bundles.borrow();
        if !Arc::ptr_eq(&view, &self.view) {
            self.view = view.clone();
            self.resolved.clear();
            self.digests.clear();
        }
        &self.view
    }

    /// Resolves the selections of a volume, in order.
    pub fn resolve(&mut self, definition: &VolumeDefinition) -> Vec<Arc<SelectionState>> {
        let view = self.view().clone();
        let sources = bundle_sources(definition);
        sources.map(|source| self.resolve_selector(&source.select, &view.bundles)).collect()
    }

    fn resolve_selector(
        &mut self,
        select: &BundleSelector,
        bundles: &OptionalApi<TrustBundleIndex>,
    ) -> Arc<SelectionState> {
        if let Some((_, state)) = self.resolved.iter().find(|(other, _)| other == select) {
            return state.clone();
        }
        let state = Arc::new(match bundles {
            OptionalApi::Off => SelectionState::Off,
            OptionalApi::Missing => SelectionState::Missing,
            OptionalApi::Unsynced => SelectionState::Unsynced,
            OptionalApi::Synced(bundles) => SelectionState::Resolved(self.select_anchors(select, bundles)),
        });
        self.resolved.push((select.clone(), state.clone()));
        state
    }

    fn select_anchors(&mut self, select: &BundleSelector, bundles: &TrustBundleIndex) -> DeliveredAnchors {
        let mut anchors = TrustAnchors::default();
        let mut delivered = Vec::new();
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
            delivered.push(DeliveredBundle { name, generation, digest });
        }
        DeliveredAnchors { digest: anchors.digest(), bundles: delivered }
    }
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

    fn view(bundles: &OptionalApi<TrustBundleIndex>) -> Arc<BundleView> {
        Arc::new(BundleView { bundles: bundles.clone(), arrivals: BTreeMap::new() })
    }

    fn resolver(bundles: &OptionalApi<TrustBundleIndex>) -> SelectionResolver {
        SelectionResolver::new(watch::channel(view(bundles)).1)
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
    fn a_change_reaches_the_volumes_that_select_it() {
        let select = |selector: Value| {
            let source = json!({"signerName": "a.b/c", "path": "p", "labelSelector": selector});
            definition(json!([{ "clusterTrustBundle": source }]))
        };
        let by_name = definition(json!([{"clusterTrustBundle": {"name": "x", "path": "p"}}]));
        let (one, all) = (select(json!({"matchLabels": {"k": "1"}})), select(json!({})));
        let before = bundles(&[("x", 1, "1"), ("y", 1, "2")]);
        // Bundles; whether selections of `x`, of `k=1` and of all see the change.
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
                let look = |bundles| resolver(bundles).resolve(definition);
                assert_eq!(look(&before) != look(&after), expected, "{after:?} {definition:?}");
            }
        }
    }

    #[test]
    fn a_selection_is_resolved_once_until_bundles_change() {
        let (sender, receiver) = watch::channel(view(&bundles(&[("x", 1, "1")])));
        let mut resolver = SelectionResolver::new(receiver);
        let mut resolve = |path: &str| {
            let source = json!([{"clusterTrustBundle": {"name": "x", "path": path}}]);
            resolver.resolve(&definition(source)).remove(0)
        };
        let first = resolve("p");
        assert!(Arc::ptr_eq(&first, &resolve("elsewhere")));
        sender.send_replace(view(&bundles(&[("x", 2, "1")])));
        let second = resolve("p");
        assert_eq!(second.delivered().unwrap().bundles[0].generation, 2);
        assert_ne!(first, second);
    }
}
