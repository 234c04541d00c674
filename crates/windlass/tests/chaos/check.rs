//! The checker: a pure function of a history. It knows what the store promises and nothing of how it is done.
//!
//! What etcd says that it stored is the truth. Each write has a revision of its own, so that all that
//! anybody was told can be looked up: [`timeline`] is the truth by revision and by key, [`bounds`] says which
//! revisions a moment can have had, and the other modules hold one sort of promise each.

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

/// Config maps are written by the traffic alone, and no content twice.
pub const CONFIG_MAPS: &str = "configmaps";
/// Requests for certificates, which the controllers write too.
pub const REQUESTS: &str = "certificatesigningrequests";

/// A consistency guarantee that the checker verifies on a recorded history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConsistencyRule {
    /// What was acknowledged is stored, as it was acknowledged.
    AcknowledgedIsStored,
    /// What was refused is not stored.
    RefusedIsNotStored,
    /// What is stored was asked for by somebody, and stored once.
    StoredWasAskedFor,
    /// A write changes the version that it said, and no other.
    ConditionsHold,
    /// A write comes after everything that anybody had seen before it was asked for.
    RevisionsGrow,
    /// A read shows what was there at its revision.
    ReadsAreTrue,
    /// A read without a version is as new as anything that anybody had seen before it.
    ReadsAreFresh,
    /// A read of any version is never older than what its server has shown before.
    ServersDoNotGoBack,
    /// Nothing is shown that was asked for only later.
    NothingFromTheFuture,
    /// A watch tells in the order of revisions.
    WatchOrdered,
    /// A watch tells nothing twice.
    WatchUnique,
    /// A watch leaves nothing out.
    WatchComplete,
    /// A watch tells what happened.
    WatchTrue,
    /// A bookmark stands behind everything up to its revision.
    WatchBookmarks,
    /// A watch goes on where the last one ended, to the end.
    WatchResumed,
    /// A request gets one certificate and keeps it.
    IssuedOnce,
    /// There is no certificate without an approval before it.
    IssuedIfApproved,
    /// In the end everybody who asked has a certificate.
    IssuedAtLast,
    /// In the end all servers show the same, which is what is stored.
    Converged,
    /// With a quorum there is always a server that takes writes, but for a bounded time.
    Available,
    /// Who cannot be served is told so in the way that clients know.
    RefusedProperly,
}

/// A promise that was not kept, and how.
#[derive(Debug, Clone)]
pub struct RuleViolation {
    pub rule: ConsistencyRule,
    pub what: String,
}

/// Everything that is wrong with a history.
#[derive(Debug, Default)]
pub struct CheckResult {
    pub violations: Vec<RuleViolation>,
}

impl CheckResult {
    pub fn report_violation(&mut self, rule: ConsistencyRule, what: impl Into<String>) {
        self.violations.push(RuleViolation { rule, what: what.into() });
    }

    /// The first few of each rule, to be read.
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

/// Holds a history against every promise.
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
