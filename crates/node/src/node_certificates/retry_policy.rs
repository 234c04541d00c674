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
