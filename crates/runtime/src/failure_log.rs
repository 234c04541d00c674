//! Throttled logging of failures that are retried: each cause once, and then every few minutes while it lasts.

use std::time::Duration;

use tokio::time::Instant;

/// Interval between two log messages about the same failure.
const REPEAT_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Last logged cause of an operation that is retried. One per operation: causes of different operations would alternate.
#[derive(Debug, Default)]
pub struct FailureLog {
    last: Option<(String, Instant)>,
}

impl FailureLog {
    /// Whether to log a failure with this cause now: the first time, when the cause changes, and every five minutes.
    pub fn is_due(&mut self, cause: &str, now: Instant) -> bool {
        let repeated = self.last.as_ref().is_some_and(|(last, logged)| {
            last == cause && now.saturating_duration_since(*logged) < REPEAT_INTERVAL
        });
        if !repeated {
            self.last = Some((cause.to_owned(), now));
        }
        !repeated
    }

    /// Forgets the failure after a success.
    pub fn clear(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_logged_once_and_again_while_it_lasts() {
        let mut log = FailureLog::default();
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        for (cause, at, due) in [
            ("forbidden", 0, true),
            ("forbidden", 1, false),
            ("forbidden", 299, false),
            ("refused", 299, true),
            ("forbidden", 300, true),
            ("forbidden", 599, false),
            ("forbidden", 600, true),
        ] {
            assert_eq!(log.is_due(cause, later(at)), due, "{cause} after {at} s");
        }
        log.clear();
        assert!(log.is_due("forbidden", later(601)));
    }
}
