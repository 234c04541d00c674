//! Token bucket, for events and for requests that a failing client must not repeat without bound.

use std::time::Duration;

/// Tolerance for rounding errors of refills that add up to a whole token.
const ROUNDING: f64 = 1e-6;

/// Burst size and refill interval of a [`TokenBucket`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Number of operations that are allowed at once.
    pub burst: u32,
    /// Interval after which one more operation is allowed.
    pub refill: Duration,
}

/// Limits how often something is done: a burst at once, then one per refill interval.
///
/// Times are passed in as durations since any fixed moment, so that callers with a virtual clock need no other one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenBucket {
    limit: RateLimit,
    tokens: f64,
    updated: Duration,
}

impl TokenBucket {
    /// Creates a bucket that allows a whole burst at once.
    pub fn new(limit: RateLimit) -> Self {
        Self { limit, tokens: f64::from(limit.burst), updated: Duration::ZERO }
    }

    /// Takes one token, or returns how long to wait for one.
    pub fn take(&mut self, now: Duration) -> Result<(), Duration> {
        let refill = self.limit.refill.as_secs_f64().max(f64::EPSILON);
        let elapsed = now.saturating_sub(self.updated).as_secs_f64();
        self.tokens = (self.tokens + elapsed / refill).min(f64::from(self.limit.burst));
        self.updated = self.updated.max(now);
        if self.tokens >= 1.0 - ROUNDING {
            self.tokens = (self.tokens - 1.0).max(0.0);
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.tokens) * refill) + Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_the_refill_rate() {
        let refill = Duration::from_millis(200);
        let mut bucket = TokenBucket::new(RateLimit { burst: 25, refill });
        let mut taken = |now| (0..1000).filter(|_| bucket.take(now).is_ok()).count();
        assert_eq!(taken(Duration::ZERO), 25);
        assert_eq!(taken(refill), 1);
        assert_eq!(taken(refill * 4), 3);
        assert_eq!(taken(Duration::from_secs(3600)), 25);
    }

    #[test]
    fn an_empty_bucket_says_when_it_refills() {
        let mut bucket = TokenBucket::new(RateLimit { burst: 2, refill: Duration::from_secs(60) });
        let mut take = |seconds| bucket.take(Duration::from_secs(seconds));
        assert_eq!((take(0), take(0)), (Ok(()), Ok(())));
        assert!(take(0).is_err_and(|wait| wait.as_secs() == 60));
        assert!(take(30).is_err_and(|wait| wait.as_secs() == 30));
        assert_eq!(take(61), Ok(()));
        assert!(take(61).is_err());
        assert_eq!((take(6000), take(6000)), (Ok(()), Ok(())), "no more than the burst");
        assert!(take(6000).is_err());
    }
}
