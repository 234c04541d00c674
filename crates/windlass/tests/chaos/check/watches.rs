//! Watches: ordered, unique, complete, true, resumable, and with correct bookmarks.

use std::collections::BTreeMap;

use super::bounds::RevisionBounds;
use super::reads::difference;
use super::timeline::StoreTimeline;
use super::{CheckResult, ConsistencyRule};
use crate::history::{
    ChaosHistory, ListedObject, Objects, ObservedEvent, RecordedWatch, Revision, StoreChange, WatchEnd,
    WatchEventKind, WatchStart,
};

pub fn check(
    history: &ChaosHistory,
    timeline: &StoreTimeline<'_>,
    bounds: &RevisionBounds,
    verdict: &mut CheckResult,
) {
    // In order of their start, so that each finds where the previous one ended.
    let mut watches: Vec<_> = history.watches.iter().collect();
    watches.sort_by_key(|watch| watch.start);
    let mut ends: BTreeMap<usize, (Option<Revision>, &RecordedWatch)> = BTreeMap::new();
    for watch in watches {
        let before = ends.get(&watch.client).and_then(|(position, _)| *position);
        if watch.follows
            && let (Some(before), WatchStart::Revision(from)) = (before, watch.from)
            && before != from
        {
            let what = format!("{} went on from {from}, not {before}", watch_summary(watch));
            verdict.report_violation(ConsistencyRule::WatchResumed, what);
        }
        let position = check_watch(watch, timeline, bounds, verdict);
        if watch.follows {
            // After 410, the client starts over.
            let position = position.filter(|_| watch.end != WatchEnd::Gone);
            ends.insert(watch.client, (position, watch));
        }
    }
    for (position, watch) in ends.values() {
        let Some(position) = position else {
            verdict.report_violation(
                ConsistencyRule::WatchResumed,
                format!("{} never went on", watch_summary(watch)),
            );
            continue;
        };
        let missing = timeline.between(&watch.resource, *position, Revision::MAX).next();
        if let Some(missing) = missing {
            let what =
                format!("{} ended at {position} and never delivered {missing:?}", watch_summary(watch));
            verdict.report_violation(ConsistencyRule::WatchResumed, what);
        }
    }
}

fn watch_summary(watch: &RecordedWatch) -> String {
    let RecordedWatch { client, via, start, resource, from, .. } = watch;
    format!("the watch of {resource} by {client} via {via:?} at {start} from {from:?}")
}

/// Checks one watch; returns the revision that it reached, if known.
fn check_watch(
    watch: &RecordedWatch,
    timeline: &StoreTimeline<'_>,
    bounds: &RevisionBounds,
    verdict: &mut CheckResult,
) -> Option<Revision> {
    let (mut position, received) = match watch.from {
        WatchStart::Revision(from) => (from, watch.received.as_slice()),
        WatchStart::State => check_initial_events(watch, timeline, bounds, verdict)?,
    };
    for received in received {
        let ceiling = bounds.ceiling(received.at);
        if received.version > ceiling && !is_bookmark(received) {
            let what = format!("{}: {received:?} is newer than {ceiling}", watch_summary(watch));
            verdict.report_violation(ConsistencyRule::NothingFromTheFuture, what);
        }
        let bookmark = is_bookmark(received);
        if received.version < position || (received.version == position && !bookmark) {
            let same = |other: &&ObservedEvent| other.version == received.version && !is_bookmark(other);
            let known = watch.received.iter().filter(same).count() > 1;
            let rule = match (bookmark, known || received.version == position) {
                (true, _) => ConsistencyRule::WatchBookmarks,
                (false, true) => ConsistencyRule::WatchUnique,
                (false, false) => ConsistencyRule::WatchOrdered,
            };
            verdict
                .report_violation(rule, format!("{}: {received:?} after {position}", watch_summary(watch)));
            continue;
        }
        let upto = if bookmark { received.version } else { received.version - 1 };
        if let Some(missing) = timeline.between(&watch.resource, position, upto).next() {
            let rule =
                if bookmark { ConsistencyRule::WatchBookmarks } else { ConsistencyRule::WatchComplete };
            let what = format!("{}: {received:?} was delivered, but not {missing:?}", watch_summary(watch));
            verdict.report_violation(rule, what);
        }
        let change = timeline.change_at(received.version);
        if !bookmark && !matches_change(received, change, timeline) {
            let what = format!("{}: {received:?}, but {change:?} was stored", watch_summary(watch));
            verdict.report_violation(ConsistencyRule::WatchTrue, what);
        }
        position = received.version;
    }
    Some(position)
}

fn is_bookmark(received: &ObservedEvent) -> bool {
    matches!(received.news, WatchEventKind::Bookmark | WatchEventKind::InitialEnd)
}

fn matches_change(
    received: &ObservedEvent,
    change: Option<&StoreChange>,
    timeline: &StoreTimeline<'_>,
) -> bool {
    let Some(change) = change else { return false };
    let before = timeline.before(&change.key, change.revision).map(|(_, content)| content);
    match &received.news {
        WatchEventKind::Added { key, content } => {
            (key, Some(content)) == (&change.key, change.content.as_ref()) && before.is_none()
        }
        WatchEventKind::Modified { key, content } => {
            (key, Some(content)) == (&change.key, change.content.as_ref()) && before.is_some()
        }
        WatchEventKind::Deleted { key, content } => {
            *key == change.key && change.content.is_none() && before == Some(content)
        }
        WatchEventKind::Bookmark | WatchEventKind::InitialEnd => true,
    }
}

/// Checks a watch that starts with the current state; returns the revision of that state, and the
/// remaining events.
fn check_initial_events<'a>(
    watch: &'a RecordedWatch,
    timeline: &StoreTimeline<'_>,
    bounds: &RevisionBounds,
    verdict: &mut CheckResult,
) -> Option<(Revision, &'a [ObservedEvent])> {
    let end = watch.received.iter().position(|received| received.news == WatchEventKind::InitialEnd)?;
    let (initial, rest) = watch.received.split_at(end);
    let (bookmark, rest) = rest.split_first()?;
    let mut shown = Objects::new();
    for received in initial {
        let WatchEventKind::Added { key, content } = &received.news else {
            let what = format!("{}: {received:?} among what there is", watch_summary(watch));
            verdict.report_violation(ConsistencyRule::WatchTrue, what);
            continue;
        };
        let object = ListedObject { version: received.version, content: content.clone() };
        shown.insert(key.clone(), object);
    }
    let stored = timeline.state(&watch.resource, bookmark.version);
    if shown != stored {
        let what = format!("{} begins wrongly: {}", watch_summary(watch), difference(&shown, &stored));
        verdict.report_violation(ConsistencyRule::WatchTrue, what);
    }
    let floor = bounds.floor(watch.start);
    if bookmark.version < floor {
        let what = format!("{} begins at {}, before {floor}", watch_summary(watch), bookmark.version);
        verdict.report_violation(ConsistencyRule::ReadsAreFresh, what);
    }
    Some((bookmark.version, rest))
}
