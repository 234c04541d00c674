//! Watches: ordered, unique, complete, true, resumable, with bookmarks that can be relied on.

use std::collections::BTreeMap;

use super::bounds::Bounds;
use super::reads::difference;
use super::timeline::Timeline;
use super::{Rule, Verdict};
use crate::history::{Change, End, From, History, News, Object, Objects, Revision, Told, Watch};

pub fn check(history: &History, timeline: &Timeline<'_>, bounds: &Bounds, verdict: &mut Verdict) {
    // In the order of their beginning, so that each finds where the one before it ended.
    let mut watches: Vec<_> = history.watches.iter().collect();
    watches.sort_by_key(|watch| watch.start);
    let mut ends: BTreeMap<usize, (Option<Revision>, &Watch)> = BTreeMap::new();
    for watch in watches {
        let before = ends.get(&watch.client).and_then(|(position, _)| *position);
        if watch.follows
            && let (Some(before), From::Revision(from)) = (before, watch.from)
            && before != from
        {
            let what = format!("{} went on from {from}, not {before}", brief(watch));
            verdict.blame(Rule::WatchResumed, what);
        }
        let position = one(watch, timeline, bounds, verdict);
        if watch.follows {
            // Who was told 410 begins anew.
            let position = position.filter(|_| watch.end != End::Gone);
            ends.insert(watch.client, (position, watch));
        }
    }
    for (position, watch) in ends.values() {
        let Some(position) = position else {
            verdict.blame(Rule::WatchResumed, format!("{} never went on", brief(watch)));
            continue;
        };
        let missing = timeline.between(&watch.resource, *position, Revision::MAX).next();
        if let Some(missing) = missing {
            let what = format!("{} ended at {position} and never told {missing:?}", brief(watch));
            verdict.blame(Rule::WatchResumed, what);
        }
    }
}

fn brief(watch: &Watch) -> String {
    let Watch { client, via, start, resource, from, .. } = watch;
    format!("the watch of {resource} by {client} via {via:?} at {start} from {from:?}")
}

/// Follows one watch; returns where it has come to, if that is known.
fn one(
    watch: &Watch,
    timeline: &Timeline<'_>,
    bounds: &Bounds,
    verdict: &mut Verdict,
) -> Option<Revision> {
    let (mut position, told) = match watch.from {
        From::Revision(from) => (from, watch.told.as_slice()),
        From::State => beginning(watch, timeline, bounds, verdict)?,
    };
    for told in told {
        let ceiling = bounds.ceiling(told.at);
        if told.version > ceiling && !is_bookmark(told) {
            let what = format!("{}: {told:?} is newer than {ceiling}", brief(watch));
            verdict.blame(Rule::NothingFromTheFuture, what);
        }
        let bookmark = is_bookmark(told);
        if told.version < position || (told.version == position && !bookmark) {
            let same = |other: &&Told| other.version == told.version && !is_bookmark(other);
            let known = watch.told.iter().filter(same).count() > 1;
            let rule = match (bookmark, known || told.version == position) {
                (true, _) => Rule::WatchBookmarks,
                (false, true) => Rule::WatchUnique,
                (false, false) => Rule::WatchOrdered,
            };
            verdict.blame(rule, format!("{}: {told:?} after {position}", brief(watch)));
            continue;
        }
        let upto = if bookmark { told.version } else { told.version - 1 };
        if let Some(missing) = timeline.between(&watch.resource, position, upto).next() {
            let rule = if bookmark { Rule::WatchBookmarks } else { Rule::WatchComplete };
            let what = format!("{}: {told:?} was told, but not {missing:?}", brief(watch));
            verdict.blame(rule, what);
        }
        let change = timeline.at(told.version);
        if !bookmark && !is_true(told, change, timeline) {
            let what = format!("{}: {told:?}, but {change:?} was stored", brief(watch));
            verdict.blame(Rule::WatchTrue, what);
        }
        position = told.version;
    }
    Some(position)
}

fn is_bookmark(told: &Told) -> bool {
    matches!(told.news, News::Bookmark | News::InitialEnd)
}

fn is_true(told: &Told, change: Option<&Change>, timeline: &Timeline<'_>) -> bool {
    let Some(change) = change else { return false };
    let before = timeline.before(&change.key, change.revision).map(|(_, content)| content);
    match &told.news {
        News::Added { key, content } => {
            (key, Some(content)) == (&change.key, change.content.as_ref()) && before.is_none()
        }
        News::Modified { key, content } => {
            (key, Some(content)) == (&change.key, change.content.as_ref()) && before.is_some()
        }
        News::Deleted { key, content } => {
            *key == change.key && change.content.is_none() && before == Some(content)
        }
        News::Bookmark | News::InitialEnd => true,
    }
}

/// A watch that begins with what there is; returns at which revision that was, and what follows.
fn beginning<'a>(
    watch: &'a Watch,
    timeline: &Timeline<'_>,
    bounds: &Bounds,
    verdict: &mut Verdict,
) -> Option<(Revision, &'a [Told])> {
    let end = watch.told.iter().position(|told| told.news == News::InitialEnd)?;
    let (initial, rest) = watch.told.split_at(end);
    let (bookmark, rest) = rest.split_first()?;
    let mut shown = Objects::new();
    for told in initial {
        let News::Added { key, content } = &told.news else {
            let what = format!("{}: {told:?} among what there is", brief(watch));
            verdict.blame(Rule::WatchTrue, what);
            continue;
        };
        let object = Object { version: told.version, content: content.clone() };
        shown.insert(key.clone(), object);
    }
    let stored = timeline.state(&watch.resource, bookmark.version);
    if shown != stored {
        let what = format!("{} begins wrongly: {}", brief(watch), difference(&shown, &stored));
        verdict.blame(Rule::WatchTrue, what);
    }
    let floor = bounds.floor(watch.start);
    if bookmark.version < floor {
        let what = format!("{} begins at {}, before {floor}", brief(watch), bookmark.version);
        verdict.blame(Rule::ReadsAreFresh, what);
    }
    Some((bookmark.version, rest))
}
