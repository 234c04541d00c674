//! Deletion times, one entry for each object.
//!
//! Ages are measured by the wall clock, which may jump. The age of an object that was seen when it was young grows only
//! by the time that has really passed since, so that a jump forward does not expire new objects.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use kube::api::{ObjectMeta, Preconditions};
use time::OffsetDateTime;
use tokio::time::Instant;

/// Interval after which a corrected clock is noticed.
const LOOK: Duration = Duration::from_secs(3600);

/// Objects by key, with the time at which each is due.
pub struct DeadlineQueue<K> {
    entries: HashMap<K, DeadlineEntry>,
    by_moment: BTreeSet<(Instant, K)>,
}

struct DeadlineEntry {
    uid: Option<String>,
    version: Option<String>,
    deadline: OffsetDateTime,
    /// Time at which the object was first seen, by the wall clock and by the monotonic clock.
    seen: (OffsetDateTime, Instant),
    moment: Instant,
}

impl<K: Clone + Ord + Hash> DeadlineQueue<K> {
    /// Creates a queue without any entries.
    pub fn new() -> DeadlineQueue<K> {
        DeadlineQueue { entries: HashMap::new(), by_moment: BTreeSet::new() }
    }

    /// Adds or updates an object that is due at `deadline`.
    pub fn insert(&mut self, key: K, object: &ObjectMeta, deadline: OffsetDateTime, now: OffsetDateTime) {
        let before = self.remove(&key).filter(|before| before.uid == object.uid);
        let seen = before.map_or_else(|| (now, Instant::now()), |before| before.seen);
        let entry = DeadlineEntry {
            uid: object.uid.clone(),
            version: object.resource_version.clone(),
            deadline,
            seen,
            moment: Instant::now(),
        };
        self.schedule(key, entry, now);
    }

    /// Removes an object that is gone or must not be deleted.
    pub fn remove_key(&mut self, key: &K) {
        self.remove(key);
    }

    /// Removes all entries whose keys are not in `keys`.
    pub fn retain(&mut self, keys: &HashSet<K>) {
        self.entries.retain(|key, _| keys.contains(key));
        self.by_moment.retain(|(_, key)| keys.contains(key));
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.by_moment.first().map(|(moment, _)| *moment)
    }

    /// Takes the keys that are due and postpones those that only seemed due. The caller retries each key until the
    /// object is deleted or has changed.
    pub fn pop_due(&mut self, now: OffsetDateTime) -> Vec<K> {
        let moment = Instant::now();
        let mut due = Vec::new();
        while self.next_due().is_some_and(|next| next <= moment) {
            let Some((_, key)) = self.by_moment.pop_first() else { break };
            let Some(entry) = self.entries.remove(&key) else { continue };
            if entry.deadline <= entry.effective_now(now) {
                self.entries.insert(key.clone(), entry);
                due.push(key);
            } else {
                self.schedule(key, entry, now);
            }
        }
        due
    }

    /// Returns the preconditions of the delete; `None` if the object is not due.
    pub fn preconditions(&self, key: &K, now: OffsetDateTime) -> Option<Preconditions> {
        let entry = self.entries.get(key).filter(|entry| entry.deadline <= entry.effective_now(now))?;
        let (uid, resource_version) = (entry.uid.clone(), entry.version.clone());
        Some(Preconditions { uid, resource_version })
    }

    fn schedule(&mut self, key: K, mut entry: DeadlineEntry, now: OffsetDateTime) {
        let left = entry.deadline - entry.effective_now(now);
        let pause = Duration::try_from(left).unwrap_or_default().min(LOOK);
        entry.moment = Instant::now() + pause;
        self.by_moment.insert((entry.moment, key.clone()));
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: &K) -> Option<DeadlineEntry> {
        let entry = self.entries.remove(key)?;
        self.by_moment.remove(&(entry.moment, key.clone()));
        Some(entry)
    }
}

impl DeadlineEntry {
    /// Returns the time that applies to an object: by the wall clock, limited to the time that has really passed.
    fn effective_now(&self, now: OffsetDateTime) -> OffsetDateTime {
        let (wall, moment) = self.seen;
        let passed = time::Duration::try_from(moment.elapsed()).unwrap_or(time::Duration::MAX);
        now.min(wall.saturating_add(passed))
    }
}

#[cfg(test)]
mod tests;
