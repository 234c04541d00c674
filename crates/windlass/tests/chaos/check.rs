//! The checker: a pure function of a history. It knows the guarantees of the store and nothing of
//! its implementation.
//!
//! The changes that etcd reports are the truth. Each write has its own revision, so that every
//! observation can be looked up: [`timeline`] has the truth by revision and by key, [`bounds`] the
//! revisions that are possible at a time, and each other module checks one kind of guarantee.

mod bounds;
mod final_state;
mod issuance;
mod outages;
mod reads;
#[cfg(test)]
mod tests;
mod timeline;
mod watches;
mod writes;

use std::collections::BTreeMap;

use self::bounds::RevisionBounds;
use self::timeline::StoreTimeline;
use super::history::ChaosHistory;

pub use self::issuance::{BY_HAND, content as request_content};
pub use self::outages::table;

/// Only the traffic writes config maps, and never the same content twice.
pub const CONFIG_MAPS: &str = "configmaps";
/// Certificate signing requests, which the controllers also write.
pub const REQUESTS: &str = "certificatesigningrequests";

/// A consistency guarantee that the checker verifies on a recorded history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConsistencyRule {
    /// Acknowledged writes are stored as acknowledged.
    AcknowledgedIsStored,
    /// Refused writes are not stored.
    RefusedIsNotStored,
    /// Every stored change was requested by a client and stored once.
    StoredWasAskedFor,
    /// A conditional write changes only the version that it names.
    ConditionsHold,
    /// A write has a higher revision than everything observed before its request.
    RevisionsGrow,
    /// A read returns the state at its revision.
    ReadsAreTrue,
    /// A read without a version is at least as new as anything observed before it.
    ReadsAreFresh,
    /// A read of any version is never older than what its server returned before.
    ServersDoNotGoBack,
    /// No response contains a change that was requested later.
    NothingFromTheFuture,
    /// A watch delivers events in the order of revisions.
    WatchOrdered,
    /// A watch delivers no event twice.
    WatchUnique,
    /// A watch omits no event.
    WatchComplete,
    /// A watch delivers only changes that happened.
    WatchTrue,
    /// A bookmark follows all events up to its revision.
    WatchBookmarks,
    /// A watch resumes where the previous one ended, until the end.
    WatchResumed,
    /// A request gets one certificate, which never changes.
    IssuedOnce,
    /// Every certificate was preceded by an approval.
    IssuedIfApproved,
    /// In the end, every request has a certificate.
    IssuedAtLast,
    /// In the end, all servers return the stored state.
    Converged,
    /// With a quorum, the time without a server that accepts writes is bounded.
    Available,
    /// Unavailable servers respond with errors that clients understand.
    RefusedProperly,
}

/// A violated rule, with a description.
#[derive(Debug, Clone)]
pub struct RuleViolation {
    pub rule: ConsistencyRule,
    pub what: String,
}

/// All violations in a history.
#[derive(Debug, Default)]
pub struct CheckResult {
    pub violations: Vec<RuleViolation>,
}

impl CheckResult {
    pub fn report_violation(&mut self, rule: ConsistencyRule, what: impl Into<String>) {
        self.violations.push(RuleViolation { rule, what: what.into() });
    }

    /// Formats the first few violations of each rule.
    pub fn report(&self) -> String {
        let mut by_rule: BTreeMap<ConsistencyRule, Vec<&str>> = BTreeMap::new();
        for violation in &self.violations {
            by_rule.entry(violation.rule).or_default().push(&violation.what);
        }
        let mut report = String::new();
        for (rule, found) in by_rule {
            report.push_str(&format!("{rule:?} is broken {} times:\n", found.len()));
            for what in found.iter().take(5) {
                report.push_str(&format!("  - {what}\n"));
            }
        }
        report
    }
}

/// Checks a history against every rule.
pub fn check(history: &ChaosHistory) -> CheckResult {
    let mut verdict = CheckResult::default();
    let timeline = StoreTimeline::new(&history.changes);
    let bounds = RevisionBounds::new(history, &timeline);
    writes::check(history, &timeline, &bounds, &mut verdict);
    reads::check(history, &timeline, &bounds, &mut verdict);
    watches::check(history, &timeline, &bounds, &mut verdict);
    issuance::check(history, &timeline, &mut verdict);
    final_state::check(history, &timeline, &mut verdict);
    outages::check(history, &mut verdict);
    verdict
}
