//! What a CARotation asks for.

use std::collections::BTreeSet;
use std::time::Duration;

use time::OffsetDateTime;
use windlass_api::ca_rotation::CaRotationSpec;
use windlass_api::timestamp;

/// What a CARotation asks for. Everything may change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationPolicy {
    /// Whether the old CA is not to be trusted: neither reads nor leaves are waited for.
    pub compromised: bool,
    /// Whether consumers that have not read their file since it changed hold the rotation.
    pub require_read: bool,
    /// Time for which the canary bundle has the new anchor before the main bundle gets it.
    pub soak_time: Duration,
    /// Canary consumers that may lag or fail until the soak time ends. They still hold the switch.
    pub max_canary_failures: usize,
    /// Time over which agents spread the renewal of leaves of the old authority.
    pub renewal_window: Duration,
    /// Time before which the old anchor is not removed.
    pub retire_not_before: Option<OffsetDateTime>,
    /// Whether the old anchor is removed although leaves of its authority are outstanding.
    pub accept_outstanding_leaves: bool,
    /// Time after the end of the rotation at which the old key is destroyed.
    pub key_retention: Duration,
    /// Whether no further step is taken.
    pub paused: bool,
    /// Whether to return to the old authority.
    pub rollback: bool,
    /// Nodes that are not waited for.
    pub excluded_nodes: BTreeSet<String>,
    /// Consumers that are not waited for to read, by the names of laggards.
    pub accepted_consumers: BTreeSet<String>,
}

impl From<&CaRotationSpec> for RotationPolicy {
    fn from(spec: &CaRotationSpec) -> RotationPolicy {
        let retirement = spec.retirement.clone().unwrap_or_default();
        let not_before = retirement.not_before.as_deref().and_then(|time| timestamp::parse(time).ok());
        let max_failures = spec.canary.as_ref().and_then(|canary| canary.max_failures);
        RotationPolicy {
            compromised: spec.is_compromised(),
            require_read: spec.require_read.unwrap_or(true),
            soak_time: spec.soak_time(),
            max_canary_failures: usize::try_from(max_failures.unwrap_or(0)).unwrap_or(usize::MAX),
            renewal_window: spec.renewal_window(),
            retire_not_before: not_before,
            accept_outstanding_leaves: retirement.accept_outstanding_leaves.unwrap_or(false),
            key_retention: spec.key_retention(),
            paused: spec.paused.unwrap_or(false),
            rollback: spec.rollback.unwrap_or(false),
            excluded_nodes: spec.excluded_nodes.iter().cloned().collect(),
            accepted_consumers: spec.accepted_consumers.iter().cloned().collect(),
        }
    }
}

impl Default for RotationPolicy {
    fn default() -> RotationPolicy {
        RotationPolicy::from(&CaRotationSpec::default())
    }
}

impl RotationPolicy {
    /// Returns the time over which agents spread renewals; none if the old authority is compromised.
    pub fn effective_renewal_window(&self) -> Duration {
        if self.compromised { Duration::ZERO } else { self.renewal_window }
    }
}
