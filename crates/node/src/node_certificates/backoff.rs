//! How fast things are tried again, and how many requests are made at most.

use std::time::Duration;

/// How long pauses are, and how many requests are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// After something that may be better in a moment: the network, the disk, a credential.
    pub trouble: Backoff,
    /// After somebody said no, or gave something else than was asked for.
    pub refusal: Backoff,
    /// How long a request is waited for before it is looked at anew.
    pub patience: Duration,
    /// How many new requests may be made one after the other.
    pub burst: f64,
    /// After how long another one may be made.
    pub refill: Duration,
    /// Over how long the renewals of certificates are spread whose trust anchor is gone.
    pub orphan_spread: Duration,
}

/// A pause: `first`, twice that, … up to `most`, each times a number around 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Delay after the first failure, before jitter.
    pub initial: Duration,
    /// Upper bound of the delay, before jitter.
    pub max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            trouble: Backoff { initial: seconds(1), max: seconds(60) },
            refusal: Backoff { initial: seconds(60), max: seconds(60 * 60) },
            patience: seconds(15 * 60),
            burst: 5.0,
            refill: seconds(60),
            orphan_spread: seconds(60),
        }
    }
}

impl Backoff {
    /// How long to pause after that many earlier failures. `random` is from 0 to 1, so that nodes
    /// that failed together do not come back together.
    pub fn after(&self, failures: u32, random: f64) -> Duration {
        let doubled = self.initial.saturating_mul(2u32.saturating_pow(failures.min(31)));
        doubled.min(self.max).mul_f64(0.75 + 0.5 * random.clamp(0.0, 1.0))
    }
}

/// How many new requests may be made now. Whatever goes wrong, there are no more than this.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimiter {
    left: f64,
    at: Duration,
}

impl RateLimiter {
    /// Creates a full limiter that allows `burst` requests at once.
    pub fn new(pace: &RetryPolicy) -> Self {
        Self { left: pace.burst, at: Duration::ZERO }
    }

    /// Takes one, or says after how long there will be one.
    pub fn try_acquire(&mut self, pace: &RetryPolicy, since: Duration) -> Result<(), Duration> {
        let refill = pace.refill.as_secs_f64().max(f64::EPSILON);
        let passed = since.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + passed / refill).min(pace.burst);
        self.at = since;
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        // A little more, so that rounding does not make it a little less.
        Err(Duration::from_secs_f64((1.0 - self.left) * refill) + Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let backoff = RetryPolicy::default().refusal;
        let table =
            [(0, 60), (1, 120), (2, 240), (5, 1920), (6, 3600), (40, 3600), (u32::MAX, 3600)];
        for (failures, seconds) in table {
            assert_eq!(backoff.after(failures, 0.5), Duration::from_secs(seconds), "{failures}");
        }
        assert_eq!(backoff.after(0, 0.0), Duration::from_secs(45));
        assert_eq!(backoff.after(0, 1.0), Duration::from_secs(75));
    }

    #[test]
    fn a_budget_runs_out_and_comes_back() {
        let pace =
            RetryPolicy { burst: 2.0, refill: Duration::from_secs(60), ..RetryPolicy::default() };
        let mut budget = RateLimiter::new(&pace);
        let mut take = |seconds| budget.try_acquire(&pace, Duration::from_secs(seconds));
        assert_eq!((take(0), take(0)), (Ok(()), Ok(())));
        assert!(take(0).is_err_and(|wait| wait.as_secs() == 60));
        assert!(take(30).is_err_and(|wait| wait.as_secs() == 30));
        assert_eq!(take(61), Ok(()));
        assert!(take(61).is_err());
        assert_eq!((take(6000), take(6000)), (Ok(()), Ok(())), "no more than the burst");
        assert!(take(6000).is_err());
    }
}
