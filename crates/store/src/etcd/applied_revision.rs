//! The revision that the feed has applied, and waiters for later revisions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::Revision;

/// A revision that only grows. Each waiter is woken once, when its revision is reached: with many
/// pending commits, waking all waiters at every change would cost more than the changes.
pub(super) struct AppliedRevision {
    reached: AtomicU64,
    waiting: Mutex<WaiterQueue>,
}

#[derive(Default)]
struct WaiterQueue {
    /// Distinguishes waiters for the same revision.
    number: u64,
    by_target: BTreeMap<(Revision, u64), oneshot::Sender<()>>,
}

impl AppliedRevision {
    pub(super) fn new(at: Revision) -> Self {
        Self { reached: AtomicU64::new(at), waiting: Mutex::default() }
    }

    pub(super) fn get(&self) -> Revision {
        self.reached.load(Ordering::Acquire)
    }

    /// Advances the revision and wakes its waiters. Never moves back.
    pub(super) fn advance(&self, to: Revision) {
        let due = {
            // Within the lock, so that no waiter checks before it and registers after it.
            let mut waiting = self.lock();
            if self.reached.fetch_max(to, Ordering::AcqRel) >= to || waiting.by_target.is_empty() {
                return;
            }
            let later = waiting.by_target.split_off(&(to.saturating_add(1), 0));
            std::mem::replace(&mut waiting.by_target, later)
        };
        for waiter in due.into_values() {
            let _ = waiter.send(());
        }
    }

    /// Waits until a revision is reached. Cancellation-safe.
    pub(super) async fn wait(&self, target: Revision) {
        if self.get() >= target {
            return;
        }
        let (waiter, woken) = oneshot::channel();
        let place = {
            let mut waiting = self.lock();
            if self.get() >= target {
                return;
            }
            waiting.number += 1;
            let key = (target, waiting.number);
            waiting.by_target.insert(key, waiter);
            WaiterGuard { position: self, key }
        };
        let _ = woken.await;
        drop(place);
    }

    fn lock(&self) -> MutexGuard<'_, WaiterQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered waiter, removed on drop.
struct WaiterGuard<'a> {
    position: &'a AppliedRevision,
    key: (Revision, u64),
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        if self.position.get() < self.key.0 {
            self.position.lock().by_target.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn waiters_wake_when_the_revision_is_reached() {
        let position = Arc::new(AppliedRevision::new(5));
        position.wait(5).await;
        let tasks: Vec<_> = (6..=8)
            .map(|target| {
                let position = position.clone();
                tokio::spawn(async move {
                    position.wait(target).await;
                    position.get()
                })
            })
            .collect();
        while position.lock().by_target.len() < 3 {
            tokio::task::yield_now().await;
        }
        position.advance(7);
        assert_eq!(position.lock().by_target.len(), 1);
        position.advance(6);
        assert_eq!(position.get(), 7);
        position.advance(9);
        for task in tasks {
            assert!(task.await.unwrap() >= 7);
        }
    }

    #[tokio::test]
    async fn dropped_waiters_are_removed() {
        let position = AppliedRevision::new(1);
        assert!(tokio::time::timeout(Duration::from_millis(1), position.wait(2)).await.is_err());
        assert!(position.lock().by_target.is_empty());
    }
}
