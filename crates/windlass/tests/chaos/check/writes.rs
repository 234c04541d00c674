//! Writes: acknowledged ones are stored, refused ones are not, and nothing else is.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::bounds::RevisionBounds;
use super::timeline::StoreTimeline;
use super::{CONFIG_MAPS, CheckResult, ConsistencyRule};
use crate::history::{
    ChaosHistory, Content, OperationOutcome, OperationRequest, RecordedOperation, Revision,
};

pub fn check(
    history: &ChaosHistory,
    timeline: &StoreTimeline<'_>,
    bounds: &RevisionBounds,
    verdict: &mut CheckResult,
) {
    let places = content_revisions(timeline, verdict);
    let mut asked: HashSet<&Content> = HashSet::new();
    let mut taken: HashMap<Revision, &RecordedOperation> = HashMap::new();
    for operation in history.operations.iter().filter(|operation| operation.request.writes()) {
        let Some((key, content)) = operation.request.written_content() else { continue };
        asked.insert(content);
        let stored = key.starts_with(CONFIG_MAPS).then(|| places.get(content).copied()).flatten();
        match &operation.outcome {
            OperationOutcome::Written(revision) => {
                let change = timeline.change_at(*revision);
                let same = change
                    .is_some_and(|change| change.key == key && change.content.as_ref() == Some(content));
                if !same {
                    let what = format!("{operation:?} was acknowledged, stored is {change:?}");
                    verdict.report_violation(ConsistencyRule::AcknowledgedIsStored, what);
                    continue;
                }
                if let Some(other) = taken.insert(*revision, operation) {
                    let what = format!("{operation:?} and {other:?} have one revision");
                    verdict.report_violation(ConsistencyRule::AcknowledgedIsStored, what);
                }
                check_stored_revision(operation, *revision, timeline, bounds, verdict);
            }
            OperationOutcome::Unknown { .. } => {
                if let Some(revision) = stored {
                    check_stored_revision(operation, revision, timeline, bounds, verdict);
                }
            }
            _ => {
                if let Some(revision) = stored {
                    let what = format!("{operation:?} was refused, and stored at {revision}");
                    verdict.report_violation(ConsistencyRule::RefusedIsNotStored, what);
                }
            }
        }
    }
    for (content, revision) in &places {
        if !asked.contains(content) {
            let what = format!("{content:?} is stored at {revision}, but was never written");
            verdict.report_violation(ConsistencyRule::StoredWasAskedFor, what);
        }
    }
    deletions(history, timeline, bounds, verdict);
}

/// Returns the revision at which each content of a resource was stored; no content is written
/// twice.
pub fn contents<'a>(timeline: &StoreTimeline<'a>, resource: &str) -> Vec<(&'a Content, Revision)> {
    let changes = timeline.between(resource, 0, Revision::MAX);
    changes.filter_map(|change| Some((change.content.as_ref()?, change.revision))).collect()
}

fn content_revisions<'a>(
    timeline: &StoreTimeline<'a>,
    verdict: &mut CheckResult,
) -> HashMap<&'a Content, Revision> {
    let mut places = HashMap::new();
    for (content, revision) in contents(timeline, CONFIG_MAPS) {
        if let Some(before) = places.insert(content, revision) {
            let what = format!("{content:?} was stored at {before} and again at {revision}");
            verdict.report_violation(ConsistencyRule::StoredWasAskedFor, what);
        }
    }
    places
}

/// Checks a write that is stored at a revision: it follows earlier observations, and its condition
/// was met.
fn check_stored_revision(
    operation: &RecordedOperation,
    revision: Revision,
    timeline: &StoreTimeline<'_>,
    bounds: &RevisionBounds,
    verdict: &mut CheckResult,
) {
    let floor = bounds.floor(operation.start);
    if revision <= floor {
        let what = format!("{operation:?} is stored at {revision}; {floor} was seen before");
        verdict.report_violation(ConsistencyRule::RevisionsGrow, what);
    }
    let Some((key, _)) = operation.request.written_content() else { return };
    let before = timeline.before(key, revision).map(|(version, _)| version);
    let holds = match &operation.request {
        OperationRequest::Create { .. } => before.is_none(),
        OperationRequest::Update { expect, .. } => before == Some(*expect),
        _ => before.is_some(),
    };
    if !holds {
        let what = format!("{operation:?} is stored at {revision}, where {before:?} was before");
        verdict.report_violation(ConsistencyRule::ConditionsHold, what);
    }
}

/// A requested deletion, and the revisions that it may have.
struct DeletionAttempt<'a> {
    operation: &'a RecordedOperation,
    after: Revision,
    upto: Revision,
    expect: Option<Revision>,
    acknowledged: bool,
    found: bool,
}

/// Responses to deletions have no revision: each stored deletion is assigned to one request.
fn deletions(
    history: &ChaosHistory,
    timeline: &StoreTimeline<'_>,
    bounds: &RevisionBounds,
    verdict: &mut CheckResult,
) {
    let mut asked: BTreeMap<&str, Vec<DeletionAttempt<'_>>> = BTreeMap::new();
    for operation in &history.operations {
        let OperationRequest::Delete { key, expect } = &operation.request else { continue };
        let upto = match operation.outcome {
            OperationOutcome::Deleted => bounds.ceiling(operation.end),
            OperationOutcome::Unknown { .. } => Revision::MAX,
            _ => continue,
        };
        asked.entry(key).or_default().push(DeletionAttempt {
            operation,
            after: bounds.floor(operation.start),
            upto,
            expect: *expect,
            acknowledged: operation.outcome == OperationOutcome::Deleted,
            found: false,
        });
    }
    for change in timeline.between(CONFIG_MAPS, 0, Revision::MAX) {
        if change.content.is_some() {
            continue;
        }
        let gone = timeline.before(&change.key, change.revision).map(|(version, _)| version);
        let asked = asked.entry(&change.key).or_default();
        let fitting = asked.iter_mut().filter(|asked| {
            let possible = asked.after < change.revision && change.revision <= asked.upto;
            !asked.found && possible && asked.expect.is_none_or(|expect| Some(expect) == gone)
        });
        // Requests without alternatives come first.
        match fitting.min_by_key(|asked| (asked.upto, asked.expect.is_none())) {
            Some(fitting) => fitting.found = true,
            None => {
                let what = format!("deletion {change:?} was never requested");
                verdict.report_violation(ConsistencyRule::StoredWasAskedFor, what);
            }
        }
    }
    for asked in asked.values().flatten().filter(|asked| asked.acknowledged && !asked.found) {
        let what = format!(
            "{:?} was acknowledged; nothing was deleted after {} and up to {}",
            asked.operation, asked.after, asked.upto
        );
        verdict.report_violation(ConsistencyRule::AcknowledgedIsStored, what);
    }
}
