//! Stage: flow control. Users who exceed their share wait in a queue of their own.
//!
//! Every request has a priority level ([`priority_level`]), and each level has separate seats for
//! reads and writes ([`seat_pool`]): leader leases never wait behind node agents, and node agents
//! never behind other users. Within a level, free seats go to the users in turn, so that a user
//! with thousands of queued requests delays another's single request by at most one round.
//!
//! `system:masters` gets no privilege here: a runaway script is often an administrator's. A list
//! takes one seat per hundred objects ([`work_estimator`]). A request holds its seats until its
//! response is written, because the response takes memory that long; response bytes not shared with
//! a cache are counted separately ([`pending_bytes`]). A watch holds a seat until its initial
//! objects are written; open watches are limited separately ([`watch_limiter`]).

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

/// Concurrency limits of ordinary requests. Leases and nodes have additional seats.
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

struct PriorityLevels {
    exempt: Arc<AtomicUsize>,
    leases: LevelPools,
    nodes: LevelPools,
    everyone: LevelPools,
    metrics: FlowMetrics,
}

/// The seats of a priority level.
struct LevelPools {
    reads: Arc<SeatPool>,
    writes: Arc<SeatPool>,
}

/// Seats of an executing request until its response is written; released on drop.
pub struct RequestSeat {
    level: PriorityLevel,
    held: SeatSource,
    /// Bytes of the response that are not shared.
    charge: Option<ByteCharge>,
}

#[allow(dead_code, reason = "held to be dropped")]
enum SeatSource {
    Pool(seat_pool::PoolSeat),
    Exempt(ExemptGuard),
}

/// What to do with a response whose user has too many pending response bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExcessPolicy {
    /// Replace it with a 429: the request has changed nothing.
    Reject,
    /// Send it anyway, because the request has taken effect; it counts against later responses.
    SendAnyway,
}

impl RequestSeat {
    fn new(level: PriorityLevel, held: SeatSource) -> RequestSeat {
        RequestSeat { level, held, charge: None }
    }

    /// Releases the seats beyond those that a response of that many objects takes.
    pub fn shrink_to(&mut self, objects: usize) {
        if let SeatSource::Pool(seat) = &mut self.held {
            seat.shrink(work_estimator::seats(objects));
        }
    }
}

/// Counts an executing request that needs no seat.
struct ExemptGuard(Arc<AtomicUsize>);

impl Drop for ExemptGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FlowController {
    /// Creates a controller in which all seats are free.
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

    /// Waits for `weight` seats, at most until `deadline`. A full queue or a timeout is a 429.
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

    /// Charges `bytes` of a response to its user until the seat is dropped. Exceeding the user's
    /// limit is a 429, unless `excess` is [`ExcessPolicy::SendAnyway`].
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

    /// Counts a watch as open until the returned guard is dropped. Exceeding the user's limit is a
    /// 429.
    pub fn watch(&self, user: &User) -> Result<OpenWatch, Error> {
        self.watches.open(&user.name).ok_or(Error::TooManyRequests)
    }

    pub fn register_metrics(&self, registry: &MetricsRegistry) {
        self.levels.metrics.register(registry, &self.levels);
    }
}

impl PriorityLevels {
    /// Returns the seats of a level; `None` if it is exempt.
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

/// Current counts of a priority level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LevelCounts {
    /// Executing requests, including exempt ones.
    executing: usize,
    seats: usize,
    waiting: usize,
}

#[cfg(test)]
mod tests;
