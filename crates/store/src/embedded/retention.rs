//! History retention and compaction in small steps.
//!
//! Age is measured on a monotonic clock that restarts with the process: after a restart history
//! counts as new, so it is kept longer, never shorter, than configured.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};

use super::Clock;
use super::failure::PathContext;
use super::record::to_sql;
use super::schema::DatabaseMeta;
use crate::{Error, Revision};

/// Approximate number of samples per limit, which bounds memory.
const SAMPLES: u32 = 64;

/// Decides how far to compact history.
pub(super) struct RetentionPolicy {
    age: Duration,
    events: u64,
    bytes: u64,
    clock: Clock,
    /// Samples in order, all above the floor.
    samples: VecDeque<HistorySample>,
    /// Bytes of all recorded changes, and of those up to the floor.
    total: u64,
    forgotten: u64,
}

/// A group of changes that were close together.
#[derive(Debug, Clone, Copy)]
struct HistorySample {
    /// Time and revision of the first change, and the bytes of all changes before it.
    begun: Instant,
    first: Revision,
    before: u64,
    /// Time and revision of the last change, and the bytes of all changes up to it.
    at: Instant,
    revision: Revision,
    total: u64,
}

impl RetentionPolicy {
    pub(super) fn new(age: Duration, events: u64, bytes: u64, clock: Clock) -> Self {
        let samples = VecDeque::new();
        Self { age, events, bytes, clock, samples, total: 0, forgotten: 0 }
    }

    /// Records a change that was committed.
    pub(super) fn record(&mut self, revision: Revision, bytes: u64) {
        let at = (self.clock)();
        let before = self.total;
        self.total += bytes;
        let total = self.total;
        match self.samples.back_mut() {
            Some(last)
                if at.saturating_duration_since(last.begun) < self.age / SAMPLES
                    && revision - last.first < self.events / u64::from(SAMPLES)
                    && total - last.before < self.bytes / u64::from(SAMPLES) =>
            {
                *last = HistorySample { at, revision, total, ..*last };
            }
            _ => {
                let first = revision;
                self.samples.push_back(HistorySample { begun: at, first, before, at, revision, total });
            }
        }
    }

    /// Returns the revision up to which history should be compacted, if any.
    pub(super) fn target(&self, revision: Revision) -> Option<Revision> {
        let now = (self.clock)();
        let old = |s: &HistorySample| now.saturating_duration_since(s.at) >= self.age;
        let many = |s: &HistorySample| revision - s.revision >= self.events;
        let by_age = self.samples.iter().rev().find(|s| old(s));
        let by_events = self.samples.iter().rev().find(|s| many(s));
        let by_bytes = if self.total - self.forgotten > self.bytes {
            let fits = |s: &HistorySample| self.total - s.total <= self.bytes;
            self.samples.iter().find(|s| fits(s)).or(self.samples.back())
        } else {
            None
        };
        [by_age, by_events, by_bytes].into_iter().flatten().map(|s| s.revision).max()
    }

    /// Records the new floor after compaction.
    pub(super) fn set_floor(&mut self, floor: Revision) {
        while let Some(first) = self.samples.front()
            && first.revision <= floor
        {
            self.forgotten = first.total;
            self.samples.pop_front();
        }
    }
}

/// Number of revisions to compact at once, so that commits never wait long.
#[derive(Debug)]
pub(super) struct CompactionStride(u64);

impl CompactionStride {
    const MAX: u64 = 1_024;

    pub(super) fn new() -> Self {
        Self(64)
    }

    /// Returns the end of the next step.
    pub(super) fn next_target(&self, floor: Revision, target: Revision) -> Revision {
        target.min(floor + self.0)
    }

    /// Adapts the stride to the duration of a step.
    pub(super) fn record_duration(&mut self, time: Duration) {
        if time > Duration::from_millis(4) {
            self.0 = (self.0 / 2).max(1);
        } else if time < Duration::from_millis(2) {
            self.0 = (self.0 * 2).min(Self::MAX);
        }
    }
}

/// Raises the floor to `upto`, in one transaction.
///
/// Below the floor each key has at most one live record. Each record that falls below it now makes
/// the one it replaced obsolete; a deletion is itself obsolete too.
pub(super) fn raise_floor(path: &Path, conn: &mut Connection, upto: Revision) -> Result<(), Error> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).with_path(path)?;
    let meta = DatabaseMeta::read(path, &tx)?;
    let bounds = (to_sql(meta.floor), to_sql(upto));
    for sql in [
        "DELETE FROM kv WHERE rev IN
             (SELECT prev FROM kv WHERE rev > ?1 AND rev <= ?2 AND prev > 0)",
        "DELETE FROM kv WHERE rev > ?1 AND rev <= ?2 AND value IS NULL",
    ] {
        tx.prepare_cached(sql).and_then(|mut statement| statement.execute(bounds)).with_path(path)?;
    }
    DatabaseMeta { floor: upto, ..meta }.write(path, &tx)?;
    tx.commit().with_path(path)
}
