//! State machine of a candidate, without clock and I/O.
//!
//! The times in a lease come from the clock of its holder, which may be wrong, so they are only compared for equality:
//! a lease has expired when its duration has passed since *this process* last saw it change.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// This process's role in the election.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaderRole {
    /// Another process may hold the lease.
    Follower {
        /// The lease as last observed to change.
        seen: Option<ObservedLease>,
    },
    /// This process holds the lease, as long as it renews it in time.
    Leading,
}

/// An observed lease and the time of its last change.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedLease {
    record: LeaseRecord,
    since: Instant,
}

/// Fields of a Lease that decide who leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Identity of the holder; empty if the lease is free.
    pub holder: String,
    /// Duration of the lease after a renewal.
    pub lasts: Duration,
    /// Time of the last renewal by the holder's clock; compared for equality only.
    pub renewed: Option<Timestamp>,
    /// Number of changes of the holder.
    pub transitions: i32,
}

/// What a candidate does with the Lease next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Create the Lease, because it does not exist.
    Create,
    /// Become the holder of an existing lease.
    Take {
        /// Number of changes of the holder, including this one.
        transitions: i32,
    },
    /// Renew the lease that this process holds.
    Renew,
    /// Another process holds the lease; retry later.
    Wait,
    /// Another process took the lease.
    Lost,
}

impl LeaderRole {
    /// Computes the next action for an observed lease, and the role until that is done.
    pub fn step(&self, lease: Option<&LeaseRecord>, now: Instant, me: &str) -> (LeaderRole, LeaseAction) {
        match (self, lease) {
            (LeaderRole::Leading, None) => (LeaderRole::Leading, LeaseAction::Create),
            (LeaderRole::Leading, Some(record)) if record.holder == me => {
                (LeaderRole::Leading, LeaseAction::Renew)
            }
            (LeaderRole::Leading, Some(record)) => {
                let seen = Some(ObservedLease { record: record.clone(), since: now });
                (LeaderRole::Follower { seen }, LeaseAction::Lost)
            }
            // Its holder may not have noticed that it was deleted.
            (LeaderRole::Follower { seen: Some(seen) }, None) if seen.is_held_by_other(now, me) => {
                (self.clone(), LeaseAction::Wait)
            }
            (LeaderRole::Follower { .. }, None) => (self.clone(), LeaseAction::Create),
            (LeaderRole::Follower { seen }, Some(record)) => {
                let seen = match seen {
                    Some(seen) if seen.record == *record => seen.clone(),
                    _ => ObservedLease { record: record.clone(), since: now },
                };
                let action =
                    if seen.is_held_by_other(now, me) { LeaseAction::Wait } else { record.take_action(me) };
                (LeaderRole::Follower { seen: Some(seen) }, action)
            }
        }
    }
}

impl ObservedLease {
    /// Whether another process may still rely on the lease.
    fn is_held_by_other(&self, now: Instant, me: &str) -> bool {
        let held = !self.record.holder.is_empty() && self.record.holder != me;
        held && now.saturating_duration_since(self.since) < self.record.lasts
    }
}

impl LeaseRecord {
    /// Reads a Lease; `lasts` is the duration if it has none.
    pub fn from_lease(lease: &Lease, lasts: Duration) -> LeaseRecord {
        let Some(spec) = &lease.spec else {
            return LeaseRecord { lasts, ..LeaseRecord::default() };
        };
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        LeaseRecord {
            holder: spec.holder_identity.clone().unwrap_or_default(),
            lasts: seconds.map_or(lasts, Duration::from_secs),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }

    fn take_action(&self, me: &str) -> LeaseAction {
        let moved = i32::from(self.holder != me);
        LeaseAction::Take { transitions: self.transitions.saturating_add(moved) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(holder: &str, renewed: i64) -> LeaseRecord {
        let renewed = Some(Timestamp::from_second(renewed).unwrap());
        LeaseRecord { holder: holder.into(), lasts: Duration::from_secs(15), renewed, transitions: 3 }
    }

    #[test]
    fn a_follower_waits_for_a_whole_lease_without_change() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let seen = |record, seconds| LeaderRole::Follower {
            seen: Some(ObservedLease { record, since: at(seconds) }),
        };
        let new = LeaderRole::Follower { seen: None };
        let (free, other, renewed) = (record("", 1), record("other", 1), record("other", 2));
        let mine = record("me", 1);
        let take = LeaseAction::Take { transitions: 4 };
        let table = [
            (&new, None, 0, LeaseAction::Create),
            (&new, Some(&free), 0, take),
            (&new, Some(&mine), 0, LeaseAction::Take { transitions: 3 }),
            // Its timestamps are not trusted: it may have been renewed just now.
            (&new, Some(&other), 0, LeaseAction::Wait),
            (&seen(other.clone(), 0), Some(&other), 14, LeaseAction::Wait),
            (&seen(other.clone(), 0), Some(&other), 15, take),
            (&seen(other.clone(), 0), Some(&renewed), 15, LeaseAction::Wait),
            (&seen(other.clone(), 0), Some(&free), 1, take),
            (&seen(other.clone(), 0), None, 14, LeaseAction::Wait),
            (&seen(other.clone(), 0), None, 15, LeaseAction::Create),
            (&seen(free.clone(), 0), None, 1, LeaseAction::Create),
            (&seen(mine.clone(), 0), None, 1, LeaseAction::Create),
        ];
        for (role, lease, seconds, action) in table {
            let (_, found) = role.step(lease, at(seconds), "me");
            assert_eq!(found, action, "{role:?} {lease:?} after {seconds} s");
        }
        // The lease duration counts from the observed change, not from the last read.
        let (role, _) = seen(other.clone(), 0).step(Some(&renewed), at(10), "me");
        assert_eq!(role, seen(renewed.clone(), 10));
        let (role, action) = role.step(Some(&renewed), at(24), "me");
        assert_eq!((&role, action), (&seen(renewed.clone(), 10), LeaseAction::Wait));
        assert_eq!(role.step(Some(&renewed), at(25), "me").1, take);
    }

    #[test]
    fn a_leader_renews_its_lease_and_stops_otherwise() {
        let now = Instant::now();
        for (lease, action) in [
            (None, LeaseAction::Create),
            (Some(record("me", 1)), LeaseAction::Renew),
            (Some(record("other", 1)), LeaseAction::Lost),
            (Some(record("", 1)), LeaseAction::Lost),
        ] {
            let (role, found) = LeaderRole::Leading.step(lease.as_ref(), now, "me");
            assert_eq!(found, action, "{lease:?}");
            assert_eq!(role == LeaderRole::Leading, action != LeaseAction::Lost, "{lease:?}");
        }
    }

    #[test]
    fn an_incomplete_lease_is_accepted() {
        let lasts = Duration::from_secs(9);
        for (lease, holder, seconds) in [
            (serde_json::json!({}), "", 9),
            (serde_json::json!({"spec": {"holderIdentity": "a"}}), "a", 9),
            (serde_json::json!({"spec": {"leaseDurationSeconds": -1}}), "", 9),
            (serde_json::json!({"spec": {"leaseDurationSeconds": 20}}), "", 20),
        ] {
            let lease: Lease = serde_json::from_value(lease).unwrap();
            let found = LeaseRecord::from_lease(&lease, lasts);
            assert_eq!((found.holder.as_str(), found.lasts.as_secs()), (holder, seconds));
        }
    }
}
