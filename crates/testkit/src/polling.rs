//! Waiting for a condition, with a limit.

use std::time::{Duration, Instant};

/// Longer than anything healthy takes, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

const INTERVAL: Duration = Duration::from_millis(10);

/// Calls `look` until it returns something; panics after [`PATIENCE`] with what was waited for.
pub fn poll_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "timed out after {PATIENCE:?}: {what}");
        std::thread::sleep(INTERVAL);
    }
}

/// As [`poll_until`], without blocking the thread between two calls.
pub async fn poll_until_async<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "timed out after {PATIENCE:?}: {what}");
        tokio::time::sleep(INTERVAL).await;
    }
}
