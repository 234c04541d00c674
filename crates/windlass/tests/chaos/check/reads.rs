//! Reads: each shows what was stored at its revision, and its revision is new enough.

use super::bounds::Bounds;
use super::timeline::{Span, Timeline, apply};
use super::{CONFIG_MAPS, REQUESTS, Rule, Verdict};
use crate::history::{History, Objects, Operation, Outcome, Request, Revision, Version};

pub fn check(history: &History, timeline: &Timeline<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    let mut lists = Vec::new();
    for operation in &history.operations {
        match &operation.outcome {
            Outcome::Listed { version, objects } => {
                is_in_bounds(operation, *version, bounds, verdict);
                lists.push((*version, objects, operation));
            }
            Outcome::Found(object) => {
                let Request::Get { key, .. } = &operation.request else { continue };
                let spans = timeline.spans(key);
                let shown = spans.iter().find(|span| span.from == object.version);
                match shown.filter(|span| span.content == Some(&object.content)) {
                    Some(span) => was_there(operation, &[*span], bounds, verdict),
                    None => {
                        let what = format!("{operation:?}; stored is {shown:?}");
                        verdict.blame(Rule::ReadsAreTrue, what);
                    }
                }
            }
            Outcome::Absent => {
                states(operation, timeline, bounds, verdict, |span| span.content.is_none());
            }
            Outcome::Exists => {
                states(operation, timeline, bounds, verdict, |span| span.content.is_some());
            }
            Outcome::Conflict => {
                let (Request::Update { expect, .. } | Request::Delete { expect: Some(expect), .. }) =
                    &operation.request
                else {
                    // Without a condition there is nothing to conflict with but a change in between.
                    continue;
                };
                let other = |span: &Span<'_>| span.from != *expect;
                states(operation, timeline, bounds, verdict, other);
            }
            Outcome::Written(_)
            | Outcome::Deleted
            | Outcome::Refused { .. }
            | Outcome::Unknown { .. } => {}
        }
    }
    lists.sort_by_key(|(version, ..)| *version);
    for resource in [CONFIG_MAPS, REQUESTS] {
        let of_it = lists.iter().filter(|(.., operation)| {
            matches!(&operation.request, Request::List { resource: listed, .. } if listed == resource)
        });
        are_true(resource, of_it.copied(), timeline, verdict);
    }
}

/// Lists in the order of their revisions, against what was stored by then.
fn are_true<'a>(
    resource: &str,
    lists: impl Iterator<Item = (Revision, &'a Objects, &'a Operation)>,
    timeline: &Timeline<'_>,
    verdict: &mut Verdict,
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
            verdict.blame(Rule::ReadsAreTrue, what);
        }
    }
}

/// What is shown and not stored, or the other way round.
pub fn difference(shown: &Objects, stored: &Objects) -> String {
    let keys = shown.keys().chain(stored.keys());
    let differing = keys.filter(|key| shown.get(*key) != stored.get(*key)).take(3);
    let told: Vec<_> = differing
        .map(|key| format!("{key}: shown {:?}, stored {:?}", shown.get(key), stored.get(key)))
        .collect();
    told.join("; ")
}

/// The revision of a list is one that it can have had.
fn is_in_bounds(operation: &Operation, shown: Revision, bounds: &Bounds, verdict: &mut Verdict) {
    let (rule, floor) = floor(operation, bounds);
    if shown < floor {
        verdict.blame(rule, format!("{} is older than {floor}", brief(operation, shown)));
    }
    if let Request::List { version: Version::Exact(wanted), .. } = &operation.request
        && shown != *wanted
    {
        verdict.blame(Rule::ReadsAreTrue, format!("{} is not exact", brief(operation, shown)));
    }
    let ceiling = bounds.ceiling(operation.end);
    if shown > ceiling {
        let what = format!("{} is newer than {ceiling}", brief(operation, shown));
        verdict.blame(Rule::NothingFromTheFuture, what);
    }
}

fn brief(operation: &Operation, shown: Revision) -> String {
    let Operation { client, via, start, end, request, .. } = operation;
    format!("{request:?} of {client} via {via:?} from {start} to {end}, at {shown},")
}

/// How old a read may be, and which rule says so.
fn floor(operation: &Operation, bounds: &Bounds) -> (Rule, Revision) {
    let version = match &operation.request {
        Request::Get { version, .. } | Request::List { version, .. } => *version,
        // What a write finds is as new as what a read without a version finds.
        _ => Version::Newest,
    };
    match version {
        Version::Newest => (Rule::ReadsAreFresh, bounds.floor(operation.start)),
        Version::Any => (Rule::ServersDoNotGoBack, bounds.floor_of(operation.via, operation.start)),
        Version::NotOlderThan(wanted) => (Rule::ReadsAreFresh, wanted),
        Version::Exact(_) => (Rule::ReadsAreTrue, 0),
    }
}

/// A key was in a state that fits, at a time that fits.
fn states(
    operation: &Operation,
    timeline: &Timeline<'_>,
    bounds: &Bounds,
    verdict: &mut Verdict,
    fits: impl Fn(&Span<'_>) -> bool,
) {
    let (Request::Create { key, .. }
    | Request::Update { key, .. }
    | Request::Patch { key, .. }
    | Request::Delete { key, .. }
    | Request::Get { key, .. }) = &operation.request
    else {
        return;
    };
    let spans: Vec<_> = timeline.spans(key).iter().copied().filter(fits).collect();
    was_there(operation, &spans, bounds, verdict);
}

fn was_there(operation: &Operation, spans: &[Span<'_>], bounds: &Bounds, verdict: &mut Verdict) {
    let (rule, floor) = floor(operation, bounds);
    let ceiling = bounds.ceiling(operation.end);
    if spans.iter().any(|span| span.upto >= floor && span.from <= ceiling) {
        return;
    }
    let rule = match spans.iter().any(|span| span.upto < floor) {
        _ if spans.is_empty() => Rule::ReadsAreTrue,
        true => rule,
        false => Rule::NothingFromTheFuture,
    };
    let what = format!("{operation:?} is not true between {floor} and {ceiling}");
    verdict.blame(rule, what);
}
