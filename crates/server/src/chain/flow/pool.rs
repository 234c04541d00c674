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
pub struct Bounds {
    /// Seats that are taken at a time.
    pub seats: usize,
    /// Of these, seats of one user.
    pub of_one: usize,
    /// Of these, seats of one request.
    pub heaviest: usize,
    /// Requests of one user that wait.
    pub per_user: usize,
    /// Requests that wait in all.
    pub in_all: usize,
}

impl Bounds {
    /// The bounds that go with a number of seats.
    pub fn of(seats: usize) -> Bounds {
        Bounds {
            seats,
            of_one: seats - seats / limits::SEATS_FOR_OTHERS,
            heaviest: (seats / limits::HEAVIEST_SHARE).max(1),
            per_user: seats.saturating_mul(limits::QUEUE_PER_USER),
            in_all: seats.saturating_mul(limits::QUEUE_IN_ALL),
        }
    }
}

/// Seats and queues.
pub struct Pool {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: usize,
    /// Requests that have seats.
    executing: usize,
    waiting: usize,
    /// How many seats users have. A user is in here only while they have one.
    held: HashMap<Arc<str>, usize>,
    /// Those who wait. A user is in here only while one of their requests waits.
    queues: HashMap<Arc<str>, VecDeque<Waiter>>,
    /// The users in `queues`, in the order in which they get seats.
    round: VecDeque<Arc<str>>,
    next_ticket: u64,
}

struct Waiter {
    ticket: u64,
    weight: usize,
    hand: oneshot::Sender<Seat>,
}

/// What somebody gets who comes.
pub enum Entry {
    /// A seat at once.
    Seat(Seat),
    /// A place in a queue.
    Place(Place),
    /// Nothing: too many wait already.
    Full,
}

/// Why a request was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejected {
    /// Too many waited.
    QueueFull,
    /// It waited too long.
    TimeOut,
    /// Its user does not read responses.
    ConcurrencyLimit,
}

impl Pool {
    /// All seats are free.
    pub fn new(bounds: Bounds) -> Arc<Pool> {
        let state = State { free: bounds.seats, ..State::default() };
        Arc::new(Pool { bounds, state: Mutex::new(state) })
    }

    /// Seats for a request of `user`, or a place in the user's queue. A weight of more than a request may have is taken
    /// for the most it may have.
    pub fn enter(self: &Arc<Self>, user: &str, weight: usize) -> Entry {
        let weight = weight.clamp(1, self.bounds.heaviest.min(self.bounds.of_one));
        let mut state = self.lock();
        if state.admits(user, weight, self.bounds.of_one) {
            let user = state.sit(user, weight);
            return Entry::Seat(Seat::new(self, user, weight));
        }
        let own = state.queues.get(user).map_or(0, VecDeque::len);
        if own >= self.bounds.per_user {
            return Entry::Full;
        }
        if state.waiting >= self.bounds.in_all && !state.push_out(own) {
            return Entry::Full;
        }
        let (hand, seat) = oneshot::channel();
        let (user, ticket) = state.queue(user, weight, hand);
        Entry::Place(Place { seat, line: Line { pool: self.clone(), user, ticket } })
    }

    /// How many seats are taken.
    pub fn taken(&self) -> usize {
        self.bounds.seats.saturating_sub(self.lock().free)
    }

    /// How many requests have seats.
    pub fn executing(&self) -> usize {
        self.lock().executing
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Takes `change` to the state, then gives free seats to whose turn it is.
    fn pass_on(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        loop {
            let mut ready = Vec::new();
            while let Some(next) = state.next(self.bounds.of_one) {
                ready.push(next);
            }
            drop(state);
            // Outside of the lock: a request that left in this moment hands its seats back.
            let mut back = Vec::new();
            for (waiter, user) in ready {
                if let Err(mut seat) = waiter.hand.send(Seat::new(self, user, waiter.weight)) {
                    back.extend(seat.0.take());
                }
            }
            if back.is_empty() {
                return;
            }
            state = self.lock();
            for Held { user, weight, .. } in back {
                state.rise(&user, weight);
                state.executing -= 1;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    /// Whether a request that comes now need not wait.
    fn admits(&self, user: &str, weight: usize, of_one: usize) -> bool {
        self.free >= weight
            && self.holds(user) + weight <= of_one
            && (self.round.is_empty()
                || !self.queues.contains_key(user) && self.turn(of_one).is_none())
    }

    /// Puts somebody at the end of their queue.
    fn queue(&mut self, user: &str, weight: usize, hand: oneshot::Sender<Seat>) -> (Arc<str>, u64) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting += 1;
        let user = match self.queues.get_key_value(user) {
            Some((user, _)) => user.clone(),
            None => {
                let user: Arc<str> = user.into();
                self.round.push_back(user.clone());
                user
            }
        };
        let waiter = Waiter { ticket, weight, hand };
        self.queues.entry(user.clone()).or_default().push_back(waiter);
        (user, ticket)
    }

    fn holds(&self, user: &str) -> usize {
        self.held.get(user).copied().unwrap_or_default()
    }

    /// Gives a request of the user its seats.
    fn sit(&mut self, user: &str, weight: usize) -> Arc<str> {
        let known = self.held.get_key_value(user).map(|(user, _)| user.clone());
        let user = known.unwrap_or_else(|| user.into());
        *self.held.entry(user.clone()).or_default() += weight;
        self.free -= weight;
        self.executing += 1;
        user
    }

    /// Takes seats back from the user.
    fn rise(&mut self, user: &Arc<str>, seats: usize) {
        self.free += seats;
        let Some(held) = self.held.get_mut(user) else { return };
        *held -= seats;
        if *held == 0 {
            self.held.remove(user);
        }
    }

    /// The place in the round of the user whose turn it is: the first whose next request does not exceed what one user
    /// may have, whether enough seats are free for it or not.
    fn turn(&self, of_one: usize) -> Option<usize> {
        self.round.iter().position(|user| {
            let next = self.queues.get(user).and_then(VecDeque::front);
            next.is_some_and(|next| self.holds(user) + next.weight <= of_one)
        })
    }

    /// Seats the first request of the user whose turn it is, if enough seats are free; the user goes to the end of the
    /// round.
    fn next(&mut self, of_one: usize) -> Option<(Waiter, Arc<str>)> {
        let at = self.turn(of_one)?;
        let user = self.round.get(at)?.clone();
        let queue = self.queues.get_mut(&user)?;
        if queue.front()?.weight > self.free {
            return None;
        }
        let next = queue.pop_front()?;
        self.waiting -= 1;
        self.round.remove(at);
        if queue.is_empty() {
            self.queues.remove(&user);
        } else {
            self.round.push_back(user.clone());
        }
        let user = self.sit(&user, next.weight);
        Some((next, user))
    }

    /// Takes somebody out who no longer waits. It may be that they got their seat meanwhile.
    fn leave(&mut self, user: &Arc<str>, ticket: u64) {
        let Some(queue) = self.queues.get_mut(user) else { return };
        // Tickets grow from the front of a queue to its end.
        let Ok(at) = queue.binary_search_by_key(&ticket, |waiter| waiter.ticket) else { return };
        queue.remove(at);
        self.waiting -= 1;
        if queue.is_empty() {
            self.forget(user);
        }
    }

    /// Makes room for a user with `own` requests waiting, at the cost of the longest queue, if that
    /// is longer by more than one. So a few users who fill everything keep nobody else out.
    fn push_out(&mut self, own: usize) -> bool {
        let longest = self.queues.iter().max_by_key(|(_, queue)| queue.len());
        let Some(user) = longest.filter(|(_, q)| q.len() > own + 1).map(|(u, _)| u.clone()) else {
            return false;
        };
        // Its sender is dropped, and that tells it. It was not the first of its queue, so nobody's turn changes.
        let newest = self.queues.get_mut(&user).and_then(VecDeque::pop_back);
        self.waiting -= usize::from(newest.is_some());
        newest.is_some()
    }

    fn forget(&mut self, user: &Arc<str>) {
        self.queues.remove(user);
        self.round.retain(|other| other != user);
    }
}

/// The seats of one request; passed on when dropped.
pub struct Seat(Option<Held>);

struct Held {
    pool: Arc<Pool>,
    user: Arc<str>,
    weight: usize,
}

impl Seat {
    fn new(pool: &Arc<Pool>, user: Arc<str>, weight: usize) -> Seat {
        Seat(Some(Held { pool: pool.clone(), user, weight }))
    }

    /// Gives back all seats but `weight`, which is at least one. It never takes any.
    pub fn shrink(&mut self, weight: usize) {
        let Some(held) = &mut self.0 else { return };
        let surplus = held.weight.saturating_sub(weight.max(1));
        if surplus > 0 {
            held.weight -= surplus;
            held.pool.pass_on(|state| state.rise(&held.user, surplus));
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(Held { pool, user, weight }) = self.0.take() {
            pool.pass_on(|state| {
                state.rise(&user, weight);
                state.executing -= 1;
            });
        }
    }
}

/// A place in a queue; given up when dropped.
pub struct Place {
    /// First, so that a seat that comes while this is dropped goes back.
    seat: oneshot::Receiver<Seat>,
    line: Line,
}

struct Line {
    pool: Arc<Pool>,
    user: Arc<str>,
    ticket: u64,
}

impl Place {
    /// Waits for the seat.
    pub async fn wait(self, patience: Duration) -> Result<Seat, Rejected> {
        let Place { seat, line: _line } = self;
        match tokio::time::timeout(patience, seat).await {
            Ok(Ok(seat)) => Ok(seat),
            Ok(Err(_)) => Err(Rejected::QueueFull),
            Err(_) => Err(Rejected::TimeOut),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Others may go on that waited behind this one.
        self.pool.pass_on(|state| state.leave(&self.user, self.ticket));
    }
}

#[cfg(test)]
mod tests;
