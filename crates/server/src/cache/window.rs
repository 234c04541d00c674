//! The window of recent changes of one kind, shared by all its watchers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{ObjectChange, RevisionTooOld};

/// Changes in order, dropped from the front by age and size.
#[derive(Debug, Default)]
pub(super) struct ChangeWindow {
    changes: VecDeque<Arc<ObjectChange>>,
    /// Deletions in the window, by key; objects created again are omitted.
    deletions: HashMap<String, u64>,
    bytes: usize,
    /// All changes after this revision are in the window.
    floor: u64,
}

/// Clients that reconnect within this time resume without a relist; Kubernetes keeps about as much.
const KEEP: Duration = Duration::from_secs(5 * 60);
/// Size limit regardless of age: a kind with 1 MiB objects would otherwise hold gigabytes. A
/// watcher this far behind is better off with a relist.
const MAX_BYTES: usize = 32 << 20;
/// Bounds the bookkeeping for floods of tiny objects.
const MAX_CHANGES: usize = 50_000;

impl ChangeWindow {
    /// Clears the window; changes are known after `floor` only.
    pub(super) fn reset(&mut self, floor: u64) {
        *self = ChangeWindow { floor, ..ChangeWindow::default() };
    }

    /// Appends the newest change and drops the oldest beyond the age and size limits.
    pub(super) fn push(&mut self, mut change: ObjectChange) {
        let now = change.seen;
        let key = &change.object.key;
        let deletion = self.deletions.remove(&**key);
        change.before = change.previous.as_ref().map(|previous| previous.revision).or(deletion);
        if change.is_delete() {
            self.deletions.insert(key.to_string(), change.revision);
        }
        self.bytes += weight(&change);
        self.changes.push_back(Arc::new(change));
        while let Some(oldest) = self.changes.front() {
            let aged = now.duration_since(oldest.seen) > KEEP;
            let crowded = self.bytes > MAX_BYTES || self.changes.len() > MAX_CHANGES;
            if self.changes.len() == 1 || !(aged || crowded) {
                break;
            }
            self.floor = oldest.revision;
            self.bytes -= weight(oldest);
            if self.deletions.get(&*oldest.object.key) == Some(&oldest.revision) {
                self.deletions.remove(&*oldest.object.key);
            }
            self.changes.pop_front();
        }
    }

    /// Returns the revision after which all changes are in the window.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the revision at which an object was deleted, if still in the window.
    pub(super) fn deletion_of(&self, key: &str) -> Option<u64> {
        self.deletions.get(key).copied()
    }

    /// Returns the changes of one object after `revision`; the newest is at `newest`.
    pub(super) fn changes_of_key(
        &self,
        key: &str,
        newest: u64,
        revision: u64,
    ) -> Result<Vec<Arc<ObjectChange>>, RevisionTooOld> {
        let mut changes = Vec::new();
        let mut next = newest;
        while next > revision {
            let at = self.changes.binary_search_by_key(&next, |change| change.revision);
            let change = at.ok().and_then(|at| self.changes.get(at));
            let change = change.filter(|change| *change.object.key == *key);
            let change = change.ok_or(RevisionTooOld { floor: self.floor })?;
            next = change.before.unwrap_or(0);
            changes.push(change.clone());
        }
        changes.reverse();
        Ok(changes)
    }

    /// Returns up to `most` changes after `revision`.
    pub(super) fn after(&self, revision: u64, most: usize) -> Result<Vec<Arc<ObjectChange>>, RevisionTooOld> {
        if revision < self.floor {
            return Err(RevisionTooOld { floor: self.floor });
        }
        let from = self.changes.partition_point(|c| c.revision <= revision);
        Ok(self.changes.range(from..).take(most).cloned().collect())
    }
}

fn weight(change: &ObjectChange) -> usize {
    // The object, its encoded line, and the previous state it keeps alive.
    2 * change.object.size() + 256
}
