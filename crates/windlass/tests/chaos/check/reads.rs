//! Reads: each returns the state at its revision, and its revision is new enough.

use super::bounds::RevisionBounds;
use super::timeline::{StateSpan, StoreTimeline, apply};
use super::{CONFIG_MAPS, CheckResult, ConsistencyRule, REQUESTS};
use crate::history::{
    ChaosHistory, Objects, OperationOutcome, OperationRequest, ReadVersion, RecordedOperation, Revision,
};

pub fn check(
    history: &ChaosHistory,
    timeline: &StoreTimeline<'_>,
    bounds: &RevisionBounds,
    verdict: &mut CheckResult,
) {
    let mut lists = Vec::new();
    for operation in &history.operations {
        match &operation.outcome {
            OperationOutcome::Listed { version, objects } => {
                check_list_revision(operation, *version, bounds, verdict);
                lists.push((*version, objects, operation));
            }
            OperationOutcome::Found(object) => {
                let OperationRequest::Get { key, .. } = &operation.request else { continue };
                let spans = timeline.spans(key);
                let shown = spans.iter().find(|span| span.from == object.version);
                match shown.filter(|span| span.content == Some(&object.content)) {
                    Some(span) => check_existed(operation, &[*span], bounds, verdict),
                    None => {
                        let what = format!("{operation:?}; stored is {shown:?}");
                        verdict.report_violation(ConsistencyRule::ReadsAreTrue, what);
                    }
                }
            }
            OperationOutcome::Absent => {
                states(operation, timeline, bounds, verdict, |span| span.content.is_none());
            }
            OperationOutcome::Exists => {
                states(operation, timeline, bounds, verdict, |span| span.content.is_some());
            }
            OperationOutcome::Conflict => {
                let (OperationRequest::Update { expect, .. }
                | OperationRequest::Delete { expect: Some(expect), .. }) = &operation.request
                else {
                    // Without a condition, only a concurrent change can cause a conflict.
                    continue;
                };
                let other = |span: &StateSpan<'_>| span.from != *expect;
                states(operation, timeline, bounds, verdict, other);
            }
            OperationOutcome::Written(_)
            | OperationOutcome::Deleted
            | OperationOutcome::Refused { .. }
            | OperationOutcome::Unknown { .. } => {}
        }
    }
    lists.sort_by_key(|(version, ..)| *version);
    for resource in [CONFIG_MAPS, REQUESTS] {
        let of_it = lists.iter().filter(|(.., operation)| {
            matches!(&operation.request, OperationRequest::List { resource: listed, .. } if listed == resource)
        });
        are_true(resource, of_it.copied(), timeline, verdict);
    }
}

/// Compares lists, in the order of their revisions, with the stored state.
fn are_true<'a>(
    resource: &str,
    lists: impl Iterator<Item = (Revision, &'a Objects, &'a RecordedOperation)>,
    timeline: &StoreTimeline<'_>,
    verdict: &mut CheckResult,
) {
    let (mut state, mut at) = (Objects::new(), 0);
    for (version, objects, operation) in lists {
        for change in timeline.between(resource, at, version) {
            apply(&mut state, change);
        }
        at = version;
        if *objects != state {
            let what = format!(
                "a list of {} via {:?} at {version}, asked at {}, differs: {}",
                resource,
                operation.via,
                operation.start,
                difference(objects, &state)
            );
            verdict.report_violation(ConsistencyRule::ReadsAreTrue, what);
        }
    }
}

/// Describes the differences between the returned and the stored objects.
pub fn difference(shown: &Objects, stored: &Objects) -> String {
    let keys = shown.keys().chain(stored.keys());
    let differing = keys.filter(|key| shown.get(*key) != stored.get(*key)).take(3);
    let received: Vec<_> = differing
        .map(|key| format!("{key}: shown {:?}, stored {:?}", shown.get(key), stored.get(key)))
        .collect();
    received.join("; ")
}

/// Checks that the revision of a list was possible at its time.
fn check_list_revision(
    operation: &RecordedOperation,
    shown: Revision,
    bounds: &RevisionBounds,
    verdict: &mut CheckResult,
) {
    let (rule, floor) = floor(operation, bounds);
    if shown < floor {
        verdict
            .report_violation(rule, format!("{} is older than {floor}", operation_summary(operation, shown)));
    }
    if let OperationRequest::List { version: ReadVersion::Exact(wanted), .. } = &operation.request
        && shown != *wanted
    {
        verdict.report_violation(
            ConsistencyRule::ReadsAreTrue,
            format!("{} is not exact", operation_summary(operation, shown)),
        );
    }
    let ceiling = bounds.ceiling(operation.end);
    if shown > ceiling {
        let what = format!("{} is newer than {ceiling}", operation_summary(operation, shown));
        verdict.report_violation(ConsistencyRule::NothingFromTheFuture, what);
    }
}

fn operation_summary(operation: &RecordedOperation, shown: Revision) -> String {
    let RecordedOperation { client, via, start, end, request, .. } = operation;
    format!("{request:?} of {client} via {via:?} from {start} to {end}, at {shown},")
}

/// Returns the minimum revision of a read, and the rule that requires it.
fn floor(operation: &RecordedOperation, bounds: &RevisionBounds) -> (ConsistencyRule, Revision) {
    let version = match &operation.request {
        OperationRequest::Get { version, .. } | OperationRequest::List { version, .. } => *version,
        // The state that a write finds is as fresh as that of a read without a version.
        _ => ReadVersion::Newest,
    };
    match version {
        ReadVersion::Newest => (ConsistencyRule::ReadsAreFresh, bounds.floor(operation.start)),
        ReadVersion::Any => {
            (ConsistencyRule::ServersDoNotGoBack, bounds.server_floor(operation.via, operation.start))
        }
        ReadVersion::NotOlderThan(wanted) => (ConsistencyRule::ReadsAreFresh, wanted),
        ReadVersion::Exact(_) => (ConsistencyRule::ReadsAreTrue, 0),
    }
}

/// Checks that a key was in a matching state at a possible time.
fn states(
    operation: &RecordedOperation,
    timeline: &StoreTimeline<'_>,
    bounds: &RevisionBounds,
    verdict: &mut CheckResult,
    fits: impl Fn(&StateSpan<'_>) -> bool,
) {
    let (OperationRequest::Create { key, .. }
    | OperationRequest::Update { key, .. }
    | OperationRequest::Patch { key, .. }
    | OperationRequest::Delete { key, .. }
    | OperationRequest::Get { key, .. }) = &operation.request
    else {
        return;
    };
    let spans: Vec<_> = timeline.spans(key).iter().copied().filter(fits).collect();
    check_existed(operation, &spans, bounds, verdict);
}

fn check_existed(
    operation: &RecordedOperation,
    spans: &[StateSpan<'_>],
    bounds: &RevisionBounds,
    verdict: &mut CheckResult,
) {
    let (rule, floor) = floor(operation, bounds);
    let ceiling = bounds.ceiling(operation.end);
    if spans.iter().any(|span| span.upto >= floor && span.from <= ceiling) {
        return;
    }
    let rule = match spans.iter().any(|span| span.upto < floor) {
        _ if spans.is_empty() => ConsistencyRule::ReadsAreTrue,
        true => rule,
        false => ConsistencyRule::NothingFromTheFuture,
    };
    let what = format!("{operation:?} is not true between {floor} and {ceiling}");
    verdict.report_violation(rule, what);
}
