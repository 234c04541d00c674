//! Current objects and recent changes of every kind, from which all reads and watches are served.
//!
//! The store's feed (`cache/feed.rs`) is the only writer. Readers take a short read lock and leave with
//! reference-counted objects. Watchers hold a revision, not a queue, and read the shared window of changes from there
//! on. A watcher that falls out of the window gets 410 and does not slow down the others.

mod change;
mod feed;
mod history;
mod object_watchers;
mod window;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::{Notify, watch};

use crate::object::Object;
use crate::registry::kind::Kind;

pub(crate) use change::{ObjectChange, WatchEventType, line};
pub(crate) use object_watchers::ObjectWatcher;
use object_watchers::ObjectWatchers;
use window::ChangeWindow;

pub struct ResourceCaches {
    by_prefix: HashMap<String, Arc<KindCache>>,
    applied: Arc<AtomicU64>,
}

pub struct KindCache {
    /// Kind whose objects this cache holds; fixed at creation.
    pub kind: &'static Kind,
    state: RwLock<CacheState>,
    /// Newest revision of this kind, for lock-free reads on every request.
    last: AtomicU64,
    /// Newest revision of this kind; watchers wait on it.
    newest: watch::Sender<u64>,
    object_watchers: ObjectWatchers,
    /// Wakes the task that notifies the watchers.
    changed: Notify,
    /// Newest store revision that every cache has applied.
    applied: Arc<AtomicU64>,
}

#[derive(Default)]
struct CacheState {
    objects: BTreeMap<Box<str>, Arc<Object>>,
    window: ChangeWindow,
    last: u64,
}

/// A consistent view of part of a collection.
pub struct CacheSnapshot {
    pub revision: u64,
    /// Newest revision of this kind: the snapshot is valid for all revisions from here to
    /// `revision`.
    pub last: u64,
    /// The selected objects, in key order.
    pub objects: Vec<Arc<Object>>,
}

/// The requested revision is no longer in the window.
#[derive(Debug, PartialEq, Eq)]
pub struct RevisionTooOld {
    /// Revision after which all changes are in the window.
    pub floor: u64,
}

impl ResourceCaches {
    /// Creates one empty cache per kind; reviews are never stored and have none.
    pub fn new(kinds: &[&'static Kind]) -> ResourceCaches {
        let applied = Arc::new(AtomicU64::new(0));
        let by_prefix = kinds
            .iter()
            .filter(|kind| kind.review.is_none())
            .map(|kind| (prefix(kind), Arc::new(KindCache::new(kind, applied.clone()))))
            .collect();
        ResourceCaches { by_prefix, applied }
    }

    /// Returns the cache of `kind`, or `None` if the kind is not cached.
    pub fn for_kind(&self, kind: &Kind) -> Option<&Arc<KindCache>> {
        self.by_prefix.get(&prefix(kind))
    }

    /// Returns the newest revision that every cache has applied.
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Starts the tasks that notify watchers. Call once, within a Tokio runtime.
    pub fn start(&self) {
        for cache in self.by_prefix.values() {
            let notified = cache.read().complete_since();
            tokio::spawn(KindCache::run_notifier(cache.clone(), notified));
        }
    }

    /// Wakes every watcher although nothing changed.
    pub fn wake_watchers(&self) {
        for cache in self.by_prefix.values() {
            cache.newest.send_modify(|_| {});
            cache.object_watchers.wake();
        }
    }
}

impl KindCache {
    fn new(kind: &'static Kind, applied: Arc<AtomicU64>) -> KindCache {
        let (newest, changed) = (watch::Sender::new(0), Notify::new());
        let (last, object_watchers) = (AtomicU64::new(0), ObjectWatchers::default());
        KindCache { kind, state: RwLock::default(), last, newest, object_watchers, changed, applied }
    }

    /// Wakes the watchers on every change, until the runtime ends.
    ///
    /// The commit thread is outside the runtime: tasks it woke itself would all go through the
    /// runtime's one shared queue, which takes longer than waking them for thousands of watchers.
    async fn run_notifier(cache: Arc<KindCache>, mut notified: u64) {
        loop {
            cache.changed.notified().await;
            notified = cache.notify_object_watchers(notified);
            // Last: a revision visible here means that watchers were notified of all changes up to
            // it.
            cache.newest.send_replace(notified);
        }
    }

    /// Wakes the watchers of objects that changed after `notified`, and returns the revision notified
    /// up to.
    fn notify_object_watchers(&self, notified: u64) -> u64 {
        // Before looking for watchers: one that registers later finds these changes itself.
        let last = self.read().last;
        if self.object_watchers.is_empty() {
            return last.max(notified);
        }
        match self.changes(notified, usize::MAX) {
            Ok((changes, _)) => {
                self.object_watchers.notify(&changes);
                changes.last().map_or(last, |change| change.revision.max(last))
            }
            // They will find that the window no longer holds their revision.
            Err(_) => {
                self.object_watchers.notify_all(last);
                last
            }
        }
    }

    /// Returns the newest cached object under `key` (`namespace/name`, or `name` at cluster scope).
    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.read().objects.get(key).cloned()
    }

    /// Returns the object under `key` and the revision of this state.
    pub fn get_at(&self, key: &str) -> (Option<Arc<Object>>, u64) {
        let state = self.read();
        let revision = self.applied.load(Ordering::Acquire).max(state.last);
        (state.objects.get(key).cloned(), revision)
    }

    /// Returns the number of cached objects.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Counts the objects whose key starts with `scope`, up to `most`.
    pub fn count_up_to(&self, scope: &str, most: usize) -> usize {
        let state = self.read();
        let from = (Bound::Included(scope), Bound::Unbounded);
        let keys = state.objects.range::<str, _>(from).map(|(key, _)| key);
        keys.take_while(|key| key.starts_with(scope)).take(most).count()
    }

    /// Returns whether the cache holds no objects at the moment.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the objects whose key starts with `scope` (a namespace and a slash, or nothing) and
    /// follows `after`. `keep` sees each object and decides whether to include it or stop the walk.
    pub fn snapshot(
        &self,
        scope: &str,
        after: Option<&str>,
        mut keep: impl FnMut(&Object) -> WalkAction,
    ) -> CacheSnapshot {
        let state = self.read();
        let from = match after {
            Some(key) => Bound::Excluded(key),
            None => Bound::Included(scope),
        };
        let mut objects = Vec::new();
        for (key, object) in state.objects.range::<str, _>((from, Bound::Unbounded)) {
            if !key.starts_with(scope) {
                break;
            }
            match keep(object) {
                WalkAction::Include => objects.push(object.clone()),
                WalkAction::Skip => {}
                WalkAction::Stop => break,
            }
        }
        // All changes up to `applied` are included, and all of this kind up to `last`.
        let revision = self.applied.load(Ordering::Acquire).max(state.last);
        CacheSnapshot { revision, last: state.last, objects }
    }

    /// Counts the objects with a key in `scope` after `after` at `revision`; an estimate if that is
    /// outside the window.
    pub fn count_at(&self, scope: &str, after: &str, revision: u64) -> usize {
        let state = self.read();
        let follows = |key: &str| key.starts_with(scope) && key > after;
        let from = (Bound::Excluded(after), Bound::Unbounded);
        let now = state.objects.range::<str, _>(from).take_while(|(k, _)| k.starts_with(scope));
        let since = state.window.after(revision, usize::MAX).unwrap_or_default();
        let since = since.iter().filter(|c| follows(&c.object.key));
        let (mut made, mut gone) = (0, 0);
        for change in since {
            match (&change.previous, change.is_delete()) {
                (None, false) => made += 1,
                (_, true) => gone += 1,
                (Some(_), false) => {}
            }
        }
        (now.count() + gone).saturating_sub(made)
    }

    /// Returns the newest revision of this kind without locking; that change may not be visible
    /// yet.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Returns the newest revision of this kind whose change is visible.
    pub fn visible_last(&self) -> u64 {
        self.read().last
    }

    /// Returns whether there is an object under one of the keys, and the newest visible revision of
    /// this kind, at which that holds.
    pub fn contains_any(&self, keys: &[String]) -> (bool, u64) {
        let state = self.read();
        (keys.iter().any(|key| state.objects.contains_key(key.as_str())), state.last)
    }

    /// Returns the newest store revision that this cache has applied.
    pub fn revision(&self) -> u64 {
        let state = self.read();
        self.applied.load(Ordering::Acquire).max(state.last)
    }

    /// Returns up to `most` changes after `revision`, oldest first, and the revision up to which
    /// they are complete.
    pub fn changes(
        &self,
        revision: u64,
        most: usize,
    ) -> Result<(Vec<Arc<ObjectChange>>, u64), RevisionTooOld> {
        let state = self.read();
        let changes = state.window.after(revision, most)?;
        let upto = match changes.last() {
            Some(last) if changes.len() == most => last.revision,
            _ => self.applied.load(Ordering::Acquire).max(state.last),
        };
        Ok((changes, upto.max(revision)))
    }

    /// Returns the changes of one object after `revision`, oldest first; `newest` is the revision
    /// of the last one.
    pub fn changes_of_key(
        &self,
        key: &str,
        newest: u64,
        revision: u64,
    ) -> Result<Vec<Arc<ObjectChange>>, RevisionTooOld> {
        self.read().window.changes_of_key(key, newest, revision)
    }

    /// Returns the revision of an object's newest change; 0 if unknown.
    fn newest_revision_of(&self, key: &str) -> u64 {
        let state = self.read();
        let object = state.objects.get(key).map(|object| object.revision);
        object.or_else(|| state.window.deletion_of(key)).unwrap_or(0)
    }

    /// Returns the newest revision that watchers were notified of.
    pub fn notified_revision(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Returns a receiver that sees every new revision of this kind.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    fn read(&self) -> RwLockReadGuard<'_, CacheState> {
        // Code that holds the lock only moves values, so the state is consistent after a panic.
        self.state.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self) -> RwLockWriteGuard<'_, CacheState> {
        self.state.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// What to do with an object during a walk.
pub enum WalkAction {
    /// Include the object in the result.
    Include,
    /// Leave the object out and continue with the next one.
    Skip,
    /// Leave the object out and stop the walk.
    Stop,
}

impl CacheState {
    /// Returns a revision after which all changes are known and before which no watcher needs any.
    fn complete_since(&self) -> u64 {
        self.last.max(self.window.floor())
    }
}

/// Returns the store prefix of a kind: `group/plural`, with `core` for the core group.
pub(crate) fn prefix(kind: &Kind) -> String {
    let group = kind.stored().group;
    format!("{}/{}", if group.is_empty() { "core" } else { group }, kind.plural)
}

pub(crate) fn store_key(kind: &Kind, key: &str) -> String {
    format!("{}/{key}", prefix(kind))
}

/// Splits a store key into the kind's prefix and the object's key.
fn split(key: &str) -> Option<(&str, &str)> {
    let group_end = key.find('/')?;
    let plural_end = group_end + 1 + key[group_end + 1..].find('/')?;
    Some((&key[..plural_end], &key[plural_end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_keys_are_parsed_back() {
        assert_eq!(split("core/pods/ns/p"), Some(("core/pods", "ns/p")));
        assert_eq!(split("g.io/things/a:b"), Some(("g.io/things", "a:b")));
        assert_eq!(split("core/pods"), None);
    }
}
