//! The workers of a queue: they reconcile its keys, a few at a time, and outlive panics.

use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::Instant;
use windlass_client_error::describe;

use crate::failure_log::FailureLog;
use crate::work_queue::{WorkQueue, WorkResult};

/// What is left of a key after it was reconciled.
#[derive(Debug)]
pub enum ReconcileOutcome {
    /// The key needs no further work until it is added again.
    Done,
    /// Something has to happen first, said in words; it is looked at again.
    Requeue(String),
}

/// Reconciles the queue's keys, `workers` at a time, until it is dropped.
pub async fn run<K, F, R>(queue: Arc<WorkQueue<K>>, workers: usize, reconcile: F)
where
    K: Clone + Eq + Hash + Display + Send + 'static,
    F: Fn(K) -> R,
    R: Future<Output = anyhow::Result<ReconcileOutcome>> + Send + 'static,
{
    queue.recover();
    let mut running = JoinSet::new();
    let failures: FailureLogs<K> = Arc::default();
    loop {
        tokio::select! {
            (key, work) = queue.next(), if running.len() < workers => {
                let (queue, reconciled) = (queue.clone(), reconcile(key.clone()));
                let failures = failures.clone();
                running.spawn(async move {
                    let ended = AssertUnwindSafe(reconciled).catch_unwind().await;
                    drop(work);
                    finish(&queue, &failures, key, ended);
                });
            }
            // `None` would mean that nothing runs, which the guard rules out.
            _ = running.join_next(), if !running.is_empty() => {}
        }
    }
}

type ReconcileAttempt = Result<anyhow::Result<ReconcileOutcome>, Box<dyn std::any::Any + Send>>;

/// What was logged about the keys that fail.
type FailureLogs<K> = Arc<Mutex<HashMap<K, FailureLog>>>;

fn finish<K: Clone + Eq + Hash + Display>(
    queue: &WorkQueue<K>,
    failures: &FailureLogs<K>,
    key: K,
    ended: ReconcileAttempt,
) {
    let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(ended, Ok(Ok(_))) {
        failures.remove(&key);
    }
    let counters = queue.counters;
    let name = counters.name;
    let error = match ended {
        Ok(Ok(ReconcileOutcome::Done)) => {
            counters.done.fetch_add(1, Relaxed);
            queue.finish(key, WorkResult::Done);
            return;
        }
        Ok(Ok(ReconcileOutcome::Requeue(what))) => {
            counters.waiting.fetch_add(1, Relaxed);
            let again = queue.finish(key.clone(), WorkResult::Retry).unwrap_or_default();
            tracing::debug!(controller = name, %key, ?again, "waiting: {what}");
            return;
        }
        Ok(Err(error)) => describe(error.as_ref()),
        Err(panic) => format!("it panicked: {}", panic_message(&*panic)),
    };
    counters.failed.fetch_add(1, Relaxed);
    let again = queue.finish(key.clone(), WorkResult::Retry).unwrap_or_default();
    if failures.entry(key.clone()).or_default().is_due(&error, Instant::now()) {
        tracing::warn!(controller = name, %key, error, ?again, "cannot reconcile");
    } else {
        tracing::debug!(controller = name, %key, error, ?again, "still cannot reconcile");
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "without words",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::ControllerCounters;
    use crate::work_queue::RetryBackoff;

    static COUNTERS: ControllerCounters = ControllerCounters::new("test");

    #[tokio::test(start_paused = true)]
    async fn errors_and_panics_are_tried_again() {
        let backoff = RetryBackoff::new(Duration::from_millis(1), Duration::from_secs(1));
        let queue = Arc::new(WorkQueue::new(&COUNTERS, backoff));
        let (tries, mut tried) = tokio::sync::mpsc::unbounded_channel();
        let count = Arc::new(Mutex::new(0));
        let reconcile = move |key: &'static str| {
            let (tries, count) = (tries.clone(), count.clone());
            async move {
                let round = {
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    *count
                };
                tries.send(round).unwrap();
                match round {
                    1 => panic!("{key} is bad"),
                    2 => anyhow::bail!("not yet"),
                    3 => Ok(ReconcileOutcome::Requeue("for the fourth".into())),
                    _ => Ok(ReconcileOutcome::Done),
                }
            }
        };
        queue.add("a");
        let pool = tokio::spawn(run(queue.clone(), 2, reconcile));
        for round in 1..=4 {
            assert_eq!(tried.recv().await, Some(round));
        }
        // Done: only a new key brings another round.
        queue.add("a");
        assert_eq!(tried.recv().await, Some(5));
        pool.abort();
    }
}
