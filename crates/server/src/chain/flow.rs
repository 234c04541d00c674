//! Stage: when may the request go on? Whoever sends more than their share waits in a queue of their own.
//!
//! Requests are of a level ([`level`]), and each level has seats of its own for reads and for
//! writes ([`pool`]): leader leases are never behind node agents, and node agents never behind
//! everybody else. In a level a free seat goes to the users in turn, so that one who
//! has thousands of requests waiting delays another's single request by one round at most.
//!
//! Being in `system:masters` helps nobody here: a script that runs wild is an administrator's more
//! often than not. A list takes a seat for every hundred objects ([`work`]). A request keeps its seats until its
//! response is written, because that is how long the response takes memory; bytes of responses that no cache shares are
//! counted besides ([`pending`]). A watch has a seat until its initial objects are written; open watches are counted
//! apart ([`watches`]).

mod gauges;
pub mod level;
pub mod pending;
pub mod pool;
pub mod watches;
pub mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gauges::Gauges;
use level::{Effect, Level};
use pending::{Charge, PendingBytes};
use pool::{Bounds, Entry, Pool};
use watches::{OpenWatch, Watches};

use crate::error::Error;
use crate::faults::{Check, Faults};
use crate::limits;
use crate::metrics::Source;
use crate::peer::Peer;
use crate::request::info::Info;
use crate::user::User;

/// How many ordinary requests are worked on at a time. Leases and nodes have seats besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that read (`--max-requests-inflight`).
    pub reads: usize,
    /// Requests that write (`--max-mutating-requests-inflight`).
    pub writes: usize,
}

impl Default for Limits {
    /// Kubernetes' own.
    fn default() -> Limits {
        Limits { reads: 400, writes: 200 }
    }
}

/// Lets requests in.
pub struct Flow {
    levels: Arc<Levels>,
    watches: Arc<Watches>,
    pending: Arc<PendingBytes>,
    faults: Faults,
}

/// The state of all levels.
struct Levels {
    exempt: Arc<AtomicUsize>,
    leases: Pools,
    nodes: Pools,
    everyone: Pools,
    gauges: Gauges,
}

/// The seats of a level.
struct Pools {
    reads: Arc<Pool>,
    writes: Arc<Pool>,
}

/// A place among the requests that are worked on, until the response is written; free again when dropped.
pub struct Seat {
    level: Level,
    held: Held,
    /// Bytes of the response that nothing else shares.
    charge: Option<Charge>,
}

#[allow(dead_code, reason = "held to be dropped")]
enum Held {
    Pool(pool::Seat),
    Exempt(Exempt),
}

/// What happens to a response if its user has too many bytes of responses that are not yet written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Replaced by a 429: the request has changed nothing.
    Refused,
    /// Sent all the same: the request has changed something. It counts against what follows.
    Sent,
}

impl Seat {
    fn new(level: Level, held: Held) -> Seat {
        Seat { level, held, charge: None }
    }

    /// Keeps as many seats as a response of that many objects takes, if there are more.
    pub fn shrink_to(&mut self, objects: usize) {
        if let Held::Pool(seat) = &mut self.held {
            seat.shrink(work::seats(objects));
        }
    }
}

/// Counts a request that needs no seat.
struct Exempt(Arc<AtomicUsize>);

impl Drop for Exempt {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Flow {
    /// Nobody is being served yet.
    pub fn new(limits: Limits, faults: Faults) -> Flow {
        let pools = |level: Level| Pools {
            reads: Pool::new(Bounds::of(level.share(limits.reads))),
            writes: Pool::new(Bounds::of(level.share(limits.writes))),
        };
        let levels = Levels {
            exempt: Arc::default(),
            leases: pools(Level::Leases),
            nodes: pools(Level::Nodes),
            everyone: pools(Level::Everyone),
            gauges: Gauges::new(),
        };
        let watches = Watches::new(limits::WATCHES_PER_USER);
        let pending = PendingBytes::new(limits::PENDING_BYTES_PER_USER);
        Flow { levels: Arc::new(levels), watches, pending, faults }
    }

    /// Waits for `weight` seats, but not longer than `deadline`. Too long a queue, or too long a wait, is a 429.
    pub async fn enter(
        &self,
        peer: &Peer,
        user: &User,
        info: &Info,
        weight: usize,
        deadline: Duration,
    ) -> Result<Seat, Error> {
        self.faults.at(Check::FlowControl)?;
        let level = Level::of(peer, user, info);
        let Some(pools) = self.levels.pools(level) else {
            self.levels.exempt.fetch_add(1, Ordering::Relaxed);
            let held = Held::Exempt(Exempt(self.levels.exempt.clone()));
            return Ok(Seat::new(level, held));
        };
        let pool = match Effect::of(info) {
            Effect::Read => &pools.reads,
            Effect::Write => &pools.writes,
        };
        let gauges = &self.levels.gauges;
        if self.pending.is_exceeded(&user.name) {
            gauges.rejected(level, pool::Rejected::ConcurrencyLimit);
            return Err(Error::TooManyRequests);
        }
        let place = match pool.enter(&user.name, weight) {
            Entry::Seat(seat) => {
                gauges.waited(level, true, Duration::ZERO);
                return Ok(Seat::new(level, Held::Pool(seat)));
            }
            Entry::Place(place) => place,
            Entry::Full => {
                gauges.rejected(level, pool::Rejected::QueueFull);
                return Err(Error::TooManyRequests);
            }
        };
        let since = Instant::now();
        let outcome = place.wait(deadline.min(limits::QUEUE_WAIT)).await;
        gauges.waited(level, outcome.is_ok(), since.elapsed());
        match outcome {
            Ok(seat) => Ok(Seat::new(level, Held::Pool(seat))),
            Err(why) => {
                gauges.rejected(level, why);
                Err(Error::TooManyRequests)
            }
        }
    }

    /// Counts `bytes` of a response against its user, until the seat is dropped. Too many of one user are a 429, unless
    /// it is too late for that.
    pub fn charge(
        &self,
        seat: &mut Seat,
        user: &User,
        bytes: usize,
        excess: Excess,
    ) -> Result<(), Error> {
        if bytes == 0 || matches!(seat.held, Held::Exempt(_)) {
            return Ok(());
        }
        let charge = match excess {
            Excess::Sent => Some(self.pending.charge(&user.name, bytes)),
            Excess::Refused => self.pending.try_charge(&user.name, bytes),
        };
        if charge.is_none() {
            self.levels.gauges.rejected(seat.level, pool::Rejected::ConcurrencyLimit);
            return Err(Error::TooManyRequests);
        }
        seat.charge = charge;
        Ok(())
    }

    /// Counts a watch as open until what this returns is dropped. Too many of one user are a 429.
    pub fn watch(&self, user: &User) -> Result<OpenWatch, Error> {
        self.watches.open(&user.name).ok_or(Error::TooManyRequests)
    }

    /// What is counted, for `/metrics`.
    pub fn source(&self) -> Source {
        let levels = self.levels.clone();
        Box::new(move |out| levels.gauges.write(&levels, out))
    }
}

impl Levels {
    /// The seats of a level; none where none are needed.
    fn pools(&self, level: Level) -> Option<&Pools> {
        match level {
            Level::Exempt => None,
            Level::Leases => Some(&self.leases),
            Level::Nodes => Some(&self.nodes),
            Level::Everyone => Some(&self.everyone),
        }
    }

    fn counts(&self, level: Level) -> Counts {
        let Some(Pools { reads, writes }) = self.pools(level) else {
            let executing = self.exempt.load(Ordering::Relaxed);
            return Counts { executing, ..Counts::default() };
        };
        Counts {
            executing: reads.executing() + writes.executing(),
            seats: reads.taken() + writes.taken(),
            waiting: reads.waiting() + writes.waiting(),
        }
    }
}

/// The state of a level in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Requests that have seats, or need none.
    executing: usize,
    /// The seats they have.
    seats: usize,
    /// Requests that wait.
    waiting: usize,
}

#[cfg(test)]
mod tests;
