//! Watchers of single objects, woken only by changes of their object.
//!
//! Thousands of nodes that start at once each watch one certificate request. If every change woke
//! all of them, the work would grow with the square of their number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{KindCache, ObjectChange};

/// Watchers of single objects by key. A key is present only while it is watched.
#[derive(Default)]
pub(super) struct ObjectWatchers {
    by_key: Mutex<HashMap<Box<str>, WatchedObject>>,
}

struct WatchedObject {
    /// Revision of the object's newest change.
    newest: watch::Sender<u64>,
    watchers: usize,
}

impl ObjectWatchers {
    /// Returns true if no single object is watched.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(super) fn notify(&self, changes: &[Arc<ObjectChange>]) {
        let by_key = self.lock();
        for change in changes {
            if let Some(watched) = by_key.get(&*change.object.key) {
                watched.newest.send_replace(change.revision);
            }
        }
    }

    /// Wakes all watchers, as if each object had changed at `revision`.
    pub(super) fn notify_all(&self, revision: u64) {
        for watched in self.lock().values() {
            watched.newest.send_replace(revision);
        }
    }

    /// Wakes all watchers although nothing changed.
    pub(super) fn wake(&self) {
        self.lock().values().for_each(|watched| watched.newest.send_modify(|_| {}));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, WatchedObject>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered watch of one object; dropping it unregisters.
pub(crate) struct ObjectWatcher {
    cache: Arc<KindCache>,
    key: Box<str>,
    newest: watch::Receiver<u64>,
    /// Revision of the object's newest change at registration.
    first: u64,
}

impl ObjectWatcher {
    /// Registers a watcher that receives changes made after this call.
    pub(crate) fn new(cache: Arc<KindCache>, key: &str) -> ObjectWatcher {
        let newest = {
            let mut by_key = cache.object_watchers.lock();
            let watched = by_key
                .entry(key.into())
                .or_insert_with(|| WatchedObject { newest: watch::Sender::new(0), watchers: 0 });
            watched.watchers += 1;
            watched.newest.subscribe()
        };
        // After registration: later changes will be notified.
        let first = cache.newest_revision_of(key);
        ObjectWatcher { cache, key: key.into(), newest, first }
    }

    /// Returns the key of the watched object within its kind.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Returns a receiver that sees the revision of every new change of the object.
    pub(crate) fn receiver(&self) -> watch::Receiver<u64> {
        self.newest.clone()
    }

    /// Returns the revision of the newest known change; 0 if none.
    pub(crate) fn newest(&self) -> u64 {
        self.first.max(*self.newest.borrow())
    }
}

impl Drop for ObjectWatcher {
    fn drop(&mut self) {
        let mut by_key = self.cache.object_watchers.lock();
        if let Some(watched) = by_key.get_mut(&self.key) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                by_key.remove(&self.key);
            }
        }
    }
}
