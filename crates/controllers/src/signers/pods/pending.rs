//! Pods' requests that wait for an answer, as a watch last saw them.
//!
//! What is answered is let go at once, so this holds what is pending and not the archive.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Api;
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use super::decide::Why;
use super::request::{Key, Request};
use crate::feed;
use crate::metrics::POD_SIGNING;
use crate::queue::Queue;

/// The requests that wait.
#[derive(Default)]
pub struct Pending {
    by_key: Mutex<HashMap<Key, Entry>>,
}

struct Entry {
    waiting: Waiting,
    /// What was last said of it: a request that waits has no room for that itself.
    told: Option<Why>,
}

/// A request and since when it is known to wait.
#[derive(Clone)]
pub struct Waiting {
    /// The request.
    pub request: Arc<Request>,
    /// When it was first seen.
    pub since: Instant,
}

impl Pending {
    /// The request at this key, if it waits.
    pub fn get(&self, key: &Key) -> Option<Waiting> {
        self.lock().get(key).map(|entry| entry.waiting.clone())
    }

    /// The keys of those that wait and are such.
    pub fn keys(&self, such: impl Fn(&Request) -> bool) -> Vec<Key> {
        let entries = self.lock();
        let such = entries.iter().filter(|(_, entry)| such(&entry.waiting.request));
        such.map(|(key, _)| key.clone()).collect()
    }

    /// Notes what is said of a request, and whether that is news.
    pub fn tell(&self, key: &Key, why: &Why) -> bool {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(key) else { return true };
        let is_news = entry.told.as_ref() != Some(why);
        entry.told = Some(why.clone());
        is_news
    }

    pub(super) fn keep(&self, key: Key, request: Request) {
        let mut entries = self.lock();
        let before = entries.remove(&key);
        let same = before.filter(|b| b.waiting.request.metadata.uid == request.metadata.uid);
        let (since, told) =
            same.map_or_else(|| (Instant::now(), None), |same| (same.waiting.since, same.told));
        let waiting = Waiting { request: Arc::new(request), since };
        entries.insert(key, Entry { waiting, told });
    }

    fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn retain(&self, keys: &HashSet<Key>) {
        self.lock().retain(|key, _| keys.contains(key));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches requests, keeps those that are wanted, and puts their keys into the queue. Does not end.
pub async fn follow(
    api: Api<Request>,
    fields: Option<&str>,
    pending: &Pending,
    queue: &Queue<Key>,
    wanted: impl Fn(&Request) -> bool,
) {
    let mut listed = HashSet::new();
    let take = |mut request: Request| {
        let key = Key::of(&request);
        if wanted(&request) {
            // Nobody here needs them, and what is not sent back is left as it is.
            request.metadata.managed_fields = None;
            pending.keep(key.clone(), request);
            queue.add(key);
        } else {
            pending.forget(&key);
        }
    };
    let plural = "podcertificaterequests";
    feed::follow_whole(api, plural, fields, &POD_SIGNING, |event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(request) => {
            listed.insert(Key::of(&request));
            take(request);
        }
        Event::InitDone => pending.retain(&std::mem::take(&mut listed)),
        Event::Apply(request) => take(request),
        Event::Delete(request) => pending.forget(&Key::of(&request)),
    })
    .await;
}
