//! A work queue: every key waits at most once, is worked on by at most one worker at a time, and
//! is put off for longer and longer while work on it fails.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{Counters, Work};

/// Keys to be worked on.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
    backoff: Backoff,
    /// What is counted of it.
    pub counters: &'static Counters,
}

/// How long a key is put off: `first`, twice that, … up to `most`, each times a number around 1.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// After many.
    pub most: Duration,
    /// Random numbers from 0 to 1, so that keys that failed together do not come back together.
    pub random: fn() -> f64,
}

/// How work on a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing is left to do.
    Done,
    /// It has to be done again.
    Again,
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// Since when the keys in `ready` wait.
    waiting: HashMap<K, Instant>,
    /// Keys that are worked on, and whether they came again meanwhile.
    running: HashMap<K, bool>,
    put_off: BinaryHeap<Reverse<PutOff<K>>>,
    failures: HashMap<K, u32>,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// An empty queue.
    pub fn new(counters: &'static Counters, backoff: Backoff) -> Queue<K> {
        let state = State {
            ready: VecDeque::new(),
            waiting: HashMap::new(),
            running: HashMap::new(),
            put_off: BinaryHeap::new(),
            failures: HashMap::new(),
        };
        Queue { state: Mutex::new(state), wake: Notify::new(), backoff, counters }
    }

    /// Puts a key in, unless it is in already. A key that is worked on comes again afterwards.
    pub fn add(&self, key: K) {
        self.lock().add(key, self.counters);
        self.wake.notify_one();
    }

    /// Takes out the next key, when there is one. Hand it back with [`Queue::finish`].
    ///
    /// One caller at a time; dropping the future loses nothing.
    pub async fn next(&self) -> (K, Work) {
        loop {
            let due = {
                let mut state = self.lock();
                let now = Instant::now();
                state.admit_due(now, self.counters);
                if let Some(key) = state.ready.pop_front() {
                    let since = state.waiting.remove(&key).unwrap_or(now);
                    state.running.insert(key.clone(), false);
                    return (key, self.counters.started(now.duration_since(since)));
                }
                state.put_off.peek().map(|Reverse(next)| next.at)
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
    pub fn finish(&self, key: K, ended: Ended) -> Option<Duration> {
        let mut state = self.lock();
        let delay = match ended {
            Ended::Done => {
                state.failures.remove(&key);
                None
            }
            Ended::Again => {
                let failures = state.failures.entry(key.clone()).or_insert(0);
                let delay = self.backoff.after(*failures);
                *failures = failures.saturating_add(1);
                state
                    .put_off
                    .push(Reverse(PutOff { at: Instant::now() + delay, key: key.clone() }));
                self.counters.retried();
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

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Drop for Queue<K> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.counters.dropped(state.ready.len());
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn add(&mut self, key: K, counters: &Counters) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = true;
        } else if !self.waiting.contains_key(&key) {
            self.waiting.insert(key.clone(), Instant::now());
            self.ready.push_back(key);
            counters.added();
        }
    }

    fn admit_due(&mut self, now: Instant, counters: &Counters) {
        while self.put_off.peek().is_some_and(|Reverse(next)| next.at <= now) {
            if let Some(Reverse(next)) = self.put_off.pop() {
                self.add(next.key, counters);
            }
        }
    }
}

impl Backoff {
    /// From `first` to `most`, with the thread's random numbers.
    pub const fn new(first: Duration, most: Duration) -> Backoff {
        Backoff { first, most, random: rand::random::<f64> }
    }

    /// How long to wait after that many earlier failures.
    fn after(&self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(2u32.saturating_pow(failures.min(31)));
        doubled.min(self.most).mul_f64(0.75 + 0.5 * (self.random)())
    }
}

/// A key and when it comes back; ordered by the time alone.
#[derive(Debug)]
struct PutOff<K> {
    at: Instant,
    key: K,
}

impl<K> PartialEq for PutOff<K> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<K> Eq for PutOff<K> {}

impl<K> PartialOrd for PutOff<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for PutOff<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    static COUNTERS: Counters = Counters::new("test");

    fn queue() -> Queue<&'static str> {
        let (first, most) = (Duration::from_millis(10), Duration::from_millis(35));
        Queue::new(&COUNTERS, Backoff { first, most, random: || 0.5 })
    }

    fn take(queue: &Queue<&'static str>) -> Option<&'static str> {
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
    async fn a_key_that_is_worked_on_comes_again_afterwards() {
        let queue = queue();
        queue.add("a");
        assert_eq!(take(&queue), Some("a"));
        queue.add("a");
        queue.add("a");
        assert_eq!(take(&queue), None);
        queue.finish("a", Ended::Done);
        assert_eq!(take(&queue), Some("a"));
        queue.finish("a", Ended::Done);
        assert_eq!(take(&queue), None);
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
            assert_eq!(queue.finish(key, Ended::Again), Some(Duration::from_millis(delay)));
            due = delay;
        }
        let (key, _work) = queue.next().await;
        assert_eq!(queue.finish(key, Ended::Done), None);
        queue.add("a");
        let (key, _work) = queue.next().await;
        assert_eq!(queue.finish(key, Ended::Again), Some(Duration::from_millis(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_put_off_comes_at_once_when_it_is_added() {
        let queue = queue();
        queue.add("a");
        queue.next().await;
        queue.finish("a", Ended::Again);
        queue.add("a");
        assert_eq!(take(&queue), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_of_a_pool_that_ended_come_again() {
        let queue = queue();
        queue.add("a");
        assert_eq!(take(&queue), Some("a"));
        queue.recover();
        assert_eq!(take(&queue), Some("a"));
    }

    #[test]
    fn jitter_stays_within_a_quarter() {
        let backoff = |random| {
            let (first, most) = (Duration::from_secs(4), Duration::from_secs(60));
            Backoff { first, most, random }.after(1)
        };
        assert_eq!(backoff(|| 0.0), Duration::from_secs(6));
        assert_eq!(backoff(|| 1.0), Duration::from_secs(10));
    }
}
