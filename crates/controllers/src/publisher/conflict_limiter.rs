//! Notices that somebody else keeps changing what we write, so that neither side does it as fast
//! as it can.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many writes of one object are nobody's business …
const WRITES: u32 = 5;
/// … in so much time.
const PERIOD: Duration = Duration::from_secs(60);
/// More objects than this are not remembered; who writes so many at once is in no contest.
const MOST: usize = 100_000;

/// Limits how often an object is written that another manager keeps changing.
#[derive(Debug, Default)]
pub struct ConflictLimiter {
    writes: Mutex<HashMap<String, (Instant, u32)>>,
}

impl ConflictLimiter {
    /// Whether an object may be written now without waiting; counts it as written if so.
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

    /// Does not count the last write, which was refused: who keeps us from writing is in no contest.
    pub fn undo_write(&self, object: &str) {
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = writes.get_mut(object) {
            *count = count.saturating_sub(1);
        }
    }

    /// Forgets what was written: from now on it is something else, which nobody contests yet.
    pub fn reset(&self) {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_writes_are_free_and_more_have_to_wait() {
        let (contest, start) = (ConflictLimiter::default(), Instant::now());
        for round in 0..20 {
            assert_eq!(contest.try_write("a", start), round < 5, "{round}");
        }
        assert!(contest.try_write("b", start));
        for _ in 0..20 {
            assert!(contest.try_write("c", start));
            contest.undo_write("c");
        }
        contest.reset();
        assert!((0..5).all(|_| contest.try_write("a", start)));
        assert!(!contest.try_write("a", start + PERIOD - Duration::from_secs(1)));
        assert!(contest.try_write("a", start + PERIOD));
    }
}
