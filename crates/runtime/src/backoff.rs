//! Exponential backoff with jitter: the one formula for everything that is retried.

use std::time::Duration;

/// Delay between retries: `first`, doubled after every failure up to `max`, each multiplied by a jitter of 0.75 to 1.25.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Delay after the first failure, before jitter.
    pub first: Duration,
    /// Upper bound of the delay, before jitter.
    pub max: Duration,
}

impl Backoff {
    /// Doubles from `first` up to `max`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max }
    }

    /// Waits equally long after every attempt, apart from jitter.
    pub const fn constant(delay: Duration) -> Self {
        Self { first: delay, max: delay }
    }

    /// Computes the delay after this many *earlier* failures. `random` is from 0 to 1 and spreads
    /// clients that failed together, so that they do not retry together.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let doubled = self.first.saturating_mul(2u32.saturating_pow(failures.min(31)));
        doubled.min(self.max).mul_f64(0.75 + 0.5 * random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let backoff = Backoff::new(Duration::from_secs(60), Duration::from_secs(3600));
        let table = [(0, 60), (1, 120), (2, 240), (5, 1920), (6, 3600), (40, 3600), (u32::MAX, 3600)];
        for (failures, seconds) in table {
            assert_eq!(backoff.delay(failures, 0.5), Duration::from_secs(seconds), "{failures}");
        }
    }

    #[test]
    fn jitter_stays_within_a_quarter() {
        let backoff = Backoff::new(Duration::from_secs(4), Duration::from_secs(60));
        for (random, seconds) in [(-1.0, 6), (0.0, 6), (0.5, 8), (1.0, 10), (2.0, 10)] {
            assert_eq!(backoff.delay(1, random), Duration::from_secs(seconds), "{random}");
        }
        let constant = Backoff::constant(Duration::from_secs(8));
        assert_eq!([constant.delay(0, 0.5), constant.delay(9, 0.5)], [Duration::from_secs(8); 2]);
    }
}
