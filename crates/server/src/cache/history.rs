//! Recent past states, reconstructed from the current state and the changes since.
//!
//! A client that pages through a long list reads one revision repeatedly while others write. The
//! store has that revision too, but for every page etcd walks over all following keys.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::{CacheSnapshot, KindCache, WalkAction};
use crate::object::Object;

impl KindCache {
    /// Like [`KindCache::snapshot`], but of the state at `revision`; `None` if not all changes
    /// since then are known.
    pub fn snapshot_at(
        &self,
        revision: u64,
        scope: &str,
        after: Option<&str>,
        mut keep: impl FnMut(&Object) -> WalkAction,
    ) -> Option<CacheSnapshot> {
        let state = self.read();
        let changes = state.window.after(revision, usize::MAX).ok()?;
        // The previous object of the first change since then is the object at that revision.
        let mut then: BTreeMap<&str, Option<&Arc<Object>>> = BTreeMap::new();
        for change in &changes {
            then.entry(&change.object.key).or_insert(change.previous.as_ref());
        }
        let from = match after {
            Some(key) => Bound::Excluded(key),
            None => Bound::Included(scope),
        };
        let same = state.objects.range::<str, _>((from, Bound::Unbounded));
        let mut same = same
            .map(|(key, object)| (&**key, object))
            .take_while(|(key, _)| key.starts_with(scope))
            .filter(|(key, _)| !then.contains_key(key))
            .peekable();
        let other = then.range::<str, _>((from, Bound::Unbounded));
        let mut other = other
            .take_while(|(key, _)| key.starts_with(scope))
            .filter_map(|(key, object)| object.map(|object| (*key, object)))
            .peekable();
        let mut objects = Vec::new();
        loop {
            let next = match (same.peek(), other.peek()) {
                (Some((a, _)), Some((b, _))) if b < a => other.next(),
                (None, _) => other.next(),
                (Some(_), _) => same.next(),
            };
            let Some((_, object)) = next else { break };
            match keep(object) {
                WalkAction::Include => objects.push(object.clone()),
                WalkAction::Skip => {}
                WalkAction::Stop => break,
            }
        }
        Some(CacheSnapshot { revision, last: revision, objects })
    }
}

#[cfg(test)]
mod tests {
    use windlass_store::{ChangeEvent, FeedMessage, StoredValue};

    use super::super::ResourceCaches;
    use super::*;
    use crate::registry::KINDS;

    const PREFIX: &str = "core/configmaps";

    /// Returns the cache, and the expected state after each change; a change is a key and a value
    /// or `None`.
    fn after(changes: &[(&str, Option<&str>)]) -> (Arc<KindCache>, Vec<BTreeMap<String, String>>) {
        let caches = ResourceCaches::new(KINDS);
        caches.finish_load(1, 1);
        let mut states = vec![BTreeMap::new(), BTreeMap::new()];
        let mut stored: BTreeMap<String, StoredValue> = BTreeMap::new();
        for (revision, (key, value)) in (2..).zip(changes) {
            let value = value
                .map(|v| format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{}},"data":"{v}"}}"#));
            let previous = stored.get(*key).cloned();
            let created = previous.as_ref().map_or(revision, |p| p.created);
            let event = ChangeEvent {
                revision,
                key: format!("{PREFIX}/{key}"),
                value: value.clone().map(Into::into),
                created,
                previous,
            };
            caches.handle_message(FeedMessage::Changes(&[event]));
            match value {
                Some(value) => {
                    let now = StoredValue { revision, created, value: value.into() };
                    stored.insert((*key).to_owned(), now);
                }
                None => drop(stored.remove(*key)),
            }
            let state = stored.iter().map(|(k, s)| (k.clone(), s.revision.to_string()));
            states.push(state.collect());
        }
        let cache = caches.by_prefix.get(PREFIX).unwrap().clone();
        (cache, states)
    }

    #[test]
    fn every_state_of_the_window_can_be_rebuilt() {
        let (cache, states) = after(&[
            ("a/x", Some("1")),
            ("a/y", Some("1")),
            ("b/x", Some("1")),
            ("a/x", Some("2")),
            ("a/y", None),
            ("a/w", Some("1")),
            ("a/y", Some("2")),
            ("b/x", None),
            ("a/x", None),
            ("c/z", Some("1")),
        ]);
        for (revision, state) in states.iter().enumerate().skip(1) {
            for scope in ["", "a/", "b/", "c"] {
                for later in [None, Some("a/w"), Some("a/x"), Some("b/a")] {
                    let found = cache
                        .snapshot_at(revision as u64, scope, later, |_| WalkAction::Include)
                        .unwrap_or_else(|| panic!("nothing is known of {revision}"));
                    let found: Vec<_> =
                        found.objects.iter().map(|o| (o.key.to_string(), o.revision.to_string())).collect();
                    let wanted: Vec<_> = state
                        .iter()
                        .filter(|(key, _)| key.starts_with(scope))
                        .filter(|(key, _)| later.is_none_or(|later| key.as_str() > later))
                        .map(|(key, at)| (key.clone(), at.clone()))
                        .collect();
                    // A page continues within its scope.
                    if later.is_none_or(|later| later.starts_with(scope)) {
                        assert_eq!(found, wanted, "{revision} {scope:?} {later:?}");
                    }
                }
            }
        }
        assert!(cache.snapshot_at(0, "", None, |_| WalkAction::Include).is_none());
    }
}
