//! Waiting for a condition, with a limit.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Longer than anything healthy takes, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

const INTERVAL: Duration = Duration::from_millis(10);

/// Calls `look` until it returns something; panics after [`PATIENCE`] with what was waited for.
pub fn poll_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    retry(|| look().ok_or(what))
}

/// As [`poll_until`], without blocking the thread between two calls.
pub async fn poll_until_async<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    retry_async(PATIENCE, async || look().await.ok_or(what)).await
}

/// Calls `holds` until it returns true; panics after [`PATIENCE`] with what was waited for.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    poll_until(what, || holds().then_some(()));
}

/// As [`wait_for`], without blocking the thread between two calls.
pub async fn wait_for_async(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    poll_until_async(what, async || holds().await.then_some(())).await;
}

/// Calls `attempt` until it succeeds; panics after [`PATIENCE`] with the last error.
pub fn retry<T, E: Display>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(found) => return found,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "timed out after {PATIENCE:?}: {error}"),
        }
        std::thread::sleep(INTERVAL);
    }
}

/// As [`retry`] with another limit, without blocking the thread between two calls.
pub async fn retry_async<T, E: Display>(
    patience: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let begun = Instant::now();
    loop {
        match attempt().await {
            Ok(found) => return found,
            Err(error) => assert!(begun.elapsed() < patience, "timed out after {patience:?}: {error}"),
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
