//! What the watches have brought, and whom each change concerns.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_api::trust_bundle::{Bundle, BundleStatus};

use super::gather::{Held, HeldAnchors};
use super::interest::{self, Labels};
use super::target::{Found, Kind};
use super::targets::Targets;
use crate::namespaced::Namespaced;

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    /// Bundles.
    Bundles,
    /// Namespaces.
    Namespaces,
    /// ConfigMaps or Secrets in the trust namespace.
    Sources(Kind),
    /// Labelled objects; for ClusterTrustBundles, all of them.
    Targets(Kind),
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is being deleted.
    pub ending: bool,
}

/// Everything that is known.
pub struct Seen {
    state: Mutex<State>,
    ready: watch::Sender<bool>,
}

/// What there is at one moment; what of it changes later is not in it.
#[derive(Clone)]
pub struct View {
    /// ConfigMaps in the trust namespace.
    pub config_maps: Arc<BTreeMap<String, Arc<Held>>>,
    /// Secrets in the trust namespace.
    pub secrets: Arc<BTreeMap<String, Arc<Held>>>,
    /// ClusterTrustBundles; none if the server has none.
    pub trust_bundles: Option<Arc<BTreeMap<String, Arc<HeldAnchors>>>>,
    /// Namespaces.
    pub namespaces: Arc<BTreeMap<String, Space>>,
    /// What cannot be listed, and why.
    pub refused: BTreeMap<Watched, String>,
}

#[derive(Default)]
struct State {
    bundles: BTreeMap<String, Arc<Bundle>>,
    config_maps: Arc<BTreeMap<String, Arc<Held>>>,
    secrets: Arc<BTreeMap<String, Arc<Held>>>,
    trust_bundles: Option<Arc<BTreeMap<String, Arc<HeldAnchors>>>>,
    namespaces: Arc<BTreeMap<String, Space>>,
    targets: Targets,
    /// How far the watches of targets have got.
    versions: BTreeMap<Kind, u64>,
    heard: BTreeMap<Watched, Heard>,
    /// Since when there is something to be done about a Bundle.
    stale: HashMap<String, Instant>,
}

enum Heard {
    /// Nothing yet.
    Nothing,
    /// All of it.
    All,
    /// That it cannot be heard.
    Refused(String),
}

impl Seen {
    /// Nothing yet; what is to be waited for before anything is done.
    pub fn new(awaited: &[Watched]) -> Seen {
        let heard = awaited.iter().map(|watched| (*watched, Heard::Nothing)).collect();
        let state = State { heard, ..State::default() };
        Seen { state: Mutex::new(state), ready: watch::Sender::new(false) }
    }

    /// Waits until everything has been listed, or cannot be.
    pub async fn ready(&self) {
        // It cannot fail: the sender is here.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Notes that all of something has been listed; the answer is whom that concerns.
    pub fn listed(&self, watched: Watched) -> Vec<String> {
        let mut state = self.lock();
        let before = state.heard.insert(watched, Heard::All);
        self.look_around(&state);
        match before {
            Some(Heard::Refused(_)) => state.bundles.keys().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// Notes that something cannot be listed; the answer is whom that concerns. What was listed
    /// before is still good.
    pub fn refused(&self, watched: Watched, why: String) -> Vec<String> {
        let mut state = self.lock();
        match state.heard.get(&watched) {
            Some(Heard::All) => return Vec::new(),
            Some(Heard::Refused(before)) if *before == why => return Vec::new(),
            _ => {}
        }
        state.heard.insert(watched, Heard::Refused(why));
        self.look_around(&state);
        state.bundles.keys().cloned().collect()
    }

    fn look_around(&self, state: &State) {
        let nothing = |heard: &Heard| matches!(heard, Heard::Nothing);
        if !state.heard.values().any(nothing) {
            self.ready.send_replace(true);
        }
    }

    /// Notes since when there is something to be done about a Bundle.
    pub fn stale(&self, name: &str) {
        let mut state = self.lock();
        if state.bundles.contains_key(name) {
            state.stale.entry(name.to_owned()).or_insert_with(Instant::now);
        }
    }

    /// Since when there was something to be done about a Bundle that is done now.
    pub fn settled(&self, name: &str) -> Option<Instant> {
        self.lock().stale.remove(name)
    }

    /// A Bundle.
    pub fn bundle(&self, name: &str) -> Option<Arc<Bundle>> {
        self.lock().bundles.get(name).cloned()
    }

    /// Notes what a Bundle is now; says whether that is news.
    pub fn put_bundle(&self, bundle: Bundle) -> bool {
        let mut state = self.lock();
        let name = bundle.metadata.name.clone();
        let news = state.bundles.get(&name).is_none_or(|known| **known != bundle);
        if news {
            state.bundles.insert(name, Arc::new(bundle));
        }
        news
    }

    /// Forgets a Bundle.
    pub fn remove_bundle(&self, name: &str) {
        let mut state = self.lock();
        state.bundles.remove(name);
        state.stale.remove(name);
    }

    /// Forgets the Bundles that are not listed; the answer is which.
    pub fn keep_bundles(&self, listed: &HashSet<Namespaced>) -> Vec<String> {
        let known = self.lock().bundles.keys().cloned().collect::<Vec<_>>();
        let gone = known.into_iter().filter(|name| !listed.contains(&nowhere(name)));
        let gone = gone.collect::<Vec<_>>();
        gone.iter().for_each(|name| self.remove_bundle(name));
        gone
    }

    /// The Bundles that use the default package.
    pub fn users_of_package(&self) -> Vec<String> {
        self.lock().concerned(|bundle| {
            bundle.spec.sources.iter().any(|source| source.use_default_cas == Some(true))
        })
    }

    /// Notes what a source is now, or that it is gone; the answer is whom that concerns.
    pub fn source(&self, kind: Kind, name: &str, held: Option<Held>) -> Vec<String> {
        let mut state = self.lock();
        let sources = match kind {
            Kind::Secret => &mut state.secrets,
            Kind::ConfigMap | Kind::ClusterTrustBundle => &mut state.config_maps,
        };
        let (sources, held) = (Arc::make_mut(sources), held.map(Arc::new));
        let old = match held.clone() {
            Some(held) => sources.insert(name.to_owned(), held),
            None => sources.remove(name),
        };
        let labels = [old.as_ref(), held.as_ref()].map(|held| held.map(|held| &held.labels));
        state.concerned(|bundle| interest::reads_object(bundle, kind, name, labels))
    }

    /// Forgets the sources that are not listed; the answer is whom that concerns.
    pub fn keep_sources(&self, kind: Kind, listed: &HashSet<Namespaced>, at: &str) -> Vec<String> {
        let known = match kind {
            Kind::Secret => self.lock().secrets.clone(),
            Kind::ConfigMap | Kind::ClusterTrustBundle => self.lock().config_maps.clone(),
        };
        let gone = known.keys().filter(|name| {
            !listed.contains(&Namespaced { namespace: at.to_owned(), name: (*name).clone() })
        });
        gone.flat_map(|name| self.source(kind, name, None)).collect()
    }

    /// Notes whether the server has ClusterTrustBundles; the answer is whom that concerns.
    pub fn has_anchors(&self, has: bool) -> Vec<String> {
        let mut state = self.lock();
        if state.trust_bundles.is_some() == has {
            return Vec::new();
        }
        state.trust_bundles = has.then(Arc::default);
        if !has {
            for at in state.targets.places(Kind::ClusterTrustBundle, None) {
                state.targets.remove(Kind::ClusterTrustBundle, &at);
            }
        }
        let kind = Kind::ClusterTrustBundle;
        state.concerned(|bundle| {
            interest::has_sources(bundle, kind) || interest::has_targets(bundle, kind)
        })
    }

    /// Notes what a ClusterTrustBundle holds, or that it is gone; the answer is who reads it.
    pub fn anchors(&self, name: &str, held: Option<HeldAnchors>) -> Vec<String> {
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
        state.concerned(|bundle| interest::reads_anchors(bundle, name, &signer, labels))
    }

    /// Forgets the ClusterTrustBundles that are not listed; the answer is who read them.
    pub fn keep_anchors(&self, listed: &HashSet<Namespaced>) -> Vec<String> {
        let known = self.lock().trust_bundles.clone().unwrap_or_default();
        let gone = known.keys().filter(|name| !listed.contains(&nowhere(name)));
        gone.flat_map(|name| self.anchors(name, None)).collect()
    }

    /// Notes what a namespace is now, or that it is gone; the answer is whom that concerns.
    pub fn namespace(&self, name: &str, space: Option<Space>) -> Vec<String> {
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
        state.concerned(|bundle| interest::goes_to(bundle, labels))
    }

    /// Forgets the namespaces that are not listed; the answer is whom that concerns.
    pub fn keep_namespaces(&self, listed: &HashSet<Namespaced>) -> Vec<String> {
        let known = self.lock().namespaces.clone();
        let gone = known.keys().filter(|name| !listed.contains(&nowhere(name)));
        gone.flat_map(|name| self.namespace(name, None)).collect()
    }

    /// Notes what the watch says a target is; the answer is whom that concerns.
    pub fn target(&self, kind: Kind, at: &Namespaced, metadata: &ObjectMeta) -> Vec<String> {
        let mut state = self.lock();
        state.reached(kind, metadata);
        state.target(kind, at, Some(Found::read(kind, metadata)))
    }

    /// Notes that the watch says that a target is gone; the answer is whom that concerns.
    pub fn target_gone(&self, kind: Kind, at: &Namespaced, metadata: &ObjectMeta) -> Vec<String> {
        let mut state = self.lock();
        state.reached(kind, metadata);
        state.target(kind, at, None)
    }

    /// Notes what was written, unless the watch has got there already and may know better.
    pub fn written(&self, kind: Kind, at: &Namespaced, metadata: &ObjectMeta) {
        let mut state = self.lock();
        let ahead = version(metadata) > state.versions.get(&kind).copied().unwrap_or_default();
        if ahead {
            state.target(kind, at, Some(Found::read(kind, metadata)));
        }
    }

    /// Notes the status that was written, on the Bundle that it was written on.
    pub fn told(&self, of: &Bundle, status: BundleStatus) {
        let mut state = self.lock();
        if let Some(known) = state.bundles.get_mut(&of.metadata.name)
            && known.metadata.uid == of.metadata.uid
        {
            Arc::make_mut(known).status = Some(status);
        }
    }

    /// Forgets the targets that are not listed, in one namespace or everywhere; the answer is whom
    /// that concerns.
    pub fn keep_targets(
        &self,
        kind: Kind,
        within: Option<&str>,
        listed: &HashSet<Namespaced>,
    ) -> Vec<String> {
        let known = self.lock().targets.places(kind, within);
        let gone = known.iter().filter(|at| !listed.contains(at));
        gone.flat_map(|at| self.lock().target(kind, at, None)).collect()
    }

    /// What there is now.
    pub fn view(&self) -> View {
        let state = self.lock();
        let refused = state.heard.iter().filter_map(|(watched, heard)| match heard {
            Heard::Refused(why) => Some((*watched, why.clone())),
            Heard::Nothing | Heard::All => None,
        });
        View {
            config_maps: state.config_maps.clone(),
            secrets: state.secrets.clone(),
            trust_bundles: state.trust_bundles.clone(),
            namespaces: state.namespaces.clone(),
            refused: refused.collect(),
        }
    }

    /// Asks something of the targets.
    pub fn with_targets<T>(&self, ask: impl FnOnce(&Targets) -> T) -> T {
        ask(&self.lock().targets)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notes how far the watch of a kind has got. Versions of one kind grow.
    fn reached(&mut self, kind: Kind, metadata: &ObjectMeta) {
        let reached = self.versions.entry(kind).or_default();
        *reached = version(metadata).max(*reached);
    }

    /// Notes what a target is now, or that it is gone; the answer is whom that concerns.
    fn target(&mut self, kind: Kind, at: &Namespaced, found: Option<Found>) -> Vec<String> {
        if found.as_ref() == self.targets.get(kind, &at.namespace, &at.name) {
            return Vec::new();
        }
        let label = found.as_ref().and_then(|found| found.bundle.clone());
        let old = match found {
            Some(found) => self.targets.put(kind, at, found),
            None => self.targets.remove(kind, at),
        };
        let labels = [old.and_then(|old| old.bundle), label];
        let mut names = vec![at.name.clone()];
        names.extend(labels.into_iter().flatten().map(String::from));
        names.dedup();
        names.retain(|name| self.bundles.contains_key(name));
        names
    }

    fn concerned(&self, concerns: impl Fn(&Bundle) -> bool) -> Vec<String> {
        let bundles = self.bundles.iter().filter(|(_, bundle)| concerns(bundle));
        bundles.map(|(name, _)| name.clone()).collect()
    }
}

fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn nowhere(name: &str) -> Namespaced {
    Namespaced { namespace: String::new(), name: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::bundles::samples;

    fn metadata(version: &str, label: &str) -> ObjectMeta {
        let labels = json!({"trust.cert-manager.io/bundle": label});
        let metadata = json!({"name": "bundle", "resourceVersion": version, "labels": labels});
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn what_was_written_does_not_hide_what_came_after() {
        let (seen, kind) = (Seen::new(&[]), Kind::ConfigMap);
        seen.put_bundle(samples::bundle(
            json!([{"inLine": "x"}]),
            json!({"configMap": {"key": "k"}}),
        ));
        let at = Namespaced { namespace: "a".to_owned(), name: "bundle".to_owned() };
        let known = || seen.with_targets(|targets| targets.get(kind, "a", "bundle").is_some());
        // The answer came first: the event that follows is no news.
        seen.written(kind, &at, &metadata("5", "bundle"));
        assert!(known());
        assert!(seen.target(kind, &at, &metadata("5", "bundle")).is_empty());
        assert_eq!(seen.target(kind, &at, &metadata("6", "other")), ["bundle"]);
        // It was deleted before the answer came.
        assert_eq!(seen.target_gone(kind, &at, &metadata("9", "bundle")), ["bundle"]);
        seen.written(kind, &at, &metadata("8", "bundle"));
        assert!(!known());
    }

    #[test]
    fn work_begins_when_all_is_known_or_cannot_be() {
        let (spaces, secrets) = (Watched::Namespaces, Watched::Targets(Kind::Secret));
        let seen = Seen::new(&[spaces, secrets]);
        seen.put_bundle(samples::bundle(json!([{"inLine": "x"}]), json!({"secret": {"key": "k"}})));
        assert!(seen.listed(spaces).is_empty());
        assert!(seen.ready().now_or_never().is_none());
        assert_eq!(seen.refused(secrets, "no".to_owned()), ["bundle"]);
        assert!(seen.refused(secrets, "no".to_owned()).is_empty(), "it is no news");
        assert!(seen.ready().now_or_never().is_some());
        assert_eq!(seen.view().refused, BTreeMap::from([(secrets, "no".to_owned())]));
        assert_eq!(seen.listed(secrets), ["bundle"]);
        assert!(seen.refused(spaces, "gone".to_owned()).is_empty(), "what was listed is good");
        assert!(seen.view().refused.is_empty());
    }
}
