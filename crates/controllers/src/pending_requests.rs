//! Requests that wait for an approver or a signer, as a watch last saw them.
//!
//! Requests that are answered are dropped at once, so memory is used for pending ones only. Of a flood of requests
//! only the first are held whole; of the others only the keys, and these are read from the API when they are processed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::convert::Infallible;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::runtime::watcher::Config;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_runtime::watch::{ListTracker, TrackedEvent, watch_objects};
use windlass_runtime::work_queue::WorkQueue;

/// Number of requests that are held whole. A request takes about 5 KiB.
const MAX_WHOLE: usize = 4096;

/// Requests that wait for a signer or approver; only a limited number is held whole.
pub struct PendingRequests<K, O> {
    state: Mutex<PendingState<K, O>>,
    max_whole: usize,
}

struct PendingState<K, O> {
    entries: HashMap<K, PendingEntry<O>>,
    /// Number of entries that hold their object.
    whole: usize,
    /// Positions of the entries of each signer, in the order in which they became pending.
    positions: HashMap<String, BTreeSet<u64>>,
    next_position: u64,
}

struct PendingEntry<O> {
    object: Option<Arc<O>>,
    uid: Option<String>,
    signer: String,
    position: u64,
    since: Instant,
    /// Last message that was reported about the request.
    last_message: Option<String>,
}

/// A pending request as far as it is cached.
pub struct PendingObject<O> {
    /// The request; `None` if it exceeds the limit and must be read from the API.
    pub object: Option<Arc<O>>,
    /// When this process first saw it pending.
    pub since: Instant,
}

impl<K, O> Default for PendingRequests<K, O> {
    fn default() -> PendingRequests<K, O> {
        PendingRequests::with_limit(MAX_WHOLE)
    }
}

impl<K, O> PendingRequests<K, O> {
    fn with_limit(max_whole: usize) -> PendingRequests<K, O> {
        let state =
            PendingState { entries: HashMap::new(), whole: 0, positions: HashMap::new(), next_position: 0 };
        PendingRequests { state: Mutex::new(state), max_whole }
    }

    /// Counts the requests that wait for a signer.
    pub fn count_for_signer(&self, signer: &str) -> usize {
        self.lock().positions.get(signer).map_or(0, BTreeSet::len)
    }

    fn lock(&self) -> MutexGuard<'_, PendingState<K, O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash, O: Resource> PendingRequests<K, O> {
    /// Returns a request if it is pending.
    pub fn get(&self, key: &K) -> Option<PendingObject<O>> {
        let state = self.lock();
        let entry = state.entries.get(key)?;
        Some(PendingObject { object: entry.object.clone(), since: entry.since })
    }

    /// Lists the keys of the requests that wait for a signer.
    pub fn keys_for_signer(&self, signer: &str) -> Vec<K> {
        let state = self.lock();
        let matching = state.entries.iter().filter(|(_, entry)| entry.signer == signer);
        matching.map(|(key, _)| key.clone()).collect()
    }

    /// Whether fewer than `limit` requests wait for the same signer for longer than this one.
    pub fn is_within(&self, key: &K, limit: u32) -> bool {
        let state = self.lock();
        let Some(entry) = state.entries.get(key) else { return true };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let positions = state.positions.get(&entry.signer);
        positions.is_none_or(|positions| positions.range(..entry.position).take(limit).count() < limit)
    }

    /// Records a message about a request; returns whether it differs from the last one.
    pub fn record_message(&self, key: &K, message: &str) -> bool {
        let mut state = self.lock();
        let Some(entry) = state.entries.get_mut(key) else { return true };
        let is_new = entry.last_message.as_deref() != Some(message);
        entry.last_message = Some(message.to_owned());
        is_new
    }

    /// Adds or updates a pending request, without its managed fields.
    pub fn insert(&self, key: K, signer: &str, mut object: O) {
        let mut state = self.lock();
        let before = state.remove_entry(&key);
        let uid = object.meta().uid.clone();
        let same = before.filter(|before| before.uid == uid);
        let position = same.as_ref().map_or(state.next_position, |same| same.position);
        state.next_position = state.next_position.max(position + 1);
        state.positions.entry(signer.to_owned()).or_default().insert(position);
        let (since, last_message) =
            same.map_or_else(|| (Instant::now(), None), |same| (same.since, same.last_message));
        // They are not needed, and a write without them leaves them as they are.
        object.meta_mut().managed_fields = None;
        let object = (state.whole < self.max_whole).then(|| Arc::new(object));
        state.whole += usize::from(object.is_some());
        let entry = PendingEntry { object, uid, signer: signer.to_owned(), position, since, last_message };
        state.entries.insert(key, entry);
    }

    /// Removes a request that is not pending any more.
    pub fn remove(&self, key: &K) {
        self.lock().remove_entry(key);
    }

    fn retain(&self, keys: &HashSet<K>) {
        let mut state = self.lock();
        let gone: Vec<K> = state.entries.keys().filter(|key| !keys.contains(*key)).cloned().collect();
        for key in gone {
            state.remove_entry(&key);
        }
    }
}

impl<K: Eq + Hash, O> PendingState<K, O> {
    fn remove_entry(&mut self, key: &K) -> Option<PendingEntry<O>> {
        let entry = self.entries.remove(key)?;
        self.whole -= usize::from(entry.object.is_some());
        if let Some(positions) = self.positions.get_mut(&entry.signer) {
            positions.remove(&entry.position);
            if positions.is_empty() {
                self.positions.remove(&entry.signer);
            }
        }
        Some(entry)
    }
}

pub struct RequestWatch<'a, O> {
    /// API whose objects are watched.
    pub api: Api<O>,
    /// Plural resource name, for log messages.
    pub plural: &'a str,
    /// Field selector that restricts the watch; `None` watches all objects.
    pub fields: Option<&'a str>,
}

/// Watches requests, keeps those for which `signer` returns a name, and adds their keys to the queue.
pub async fn watch_requests<K, O>(
    watch: RequestWatch<'_, O>,
    pending: &PendingRequests<K, O>,
    queue: &WorkQueue<K>,
    key: impl Fn(&O) -> K,
    signer: impl Fn(&O) -> Option<String>,
) -> Infallible
where
    K: Clone + Eq + Hash + std::fmt::Display,
    O: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let RequestWatch { api, plural, fields } = watch;
    let config = Config { field_selector: fields.map(str::to_owned), ..Config::default() };
    let mut tracker = ListTracker::default();
    watch_objects(api, plural, config, queue.metrics(), |event| {
        let Some(event) = event.ok().and_then(|event| tracker.track(event, &key)) else { return };
        match event {
            TrackedEvent::Applied(key, object) => match signer(&object) {
                Some(signer) => {
                    pending.insert(key.clone(), &signer, object);
                    queue.add(key);
                }
                None => pending.remove(&key),
            },
            TrackedEvent::Deleted(key, _) => pending.remove(&key),
            TrackedEvent::Listed(keys) => pending.retain(&keys),
        }
    })
    .await
}

/// Requeues the requests of a signer when its CA changes, whatever their backoff is.
pub async fn requeue_on_ca_change<K, O>(
    pending: &PendingRequests<K, O>,
    signer: &str,
    mut changes: watch::Receiver<u64>,
    queue: &WorkQueue<K>,
) -> Infallible
where
    K: Clone + Eq + Hash + std::fmt::Display,
    O: Resource,
{
    while changes.changed().await.is_ok() {
        for key in pending.keys_for_signer(signer) {
            queue.add(key);
        }
    }
    // Unreachable: the caller holds the sender.
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
    async fn older_requests_of_the_same_signer_come_first() {
        let waiting: PendingRequests<usize, ConfigMap> = PendingRequests::default();
        for key in 0..6 {
            waiting.insert(key, if key % 2 == 0 { "even" } else { "odd" }, object("u"));
        }
        let within = |key| waiting.is_within(&key, 2);
        assert_eq!([0, 2, 4, 1, 3, 5].map(within), [true, true, false, true, true, false]);
        // An update does not put a request at the end.
        waiting.insert(0, "even", object("u"));
        assert!(within(0) && !within(4));
        assert_eq!(waiting.count_for_signer("even"), 3);
        waiting.remove(&2);
        assert!(within(4) && !within(5));
        waiting.retain(&[5].into());
        assert!(within(5));
        assert_eq!([waiting.count_for_signer("even"), waiting.count_for_signer("odd")], [0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_object_of_the_same_name_resets_the_entry() {
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
