//! How fast requests for certificates are retried, and how many are made at most.

use std::time::Duration;

use windlass_runtime::backoff::Backoff;
use windlass_runtime::rate_limit::RateLimit;

/// Delays between attempts, and the limit of new requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Delay after failures that may pass soon: of the network, the disk or a credential.
    pub trouble: Backoff,
    /// Delay after a denial, a failure of the signer, or an unusable certificate.
    pub refusal: Backoff,
    /// How long to wait for a request before it is inspected again.
    pub patience: Duration,
    /// Limit of new requests, whatever goes wrong.
    pub requests: RateLimit,
    /// Period over which the renewals of certificates are spread whose trust anchor was removed.
    pub orphan_spread: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            trouble: Backoff::new(seconds(1), seconds(60)),
            refusal: Backoff::new(seconds(60), seconds(60 * 60)),
            patience: seconds(15 * 60),
            requests: RateLimit { burst: 5, refill: seconds(60) },
            orphan_spread: seconds(60),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureClass {
    /// May pass soon: retried with a short backoff.
    Transient,
    /// Denied or failed by an approver or signer: retried with a long backoff.
    Refused,
    /// Most likely solved by another key, so the first one is retried soon and further ones are refusals.
    Collision,
    /// The wait was the pause: retried soon, and not counted.
    Undecided,
}

/// Consecutive failures, and the delay that follows from them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RetryState {
    policy: RetryPolicy,
    transient: u32,
    refused: u32,
}

impl RetryState {
    pub fn new(policy: RetryPolicy) -> Self {
        Self { policy, transient: 0, refused: 0 }
    }

    /// Counts a failure and returns the delay before the next attempt. `random` is from 0 to 1.
    pub fn fail(&mut self, class: FailureClass, random: f64) -> Duration {
        let count = |failures: &mut u32| {
            let earlier = *failures;
            *failures = failures.saturating_add(1);
            earlier
        };
        let policy = self.policy;
        match class {
            FailureClass::Transient => policy.trouble.delay(count(&mut self.transient), random),
            FailureClass::Refused => policy.refusal.delay(count(&mut self.refused), random),
            FailureClass::Collision => match count(&mut self.refused).checked_sub(1) {
                None => policy.trouble.delay(0, random),
                Some(earlier) => policy.refusal.delay(earlier, random),
            },
            FailureClass::Undecided => policy.trouble.delay(0, random),
        }
    }

    /// Returns the delay after this many earlier refusals, without counting one.
    pub fn refusal_delay(&self, earlier: u32, random: f64) -> Duration {
        self.policy.refusal.delay(earlier, random)
    }

    /// The server responds: transient failures have passed.
    pub fn clear_transient(&mut self) {
        self.transient = 0;
    }

    /// A usable certificate was issued; earlier refusals no longer count.
    pub fn clear_refused(&mut self) {
        self.refused = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_follow_the_class_of_consecutive_failures() {
        use FailureClass::{Collision, Refused, Transient, Undecided};
        let mut state = RetryState::new(RetryPolicy::default());
        let mut fail = |class| state.fail(class, 0.5).as_secs();
        assert_eq!([fail(Transient), fail(Transient), fail(Undecided)], [1, 2, 1]);
        assert_eq!([fail(Transient), fail(Refused), fail(Refused)], [4, 60, 120]);
        state.clear_transient();
        assert_eq!(state.fail(Transient, 0.5).as_secs(), 1);
        state.clear_refused();
        let mut fail = |class| state.fail(class, 0.5).as_secs();
        assert_eq!([fail(Collision), fail(Collision), fail(Collision)], [1, 60, 120]);
    }
}
