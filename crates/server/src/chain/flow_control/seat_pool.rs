//! A number of seats, and the queues of those who wait for some.
//!
//! A request takes as many seats as it weighs. Seats that become free go to the users in turn, and to a user's requests
//! in the order they came. Nobody has all the seats: a user whose requests hold theirs for long, as slow bodies do,
//! leaves some to others. While a request waits that its user may have, nobody who comes later gets a seat: seats are
//! kept free until there are enough for it, so that a heavy request is not starved by light ones.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::limits;

/// How much a pool takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolBounds {
    /// Seats that are taken at a time.
    pub seats: usize,
    /// Of these, seats of one user.
    pub seats_per_user: usize,
    /// Of these, seats of one request.
    pub seats_per_request: usize,
    /// Requests of one user that wait.
    pub queued_per_user: usize,
    /// Requests that wait in all.
    pub queued_total: usize,
}

impl PoolBounds {
    /// The bounds that go with a number of seats.
    pub(crate) fn for_seats(seats: usize) -> PoolBounds {
        PoolBounds {
            seats,
            seats_per_user: seats - seats / limits::SEATS_FOR_OTHERS,
            seats_per_request: (seats / limits::HEAVIEST_SHARE).max(1),
            queued_per_user: seats.saturating_mul(limits::QUEUE_PER_USER),
            queued_total: seats.saturating_mul(limits::QUEUE_IN_ALL),
        }
    }
}

/// Seats of one priority level, with a queue of waiting requests per user.
pub(crate) struct SeatPool {
    bounds: PoolBounds,
    state: Mutex<SeatPoolState>,
}

#[derive(Default)]
struct SeatPoolState {
    free: usize,
    executing: usize,
    waiting: usize,
    /// How many seats users have. A user is in here only while they have one.
    held: HashMap<Arc<str>, usize>,
    /// Those who wait. A user is in here only while one of their requests waits.
    queues: HashMap<Arc<str>, VecDeque<QueuedRequest>>,
    /// The users in `queues`, in the order in which they get seats.
    user_order: VecDeque<Arc<str>>,
    next_ticket: u64,
}

struct QueuedRequest {
    ticket: u64,
    weight: usize,
    seat_sender: oneshot::Sender<PoolSeat>,
}

/// What somebody gets who comes.
pub(crate) enum PoolEntry {
    /// The request may be executed at once.
    Seat(PoolSeat),
    /// A place in a queue.
    Queued(QueueTicket),
    /// Nothing: too many wait already.
    Full,
}

/// Why a request was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RejectReason {
    /// The queue of the user, or of the level, was full.
    QueueFull,
    /// No seat became free before the waiting time was over.
    TimeOut,
    /// Its user does not read responses.
    ConcurrencyLimit,
}

impl SeatPool {
    /// Creates a pool in which all seats are free.
    pub(crate) fn new(bounds: PoolBounds) -> Arc<SeatPool> {
        let state = SeatPoolState { free: bounds.seats, ..SeatPoolState::default() };
        Arc::new(SeatPool { bounds, state: Mutex::new(state) })
    }

    /// Seats for a request of `user`, or a place in the user's queue. A weight of more than a request may have is taken
    /// for the most it may have.
    pub(crate) fn enter(self: &Arc<Self>, user: &str, weight: usize) -> PoolEntry {
        let weight = weight.clamp(1, self.bounds.seats_per_request.min(self.bounds.seats_per_user));
        let mut state = self.lock();
        if state.admits(user, weight, self.bounds.seats_per_user) {
            let user = state.take_seats(user, weight);
            return PoolEntry::Seat(PoolSeat::new(self, user, weight));
        }
        let own = state.queues.get(user).map_or(0, VecDeque::len);
        if own >= self.bounds.queued_per_user {
            return PoolEntry::Full;
        }
        if state.waiting >= self.bounds.queued_total && !state.evict_newest(own) {
            return PoolEntry::Full;
        }
        let (hand, seat) = oneshot::channel();
        let (user, ticket) = state.enqueue(user, weight, hand);
        PoolEntry::Queued(QueueTicket {
            seat,
            line: QueueGuard { pool: self.clone(), user, ticket },
        })
    }

    /// How many seats are taken.
    pub(crate) fn seats_in_use(&self) -> usize {
        self.bounds.seats.saturating_sub(self.lock().free)
    }

    /// How many requests have seats.
    pub(crate) fn executing(&self) -> usize {
        self.lock().executing
    }

    /// Returns the number of requests queued by all users.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Takes `change` to the state, then gives free seats to whose turn it is.
    fn update_and_dispatch(self: &Arc<Self>, change: impl FnOnce(&mut SeatPoolState)) {
        let mut state = self.lock();
        change(&mut state);
        loop {
            let mut ready = Vec::new();
            while let Some(next) = state.dequeue(self.bounds.seats_per_user) {
                ready.push(next);
            }
            drop(state);
            // Outside of the lock: a request that left in this moment hands its seats back.
            let mut back = Vec::new();
            for (waiter, user) in ready {
                if let Err(mut seat) =
                    waiter.seat_sender.send(PoolSeat::new(self, user, waiter.weight))
                {
                    back.extend(seat.0.take());
                }
            }
            if back.is_empty() {
                return;
            }
            state = self.lock();
            for HeldSeats { user, weight, .. } in back {
                state.release_seats(&user, weight);
                state.executing -= 1;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, SeatPoolState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl SeatPoolState {
    /// Whether a request that comes now need not wait.
    fn admits(&self, user: &str, weight: usize, of_one: usize) -> bool {
        self.free >= weight
            && self.seats_of(user) + weight <= of_one
            && (self.user_order.is_empty()
                || !self.queues.contains_key(user) && self.next_user_position(of_one).is_none())
    }

    /// Puts somebody at the end of their queue.
    fn enqueue(
        &mut self,
        user: &str,
        weight: usize,
        hand: oneshot::Sender<PoolSeat>,
    ) -> (Arc<str>, u64) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting += 1;
        let user = match self.queues.get_key_value(user) {
            Some((user, _)) => user.clone(),
            None => {
                let user: Arc<str> = user.into();
                self.user_order.push_back(user.clone());
                user
            }
        };
        let waiter = QueuedRequest { ticket, weight, seat_sender: hand };
        self.queues.entry(user.clone()).or_default().push_back(waiter);
        (user, ticket)
    }

    fn seats_of(&self, user: &str) -> usize {
        self.held.get(user).copied().unwrap_or_default()
    }

    /// Gives a request of the user its seats.
    fn take_seats(&mut self, user: &str, weight: usize) -> Arc<str> {
        let known = self.held.get_key_value(user).map(|(user, _)| user.clone());
        let user = known.unwrap_or_else(|| user.into());
        *self.held.entry(user.clone()).or_default() += weight;
        self.free -= weight;
        self.executing += 1;
        user
    }

    /// Takes seats back from the user.
    fn release_seats(&mut self, user: &Arc<str>, seats: usize) {
        self.free += seats;
        let Some(held) = self.held.get_mut(user) else { return };
        *held -= seats;
        if *held == 0 {
            self.held.remove(user);
        }
    }

    /// The place in the round of the user whose turn it is: the first whose next request does not exceed what one user
    /// may have, whether enough seats are free for it or not.
    fn next_user_position(&self, of_one: usize) -> Option<usize> {
        self.user_order.iter().position(|user| {
            let next = self.queues.get(user).and_then(VecDeque::front);
            next.is_some_and(|next| self.seats_of(user) + next.weight <= of_one)
        })
    }

    /// Seats the first request of the user whose turn it is, if enough seats are free; the user goes to the end of the
    /// round.
    fn dequeue(&mut self, of_one: usize) -> Option<(QueuedRequest, Arc<str>)> {
        let at = self.next_user_position(of_one)?;
        let user = self.user_order.get(at)?.clone();
        let queue = self.queues.get_mut(&user)?;
        if queue.front()?.weight > self.free {
            return None;
        }
        let next = queue.pop_front()?;
        self.waiting -= 1;
        self.user_order.remove(at);
        if queue.is_empty() {
            self.queues.remove(&user);
        } else {
            self.user_order.push_back(user.clone());
        }
        let user = self.take_seats(&user, next.weight);
        Some((next, user))
    }

    /// Takes somebody out who no longer waits. It may be that they got their seat meanwhile.
    fn remove_waiting(&mut self, user: &Arc<str>, ticket: u64) {
        let Some(queue) = self.queues.get_mut(user) else { return };
        // Tickets grow from the front of a queue to its end.
        let Ok(at) = queue.binary_search_by_key(&ticket, |waiter| waiter.ticket) else { return };
        queue.remove(at);
        self.waiting -= 1;
        if queue.is_empty() {
            self.remove_user(user);
        }
    }

    /// Makes room for a user with `own` requests waiting, at the cost of the longest queue, if that
    /// is longer by more than one. So a few users who fill everything keep nobody else out.
    fn evict_newest(&mut self, own: usize) -> bool {
        let longest = self.queues.iter().max_by_key(|(_, queue)| queue.len());
        let Some(user) = longest.filter(|(_, q)| q.len() > own + 1).map(|(u, _)| u.clone()) else {
            return false;
        };
        // Its sender is dropped, and that tells it. It was not the first of its queue, so nobody's turn changes.
        let newest = self.queues.get_mut(&user).and_then(VecDeque::pop_back);
        self.waiting -= usize::from(newest.is_some());
        newest.is_some()
    }

    fn remove_user(&mut self, user: &Arc<str>) {
        self.queues.remove(user);
        self.user_order.retain(|other| other != user);
    }
}

/// The seats of one request; passed on when dropped.
pub(crate) struct PoolSeat(Option<HeldSeats>);

struct HeldSeats {
    pool: Arc<SeatPool>,
    user: Arc<str>,
    weight: usize,
}

impl PoolSeat {
    fn new(pool: &Arc<SeatPool>, user: Arc<str>, weight: usize) -> PoolSeat {
        PoolSeat(Some(HeldSeats { pool: pool.clone(), user, weight }))
    }

    /// Gives back all seats but `weight`, which is at least one. It never takes any.
    pub(crate) fn shrink(&mut self, weight: usize) {
        let Some(held) = &mut self.0 else { return };
        let surplus = held.weight.saturating_sub(weight.max(1));
        if surplus > 0 {
            held.weight -= surplus;
            held.pool.update_and_dispatch(|state| state.release_seats(&held.user, surplus));
        }
    }
}

impl Drop for PoolSeat {
    fn drop(&mut self) {
        if let Some(HeldSeats { pool, user, weight }) = self.0.take() {
            pool.update_and_dispatch(|state| {
                state.release_seats(&user, weight);
                state.executing -= 1;
            });
        }
    }
}

/// A place in a queue; given up when dropped.
pub(crate) struct QueueTicket {
    /// First, so that a seat that comes while this is dropped goes back.
    seat: oneshot::Receiver<PoolSeat>,
    line: QueueGuard,
}

struct QueueGuard {
    pool: Arc<SeatPool>,
    user: Arc<str>,
    ticket: u64,
}

impl QueueTicket {
    /// Waits for the seat, at most for `patience`.
    pub(crate) async fn wait(self, patience: Duration) -> Result<PoolSeat, RejectReason> {
        let QueueTicket { seat, line: _line } = self;
        match tokio::time::timeout(patience, seat).await {
            Ok(Ok(seat)) => Ok(seat),
            Ok(Err(_)) => Err(RejectReason::QueueFull),
            Err(_) => Err(RejectReason::TimeOut),
        }
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        // Others may go on that waited behind this one.
        self.pool.update_and_dispatch(|state| state.remove_waiting(&self.user, self.ticket));
    }
}

#[cfg(test)]
mod tests;
