//! Faults: durations without successful writes, and the errors that clients got meanwhile.

use std::fmt::Write as _;
use std::time::Duration;

use super::{CheckResult, ConsistencyRule};
use crate::history::{
    ChaosHistory, InjectedFault, OperationOutcome, OperationRequest, ReadVersion, RecordedOperation, Time,
};

/// Maximum time without successful writes while etcd elects another leader.
const BOUND: Duration = Duration::from_secs(5);

/// Time within which writes must succeed after an etcd outage that took too long itself: its
/// members sometimes split votes repeatedly.
const AFTER_ETCD: Duration = Duration::from_secs(2);

/// How long etcd may still respond after losing its quorum, until its leader has noticed.
const NOTICED: Time = 3_000_000;

pub fn check(history: &ChaosHistory, verdict: &mut CheckResult) {
    for fault in &history.faults {
        let (outage, etcd) = (outage(history, fault), etcd_outage(history, fault));
        if fault.leader_change && outage > BOUND.max(etcd + AFTER_ETCD) {
            let what = format!(
                "{} at {}: no write succeeded for {outage:?}; etcd itself was unavailable for {etcd:?}",
                fault.name, fault.start
            );
            verdict.report_violation(ConsistencyRule::Available, what);
        }
    }
    for operation in &history.operations {
        if let Some(what) = refusal_defect(operation) {
            verdict.report_violation(ConsistencyRule::RefusedProperly, what);
        }
        let lost = history.faults.iter().any(|fault| {
            let (begun, healed) = (fault.start + NOTICED, fault.healed);
            fault.no_quorum && begun < operation.start && operation.end < healed
        });
        if lost && let Some(what) = without_quorum(operation) {
            verdict.report_violation(ConsistencyRule::RefusedProperly, what);
        }
    }
}

/// Returns the time without successful writes during a fault.
fn outage(history: &ChaosHistory, fault: &InjectedFault) -> Duration {
    longest_gap(history.operations.iter().filter_map(succeeded), fault)
}

/// Returns the time during a fault in which etcd itself accepted no writes.
fn etcd_outage(history: &ChaosHistory, fault: &InjectedFault) -> Duration {
    if history.probes.is_empty() {
        return Duration::ZERO;
    }
    longest_gap(history.probes.iter().copied(), fault)
}

/// Returns the longest gap between events during a fault, starting with the last event before it.
fn longest_gap(times: impl Iterator<Item = Time>, fault: &InjectedFault) -> Duration {
    let mut within: Vec<Time> = times.filter(|time| *time <= fault.end).collect();
    within.push(fault.end);
    within.sort_unstable();
    let first = within.partition_point(|time| *time < fault.start);
    let within = &within[first.saturating_sub(1)..];
    let longest = within.windows(2).map(|pair| pair[1] - pair[0]).max();
    Duration::from_micros(longest.unwrap_or(fault.end - fault.start))
}

/// Formats a table of all faults.
pub fn table(history: &ChaosHistory) -> String {
    let mut table = format!(
        "{:<42} {:>8} {:>9} {:>10} {:>9} {:>10}\n",
        "fault", "at s", "lasted s", "cured in s", "outage s", "of etcd s"
    );
    for fault in &history.faults {
        let seconds = |time: Time| Duration::from_micros(time).as_secs_f64();
        let _ = writeln!(
            table,
            "{:<42} {:>8.1} {:>9.1} {:>10.1} {:>9.2} {:>10.2}",
            fault.name,
            seconds(fault.start),
            seconds(fault.healed - fault.start),
            seconds(fault.end - fault.healed),
            outage(history, fault).as_secs_f64(),
            etcd_outage(history, fault).as_secs_f64()
        );
    }
    table
}

fn succeeded(operation: &RecordedOperation) -> Option<Time> {
    let done = matches!(operation.outcome, OperationOutcome::Written(_) | OperationOutcome::Deleted);
    done.then_some(operation.end)
}

/// A reachable server that refuses a request must tell the client to retry.
fn refusal_defect(operation: &RecordedOperation) -> Option<String> {
    let (OperationOutcome::Refused { code, retry_after }
    | OperationOutcome::Unknown { code, retry_after, .. }) = &operation.outcome
    else {
        return None;
    };
    let proper = match code {
        503 | 429 => *retry_after,
        // 504 responds to a read of a version that is not reached in time.
        504 | 410 | 0 => true,
        _ => false,
    };
    (!proper).then(|| format!("{operation:?}"))
}

/// Without a quorum, writes and fresh reads must fail, but reads of any version succeed.
fn without_quorum(operation: &RecordedOperation) -> Option<String> {
    let any = matches!(
        &operation.request,
        OperationRequest::Get { version: ReadVersion::Any, .. }
            | OperationRequest::List { version: ReadVersion::Any, .. }
    );
    let answered =
        !matches!(operation.outcome, OperationOutcome::Refused { .. } | OperationOutcome::Unknown { .. });
    let exact = matches!(
        &operation.request,
        OperationRequest::List { version: ReadVersion::Exact(_) | ReadVersion::NotOlderThan(_), .. }
            | OperationRequest::Get { version: ReadVersion::NotOlderThan(_), .. }
    );
    (!exact && any != answered).then(|| format!("without a quorum: {operation:?}"))
}
