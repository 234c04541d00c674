//! A work queue: every key waits at most once, is worked on by at most one worker at a time, and
//! is put off for longer and longer while work on it fails.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{ControllerCounters, WorkTimer};

/// Keys to be worked on.
#[derive(Debug)]
pub struct WorkQueue<K> {
    state: Mutex<QueueState<K>>,
    wake: Notify,
    backoff: RetryBackoff,
    /// What is counted of it.
    pub counters: &'static ControllerCounters,
}

/// How long a key is put off: `first`, twice that, … up to `most`, each times a number around 1.
#[derive(Clone, Copy, Debug)]
pub struct RetryBackoff {
    /// Delay after the first failure, before jitter.
    pub initial: Duration,
    /// Longest delay after repeated failures, before jitter.
    pub max: Duration,
    /// Random numbers from 0 to 1, so that keys that failed together do not come back together.
    pub random: fn() -> f64,
}

/// How work on a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkResult {
    /// Nothing is left to do.
    Done,
    /// It has to be done again.
    Retry,
}

#[derive(Debug)]
struct QueueState<K> {
    ready: VecDeque<K>,
    /// Since when the keys in `ready` wait.
    waiting: HashMap<K, Instant>,
    /// Keys that are worked on, and whether they came again meanwhile.
    running: HashMap<K, bool>,
    put_off: DelayedKeys<K>,
    failures: HashMap<K, u32>,
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// Creates an empty queue that reports to these counters.
    pub fn new(counters: &'static ControllerCounters, backoff: RetryBackoff) -> WorkQueue<K> {
        let state = QueueState {
            ready: VecDeque::new(),
            waiting: HashMap::new(),
            running: HashMap::new(),
            put_off: DelayedKeys::new(),
            failures: HashMap::new(),
        };
        WorkQueue { state: Mutex::new(state), wake: Notify::new(), backoff, counters }
    }

    /// Puts a key in, unless it is in already. A key that is worked on comes again afterwards.
    pub fn add(&self, key: K) {
        self.lock().add(key, self.counters);
        self.wake.notify_one();
    }

    /// Takes out the next key, when there is one. Hand it back with [`WorkQueue::finish`].
    ///
    /// One caller at a time; dropping the future loses nothing.
    pub async fn next(&self) -> (K, WorkTimer) {
        loop {
            let due = {
                let mut state = self.lock();
                let now = Instant::now();
                state.promote_due(now, self.counters);
                if let Some(key) = state.ready.pop_front() {
                    let since = state.waiting.remove(&key).unwrap_or(now);
                    state.running.insert(key.clone(), false);
                    return (key, self.counters.start_work(now.duration_since(since)));
                }
                state.put_off.next_due()
            };
            match due {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, self.wake.notified()).await;
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// Ends the work on a key. Returns how long it is put off, if it is.
    pub fn finish(&self, key: K, ended: WorkResult) -> Option<Duration> {
        let mut state = self.lock();
        let delay = match ended {
            WorkResult::Done => {
                state.failures.remove(&key);
                None
            }
            WorkResult::Retry => {
                let failures = state.failures.entry(key.clone()).or_insert(0);
                let delay = self.backoff.delay_after(*failures);
                *failures = failures.saturating_add(1);
                state.put_off.insert(key.clone(), Instant::now() + delay);
                self.counters.record_retry();
                Some(delay)
            }
        };
        if state.running.remove(&key) == Some(true) {
            state.add(key, self.counters);
        }
        drop(state);
        self.wake.notify_one();
        delay
    }

    /// Puts the keys back that a pool was working on when it ended.
    pub fn recover(&self) {
        let mut state = self.lock();
        let left: Vec<K> = state.running.drain().map(|(key, _)| key).collect();
        for key in left {
            state.add(key, self.counters);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Drop for WorkQueue<K> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.counters.record_dropped(state.ready.len());
    }
}

impl<K: Clone + Eq + Hash> QueueState<K> {
    fn add(&mut self, key: K, counters: &ControllerCounters) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = true;
        } else if !self.waiting.contains_key(&key) {
            self.put_off.remove(&key);
            self.waiting.insert(key.clone(), Instant::now());
            self.ready.push_back(key);
            counters.record_add();
        }
    }

    fn promote_due(&mut self, now: Instant, counters: &ControllerCounters) {
        while let Some(key) = self.put_off.pop_due(now) {
            self.add(key, counters);
        }
    }
}

impl RetryBackoff {
    /// From `first` to `most`, with the thread's random numbers.
    pub const fn new(initial: Duration, max: Duration) -> RetryBackoff {
        RetryBackoff { initial, max, random: rand::random::<f64> }
    }

    /// How long to wait after that many earlier failures.
    fn delay_after(&self, failures: u32) -> Duration {
        let doubled = self.initial.saturating_mul(2u32.saturating_pow(failures.min(31)));
        doubled.min(self.max).mul_f64(0.75 + 0.5 * (self.random)())
    }
}

/// Keys and when they come back, each once. Keys that come back together do so in the order in which
/// they were put off.
#[derive(Debug)]
struct DelayedKeys<K> {
    by_time: BTreeMap<(Instant, u64), K>,
    by_key: HashMap<K, (Instant, u64)>,
    count: u64,
}

impl<K: Clone + Eq + Hash> DelayedKeys<K> {
    fn new() -> DelayedKeys<K> {
        DelayedKeys { by_time: BTreeMap::new(), by_key: HashMap::new(), count: 0 }
    }

    /// Puts a key off until then, whatever was said of it before.
    fn insert(&mut self, key: K, until: Instant) {
        self.remove(&key);
        self.count = self.count.wrapping_add(1);
        let place = (until, self.count);
        self.by_time.insert(place, key.clone());
        self.by_key.insert(key, place);
    }

    fn remove(&mut self, key: &K) {
        if let Some(place) = self.by_key.remove(key) {
            self.by_time.remove(&place);
        }
    }

    /// When the next key comes back.
    fn next_due(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    fn pop_due(&mut self, now: Instant) -> Option<K> {
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

    static COUNTERS: ControllerCounters = ControllerCounters::new("test");

    fn queue() -> WorkQueue<&'static str> {
        let (first, most) = (Duration::from_millis(10), Duration::from_millis(35));
        WorkQueue::new(&COUNTERS, RetryBackoff { initial: first, max: most, random: || 0.5 })
    }

    fn pop_key(queue: &WorkQueue<&'static str>) -> Option<&'static str> {
        queue.next().now_or_never().map(|(key, _)| key)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once() {
        let queue = queue();
        for key in ["a", "b", "a"] {
            queue.add(key);
        }
        assert_eq!(
            [pop_key(&queue), pop_key(&queue), pop_key(&queue)],
            [Some("a"), Some("b"), None]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_worked_on_comes_again_afterwards() {
        let queue = queue();
        queue.add("a");
        assert_eq!(pop_key(&queue), Some("a"));
        queue.add("a");
        queue.add("a");
        assert_eq!(pop_key(&queue), None);
        queue.finish("a", WorkResult::Done);
        assert_eq!(pop_key(&queue), Some("a"));
        queue.finish("a", WorkResult::Done);
        assert_eq!(pop_key(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_put_a_key_off_for_longer_until_it_is_done() {
        let queue = queue();
        queue.add("a");
        let mut due = 0;
        for delay in [10, 20, 35, 35] {
            let before = Instant::now();
            let (key, _work) = queue.next().await;
            assert_eq!(before.elapsed(), Duration::from_millis(due));
            assert_eq!(queue.finish(key, WorkResult::Retry), Some(Duration::from_millis(delay)));
            due = delay;
        }
        let (key, _work) = queue.next().await;
        assert_eq!(queue.finish(key, WorkResult::Done), None);
        queue.add("a");
        let (key, _work) = queue.next().await;
        assert_eq!(queue.finish(key, WorkResult::Retry), Some(Duration::from_millis(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_put_off_comes_at_once_when_it_is_added() {
        let queue = queue();
        queue.add("a");
        queue.next().await;
        queue.finish("a", WorkResult::Retry);
        queue.add("a");
        assert_eq!(pop_key(&queue), Some("a"));
        // And then does not come a second time for having been put off before.
        queue.finish("a", WorkResult::Done);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pop_key(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_comes_and_fails_often_waits_once() {
        let queue = queue();
        for _ in 0..100 {
            queue.add("a");
            assert_eq!(pop_key(&queue), Some("a"));
            queue.add("a");
            queue.finish("a", WorkResult::Retry);
            assert_eq!(pop_key(&queue), Some("a"));
            queue.finish("a", WorkResult::Retry);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!([pop_key(&queue), pop_key(&queue)], [Some("a"), None]);
        queue.finish("a", WorkResult::Retry);
        assert_eq!(queue.lock().put_off.by_time.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_of_a_pool_that_ended_come_again() {
        let queue = queue();
        queue.add("a");
        assert_eq!(pop_key(&queue), Some("a"));
        queue.recover();
        assert_eq!(pop_key(&queue), Some("a"));
    }

    #[test]
    fn jitter_stays_within_a_quarter() {
        let backoff = |random| {
            let (first, most) = (Duration::from_secs(4), Duration::from_secs(60));
            RetryBackoff { initial: first, max: most, random }.delay_after(1)
        };
        assert_eq!(backoff(|| 0.0), Duration::from_secs(6));
        assert_eq!(backoff(|| 1.0), Duration::from_secs(10));
    }
}
