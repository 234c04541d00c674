//! Cache of watched objects, and the Bundles that each change affects.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_api::trust_bundle::{Bundle, BundleStatus};

use super::mapper::{self, Labels};
use super::sources::{SourceObject, SourceTrustBundle};
use super::target::{ObservedTarget, TargetKind};
use super::target_index::TargetIndex;
use crate::namespaced_name::NamespacedName;

/// A kind of object that the controller watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchedKind {
    /// Bundles, which are cluster-scoped trust-manager objects.
    Bundles,
    /// Namespaces, of which labels and deletion state are cached.
    Namespaces,
    /// ConfigMaps or Secrets in the trust namespace.
    Sources(TargetKind),
    /// Labelled objects; for ClusterTrustBundles, all of them.
    Targets(TargetKind),
}

/// Cached properties of a namespace that select targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Labels of the namespace, which Bundle selectors match.
    pub labels: BTreeMap<String, String>,
    /// Whether the namespace is being deleted.
    pub ending: bool,
}

/// Cache of all objects that Bundles read or write; shared by watches and workers.
pub struct BundleCache {
    state: Mutex<CacheState>,
    ready: watch::Sender<bool>,
}

/// Consistent snapshot of the cache; later changes are not part of it.
#[derive(Clone)]
pub struct CacheSnapshot {
    /// ConfigMaps in the trust namespace.
    pub config_maps: Arc<BTreeMap<String, Arc<SourceObject>>>,
    /// Secrets in the trust namespace.
    pub secrets: Arc<BTreeMap<String, Arc<SourceObject>>>,
    /// ClusterTrustBundles; `None` if the server does not serve them.
    pub trust_bundles: Option<Arc<BTreeMap<String, Arc<SourceTrustBundle>>>>,
    /// Namespaces by name, including those being deleted.
    pub namespaces: Arc<BTreeMap<String, NamespaceInfo>>,
    /// Kinds that cannot be listed, with the error.
    pub refused: BTreeMap<WatchedKind, String>,
}

#[derive(Default)]
struct CacheState {
    bundles: BTreeMap<String, Arc<Bundle>>,
    config_maps: Arc<BTreeMap<String, Arc<SourceObject>>>,
    secrets: Arc<BTreeMap<String, Arc<SourceObject>>>,
    trust_bundles: Option<Arc<BTreeMap<String, Arc<SourceTrustBundle>>>>,
    namespaces: Arc<BTreeMap<String, NamespaceInfo>>,
    targets: TargetIndex,
    /// Last resource version that the watch of each target kind delivered.
    versions: BTreeMap<TargetKind, u64>,
    heard: BTreeMap<WatchedKind, WatchSyncState>,
    /// Time since which a Bundle needs a sync.
    stale: HashMap<String, Instant>,
}

enum WatchSyncState {
    Pending,
    Synced,
    /// The list was rejected, with this message.
    Refused(String),
}

impl BundleCache {
    /// Creates an empty cache that is ready when all these kinds were listed or rejected.
    pub fn new(awaited: &[WatchedKind]) -> BundleCache {
        let heard = awaited.iter().map(|watched| (*watched, WatchSyncState::Pending)).collect();
        let state = CacheState { heard, ..CacheState::default() };
        BundleCache { state: Mutex::new(state), ready: watch::Sender::new(false) }
    }

    /// Waits until all kinds were listed or rejected.
    pub async fn wait_until_ready(&self) {
        // It cannot fail: `self` holds the sender.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Records that a kind was listed; returns the affected Bundles.
    pub fn mark_listed(&self, watched: WatchedKind) -> Vec<String> {
        let mut state = self.lock();
        let before = state.heard.insert(watched, WatchSyncState::Synced);
        self.update_ready(&state);
        match before {
            Some(WatchSyncState::Refused(_)) => state.bundles.keys().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// Records that a kind cannot be listed; returns the affected Bundles. An earlier list stays valid.
    pub fn mark_refused(&self, watched: WatchedKind, why: String) -> Vec<String> {
        let mut state = self.lock();
        match state.heard.get(&watched) {
            Some(WatchSyncState::Synced) => return Vec::new(),
            Some(WatchSyncState::Refused(before)) if *before == why => return Vec::new(),
            _ => {}
        }
        state.heard.insert(watched, WatchSyncState::Refused(why));
        self.update_ready(&state);
        state.bundles.keys().cloned().collect()
    }

    fn update_ready(&self, state: &CacheState) {
        let nothing = |heard: &WatchSyncState| matches!(heard, WatchSyncState::Pending);
        if !state.heard.values().any(nothing) {
            self.ready.send_replace(true);
        }
    }

    /// Records that a Bundle needs a sync, unless it did before.
    pub fn mark_stale(&self, name: &str) {
        let mut state = self.lock();
        if state.bundles.contains_key(name) {
            state.stale.entry(name.to_owned()).or_insert_with(Instant::now);
        }
    }

    /// Records that a Bundle is synced; returns since when it needed that.
    pub fn clear_stale(&self, name: &str) -> Option<Instant> {
        self.lock().stale.remove(name)
    }

    /// Returns a Bundle; `None` if it does not exist.
    pub fn bundle(&self, name: &str) -> Option<Arc<Bundle>> {
        self.lock().bundles.get(name).cloned()
    }

    /// Adds or updates a Bundle; returns whether it changed.
    pub fn insert_bundle(&self, bundle: Bundle) -> bool {
        let mut state = self.lock();
        let name = bundle.metadata.name.clone();
        let news = state.bundles.get(&name).is_none_or(|known| **known != bundle);
        if news {
            state.bundles.insert(name, Arc::new(bundle));
        }
        news
    }

    /// Removes a deleted Bundle from the cache.
    pub fn remove_bundle(&self, name: &str) {
        let mut state = self.lock();
        state.bundles.remove(name);
        state.stale.remove(name);
    }

    /// Removes the Bundles that are not listed, and returns them.
    pub fn retain_bundles(&self, listed: &HashSet<NamespacedName>) -> Vec<String> {
        let known = self.lock().bundles.keys().cloned().collect::<Vec<_>>();
        let gone = known.into_iter().filter(|name| !listed.contains(&cluster_scoped(name)));
        let gone = gone.collect::<Vec<_>>();
        gone.iter().for_each(|name| self.remove_bundle(name));
        gone
    }

    /// Lists the Bundles that use the default package.
    pub fn bundles_using_package(&self) -> Vec<String> {
        self.lock().affected_bundles(|bundle| {
            bundle.spec.sources.iter().any(|source| source.use_default_cas == Some(true))
        })
    }

    /// Sets or removes a source; returns the affected Bundles.
    pub fn set_source(&self, kind: TargetKind, name: &str, held: Option<SourceObject>) -> Vec<String> {
        let mut state = self.lock();
        let sources = match kind {
            TargetKind::Secret => &mut state.secrets,
            TargetKind::ConfigMap | TargetKind::ClusterTrustBundle => &mut state.config_maps,
        };
        let (sources, held) = (Arc::make_mut(sources), held.map(Arc::new));
        let old = match held.clone() {
            Some(held) => sources.insert(name.to_owned(), held),
            None => sources.remove(name),
        };
        let labels = [old.as_ref(), held.as_ref()].map(|held| held.map(|held| &held.labels));
        state.affected_bundles(|bundle| mapper::reads_object(bundle, kind, name, labels))
    }

    /// Removes the sources that are not listed; returns the affected Bundles.
    pub fn retain_sources(
        &self,
        kind: TargetKind,
        listed: &HashSet<NamespacedName>,
        at: &str,
    ) -> Vec<String> {
        let known = match kind {
            TargetKind::Secret => self.lock().secrets.clone(),
            TargetKind::ConfigMap | TargetKind::ClusterTrustBundle => self.lock().config_maps.clone(),
        };
        let gone = known.keys().filter(|name| {
            !listed.contains(&NamespacedName { namespace: at.to_owned(), name: (*name).clone() })
        });
        gone.flat_map(|name| self.set_source(kind, name, None)).collect()
    }

    /// Records whether the server serves ClusterTrustBundles; returns the affected Bundles.
    pub fn set_trust_bundles_served(&self, has: bool) -> Vec<String> {
        let mut state = self.lock();
        if state.trust_bundles.is_some() == has {
            return Vec::new();
        }
        state.trust_bundles = has.then(Arc::default);
        if !has {
            for at in state.targets.names(TargetKind::ClusterTrustBundle, None) {
                state.targets.remove(TargetKind::ClusterTrustBundle, &at);
            }
        }
        let kind = TargetKind::ClusterTrustBundle;
        state
            .affected_bundles(|bundle| mapper::has_sources(bundle, kind) || mapper::has_targets(bundle, kind))
    }

    /// Sets or removes a ClusterTrustBundle as a source; returns the Bundles that read it.
    pub fn set_trust_bundle(&self, name: &str, held: Option<SourceTrustBundle>) -> Vec<String> {
        let mut state = self.lock();
        let all = Arc::make_mut(state.trust_bundles.get_or_insert_default());
        let held = held.map(Arc::new);
        let old = match held.clone() {
            Some(held) => all.insert(name.to_owned(), held),
            None => all.remove(name),
        };
        let labels = [old.as_ref(), held.as_ref()].map(|held| held.map(|held| &held.labels));
        let either = held.as_ref().or(old.as_ref());
        let signer = either.map(|held| held.signer.clone()).unwrap_or_default();
        state.affected_bundles(|bundle| mapper::reads_trust_bundle(bundle, name, &signer, labels))
    }

    /// Removes the ClusterTrustBundles that are not listed; returns the Bundles that read them.
    pub fn retain_trust_bundles(&self, listed: &HashSet<NamespacedName>) -> Vec<String> {
        let known = self.lock().trust_bundles.clone().unwrap_or_default();
        let gone = known.keys().filter(|name| !listed.contains(&cluster_scoped(name)));
        gone.flat_map(|name| self.set_trust_bundle(name, None)).collect()
    }

    /// Sets or removes a namespace; returns the affected Bundles.
    pub fn set_namespace(&self, name: &str, space: Option<NamespaceInfo>) -> Vec<String> {
        let mut state = self.lock();
        if space.as_ref() == state.namespaces.get(name) {
            return Vec::new();
        }
        let namespaces = Arc::make_mut(&mut state.namespaces);
        let old = match space.clone() {
            Some(space) => namespaces.insert(name.to_owned(), space),
            None => namespaces.remove(name),
        };
        let labels = [old.as_ref(), space.as_ref()];
        let labels: [Labels<'_>; 2] = labels.map(|space| space.map(|space| &space.labels));
        state.affected_bundles(|bundle| mapper::targets_namespace(bundle, labels))
    }

    /// Removes the namespaces that are not listed; returns the affected Bundles.
    pub fn retain_namespaces(&self, listed: &HashSet<NamespacedName>) -> Vec<String> {
        let known = self.lock().namespaces.clone();
        let gone = known.keys().filter(|name| !listed.contains(&cluster_scoped(name)));
        gone.flat_map(|name| self.set_namespace(name, None)).collect()
    }

    /// Updates a target from the watch; returns the affected Bundles.
    pub fn set_target(&self, kind: TargetKind, at: &NamespacedName, metadata: &ObjectMeta) -> Vec<String> {
        let mut state = self.lock();
        state.advance_version(kind, metadata);
        state.update_target(kind, at, Some(ObservedTarget::from_metadata(kind, metadata)))
    }

    /// Removes a target that the watch reports as deleted; returns the affected Bundles.
    pub fn remove_target(&self, kind: TargetKind, at: &NamespacedName, metadata: &ObjectMeta) -> Vec<String> {
        let mut state = self.lock();
        state.advance_version(kind, metadata);
        state.update_target(kind, at, None)
    }

    /// Updates a target after a write, unless the watch has delivered a later version.
    pub fn record_write(&self, kind: TargetKind, at: &NamespacedName, metadata: &ObjectMeta) {
        let mut state = self.lock();
        let ahead = resource_version(metadata) > state.versions.get(&kind).copied().unwrap_or_default();
        if ahead {
            state.update_target(kind, at, Some(ObservedTarget::from_metadata(kind, metadata)));
        }
    }

    /// Sets the status that was written, if the Bundle has not changed since.
    pub fn record_status(&self, of: &Bundle, status: BundleStatus) {
        let mut state = self.lock();
        if let Some(known) = state.bundles.get_mut(&of.metadata.name)
            && known.metadata.uid == of.metadata.uid
        {
            Arc::make_mut(known).status = Some(status);
        }
    }

    /// Removes the targets that are not listed, in one namespace or everywhere; returns the affected Bundles.
    pub fn retain_targets(
        &self,
        kind: TargetKind,
        within: Option<&str>,
        listed: &HashSet<NamespacedName>,
    ) -> Vec<String> {
        let known = self.lock().targets.names(kind, within);
        let gone = known.iter().filter(|at| !listed.contains(at));
        gone.flat_map(|at| self.lock().update_target(kind, at, None)).collect()
    }

    /// Takes a snapshot that later cache updates do not change.
    pub fn snapshot(&self) -> CacheSnapshot {
        let state = self.lock();
        let refused = state.heard.iter().filter_map(|(watched, heard)| match heard {
            WatchSyncState::Refused(why) => Some((*watched, why.clone())),
            WatchSyncState::Pending | WatchSyncState::Synced => None,
        });
        CacheSnapshot {
            config_maps: state.config_maps.clone(),
            secrets: state.secrets.clone(),
            trust_bundles: state.trust_bundles.clone(),
            namespaces: state.namespaces.clone(),
            refused: refused.collect(),
        }
    }

    /// Calls a function with the index of targets.
    pub fn with_targets<T>(&self, ask: impl FnOnce(&TargetIndex) -> T) -> T {
        ask(&self.lock().targets)
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    /// Records the resource version that the watch of a kind has reached. Versions of one kind increase.
    fn advance_version(&mut self, kind: TargetKind, metadata: &ObjectMeta) {
        let reached = self.versions.entry(kind).or_default();
        *reached = resource_version(metadata).max(*reached);
    }

    /// Sets or removes a target; returns the affected Bundles.
    fn update_target(
        &mut self,
        kind: TargetKind,
        at: &NamespacedName,
        found: Option<ObservedTarget>,
    ) -> Vec<String> {
        if found.as_ref() == self.targets.get(kind, &at.namespace, &at.name) {
            return Vec::new();
        }
        let label = found.as_ref().and_then(|found| found.bundle.clone());
        let old = match found {
            Some(found) => self.targets.insert(kind, at, found),
            None => self.targets.remove(kind, at),
        };
        let labels = [old.and_then(|old| old.bundle), label];
        let mut names = vec![at.name.clone()];
        names.extend(labels.into_iter().flatten().map(String::from));
        names.dedup();
        names.retain(|name| self.bundles.contains_key(name));
        names
    }

    fn affected_bundles(&self, concerns: impl Fn(&Bundle) -> bool) -> Vec<String> {
        let bundles = self.bundles.iter().filter(|(_, bundle)| concerns(bundle));
        bundles.map(|(name, _)| name.clone()).collect()
    }
}

fn resource_version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn cluster_scoped(name: &str) -> NamespacedName {
    NamespacedName { namespace: String::new(), name: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::bundles::fixtures;

    fn metadata(version: &str, label: &str) -> ObjectMeta {
        let labels = json!({"trust.cert-manager.io/bundle": label});
        let metadata = json!({"name": "bundle", "resourceVersion": version, "labels": labels});
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn own_writes_do_not_hide_later_changes() {
        let (seen, kind) = (BundleCache::new(&[]), TargetKind::ConfigMap);
        seen.insert_bundle(fixtures::bundle(json!([{"inLine": "x"}]), json!({"configMap": {"key": "k"}})));
        let at = NamespacedName { namespace: "a".to_owned(), name: "bundle".to_owned() };
        let known = || seen.with_targets(|targets| targets.get(kind, "a", "bundle").is_some());
        // The response arrived first, so the watch event reports no change.
        seen.record_write(kind, &at, &metadata("5", "bundle"));
        assert!(known());
        assert!(seen.set_target(kind, &at, &metadata("5", "bundle")).is_empty());
        assert_eq!(seen.set_target(kind, &at, &metadata("6", "other")), ["bundle"]);
        // The target was deleted before the response arrived.
        assert_eq!(seen.remove_target(kind, &at, &metadata("9", "bundle")), ["bundle"]);
        seen.record_write(kind, &at, &metadata("8", "bundle"));
        assert!(!known());
    }

    #[test]
    fn work_begins_when_all_is_known_or_cannot_be() {
        let (spaces, secrets) = (WatchedKind::Namespaces, WatchedKind::Targets(TargetKind::Secret));
        let seen = BundleCache::new(&[spaces, secrets]);
        seen.insert_bundle(fixtures::bundle(json!([{"inLine": "x"}]), json!({"secret": {"key": "k"}})));
        assert!(seen.mark_listed(spaces).is_empty());
        assert!(seen.wait_until_ready().now_or_never().is_none());
        assert_eq!(seen.mark_refused(secrets, "no".to_owned()), ["bundle"]);
        assert!(seen.mark_refused(secrets, "no".to_owned()).is_empty(), "it is no news");
        assert!(seen.wait_until_ready().now_or_never().is_some());
        assert_eq!(seen.snapshot().refused, BTreeMap::from([(secrets, "no".to_owned())]));
        assert_eq!(seen.mark_listed(secrets), ["bundle"]);
        assert!(seen.mark_refused(spaces, "gone".to_owned()).is_empty(), "what was listed is good");
        assert!(seen.snapshot().refused.is_empty());
    }
}
