//! Faults: how long nobody could write, and what those were told who could not.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Rule, Verdict};
use crate::history::{Fault, History, Operation, Outcome, Request, Time, Version};

/// The longest that nobody may be able to write when etcd needs another leader.
pub const BOUND: Duration = Duration::from_secs(5);

/// How long after its quorum is lost etcd may still answer: until its leader has noticed.
const NOTICED: Time = 3_000_000;

pub fn check(history: &History, verdict: &mut Verdict) {
    for fault in &history.faults {
        let outage = longest_outage(history, fault);
        if fault.leader_change && outage > BOUND {
            let what =
                format!("{} from {}: nobody could write for {outage:?}", fault.name, fault.start);
            verdict.blame(Rule::Available, what);
        }
    }
    for operation in &history.operations {
        if let Some(what) = improper(operation) {
            verdict.blame(Rule::RefusedProperly, what);
        }
        let lost = history.faults.iter().any(|fault| {
            let (begun, healed) = (fault.start + NOTICED, fault.healed);
            fault.no_quorum && begun < operation.start && operation.end < healed
        });
        if lost && let Some(what) = without_quorum(operation) {
            verdict.blame(Rule::RefusedProperly, what);
        }
    }
}

/// The longest time in a fault without a write that succeeded, from the last one before it.
pub fn longest_outage(history: &History, fault: &Fault) -> Duration {
    let times = || history.operations.iter().filter_map(succeeded);
    let before = times().filter(|time| *time < fault.start).max().unwrap_or(fault.start);
    let within = times().filter(|time| (fault.start..=fault.end).contains(time));
    let mut within: Vec<_> = within.chain([before, fault.end]).collect();
    within.sort_unstable();
    let longest = within.windows(2).map(|pair| pair[1] - pair[0]).max();
    Duration::from_micros(longest.unwrap_or_default())
}

/// A table of all faults, to be read.
pub fn table(history: &History) -> String {
    let mut table = format!("{:<44} {:>8} {:>8} {:>10}\n", "fault", "at s", "for s", "outage s");
    for fault in &history.faults {
        let seconds = |time: Time| Duration::from_micros(time).as_secs_f64();
        let _ = writeln!(
            table,
            "{:<44} {:>8.1} {:>8.1} {:>10.2}",
            fault.name,
            seconds(fault.start),
            seconds(fault.end - fault.start),
            longest_outage(history, fault).as_secs_f64()
        );
    }
    table
}

fn succeeded(operation: &Operation) -> Option<Time> {
    let done = matches!(operation.outcome, Outcome::Written(_) | Outcome::Deleted);
    done.then_some(operation.end)
}

/// Who is turned away by a server that is there is told to come again.
fn improper(operation: &Operation) -> Option<String> {
    let (Outcome::Refused { code, retry_after } | Outcome::Unknown { code, retry_after, .. }) =
        &operation.outcome
    else {
        return None;
    };
    let proper = match code {
        503 | 429 => *retry_after,
        // 504 is a read of a version that does not come.
        504 | 410 | 0 => true,
        _ => false,
    };
    (!proper).then(|| format!("{operation:?}"))
}

/// Without a quorum nothing is written and nothing is new, but what may be old is there.
fn without_quorum(operation: &Operation) -> Option<String> {
    let any = matches!(
        &operation.request,
        Request::Get { version: Version::Any, .. } | Request::List { version: Version::Any, .. }
    );
    let answered = !matches!(operation.outcome, Outcome::Refused { .. } | Outcome::Unknown { .. });
    let exact = matches!(
        &operation.request,
        Request::List { version: Version::Exact(_) | Version::NotOlderThan(_), .. }
            | Request::Get { version: Version::NotOlderThan(_), .. }
    );
    (!exact && any != answered).then(|| format!("without a quorum: {operation:?}"))
}
