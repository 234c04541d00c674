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

/// The caches of all kinds.
pub struct ResourceCaches {
    by_prefix: HashMap<String, Arc<KindCache>>,
    applied: Arc<AtomicU64>,
}

/// The cache of one kind.
pub struct KindCache {
    /// Kind whose objects this cache holds; fixed at creation.
    pub kind: &'static Kind,
    state: RwLock<CacheState>,
    /// The newest revision of this kind, for those who ask at every request.
    last: AtomicU64,
    /// The newest revision of this kind, for watchers to wait on.
    newest: watch::Sender<u64>,
    /// Those who wait for one object only.
    object_watchers: ObjectWatchers,
    /// Tells the task that wakes the watchers.
    changed: Notify,
    /// The newest revision of the whole store that every cache has seen.
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
    /// The revision it is the state of.
    pub revision: u64,
    /// The newest revision of the kind in it: it shows all states from here to `revision`.
    pub last: u64,
    /// The objects, in key order.
    pub objects: Vec<Arc<Object>>,
}

/// The revision asked for is no longer in the window.
#[derive(Debug, PartialEq, Eq)]
pub struct RevisionTooOld {
    /// The oldest revision that changes are known after.
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

    /// The newest revision that every cache has seen.
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Starts what wakes watchers. In a runtime, once.
    pub fn start(&self) {
        for cache in self.by_prefix.values() {
            let told = cache.read().complete_since();
            tokio::spawn(KindCache::run_notifier(cache.clone(), told));
        }
    }

    /// Makes every watcher look up, though nothing changed.
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
        KindCache {
            kind,
            state: RwLock::default(),
            last,
            newest,
            object_watchers,
            changed,
            applied,
        }
    }

    /// Wakes the watchers whenever something changed, until the runtime ends.
    ///
    /// The commit thread is not of the runtime: tasks it woke itself would all go through the
    /// runtime's one shared queue, which for thousands of watchers takes longer than telling them.
    async fn run_notifier(cache: Arc<KindCache>, mut told: u64) {
        loop {
            cache.changed.notified().await;
            told = cache.notify_object_watchers(told);
            // Last: whoever sees a revision here knows that changes up to it were told of.
            cache.newest.send_replace(told);
        }
    }

    /// Wakes those who wait for one of the objects that changed after `told`, and returns what is
    /// told of now.
    fn notify_object_watchers(&self, told: u64) -> u64 {
        // Before looking for watchers: one who comes later finds these changes by itself.
        let last = self.read().last;
        if self.object_watchers.is_empty() {
            return last.max(told);
        }
        match self.changes(told, usize::MAX) {
            Ok((changes, _)) => {
                self.object_watchers.notify(&changes);
                changes.last().map_or(last, |change| change.revision.max(last))
            }
            // They find that the window does not have what they want.
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

    /// The object under `key` and the revision that this is the state of.
    pub fn get_at(&self, key: &str) -> (Option<Arc<Object>>, u64) {
        let state = self.read();
        let revision = self.applied.load(Ordering::Acquire).max(state.last);
        (state.objects.get(key).cloned(), revision)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// How many objects have a key that begins with `scope`, counted up to `most`.
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

    /// The objects whose key begins with `scope` (a namespace and a slash, or nothing) and comes
    /// after `after`, as many as `keep` lets through: it sees each object and may stop the walk.
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
        // Every change up to `applied` is in, and all of this kind up to `last`.
        let revision = self.applied.load(Ordering::Acquire).max(state.last);
        CacheSnapshot { revision, last: state.last, objects }
    }

    /// How many objects with a key in `scope` after `after` there were at `revision`; as good as is
    /// known when that is long ago.
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

    /// The newest revision of this kind. Costs no lock; what it names may be a moment from being there.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// The newest revision of the store that this cache has seen.
    pub fn revision(&self) -> u64 {
        let state = self.read();
        self.applied.load(Ordering::Acquire).max(state.last)
    }

    /// Up to `most` changes after `revision`, oldest first, and the revision up to which there
    /// are no others.
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

    /// The changes of one object after `revision`, oldest first; `newest` is the last one's revision.
    pub fn changes_of_key(
        &self,
        key: &str,
        newest: u64,
        revision: u64,
    ) -> Result<Vec<Arc<ObjectChange>>, RevisionTooOld> {
        self.read().window.changes_of_key(key, newest, revision)
    }

    /// The revision of an object's newest change; 0 if nobody remembers one.
    fn newest_revision_of(&self, key: &str) -> u64 {
        let state = self.read();
        let object = state.objects.get(key).map(|object| object.revision);
        object.or_else(|| state.window.deletion_of(key)).unwrap_or(0)
    }

    /// The newest revision that watchers were told of.
    pub fn notified_revision(&self) -> u64 {
        *self.newest.borrow()
    }

    /// A receiver that sees every new revision of this kind.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    fn read(&self) -> RwLockReadGuard<'_, CacheState> {
        // A panic while the lock was held would have been in code that only moves values.
        self.state.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self) -> RwLockWriteGuard<'_, CacheState> {
        self.state.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// What to do with an object met on a walk.
pub enum WalkAction {
    /// It is part of the answer.
    Include,
    /// Leave the object out and continue with the next one.
    Skip,
    /// It is not, and nothing after it.
    Stop,
}

impl CacheState {
    /// A revision after which all changes are known, and before which nobody has to be told.
    fn complete_since(&self) -> u64 {
        self.last.max(self.window.floor())
    }
}

/// Where a kind's objects stand in the store: `group/plural`, with `core` for the nameless group.
pub(crate) fn prefix(kind: &Kind) -> String {
    let group = kind.stored().group;
    format!("{}/{}", if group.is_empty() { "core" } else { group }, kind.plural)
}

/// The store key of an object.
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
    fn store_keys_come_apart_again() {
        assert_eq!(split("core/pods/ns/p"), Some(("core/pods", "ns/p")));
        assert_eq!(split("g.io/things/a:b"), Some(("g.io/things", "a:b")));
        assert_eq!(split("core/pods"), None);
    }
}
