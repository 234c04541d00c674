//! Limit on writes of objects that another manager keeps changing, so that neither side writes as fast as it can.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Number of writes of one object within a period that are not limited.
const WRITES: u32 = 5;
/// Period in which writes are counted.
const PERIOD: Duration = Duration::from_secs(60);
/// Largest number of objects that are tracked. More writes at once are not a conflict.
const MOST: usize = 100_000;

/// Limits how often an object is written that another manager keeps changing.
#[derive(Debug, Default)]
pub struct ConflictLimiter {
    writes: Mutex<HashMap<String, (Instant, u32)>>,
}

impl ConflictLimiter {
    /// Whether an object may be written now; counts the write if so.
    pub fn try_write(&self, object: &str, now: Instant) -> bool {
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        if writes.len() >= MOST {
            writes.retain(|_, (since, _)| now.saturating_duration_since(*since) < PERIOD);
            if writes.len() >= MOST {
                writes.clear();
            }
        }
        let (since, count) = writes.entry(object.to_owned()).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= PERIOD {
            (*since, *count) = (now, 0);
        }
        *count += u32::from(*count < WRITES + 1);
        *count <= WRITES
    }

    /// Uncounts the last write, which was rejected: a rejected write is not a conflict.
    pub fn undo_write(&self, object: &str) {
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = writes.get_mut(object) {
            *count = count.saturating_sub(1);
        }
    }

    /// Forgets all writes, because the content changes, which is not a conflict yet.
    pub fn reset(&self) {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_writes_are_immediate_and_more_are_delayed() {
        let (conflict_limiter, start) = (ConflictLimiter::default(), Instant::now());
        for round in 0..20 {
            assert_eq!(conflict_limiter.try_write("a", start), round < 5, "{round}");
        }
        assert!(conflict_limiter.try_write("b", start));
        for _ in 0..20 {
            assert!(conflict_limiter.try_write("c", start));
            conflict_limiter.undo_write("c");
        }
        conflict_limiter.reset();
        assert!((0..5).all(|_| conflict_limiter.try_write("a", start)));
        assert!(!conflict_limiter.try_write("a", start + PERIOD - Duration::from_secs(1)));
        assert!(conflict_limiter.try_write("a", start + PERIOD));
    }
}
