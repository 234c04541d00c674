//! A pool of seats with a queue of waiting requests per user.
//!
//! A request takes as many seats as its weight. Free seats go to the users in turn, and to a user's
//! requests in order of arrival. No user can hold all seats: one whose requests hold them for long,
//! for example with slow bodies, leaves some to others. While an eligible request waits, no later
//! request gets a seat: seats stay free until there are enough for it, so that light requests do
//! not starve a heavy one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::limits;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolBounds {
    /// Total number of seats in the pool.
    pub seats: usize,
    /// Maximum seats held by one user.
    pub seats_per_user: usize,
    /// Maximum seats held by one request.
    pub seats_per_request: usize,
    /// Maximum queued requests of one user.
    pub queued_per_user: usize,
    /// Maximum queued requests of all users.
    pub queued_total: usize,
}

impl PoolBounds {
    /// Derives the limits from the number of seats.
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
    /// Seats held by user; contains only users with at least one.
    held: HashMap<Arc<str>, usize>,
    /// Queued requests by user; contains only users with at least one.
    queues: HashMap<Arc<str>, VecDeque<QueuedRequest>>,
    /// Users in `queues`, in the order of their turns.
    user_order: VecDeque<Arc<str>>,
    next_ticket: u64,
}

struct QueuedRequest {
    ticket: u64,
    weight: usize,
    seat_sender: oneshot::Sender<PoolSeat>,
}

/// Result of entering the pool.
pub(crate) enum PoolEntry {
    /// The request may be executed at once.
    Seat(PoolSeat),
    /// The request must wait in a queue.
    Queued(QueueTicket),
    /// The request is rejected, because the queue is full.
    Full,
}

/// Why a request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RejectReason {
    /// The queue of the user or of the level is full.
    QueueFull,
    /// No seat became free before the wait timed out.
    TimeOut,
    /// The user has too many unread response bytes.
    ConcurrencyLimit,
}

impl SeatPool {
    /// Creates a pool in which all seats are free.
    pub(crate) fn new(bounds: PoolBounds) -> Arc<SeatPool> {
        let state = SeatPoolState { free: bounds.seats, ..SeatPoolState::default() };
        Arc::new(SeatPool { bounds, state: Mutex::new(state) })
    }

    /// Takes seats for a request of `user`, or queues it. The weight is capped at the limit per
    /// request.
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
        PoolEntry::Queued(QueueTicket { seat, line: QueueGuard { pool: self.clone(), user, ticket } })
    }

    pub(crate) fn seats_in_use(&self) -> usize {
        self.bounds.seats.saturating_sub(self.lock().free)
    }

    /// Returns the number of executing requests.
    pub(crate) fn executing(&self) -> usize {
        self.lock().executing
    }

    /// Returns the number of requests queued by all users.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Applies `change` to the state, then hands free seats to the next requests.
    fn update_and_dispatch(self: &Arc<Self>, change: impl FnOnce(&mut SeatPoolState)) {
        let mut state = self.lock();
        change(&mut state);
        loop {
            let mut ready = Vec::new();
            while let Some(next) = state.dequeue(self.bounds.seats_per_user) {
                ready.push(next);
            }
            drop(state);
            // Outside the lock: a request that has just been cancelled returns its seats.
            let mut back = Vec::new();
            for (waiter, user) in ready {
                if let Err(mut seat) = waiter.seat_sender.send(PoolSeat::new(self, user, waiter.weight)) {
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
    /// Returns true if a new request need not wait.
    fn admits(&self, user: &str, weight: usize, of_one: usize) -> bool {
        self.free >= weight
            && self.seats_of(user) + weight <= of_one
            && (self.user_order.is_empty()
                || !self.queues.contains_key(user) && self.next_user_position(of_one).is_none())
    }

    /// Appends a request to its user's queue.
    fn enqueue(&mut self, user: &str, weight: usize, hand: oneshot::Sender<PoolSeat>) -> (Arc<str>, u64) {
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

    fn take_seats(&mut self, user: &str, weight: usize) -> Arc<str> {
        let known = self.held.get_key_value(user).map(|(user, _)| user.clone());
        let user = known.unwrap_or_else(|| user.into());
        *self.held.entry(user.clone()).or_default() += weight;
        self.free -= weight;
        self.executing += 1;
        user
    }

    fn release_seats(&mut self, user: &Arc<str>, seats: usize) {
        self.free += seats;
        let Some(held) = self.held.get_mut(user) else { return };
        *held -= seats;
        if *held == 0 {
            self.held.remove(user);
        }
    }

    /// Returns the position of the user whose turn it is: the first whose next request stays within
    /// the limit per user, whether enough seats are free or not.
    fn next_user_position(&self, of_one: usize) -> Option<usize> {
        self.user_order.iter().position(|user| {
            let next = self.queues.get(user).and_then(VecDeque::front);
            next.is_some_and(|next| self.seats_of(user) + next.weight <= of_one)
        })
    }

    /// Seats the next user's first request, if enough seats are free; the user moves to the end of
    /// the round.
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

    /// Removes a request that no longer waits. It may have got its seat meanwhile.
    fn remove_waiting(&mut self, user: &Arc<str>, ticket: u64) {
        let Some(queue) = self.queues.get_mut(user) else { return };
        // Tickets increase from the front of a queue to its end.
        let Ok(at) = queue.binary_search_by_key(&ticket, |waiter| waiter.ticket) else { return };
        queue.remove(at);
        self.waiting -= 1;
        if queue.is_empty() {
            self.remove_user(user);
        }
    }

    /// Makes room for a user with `own` queued requests by evicting from the longest queue, if that
    /// is longer by more than one. A few users who fill all queues thus cannot keep others out.
    fn evict_newest(&mut self, own: usize) -> bool {
        let longest = self.queues.iter().max_by_key(|(_, queue)| queue.len());
        let Some(user) = longest.filter(|(_, q)| q.len() > own + 1).map(|(u, _)| u.clone()) else {
            return false;
        };
        // Dropping its sender notifies it. It was not the first of its queue, so no turn changes.
        let newest = self.queues.get_mut(&user).and_then(VecDeque::pop_back);
        self.waiting -= usize::from(newest.is_some());
        newest.is_some()
    }

    fn remove_user(&mut self, user: &Arc<str>) {
        self.queues.remove(user);
        self.user_order.retain(|other| other != user);
    }
}

/// The seats of one request; handed on when dropped.
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

    /// Returns all seats but `weight`, which is at least one. Never takes more.
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

/// A place in a queue; given up on drop.
pub(crate) struct QueueTicket {
    /// First field, so that a seat that arrives during the drop is returned.
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
        // Requests queued behind this one may proceed.
        self.pool.update_and_dispatch(|state| state.remove_waiting(&self.user, self.ticket));
    }
}

#[cfg(test)]
mod tests;
