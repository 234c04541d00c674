//! Stage: when may the request go on? Whoever sends more than their share waits in a queue of their own.
//!
//! Requests are of a level ([`priority_level`]), and each level has seats of its own for reads and for
//! writes ([`seat_pool`]): leader leases are never behind node agents, and node agents never behind
//! everybody else. In a level a free seat goes to the users in turn, so that one who
//! has thousands of requests waiting delays another's single request by one round at most.
//!
//! Being in `system:masters` helps nobody here: a script that runs wild is an administrator's more
//! often than not. A list takes a seat for every hundred objects ([`work_estimator`]). A request keeps its seats until its
//! response is written, because that is how long the response takes memory; bytes of responses that no cache shares are
//! counted besides ([`pending_bytes`]). A watch has a seat until its initial objects are written; open watches are counted
//! apart ([`watch_limiter`]).

mod flow_metrics;
pub(crate) mod pending_bytes;
pub(crate) mod priority_level;
pub(crate) mod seat_pool;
pub(crate) mod watch_limiter;
pub(crate) mod work_estimator;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flow_metrics::FlowMetrics;
use pending_bytes::{ByteCharge, PendingBytes};
use priority_level::{PriorityLevel, RequestEffect};
use seat_pool::{PoolBounds, PoolEntry, SeatPool};
use watch_limiter::{OpenWatch, WatchLimiter};
use windlass_runtime::metrics::MetricsRegistry;

use crate::error::Error;
use crate::fault_injection::{AccessCheck, FaultInjection};
use crate::limits;
use crate::peer::Peer;
use crate::request::info::RequestInfo;
use crate::user::User;

/// How many ordinary requests are worked on at a time. Leases and nodes have seats besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightLimits {
    /// Concurrent read requests (`--max-requests-inflight`); a started watch no longer counts.
    pub reads: usize,
    /// Concurrent write requests (`--max-mutating-requests-inflight`), including deletions.
    pub writes: usize,
}

impl Default for InflightLimits {
    fn default() -> InflightLimits {
        InflightLimits { reads: 400, writes: 200 }
    }
}

/// Admits requests by priority level and queues those that exceed its seats.
pub struct FlowController {
    levels: Arc<PriorityLevels>,
    watches: Arc<WatchLimiter>,
    pending: Arc<PendingBytes>,
    faults: FaultInjection,
}

/// The state of all levels.
struct PriorityLevels {
    exempt: Arc<AtomicUsize>,
    leases: LevelPools,
    nodes: LevelPools,
    everyone: LevelPools,
    metrics: FlowMetrics,
}

/// The seats of a level.
struct LevelPools {
    reads: Arc<SeatPool>,
    writes: Arc<SeatPool>,
}

/// A place among the requests that are worked on, until the response is written; free again when dropped.
pub struct RequestSeat {
    level: PriorityLevel,
    held: SeatSource,
    /// Bytes of the response that nothing else shares.
    charge: Option<ByteCharge>,
}

#[allow(dead_code, reason = "held to be dropped")]
enum SeatSource {
    Pool(seat_pool::PoolSeat),
    Exempt(ExemptGuard),
}

/// What happens to a response if its user has too many bytes of responses that are not yet written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExcessPolicy {
    /// Replaced by a 429: the request has changed nothing.
    Reject,
    /// Sent all the same: the request has changed something. It counts against what follows.
    SendAnyway,
}

impl RequestSeat {
    fn new(level: PriorityLevel, held: SeatSource) -> RequestSeat {
        RequestSeat { level, held, charge: None }
    }

    /// Keeps as many seats as a response of that many objects takes, if there are more.
    pub fn shrink_to(&mut self, objects: usize) {
        if let SeatSource::Pool(seat) = &mut self.held {
            seat.shrink(work_estimator::seats(objects));
        }
    }
}

/// Counts a request that needs no seat.
struct ExemptGuard(Arc<AtomicUsize>);

impl Drop for ExemptGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FlowController {
    /// Nobody is being served yet.
    pub fn new(limits: InflightLimits, faults: FaultInjection) -> FlowController {
        let pools = |level: PriorityLevel| LevelPools {
            reads: SeatPool::new(PoolBounds::for_seats(level.share(limits.reads))),
            writes: SeatPool::new(PoolBounds::for_seats(level.share(limits.writes))),
        };
        let levels = PriorityLevels {
            exempt: Arc::default(),
            leases: pools(PriorityLevel::Leases),
            nodes: pools(PriorityLevel::Nodes),
            everyone: pools(PriorityLevel::Everyone),
            metrics: FlowMetrics::new(),
        };
        let watches = WatchLimiter::new(limits::WATCHES_PER_USER);
        let pending = PendingBytes::new(limits::PENDING_BYTES_PER_USER);
        FlowController { levels: Arc::new(levels), watches, pending, faults }
    }

    /// Waits for `weight` seats, but not longer than `deadline`. Too long a queue, or too long a wait, is a 429.
    pub async fn enter(
        &self,
        peer: &Peer,
        user: &User,
        info: &RequestInfo,
        weight: usize,
        deadline: Duration,
    ) -> Result<RequestSeat, Error> {
        self.faults.check(AccessCheck::FlowControl)?;
        let level = PriorityLevel::for_request(peer, user, info);
        let Some(pools) = self.levels.pools(level) else {
            self.levels.exempt.fetch_add(1, Ordering::Relaxed);
            let held = SeatSource::Exempt(ExemptGuard(self.levels.exempt.clone()));
            return Ok(RequestSeat::new(level, held));
        };
        let pool = match RequestEffect::for_request(info) {
            RequestEffect::Read => &pools.reads,
            RequestEffect::Write => &pools.writes,
        };
        let metrics = &self.levels.metrics;
        if self.pending.is_exceeded(&user.name) {
            metrics.rejected(level, seat_pool::RejectReason::ConcurrencyLimit);
            return Err(Error::TooManyRequests);
        }
        let place = match pool.enter(&user.name, weight) {
            PoolEntry::Seat(seat) => {
                metrics.waited(level, true, Duration::ZERO);
                return Ok(RequestSeat::new(level, SeatSource::Pool(seat)));
            }
            PoolEntry::Queued(place) => place,
            PoolEntry::Full => {
                metrics.rejected(level, seat_pool::RejectReason::QueueFull);
                return Err(Error::TooManyRequests);
            }
        };
        let since = Instant::now();
        let outcome = place.wait(deadline.min(limits::QUEUE_WAIT)).await;
        metrics.waited(level, outcome.is_ok(), since.elapsed());
        match outcome {
            Ok(seat) => Ok(RequestSeat::new(level, SeatSource::Pool(seat))),
            Err(why) => {
                metrics.rejected(level, why);
                Err(Error::TooManyRequests)
            }
        }
    }

    /// Counts `bytes` of a response against its user, until the seat is dropped. Too many of one user are a 429, unless
    /// it is too late for that.
    pub fn charge(
        &self,
        seat: &mut RequestSeat,
        user: &User,
        bytes: usize,
        excess: ExcessPolicy,
    ) -> Result<(), Error> {
        if bytes == 0 || matches!(seat.held, SeatSource::Exempt(_)) {
            return Ok(());
        }
        let charge = match excess {
            ExcessPolicy::SendAnyway => Some(self.pending.charge(&user.name, bytes)),
            ExcessPolicy::Reject => self.pending.try_charge(&user.name, bytes),
        };
        if charge.is_none() {
            self.levels.metrics.rejected(seat.level, seat_pool::RejectReason::ConcurrencyLimit);
            return Err(Error::TooManyRequests);
        }
        seat.charge = charge;
        Ok(())
    }

    /// Counts a watch as open until what this returns is dropped. Too many of one user are a 429.
    pub fn watch(&self, user: &User) -> Result<OpenWatch, Error> {
        self.watches.open(&user.name).ok_or(Error::TooManyRequests)
    }

    /// Registers the metrics of flow control.
    pub fn register_metrics(&self, registry: &MetricsRegistry) {
        self.levels.metrics.register(registry, &self.levels);
    }
}

impl PriorityLevels {
    /// The seats of a level; none where none are needed.
    fn pools(&self, level: PriorityLevel) -> Option<&LevelPools> {
        match level {
            PriorityLevel::Exempt => None,
            PriorityLevel::Leases => Some(&self.leases),
            PriorityLevel::Nodes => Some(&self.nodes),
            PriorityLevel::Everyone => Some(&self.everyone),
        }
    }

    fn counts(&self, level: PriorityLevel) -> LevelCounts {
        let Some(LevelPools { reads, writes }) = self.pools(level) else {
            let executing = self.exempt.load(Ordering::Relaxed);
            return LevelCounts { executing, ..LevelCounts::default() };
        };
        LevelCounts {
            executing: reads.executing() + writes.executing(),
            seats: reads.seats_in_use() + writes.seats_in_use(),
            waiting: reads.waiting() + writes.waiting(),
        }
    }
}

/// The state of a level in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LevelCounts {
    /// Requests that have seats, or need none.
    executing: usize,
    seats: usize,
    waiting: usize,
}

#[cfg(test)]
mod tests;
