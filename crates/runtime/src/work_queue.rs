//! Work queue of reconcile keys: each key waits at most once, is processed by at most one worker at
//! a time, and is delayed with exponential backoff while its processing fails.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::metrics::{ControllerMetrics, WorkTimer};

/// Keys that wait to be reconciled, or to be retried.
#[derive(Debug)]
pub struct WorkQueue<K> {
    state: Mutex<QueueState<K>>,
    wake: Notify,
    backoff: Backoff,
    random: fn() -> f64,
    metrics: Arc<ControllerMetrics>,
}

/// Result of processing a key, as the queue needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// Nothing is left to do; earlier failures of the key are forgotten.
    Done,
    /// The key is processed again after its backoff.
    Retry,
}

#[derive(Debug)]
struct QueueState<K> {
    ready: VecDeque<K>,
    /// Keys in `ready`, with the time at which they became ready.
    ready_since: HashMap<K, Instant>,
    /// Keys being processed, and whether they were added again meanwhile.
    running: HashMap<K, bool>,
    delayed: DelayedKeys<K>,
    failures: HashMap<K, u32>,
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// Creates an empty queue that is measured under the name of `metrics`.
    pub fn new(metrics: Arc<ControllerMetrics>, backoff: Backoff) -> Self {
        Self::with_random(metrics, backoff, rand::random::<f64>)
    }

    /// Creates an empty queue with a given source of jitter from 0 to 1.
    pub fn with_random(metrics: Arc<ControllerMetrics>, backoff: Backoff, random: fn() -> f64) -> Self {
        let state = QueueState {
            ready: VecDeque::new(),
            ready_since: HashMap::new(),
            running: HashMap::new(),
            delayed: DelayedKeys::new(),
            failures: HashMap::new(),
        };
        Self { state: Mutex::new(state), wake: Notify::new(), backoff, random, metrics }
    }

    /// Metrics of the controller whose queue this is.
    pub fn metrics(&self) -> &Arc<ControllerMetrics> {
        &self.metrics
    }

    /// Adds a key unless it waits already. A key that is being processed is processed again afterwards;
    /// a delayed key becomes ready at once.
    pub fn add(&self, key: K) {
        self.lock().add(key, &self.metrics);
        self.wake.notify_one();
    }

    /// Waits for the next key and removes it. Return it with [`WorkQueue::finish`].
    ///
    /// Only one caller at a time may wait. The future can be dropped without losing a key.
    pub async fn next(&self) -> (K, WorkTimer) {
        loop {
            let due = {
                let mut state = self.lock();
                let now = Instant::now();
                state.admit_due(now, &self.metrics);
                if let Some(key) = state.ready.pop_front() {
                    let since = state.ready_since.remove(&key).unwrap_or(now);
                    state.running.insert(key.clone(), false);
                    return (key, self.metrics.start_work(now.duration_since(since)));
                }
                state.delayed.next_due()
            };
            match due {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, self.wake.notified()).await;
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// Ends the processing of a key. Returns the backoff if the key is retried.
    pub fn finish(&self, key: K, outcome: WorkOutcome) -> Option<Duration> {
        let mut state = self.lock();
        let delay = match outcome {
            WorkOutcome::Done => {
                state.failures.remove(&key);
                None
            }
            WorkOutcome::Retry => {
                let failures = state.failures.entry(key.clone()).or_insert(0);
                let delay = self.backoff.delay(*failures, (self.random)());
                *failures = failures.saturating_add(1);
                state.delayed.insert(key.clone(), Instant::now() + delay);
                self.metrics.count_retry();
                Some(delay)
            }
        };
        if state.running.remove(&key) == Some(true) {
            state.add(key, &self.metrics);
        }
        drop(state);
        self.wake.notify_one();
        delay
    }

    /// Adds the keys again that were being processed when the workers were dropped.
    pub fn requeue_unfinished(&self) {
        let mut state = self.lock();
        let unfinished: Vec<K> = state.running.drain().map(|(key, _)| key).collect();
        for key in unfinished {
            state.add(key, &self.metrics);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Drop for WorkQueue<K> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.metrics.count_dropped(state.ready.len());
    }
}

impl<K: Clone + Eq + Hash> QueueState<K> {
    fn add(&mut self, key: K, metrics: &ControllerMetrics) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = true;
        } else if !self.ready_since.contains_key(&key) {
            self.delayed.remove(&key);
            self.ready_since.insert(key.clone(), Instant::now());
            self.ready.push_back(key);
            metrics.count_add();
        }
    }

    fn admit_due(&mut self, now: Instant, metrics: &ControllerMetrics) {
        while let Some(key) = self.delayed.take_due(now) {
            self.add(key, metrics);
        }
    }
}

/// Keys with the time at which each is due. Keys that are due together keep the order in which they were delayed.
#[derive(Debug)]
struct DelayedKeys<K> {
    by_time: BTreeMap<(Instant, u64), K>,
    by_key: HashMap<K, (Instant, u64)>,
    count: u64,
}

impl<K: Clone + Eq + Hash> DelayedKeys<K> {
    fn new() -> Self {
        Self { by_time: BTreeMap::new(), by_key: HashMap::new(), count: 0 }
    }

    /// Delays a key until `due`, replacing any earlier delay.
    fn insert(&mut self, key: K, due: Instant) {
        self.remove(&key);
        self.count = self.count.wrapping_add(1);
        let position = (due, self.count);
        self.by_time.insert(position, key.clone());
        self.by_key.insert(key, position);
    }

    fn remove(&mut self, key: &K) {
        if let Some(position) = self.by_key.remove(key) {
            self.by_time.remove(&position);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((due, _), _)| *due)
    }

    fn take_due(&mut self, now: Instant) -> Option<K> {
        let next = self.by_time.first_entry().filter(|next| next.key().0 <= now)?;
        let key = next.remove();
        self.by_key.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn queue() -> WorkQueue<&'static str> {
        let backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(35));
        WorkQueue::with_random(ControllerMetrics::unregistered("test"), backoff, || 0.5)
    }

    fn take(queue: &WorkQueue<&'static str>) -> Option<&'static str> {
        queue.next().now_or_never().map(|(key, _)| key)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once() {
        let queue = queue();
        for key in ["a", "b", "a"] {
            queue.add(key);
        }
        assert_eq!([take(&queue), take(&queue), take(&queue)], [Some("a"), Some("b"), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_it_is_processed_is_processed_again() {
        let queue = queue();
        queue.add("a");
        assert_eq!(take(&queue), Some("a"));
        queue.add("a");
        queue.add("a");
        assert_eq!(take(&queue), None);
        queue.finish("a", WorkOutcome::Done);
        assert_eq!(take(&queue), Some("a"));
        queue.finish("a", WorkOutcome::Done);
        assert_eq!(take(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_increase_the_delay_until_a_success() {
        let queue = queue();
        queue.add("a");
        let mut due = 0;
        for delay in [10, 20, 35, 35] {
            let before = Instant::now();
            let (key, _timer) = queue.next().await;
            assert_eq!(before.elapsed(), Duration::from_millis(due));
            assert_eq!(queue.finish(key, WorkOutcome::Retry), Some(Duration::from_millis(delay)));
            due = delay;
        }
        let (key, _timer) = queue.next().await;
        assert_eq!(queue.finish(key, WorkOutcome::Done), None);
        queue.add("a");
        let (key, _timer) = queue.next().await;
        assert_eq!(queue.finish(key, WorkOutcome::Retry), Some(Duration::from_millis(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn adding_a_delayed_key_makes_it_ready_at_once() {
        let queue = queue();
        queue.add("a");
        queue.next().await;
        queue.finish("a", WorkOutcome::Retry);
        queue.add("a");
        assert_eq!(take(&queue), Some("a"));
        // The earlier delay must not bring the key a second time.
        queue.finish("a", WorkOutcome::Done);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(take(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_and_fails_often_waits_once() {
        let queue = queue();
        for _ in 0..100 {
            queue.add("a");
            assert_eq!(take(&queue), Some("a"));
            queue.add("a");
            queue.finish("a", WorkOutcome::Retry);
            assert_eq!(take(&queue), Some("a"));
            queue.finish("a", WorkOutcome::Retry);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!([take(&queue), take(&queue)], [Some("a"), None]);
        queue.finish("a", WorkOutcome::Retry);
        assert_eq!(queue.lock().delayed.by_time.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_keys_of_dropped_workers_are_processed_again() {
        let queue = queue();
        queue.add("a");
        assert_eq!(take(&queue), Some("a"));
        queue.requeue_unfinished();
        assert_eq!(take(&queue), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_queue_leaves_no_depth_behind() {
        let metrics = ControllerMetrics::unregistered("test");
        let queue = WorkQueue::new(metrics.clone(), Backoff::constant(Duration::ZERO));
        for key in ["a", "b", "c"] {
            queue.add(key);
        }
        let (_key, _timer) = queue.next().await;
        assert_eq!(metrics.depth(), 2);
        drop(queue);
        assert_eq!(metrics.depth(), 0);
    }
}
