//! Cache of ClusterTrustBundles, built from list and watch events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_lc_rs::digest::{Digest, SHA256, digest};
use kube::api::{DynamicObject, ObjectMeta};
use kube::runtime::watcher::Event;
use time::OffsetDateTime;
use windlass_runtime::watch::{RelistBuffer, SnapshotEvent};

use super::{BundleArrival, BundleView};
use crate::clock::ClockReading;
use crate::volume::plan::OptionalApi;
use crate::volume::tainted_authority::{TAINTED_AUTHORITIES, TaintedAuthorities, parse_taints};
use crate::volume::trust_anchors::{TrustBundle, TrustBundleIndex};

/// Cache of ClusterTrustBundles, built from list and watch events.
#[derive(Default)]
pub(super) struct BundleCache {
    presence: SyncState,
    bundles: TrustBundleIndex,
    arrivals: BTreeMap<String, BundleArrival>,
    held: BTreeMap<String, CachedBundle>,
    buffer: RelistBuffer<Option<ListedBundle>>,
}

/// A bundle with its name and the time of its last write; `None` if it has no name.
type ListedBundle = (String, CachedBundle, Option<OffsetDateTime>);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum SyncState {
    #[default]
    Unsynced,
    Missing,
    Synced,
}

/// A bundle, with the fields that show whether it must be parsed again.
#[derive(Clone)]
struct CachedBundle {
    version: Option<String>,
    text: Digest,
    bundle: Arc<TrustBundle>,
}

impl BundleCache {
    /// Returns a snapshot for other components.
    pub(super) fn view(&self) -> Arc<BundleView> {
        let bundles = match self.presence {
            SyncState::Unsynced => OptionalApi::Unsynced,
            SyncState::Missing => OptionalApi::Missing,
            SyncState::Synced => OptionalApi::Synced(self.bundles.clone()),
        };
        Arc::new(BundleView { bundles, arrivals: self.arrivals.clone() })
    }

    /// Records that the server does not serve ClusterTrustBundles.
    pub(super) fn mark_missing(&mut self) {
        *self = Self { presence: SyncState::Missing, ..Self::default() };
    }

    /// Applies an event. Returns whether bundles changed.
    pub(super) fn apply(&mut self, event: Event<DynamicObject>, now: ClockReading) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let event = buffer.push(event, |object| {
            let written = last_written(&object.metadata);
            self.read(object).map(|(name, held)| (name, held, written))
        });
        self.buffer = buffer;
        match event {
            None | Some(SnapshotEvent::Applied(None)) => false,
            Some(SnapshotEvent::Replaced(listed)) => self.replace(listed, now),
            Some(SnapshotEvent::Applied(Some((name, held, written)))) => {
                self.set(name, held, Some(BundleArrival { received: now, written }))
            }
            Some(SnapshotEvent::Deleted(object)) => {
                object.metadata.name.is_some_and(|name| self.remove(&name))
            }
        }
    }

    fn replace(&mut self, listed: Vec<Option<ListedBundle>>, now: ClockReading) -> bool {
        let first = self.presence != SyncState::Synced;
        self.presence = SyncState::Synced;
        let names: BTreeSet<&String> = listed.iter().flatten().map(|(name, ..)| name).collect();
        let gone = self.held.keys().filter(|name| !names.contains(name)).cloned();
        let mut changed = first;
        for name in gone.collect::<Vec<_>>() {
            changed |= self.remove(&name);
        }
        for (name, held, written) in listed.into_iter().flatten() {
            // It is unknown when bundles of the first list arrived.
            let arrival = (!first).then_some(BundleArrival { received: now, written });
            changed |= self.set(name, held, arrival);
        }
        changed
    }

    fn set(&mut self, name: String, mut held: CachedBundle, arrival: Option<BundleArrival>) -> bool {
        if let Some(before) = self.held.get_mut(&name)
            && before.bundle == held.bundle
        {
            // Different text may contain the same anchors.
            held.bundle = before.bundle.clone();
            *before = held;
            return false;
        }
        self.bundles.set(held.bundle.clone());
        self.held.insert(name.clone(), held);
        if let Some(arrival) = arrival {
            self.arrivals.insert(name, arrival);
        }
        true
    }

    fn remove(&mut self, name: &str) -> bool {
        self.bundles.remove(name);
        self.arrivals.remove(name);
        self.held.remove(name).is_some()
    }

    /// Parses an object, unless the cached one is the same.
    fn read(&self, object: DynamicObject) -> Option<(String, CachedBundle)> {
        let DynamicObject { metadata, data, .. } = object;
        let name = metadata.name?;
        let known = self.held.get(&name);
        let version = metadata.resource_version;
        if let Some(same) = known.filter(|held| version.is_some() && held.version == version) {
            return Some((name, same.clone()));
        }
        let part = |key| data.get("spec").and_then(|spec| spec.get(key)?.as_str());
        let (signer, text) = (part("signerName"), part("trustBundle").unwrap_or_default());
        let (signer, digest) = (signer.unwrap_or_default(), digest(&SHA256, text.as_bytes()));
        let generation = metadata.generation.unwrap_or_default();
        let labels = metadata.labels.unwrap_or_default();
        let tainted = read_taints(&name, metadata.annotations.as_ref());
        let bundle = match known.filter(|held| held.text.as_ref() == digest.as_ref()) {
            Some(CachedBundle { bundle, .. })
                if is_unchanged(bundle, generation, signer, &labels) && bundle.tainted == tainted =>
            {
                bundle.clone()
            }
            Some(CachedBundle { bundle, .. }) => Arc::new(TrustBundle {
                name: name.clone(),
                generation,
                signer: signer.to_owned(),
                labels,
                anchors: bundle.anchors.clone(),
                unreadable: bundle.unreadable,
                tainted,
            }),
            None => {
                let bundle = TrustBundle::new(&name, generation, signer, labels, text);
                if bundle.unreadable > 0 {
                    let blocks = bundle.unreadable;
                    tracing::warn!(bundle = name, blocks, "ignored PEM blocks that are not certificates");
                }
                Arc::new(TrustBundle { tainted, ..bundle })
            }
        };
        Some((name, CachedBundle { version, text: digest, bundle }))
    }
}

fn is_unchanged(
    bundle: &TrustBundle,
    generation: i64,
    signer: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    bundle.generation == generation && bundle.signer == signer && bundle.labels == *labels
}

/// Returns the tainted authorities of a bundle. An invalid annotation does not affect its trust anchors.
fn read_taints(name: &str, annotations: Option<&BTreeMap<String, String>>) -> TaintedAuthorities {
    let Some(text) = annotations.and_then(|all| all.get(TAINTED_AUTHORITIES)) else {
        return TaintedAuthorities::default();
    };
    parse_taints(text).unwrap_or_else(|error| {
        tracing::warn!(bundle = name, error, "ignored the annotation {TAINTED_AUTHORITIES}");
        TaintedAuthorities::default()
    })
}

/// Returns when an object was last written.
fn last_written(metadata: &ObjectMeta) -> Option<OffsetDateTime> {
    let times = metadata.managed_fields.iter().flatten().filter_map(|entry| entry.time.as_ref());
    let newest = times.max()?;
    OffsetDateTime::from_unix_timestamp(newest.0.as_second()).ok()
}
