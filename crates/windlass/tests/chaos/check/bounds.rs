//! Bounds of the revision at a time: revisions observed by then had happened, and those of writes
//! that were requested later had not.

use std::collections::{BTreeMap, HashMap};

use super::timeline::StoreTimeline;
use super::{CONFIG_MAPS, writes};
use crate::history::{ChaosHistory, OperationOutcome, RequestRoute, Revision, Time};

pub struct RevisionBounds {
    /// Highest revision observed by any client up to a time; monotonic.
    seen: RevisionPeaks,
    /// The same for observations through one server.
    by_server: BTreeMap<RequestRoute, RevisionPeaks>,
    /// Start of each write with its revision, and the lowest revision of all that started then or
    /// later.
    asked: Vec<(Time, Revision)>,
}

/// Highest values up to a time.
#[derive(Default)]
struct RevisionPeaks(Vec<(Time, Revision)>);

impl RevisionBounds {
    pub fn new(history: &ChaosHistory, timeline: &StoreTimeline<'_>) -> Self {
        let mut seen = Vec::new();
        let mut asked = Vec::new();
        let places: HashMap<_, _> = writes::contents(timeline, CONFIG_MAPS).into_iter().rev().collect();
        for operation in &history.operations {
            let shown = match &operation.outcome {
                OperationOutcome::Written(revision) => Some(*revision),
                OperationOutcome::Found(object) => Some(object.version),
                OperationOutcome::Listed { version, .. } => Some(*version),
                _ => None,
            };
            seen.extend(shown.map(|shown| (operation.via, operation.end, shown)));
            let stored = match (&operation.outcome, operation.request.written_content()) {
                (OperationOutcome::Written(revision), _) => Some(*revision),
                (OperationOutcome::Unknown { .. }, Some((_, content))) => places.get(content).copied(),
                _ => None,
            };
            asked.extend(stored.map(|stored| (operation.start, stored)));
        }
        for watch in &history.watches {
            seen.extend(watch.received.iter().map(|received| (watch.via, received.at, received.version)));
        }
        asked.sort_unstable();
        let mut lowest = Revision::MAX;
        for (_, revision) in asked.iter_mut().rev() {
            lowest = lowest.min(*revision);
            *revision = lowest;
        }
        let mut by_server: BTreeMap<RequestRoute, Vec<(Time, Revision)>> = BTreeMap::new();
        for (via, time, revision) in &seen {
            by_server.entry(*via).or_default().push((*time, *revision));
        }
        by_server.remove(&RequestRoute::Balancer);
        Self {
            seen: RevisionPeaks::new(seen.into_iter().map(|(_, time, revision)| (time, revision))),
            by_server: by_server.into_iter().map(|(via, seen)| (via, RevisionPeaks::new(seen))).collect(),
            asked,
        }
    }

    /// Returns the revision that had been reached before a time, because a client had observed it.
    pub fn floor(&self, before: Time) -> Revision {
        self.seen.before(before)
    }

    /// Returns the highest revision that a server had returned before a time.
    pub fn server_floor(&self, via: RequestRoute, before: Time) -> Revision {
        self.by_server.get(&via).map_or(0, |peaks| peaks.before(before))
    }

    /// Returns the highest revision possible at a time: writes requested later have higher ones.
    pub fn ceiling(&self, by: Time) -> Revision {
        let later = self.asked.partition_point(|(start, _)| *start <= by);
        self.asked.get(later).map_or(Revision::MAX, |(_, lowest)| lowest - 1)
    }
}

impl RevisionPeaks {
    fn new(seen: impl IntoIterator<Item = (Time, Revision)>) -> Self {
        let mut seen: Vec<_> = seen.into_iter().collect();
        seen.sort_unstable();
        let mut highest = 0;
        for (_, revision) in &mut seen {
            highest = highest.max(*revision);
            *revision = highest;
        }
        Self(seen)
    }

    fn before(&self, time: Time) -> Revision {
        let earlier = self.0.partition_point(|(seen, _)| *seen < time);
        earlier.checked_sub(1).and_then(|last| self.0.get(last)).map_or(0, |(_, highest)| *highest)
    }
}
