//! Requests that wait for somebody, as a watch last saw them.
//!
//! What needs no more work is let go at once, so this holds what is pending and not the archive. And
//! of a flood only the first are held as a whole; of the others, that they are there. These are read
//! when their turn comes.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::runtime::watcher::Event;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::metrics::ControllerCounters;
use crate::resource_watch;
use crate::work_queue::WorkQueue;

/// As many are held as a whole. A request takes about 5 KiB.
const WHOLE: usize = 4096;

/// Requests that wait for a signer or approver; only a limited number is held whole.
pub struct PendingRequests<K, O> {
    state: Mutex<PendingState<K, O>>,
    max_whole: usize,
}

struct PendingState<K, O> {
    entries: HashMap<K, PendingEntry<O>>,
    /// How many of them are there as a whole.
    whole: usize,
}

struct PendingEntry<O> {
    object: Option<Arc<O>>,
    uid: Option<String>,
    signer: String,
    since: Instant,
    /// What was last said of it.
    last_message: Option<String>,
}

/// An object, if it is held, and since when it is known to wait.
pub struct PendingObject<O> {
    /// The request; `None` if it exceeds the limit and must be read from the API.
    pub object: Option<Arc<O>>,
    /// When it was first seen waiting.
    pub since: Instant,
}

impl<K, O> Default for PendingRequests<K, O> {
    fn default() -> PendingRequests<K, O> {
        PendingRequests::with_limit(WHOLE)
    }
}

impl<K, O> PendingRequests<K, O> {
    fn with_limit(max_whole: usize) -> PendingRequests<K, O> {
        PendingRequests {
            state: Mutex::new(PendingState { entries: HashMap::new(), whole: 0 }),
            max_whole,
        }
    }

    fn lock(&self) -> MutexGuard<'_, PendingState<K, O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash, O: Resource> PendingRequests<K, O> {
    /// What is known of this one, if it waits.
    pub fn get(&self, key: &K) -> Option<PendingObject<O>> {
        let room = self.lock();
        let entry = room.entries.get(key)?;
        Some(PendingObject { object: entry.object.clone(), since: entry.since })
    }

    /// The keys of those that wait for a signer.
    pub fn keys_for_signer(&self, signer: &str) -> Vec<K> {
        let room = self.lock();
        let meant = room.entries.iter().filter(|(_, entry)| entry.signer == signer);
        meant.map(|(key, _)| key.clone()).collect()
    }

    /// Notes what is said of one, and whether that is news.
    pub fn record_message(&self, key: &K, what: &str) -> bool {
        let mut room = self.lock();
        let Some(entry) = room.entries.get_mut(key) else { return true };
        let is_news = entry.last_message.as_deref() != Some(what);
        entry.last_message = Some(what.to_owned());
        is_news
    }

    /// Adds or updates a pending request, without its managed fields.
    pub fn insert(&self, key: K, signer: &str, mut object: O) {
        let mut room = self.lock();
        let before = room.remove_entry(&key);
        let uid = object.meta().uid.clone();
        let same = before.filter(|before| before.uid == uid);
        let (since, told) =
            same.map_or_else(|| (Instant::now(), None), |same| (same.since, same.last_message));
        // Nobody here needs them, and what is not sent back is left as it is.
        object.meta_mut().managed_fields = None;
        let object = (room.whole < self.max_whole).then(|| Arc::new(object));
        room.whole += usize::from(object.is_some());
        let entry =
            PendingEntry { object, uid, signer: signer.to_owned(), since, last_message: told };
        room.entries.insert(key, entry);
    }

    /// Removes a request that is not pending any more.
    pub fn remove(&self, key: &K) {
        self.lock().remove_entry(key);
    }

    fn retain(&self, keys: &HashSet<K>) {
        let mut room = self.lock();
        room.entries.retain(|key, _| keys.contains(key));
        room.whole = room.entries.values().filter(|entry| entry.object.is_some()).count();
    }
}

impl<K: Eq + Hash, O> PendingState<K, O> {
    fn remove_entry(&mut self, key: &K) -> Option<PendingEntry<O>> {
        let entry = self.entries.remove(key)?;
        self.whole -= usize::from(entry.object.is_some());
        Some(entry)
    }
}

/// What a watch of requests is about.
pub struct RequestWatch<'a, O> {
    /// API whose objects are watched.
    pub api: Api<O>,
    /// Plural resource name, for log messages.
    pub plural: &'a str,
    /// Field selector that restricts the watch; `None` watches all objects.
    pub fields: Option<&'a str>,
    /// Counters of the controller, which count watch errors.
    pub counters: &'static ControllerCounters,
}

/// Watches requests, keeps those that wait for one of ours as `signer` tells, and puts their keys
/// into the queue. Does not end.
pub async fn watch_requests<K, O>(
    watched: RequestWatch<'_, O>,
    waiting: &PendingRequests<K, O>,
    queue: &WorkQueue<K>,
    key: impl Fn(&O) -> K,
    signer: impl Fn(&O) -> Option<String>,
) where
    K: Clone + Eq + Hash + std::fmt::Display,
    O: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    O::DynamicType: Clone,
{
    let mut listed = HashSet::new();
    let take = |object: O| {
        let key = key(&object);
        match signer(&object) {
            Some(signer) => {
                waiting.insert(key.clone(), &signer, object);
                queue.add(key);
            }
            None => waiting.remove(&key),
        }
    };
    let RequestWatch { api, plural, fields, counters } = watched;
    resource_watch::watch_objects(api, plural, fields, counters, |event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.insert(key(&object));
            take(object);
        }
        Event::InitDone => waiting.retain(&std::mem::take(&mut listed)),
        Event::Apply(object) => take(object),
        Event::Delete(object) => waiting.remove(&key(&object)),
    })
    .await;
}

/// Looks at what waits for a signer when the CA that it signs with changes, however long it was put
/// off. Does not end.
pub async fn requeue_on_ca_change<K, O>(
    waiting: &PendingRequests<K, O>,
    signer: &str,
    mut changes: watch::Receiver<u64>,
    queue: &WorkQueue<K>,
) where
    K: Clone + Eq + Hash + std::fmt::Display,
    O: Resource,
{
    while changes.changed().await.is_ok() {
        for key in waiting.keys_for_signer(signer) {
            queue.add(key);
        }
    }
    // The source lives as long as this does, so there is always a next change to wait for.
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(uid: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.uid = Some(uid.to_owned());
        object
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_known_by_name_only() {
        let waiting: PendingRequests<usize, ConfigMap> = PendingRequests::with_limit(2);
        for key in 0..5 {
            waiting.insert(key, if key % 2 == 0 { "even" } else { "odd" }, object("u"));
        }
        let held = |key| waiting.get(&key).unwrap().object.is_some();
        assert_eq!([0, 1, 2, 3, 4].map(held), [true, true, false, false, false]);
        let mut even = waiting.keys_for_signer("even");
        even.sort_unstable();
        assert_eq!(even, [0, 2, 4]);
        waiting.remove(&0);
        waiting.insert(4, "even", object("u"));
        assert_eq!([1, 2, 3, 4].map(held), [true, false, false, true]);
        waiting.retain(&[2, 3].into());
        assert!(waiting.get(&1).is_none() && waiting.get(&4).is_none());
        waiting.insert(2, "even", object("u"));
        assert_eq!([2, 3].map(held), [true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn another_of_the_same_name_begins_anew() {
        let waiting: PendingRequests<&str, ConfigMap> = PendingRequests::default();
        waiting.insert("a", "s", object("1"));
        let first = waiting.get(&"a").unwrap().since;
        assert!(waiting.record_message(&"a", "why") && !waiting.record_message(&"a", "why"));
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        waiting.insert("a", "s", object("1"));
        assert_eq!(waiting.get(&"a").unwrap().since, first);
        assert!(!waiting.record_message(&"a", "why"), "it was said of the same");
        waiting.insert("a", "s", object("2"));
        assert!(waiting.get(&"a").unwrap().since > first);
        assert!(waiting.record_message(&"a", "why"), "it was said of another");
    }
}
