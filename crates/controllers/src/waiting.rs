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

use crate::feed;
use crate::metrics::Counters;
use crate::queue::Queue;

/// As many are held as a whole. A request takes about 5 KiB.
const WHOLE: usize = 4096;

/// Objects that wait.
pub struct Waiting<K, O> {
    room: Mutex<Room<K, O>>,
    most: usize,
}

struct Room<K, O> {
    entries: HashMap<K, Entry<O>>,
    /// How many of them are there as a whole.
    whole: usize,
}

struct Entry<O> {
    object: Option<Arc<O>>,
    uid: Option<String>,
    signer: String,
    since: Instant,
    /// What was last said of it.
    told: Option<String>,
}

/// An object, if it is held, and since when it is known to wait.
pub struct Found<O> {
    /// The object.
    pub object: Option<Arc<O>>,
    /// When it was first seen waiting.
    pub since: Instant,
}

impl<K, O> Default for Waiting<K, O> {
    fn default() -> Waiting<K, O> {
        Waiting::holding(WHOLE)
    }
}

impl<K, O> Waiting<K, O> {
    fn holding(most: usize) -> Waiting<K, O> {
        Waiting { room: Mutex::new(Room { entries: HashMap::new(), whole: 0 }), most }
    }

    fn lock(&self) -> MutexGuard<'_, Room<K, O>> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash, O: Resource> Waiting<K, O> {
    /// What is known of this one, if it waits.
    pub fn get(&self, key: &K) -> Option<Found<O>> {
        let room = self.lock();
        let entry = room.entries.get(key)?;
        Some(Found { object: entry.object.clone(), since: entry.since })
    }

    /// The keys of those that wait for a signer.
    pub fn for_signer(&self, signer: &str) -> Vec<K> {
        let room = self.lock();
        let meant = room.entries.iter().filter(|(_, entry)| entry.signer == signer);
        meant.map(|(key, _)| key.clone()).collect()
    }

    /// Notes what is said of one, and whether that is news.
    pub fn tell(&self, key: &K, what: &str) -> bool {
        let mut room = self.lock();
        let Some(entry) = room.entries.get_mut(key) else { return true };
        let is_news = entry.told.as_deref() != Some(what);
        entry.told = Some(what.to_owned());
        is_news
    }

    /// Takes one in.
    pub fn keep(&self, key: K, signer: &str, mut object: O) {
        let mut room = self.lock();
        let before = room.remove(&key);
        let uid = object.meta().uid.clone();
        let same = before.filter(|before| before.uid == uid);
        let (since, told) =
            same.map_or_else(|| (Instant::now(), None), |same| (same.since, same.told));
        // Nobody here needs them, and what is not sent back is left as it is.
        object.meta_mut().managed_fields = None;
        let object = (room.whole < self.most).then(|| Arc::new(object));
        room.whole += usize::from(object.is_some());
        let entry = Entry { object, uid, signer: signer.to_owned(), since, told };
        room.entries.insert(key, entry);
    }

    /// Lets one go.
    pub fn forget(&self, key: &K) {
        self.lock().remove(key);
    }

    fn retain(&self, keys: &HashSet<K>) {
        let mut room = self.lock();
        room.entries.retain(|key, _| keys.contains(key));
        room.whole = room.entries.values().filter(|entry| entry.object.is_some()).count();
    }
}

impl<K: Eq + Hash, O> Room<K, O> {
    fn remove(&mut self, key: &K) -> Option<Entry<O>> {
        let entry = self.entries.remove(key)?;
        self.whole -= usize::from(entry.object.is_some());
        Some(entry)
    }
}

/// What a watch of requests is about.
pub struct Watched<'a, O> {
    /// What to watch.
    pub api: Api<O>,
    /// What it is called.
    pub plural: &'a str,
    /// A field selector.
    pub fields: Option<&'a str>,
    /// What counts its failures.
    pub counters: &'static Counters,
}

/// Watches requests, keeps those that wait for one of ours as `signer` tells, and puts their keys
/// into the queue. Does not end.
pub async fn follow<K, O>(
    watched: Watched<'_, O>,
    waiting: &Waiting<K, O>,
    queue: &Queue<K>,
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
                waiting.keep(key.clone(), &signer, object);
                queue.add(key);
            }
            None => waiting.forget(&key),
        }
    };
    let Watched { api, plural, fields, counters } = watched;
    feed::follow_whole(api, plural, fields, counters, |event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.insert(key(&object));
            take(object);
        }
        Event::InitDone => waiting.retain(&std::mem::take(&mut listed)),
        Event::Apply(object) => take(object),
        Event::Delete(object) => waiting.forget(&key(&object)),
    })
    .await;
}

/// Looks at what waits for a signer when the CA that it signs with changes, however long it was put
/// off. Does not end.
pub async fn wake<K, O>(
    waiting: &Waiting<K, O>,
    signer: &str,
    mut changes: watch::Receiver<u64>,
    queue: &Queue<K>,
) where
    K: Clone + Eq + Hash + std::fmt::Display,
    O: Resource,
{
    while changes.changed().await.is_ok() {
        for key in waiting.for_signer(signer) {
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
        let waiting: Waiting<usize, ConfigMap> = Waiting::holding(2);
        for key in 0..5 {
            waiting.keep(key, if key % 2 == 0 { "even" } else { "odd" }, object("u"));
        }
        let held = |key| waiting.get(&key).unwrap().object.is_some();
        assert_eq!([0, 1, 2, 3, 4].map(held), [true, true, false, false, false]);
        let mut even = waiting.for_signer("even");
        even.sort_unstable();
        assert_eq!(even, [0, 2, 4]);
        waiting.forget(&0);
        waiting.keep(4, "even", object("u"));
        assert_eq!([1, 2, 3, 4].map(held), [true, false, false, true]);
        waiting.retain(&[2, 3].into());
        assert!(waiting.get(&1).is_none() && waiting.get(&4).is_none());
        waiting.keep(2, "even", object("u"));
        assert_eq!([2, 3].map(held), [true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn another_of_the_same_name_begins_anew() {
        let waiting: Waiting<&str, ConfigMap> = Waiting::default();
        waiting.keep("a", "s", object("1"));
        let first = waiting.get(&"a").unwrap().since;
        assert!(waiting.tell(&"a", "why") && !waiting.tell(&"a", "why"));
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        waiting.keep("a", "s", object("1"));
        assert_eq!(waiting.get(&"a").unwrap().since, first);
        assert!(!waiting.tell(&"a", "why"), "it was said of the same");
        waiting.keep("a", "s", object("2"));
        assert!(waiting.get(&"a").unwrap().since > first);
        assert!(waiting.tell(&"a", "why"), "it was said of another");
    }
}
