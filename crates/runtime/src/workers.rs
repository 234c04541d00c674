//! Workers of a [`WorkQueue`]: they reconcile its keys, a limited number at a time, and survive panics.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client_error::describe;
use crate::failure_log::FailureLog;
use crate::metrics::ReconcileResult;
use crate::work_queue::{WorkOutcome, WorkQueue};

/// Whether a key is put back into the queue after a reconciliation without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Nothing is left to do until something changes.
    Done,
    /// Reconcile again after the key's backoff; the text says what is waited for and is logged at debug level.
    WithBackoff(String),
}

/// Reconciles the keys of a queue, at most `workers` at a time, until the future is dropped.
///
/// Errors and panics are logged, counted and retried with the queue's backoff. A repeated error of a
/// key is logged as a warning only every few minutes.
pub async fn run_workers<K, F, R>(queue: Arc<WorkQueue<K>>, workers: usize, reconcile: F) -> Infallible
where
    K: Clone + Eq + Hash + Display + Send + 'static,
    F: Fn(K) -> R,
    R: Future<Output = anyhow::Result<Requeue>> + Send + 'static,
{
    queue.requeue_unfinished();
    let mut running = JoinSet::new();
    let failures: FailureLogs<K> = Arc::default();
    loop {
        tokio::select! {
            (key, timer) = queue.next(), if running.len() < workers => {
                let (queue, reconciliation) = (queue.clone(), reconcile(key.clone()));
                let failures = failures.clone();
                running.spawn(async move {
                    let result = AssertUnwindSafe(reconciliation).catch_unwind().await;
                    drop(timer);
                    finish(&queue, &failures, key, result);
                });
            }
            // `None` would mean that nothing runs, which the guard rules out.
            _ = running.join_next(), if !running.is_empty() => {}
        }
    }
}

type CaughtResult = Result<anyhow::Result<Requeue>, Box<dyn std::any::Any + Send>>;

/// Log state of the keys that fail; keys that succeed are removed.
type FailureLogs<K> = Arc<Mutex<HashMap<K, FailureLog>>>;

fn finish<K: Clone + Eq + Hash + Display>(
    queue: &WorkQueue<K>,
    failures: &FailureLogs<K>,
    key: K,
    result: CaughtResult,
) {
    let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(result, Ok(Ok(_))) {
        failures.remove(&key);
    }
    let metrics = queue.metrics();
    let controller = metrics.name();
    let error = match result {
        Ok(Ok(Requeue::Done)) => {
            metrics.count_reconcile(ReconcileResult::Done);
            queue.finish(key, WorkOutcome::Done);
            return;
        }
        Ok(Ok(Requeue::WithBackoff(reason))) => {
            metrics.count_reconcile(ReconcileResult::Waiting);
            let backoff = queue.finish(key.clone(), WorkOutcome::Retry).unwrap_or_default();
            tracing::debug!(controller, %key, reason, ?backoff, "requeued");
            return;
        }
        Ok(Err(error)) => describe(error.as_ref()),
        Err(panic) => format!("panicked: {}", panic_message(&*panic)),
    };
    metrics.count_reconcile(ReconcileResult::Failed);
    let backoff = queue.finish(key.clone(), WorkOutcome::Retry).unwrap_or_default();
    if failures.entry(key.clone()).or_default().is_due(&error, Instant::now()) {
        tracing::warn!(controller, %key, error, ?backoff, "cannot reconcile; retrying with backoff");
    } else {
        tracing::debug!(controller, %key, error, ?backoff, "still cannot reconcile");
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "no message",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backoff::Backoff;
    use crate::metrics::ControllerMetrics;

    #[tokio::test(start_paused = true)]
    async fn errors_and_panics_are_retried() {
        let backoff = Backoff::new(Duration::from_millis(1), Duration::from_secs(1));
        let metrics = ControllerMetrics::unregistered("test");
        let queue = Arc::new(WorkQueue::new(metrics.clone(), backoff));
        let (sender, mut rounds) = tokio::sync::mpsc::unbounded_channel();
        let count = Arc::new(Mutex::new(0));
        let reconcile = move |key: &'static str| {
            let (sender, count) = (sender.clone(), count.clone());
            async move {
                let round = {
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    *count
                };
                sender.send(round).unwrap();
                match round {
                    1 => panic!("{key} is bad"),
                    2 => anyhow::bail!("not yet"),
                    3 => Ok(Requeue::WithBackoff("for the fourth".into())),
                    _ => Ok(Requeue::Done),
                }
            }
        };
        queue.add("a");
        let workers = tokio::spawn(run_workers(queue.clone(), 2, reconcile));
        for round in 1..=4 {
            assert_eq!(rounds.recv().await, Some(round));
        }
        // The fourth round ended the work: only a new key brings another round.
        queue.add("a");
        assert_eq!(rounds.recv().await, Some(5));
        workers.abort();
        assert_eq!(metrics.reconciles(ReconcileResult::Failed), 2);
        assert_eq!(metrics.reconciles(ReconcileResult::Waiting), 1);
    }
}
