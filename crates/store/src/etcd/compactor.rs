//! Compaction of old history: one server at a time compacts, and all detect compactions by others,
//! including etcd itself and its other users.
//!
//! A server that wants to compact writes the revision to a key shared by all servers of the store,
//! if none has since it last looked. There is therefore one compaction per interval, and if the
//! compacting server is gone, another takes over one interval later.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::client::CallFailure;
use super::core::EtcdCore;
use super::reader;
use super::wire::{
    Compare, CompareResult, CompareTarget, CompareTo, KeyValue, PutRequest, RangeRequest, Request, Response,
    TxnRequest,
};
use crate::{Error, KeyRange, Revision};

/// Maximum interval between checks for compactions by others.
const LOOK: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompactedBy {
    ThisStore,
    /// Another server on the same store.
    Sibling,
    /// etcd itself, or another of its users.
    Other,
}

/// Compacts, and updates the store's floor.
pub(super) struct Compactor {
    core: Arc<EtcdCore>,
    plan: Option<CompactionPlan>,
    /// Version of the shared key when last read.
    turn: i64,
    /// The last floor that was logged.
    logged_floor: Revision,
}

impl Compactor {
    /// Creates a compactor that compacts every `interval`, or only observes, and keeps history
    /// younger than `age`.
    pub(super) fn new(core: Arc<EtcdCore>, interval: Option<Duration>, age: Duration, now: Instant) -> Self {
        let logged_floor = core.floor();
        let plan = interval.map(|interval| CompactionPlan::new(interval, age, now));
        Self { core, plan, turn: 0, logged_floor }
    }

    /// Runs until the store is closed.
    pub(super) async fn run(mut self) {
        let core = Arc::clone(&self.core);
        let work = async {
            let period = self.plan.as_ref().map_or(LOOK, |plan| plan.interval.min(LOOK));
            loop {
                tokio::time::sleep(period).await;
                match self.round(Instant::now()).await {
                    Ok(Some((by, floor))) => log_compaction(by, floor),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot determine the oldest available revision");
                    }
                }
            }
        };
        tokio::select! {
            () = core.wait_for_shutdown() => {}
            () = work => {}
        }
    }

    /// Compacts if due, otherwise checks for compactions; returns who has compacted since the last
    /// round.
    pub(super) async fn round(&mut self, now: Instant) -> Result<Option<(CompactedBy, Revision)>, Error> {
        let target = match &mut self.plan {
            Some(plan) => {
                plan.record(now, self.core.newest_revision().await?);
                plan.target(now).filter(|target| *target > self.core.floor())
            }
            None => None,
        };
        let mut ours = None;
        if let Some(target) = target {
            match self.compact(target).await {
                Ok(done) => ours = done.then_some(target),
                // Compactions by others must be detected anyway.
                Err(error) => tracing::warn!(%error, "cannot compact history"),
            }
        }
        let floor = self.read_floor().await?;
        if floor == self.logged_floor {
            return Ok(None);
        }
        self.logged_floor = floor;
        if ours == Some(floor) {
            return Ok(Some((CompactedBy::ThisStore, floor)));
        }
        let claim = self.read_claim().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot read which server compacts");
            None
        });
        let claimed = claim.and_then(|kv| std::str::from_utf8(&kv.value).ok()?.parse().ok());
        Ok(Some((if claimed == Some(floor) { CompactedBy::Sibling } else { CompactedBy::Other }, floor)))
    }

    /// Returns the oldest revision with history.
    async fn read_floor(&self) -> Result<Revision, Error> {
        let at = Some(self.core.floor());
        let nothing = KeyRange { at, limit: Some(0), ..KeyRange::default() };
        match reader::range(&self.core, &nothing).await {
            // If it was compacted, the floor has been raised by now.
            Ok(_) | Err(Error::Compacted { .. }) => Ok(self.core.floor()),
            Err(error) => Err(error),
        }
    }

    /// Compacts if it is this store's turn; returns whether it was.
    async fn compact(&mut self, target: Revision) -> Result<bool, Error> {
        match self.claim_turn(target).await {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            // Compaction frees space, so it must not require any.
            Err(CallFailure::Final(Error::Full { .. })) => {}
            Err(failure) => return Err(failure.into_error(&self.core.client.name)),
        }
        reader::compact(&self.core, target).await?;
        // The feed does not show the shared key. Catch up here, so that readers need not wait for
        // it.
        let _ = self.core.catch_up(&Handle::current()).await;
        Ok(true)
    }

    async fn claim_turn(&mut self, target: Revision) -> Result<bool, CallFailure> {
        let key = self.core.keys.compaction_key();
        let unchanged = Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Version.into(),
            key: key.clone(),
            to: Some(CompareTo::Version(self.turn)),
        };
        let value = target.to_string().into();
        let put = PutRequest { key: key.clone(), value, ..PutRequest::default() };
        let look = RangeRequest { key, ..RangeRequest::default() };
        let request = TxnRequest {
            compare: vec![unchanged],
            success: vec![Request::Put(put).into()],
            failure: vec![Request::Range(look).into()],
        };
        let answer = self.core.client.txn(request).await?;
        if answer.succeeded {
            self.turn += 1;
            return Ok(true);
        }
        let found = answer.responses.into_iter().next().and_then(|op| op.response);
        self.turn = match found {
            Some(Response::Range(found)) => found.kvs.first().map_or(0, |kv| kv.version),
            _ => 0,
        };
        Ok(false)
    }

    async fn read_claim(&self) -> Result<Option<KeyValue>, Error> {
        let key = self.core.keys.compaction_key();
        let answer = self.core.client.range(RangeRequest { key, ..RangeRequest::default() }).await;
        let answer = answer.map_err(|failure| failure.into_error(&self.core.client.name))?;
        Ok(answer.kvs.into_iter().next())
    }
}

fn log_compaction(by: CompactedBy, floor: Revision) {
    match by {
        CompactedBy::ThisStore => tracing::info!(floor, "compacted history"),
        CompactedBy::Sibling => tracing::info!(floor, "another server compacted history"),
        CompactedBy::Other => {
            tracing::info!(floor, "etcd or another of its clients compacted history");
        }
    }
}

/// Decides when to compact, and up to which revision.
struct CompactionPlan {
    interval: Duration,
    age: Duration,
    /// Time of this store's last attempt.
    last: Instant,
    /// Observed revisions with their times, in order.
    seen: VecDeque<(Instant, Revision)>,
}

impl CompactionPlan {
    fn new(interval: Duration, age: Duration, now: Instant) -> Self {
        Self { interval, age, last: now, seen: VecDeque::new() }
    }

    /// Records the current revision of the store.
    fn record(&mut self, now: Instant, revision: Revision) {
        self.seen.push_back((now, revision));
    }

    /// Returns the newest revision that is old enough, if compaction is due.
    fn target(&mut self, now: Instant) -> Option<Revision> {
        let old = self.seen.partition_point(|(at, _)| now.saturating_duration_since(*at) >= self.age);
        // Of the old entries, only the newest is still needed.
        self.seen.drain(..old.saturating_sub(1));
        if now.saturating_duration_since(self.last) < self.interval {
            return None;
        }
        self.last = now;
        self.seen.front().filter(|_| old > 0).map(|(_, revision)| *revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_kept_for_its_age_and_forgotten_at_intervals() {
        let begin = Instant::now();
        let minutes = |n| Duration::from_secs(60 * n);
        for (interval, age, forgotten) in [
            (5, 5, vec![(10, 105), (15, 110), (20, 115)]),
            (1, 5, (6..=20).map(|n| (n, 100 + n - 5)).collect()),
            (10, 5, vec![(10, 105), (20, 115)]),
            (5, 0, vec![(5, 105), (10, 110), (15, 115), (20, 120)]),
        ] {
            let mut plan = CompactionPlan::new(minutes(interval), minutes(age), begin);
            let mut found = Vec::new();
            for n in 1..=20 {
                let now = begin + minutes(n);
                plan.record(now, 100 + n);
                found.extend(plan.target(now).map(|revision| (n, revision)));
                assert!(plan.seen.len() <= 7, "memory is bounded");
            }
            assert_eq!(found, forgotten, "every {interval} min, older than {age} min");
        }
    }
}
