//! A token bucket that counts what it suppressed; limits the output that unauthenticated callers
//! can cause.

use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Admits a burst, then a steady rate.
pub(crate) struct RateLimit {
    burst: f64,
    per_second: f64,
    state: Mutex<TokenBucket>,
}

struct TokenBucket {
    tokens: f64,
    refilled: Option<Instant>,
    suppressed: u64,
}

impl RateLimit {
    /// Admits `burst` at once, and `per_second` sustained.
    pub(crate) fn new(burst: u32, per_second: f64) -> RateLimit {
        let burst = f64::from(burst);
        let state = TokenBucket { tokens: burst, refilled: None, suppressed: 0 };
        RateLimit { burst, per_second, state: Mutex::new(state) }
    }

    /// Returns the number suppressed since the last admission.
    pub(crate) fn suppressed(&self) -> u64 {
        self.lock().suppressed
    }

    /// Admits an event of this many tokens, or counts it as suppressed. The cost is capped at the
    /// burst. Returns how many were suppressed before.
    pub(crate) fn admit(&self, cost: u32, now: Instant) -> Option<u64> {
        let mut state = self.lock();
        let passed = state.refilled.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        state.tokens = (state.tokens + passed * self.per_second).min(self.burst);
        state.refilled = Some(state.refilled.map_or(now, |at| at.max(now)));
        let cost = f64::from(cost).min(self.burst);
        if state.tokens < cost {
            state.suppressed += 1;
            return None;
        }
        state.tokens -= cost;
        Some(std::mem::take(&mut state.suppressed))
    }

    fn lock(&self) -> MutexGuard<'_, TokenBucket> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn admits_a_burst_and_then_a_rate() {
        let (limit, start) = (RateLimit::new(3, 0.5), Instant::now());
        for _ in 0..3 {
            assert_eq!(limit.admit(1, start), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(limit.admit(1, start + Duration::from_secs(1)), None);
        }
        assert_eq!(limit.suppressed(), 7);
        assert_eq!(limit.admit(1, start + Duration::from_secs(2)), Some(7));
        assert_eq!(limit.admit(1, start + Duration::from_secs(2)), None);
        // A long pause refills one burst and no more.
        let later = start + Duration::from_secs(3600);
        assert_eq!(limit.admit(2, later), Some(1));
        assert_eq!(limit.admit(1, later), Some(0));
        assert_eq!(limit.admit(1, later), None);
    }

    #[test]
    fn events_larger_than_the_burst_take_all_of_it() {
        let (limit, start) = (RateLimit::new(2, 1.0), Instant::now());
        assert_eq!(limit.admit(100, start), Some(0));
        assert_eq!(limit.admit(1, start), None);
        assert_eq!(limit.admit(100, start + Duration::from_secs(2)), Some(1));
    }
}
