//! The store's feed: the only code that changes a cache.
//!
//! [`ResourceCaches::attach`] reads the whole store at one revision and then subscribes to it. From then on the store
//! calls [`ResourceCaches::handle_message`] for every batch that it commits, or that other servers commit, before the
//! writers get their answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass_store::{ChangeEvent, Error as StoreError, FeedMessage, KeyRange, RangePage, Store};

use super::{CacheState, KindCache, ObjectChange, ResourceCaches, split};
use crate::object::Object;
use crate::registry::kind::Kind;

/// Changes before the start that are read back, so that watches continue across a restart.
const REMEMBERED: u64 = 10_000;

/// Objects read at a time from a store of this server alone: enough to be fast, and few enough that their memory does
/// not show.
const PAGE: usize = 500;

/// Bytes, and at most objects, read at a time from a shared store: for every page, etcd walks over all keys that follow.
const SHARED_PAGE: (usize, usize) = (8 << 20, 10_000);

/// Attempts to fill the caches when compactions overtake the reading.
const ATTEMPTS: usize = 5;

/// State of the caches after they have been filled.
struct FilledCaches {
    /// The caches hold the state at this revision.
    revision: u64,
    /// Changes after this revision are kept for watches.
    floor: u64,
}

impl ResourceCaches {
    /// Fills the caches from the store and keeps them up to date from then on.
    pub(crate) async fn attach(self: &Arc<Self>, store: &Arc<dyn Store>) -> Result<(), StoreError> {
        let mut attempt = 1;
        loop {
            let attached = match self.fill(store).await {
                Ok(filled) => self.subscribe_to(store, filled),
                Err(error) => Err(error),
            };
            match attached {
                Err(StoreError::Compacted { floor }) if attempt < ATTEMPTS => {
                    tracing::warn!(floor, attempt, "history was compacted while loading; starting over");
                    self.clear();
                    attempt += 1;
                }
                Ok(()) => break,
                Err(error) => return Err(error),
            }
        }
        self.start();
        Ok(())
    }

    /// Waits until the feed has delivered every write that anyone was acknowledged before the call.
    pub(crate) async fn catch_up(&self, store: &Arc<dyn Store>) -> Result<(), StoreError> {
        let revision = store.catch_up().await?;
        self.advance(revision);
        Ok(())
    }

    /// Reads everything at one revision.
    async fn fill(&self, store: &Arc<dyn Store>) -> Result<FilledCaches, StoreError> {
        let (mut after, mut revision, mut limit) = (None, None, PAGE);
        loop {
            let range =
                KeyRange { prefix: String::new(), after: after.take(), limit: Some(limit), at: revision };
            let page = store.range(range).await?;
            let mut bytes = 0;
            for (key, stored) in &page.items {
                bytes += stored.value.len();
                self.load(key, stored.revision, &stored.value);
            }
            if store.is_shared() {
                // The objects that follow are assumed to be as large as these.
                let each = (bytes / page.items.len().max(1)).max(1);
                limit = (SHARED_PAGE.0 / each).clamp(1, SHARED_PAGE.1);
            }
            revision = Some(page.revision);
            match page.items.last() {
                Some((key, _)) if page.more => after = Some(key.clone()),
                _ => break,
            }
        }
        let revision = revision.unwrap_or_default();
        let floor = store.floor().max(revision.saturating_sub(REMEMBERED));
        self.finish_load(revision, floor);
        Ok(FilledCaches { revision, floor })
    }

    /// Subscribes to the changes that led to the loaded state, and to those that follow.
    fn subscribe_to(
        self: &Arc<Self>,
        store: &Arc<dyn Store>,
        FilledCaches { revision, floor }: FilledCaches,
    ) -> Result<(), StoreError> {
        let caches = self.clone();
        let sink = move |message: FeedMessage<'_>| match message {
            FeedMessage::Changes(events) => {
                let loaded = events.partition_point(|e| e.revision <= revision);
                let (past, new) = events.split_at(loaded);
                caches.load_history(past);
                caches.handle_message(FeedMessage::Changes(new));
            }
            FeedMessage::Reset(_) => caches.handle_message(message),
        };
        store.watch(floor, Box::new(sink))
    }

    /// Adds an object that was stored before the subscription.
    fn load(&self, key: &str, revision: u64, value: &[u8]) {
        let Some((cache, name)) = self.route(key) else { return };
        match Object::new(cache.kind, name, revision, value) {
            Ok(object) => {
                let mut state = cache.write();
                state.last = state.last.max(revision);
                cache.last.store(state.last, Ordering::Release);
                state.objects.insert(name.into(), Arc::new(object));
            }
            Err(error) => {
                tracing::error!(%error, "stored object cannot be decoded; not in the cache")
            }
        }
    }

    /// Forgets all objects, before the subscription.
    fn clear(&self) {
        for cache in self.by_prefix.values() {
            *cache.write() = CacheState::default();
            cache.last.store(0, Ordering::Release);
        }
    }

    /// Completes loading: the caches hold the state at `revision`, and all changes after `floor`
    /// are known.
    pub(crate) fn finish_load(&self, revision: u64, floor: u64) {
        for cache in self.by_prefix.values() {
            let mut state = cache.write();
            state.window.reset(floor);
            let last = state.last;
            drop(state);
            cache.newest.send_replace(last);
        }
        self.applied.store(revision, Ordering::Release);
    }

    /// Adds changes from before the load to the windows, so that watches from before a restart continue.
    fn load_history(&self, events: &[ChangeEvent]) {
        for event in events {
            let Some((cache, name)) = self.route(&event.key) else { continue };
            let known = cache.get(name).filter(|o| o.revision == event.revision);
            if let Some(change) = historical_change(cache.kind, name, event, known) {
                cache.write().window.push(change);
            }
        }
    }

    /// Takes a message of the store into the caches. Called on the commit thread, before writes are acknowledged.
    pub fn handle_message(&self, message: FeedMessage<'_>) {
        match message {
            FeedMessage::Changes(events) => self.apply(events),
            FeedMessage::Reset(state) => self.replace(state),
        }
    }

    /// Replaces the whole state. The changes that led to it are unknown, so watches from before it end.
    fn replace(&self, state: &RangePage) {
        let decoded: Vec<_> = self.by_prefix.iter().map(|(prefix, c)| (c, c.decode(prefix, state))).collect();
        // All are locked until all are replaced: no reader sees one kind of the new state and another of the old.
        let locked: Vec<_> =
            decoded.into_iter().map(|(cache, objects)| (cache, cache.write(), objects)).collect();
        self.advance(state.revision);
        for (cache, mut content, objects) in locked {
            content.window.reset(state.revision);
            (content.objects, content.last) = (objects, state.revision);
            cache.last.store(state.revision, Ordering::Release);
            drop(content);
            cache.changed.notify_one();
        }
    }

    fn apply(&self, events: &[ChangeEvent]) {
        let Some(newest) = events.last().map(|e| e.revision) else { return };
        let mut rest = events;
        while let Some(first) = rest.first() {
            let kind_prefix = split(&first.key).map_or("", |(prefix, _)| prefix);
            let run = rest
                .iter()
                .take_while(|e| split(&e.key).map_or("", |(prefix, _)| prefix) == kind_prefix)
                .count();
            let (now, later) = rest.split_at(run);
            if let Some(cache) = self.by_prefix.get(kind_prefix) {
                cache.apply(now);
            }
            rest = later;
        }
        self.advance(newest);
    }

    /// Records that the feed has delivered everything up to `revision`, which may be no change of a known kind.
    fn advance(&self, revision: u64) {
        self.applied.fetch_max(revision, Ordering::AcqRel);
    }

    fn route<'a>(&self, key: &'a str) -> Option<(&Arc<KindCache>, &'a str)> {
        let (prefix, name) = split(key)?;
        Some((self.by_prefix.get(prefix)?, name))
    }
}

impl KindCache {
    fn apply(&self, events: &[ChangeEvent]) {
        let mut state = self.write();
        for event in events {
            let Some((_, name)) = split(&event.key) else { continue };
            let previous = state.objects.get(name).cloned();
            match ObjectChange::new(self.kind, name, event, previous) {
                Ok(Some(change)) => state.apply_change(name, change),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(%error, "stored object cannot be decoded; not in the cache")
                }
            }
            state.last = event.revision;
        }
        self.last.store(state.last, Ordering::Release);
        // Before the change can be seen: all kinds have applied everything up to it, and a client that sees it must
        // not get an older revision for another kind.
        self.applied.fetch_max(state.last, Ordering::AcqRel);
        drop(state);
        self.changed.notify_one();
    }

    /// Decodes the objects of this kind, and shares those that the cache already holds.
    fn decode(&self, prefix: &str, state: &RangePage) -> BTreeMap<Box<str>, Arc<Object>> {
        let from = state.items.partition_point(|(key, _)| key.as_str() < prefix);
        let rest = state.items.get(from..).unwrap_or_default();
        let near = rest.iter().take_while(|(key, _)| key.starts_with(prefix));
        let own = near.filter_map(|(key, stored)| {
            split(key).filter(|(of, _)| *of == prefix).map(|(_, name)| (name, stored))
        });
        let mut objects = BTreeMap::new();
        for (name, stored) in own {
            let known = self.get(name).filter(|object| object.revision == stored.revision);
            let object = match known {
                Some(object) => Ok(object),
                None => Object::new(self.kind, name, stored.revision, &stored.value).map(Arc::new),
            };
            match object {
                Ok(object) => drop(objects.insert(Box::from(name), object)),
                Err(error) => {
                    tracing::error!(%error, "stored object cannot be decoded; not in the cache")
                }
            }
        }
        objects
    }
}

impl CacheState {
    fn apply_change(&mut self, name: &str, change: ObjectChange) {
        if change.is_delete() {
            self.objects.remove(name);
        } else {
            self.objects.insert(name.into(), change.object.clone());
        }
        self.window.push(change);
    }
}

/// Returns a change from before the load; `known` is the object that it wrote, if that is still the current one.
fn historical_change(
    kind: &'static Kind,
    name: &str,
    event: &ChangeEvent,
    known: Option<Arc<Object>>,
) -> Option<ObjectChange> {
    let previous = event.previous.as_ref();
    let previous = previous.and_then(|p| Object::new(kind, name, p.revision, &p.value).ok());
    let previous = previous.map(Arc::new);
    match known {
        Some(object) => Some(ObjectChange::from_objects(kind, object, previous)),
        None => ObjectChange::new(kind, name, event, previous).ok().flatten(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::WalkAction;
    use super::*;
    use crate::registry::KINDS;

    const STORED: &[u8] = br#"{"kind":"Any","apiVersion":"v1","metadata":{}}"#;

    /// Delivers a message while a reader holds the cache of ConfigMaps, and calls `check` when only that reader keeps
    /// the delivery from completing.
    fn check_halfway(message: FeedMessage<'_>, check: impl FnOnce(&ResourceCaches)) {
        let caches = ResourceCaches::new(KINDS);
        caches.load("core/configmaps/ns/held", 2, STORED);
        caches.finish_load(2, 2);
        let config_maps = &caches.by_prefix["core/configmaps"];
        let (reading, started) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                config_maps.snapshot("", None, |_| {
                    reading.send(()).unwrap();
                    let _ = released.recv(); // fails when `release` is dropped
                    WalkAction::Stop
                })
            });
            started.recv().unwrap();
            threads.spawn(|| caches.handle_message(message));
            // A waiting writer keeps new readers out.
            while config_maps.state.try_read().is_ok() {
                std::thread::yield_now();
            }
            let _release = release;
            check(&caches);
        });
    }

    #[test]
    fn no_kind_is_behind_a_change_of_another() {
        let change = |revision, key: &str| {
            let value = Some(STORED.into());
            ChangeEvent { revision, key: key.into(), value, created: revision, previous: None }
        };
        let events = [change(3, "core/secrets/ns/a"), change(4, "core/configmaps/ns/a")];
        check_halfway(FeedMessage::Changes(&events), |caches| {
            let revision = |prefix: &str| caches.by_prefix[prefix].revision();
            assert_eq!((revision("core/secrets"), revision("core/pods")), (3, 3));
        });
    }

    #[test]
    fn a_reset_shows_no_kind_before_all() {
        let page = RangePage { revision: 9, items: Vec::new(), more: false };
        check_halfway(FeedMessage::Reset(&page), |caches| {
            let readable = caches.by_prefix.values().filter_map(|cache| cache.state.try_read().ok());
            let shown = readable.map(|state| state.last).max();
            assert!(shown.is_none_or(|last| last < 9), "a cache shows {shown:?}, ConfigMaps are at 2");
        });
    }
}
