//! A number of seats, and the queues of those who wait for one.
//!
//! A seat that becomes free goes to the users in turn, and to a user's requests in the order they
//! came. Nobody has all the seats: a user whose requests hold theirs for long, as slow bodies do, leaves
//! some to others. A seat is handed over from hand to hand: while anybody waits who may have one, none
//! is free.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::limits;

/// How much a pool takes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Requests worked on at a time.
    pub seats: usize,
    /// Of these, requests of one user.
    pub of_one: usize,
    /// Requests of one user that wait.
    pub per_user: usize,
    /// Requests that wait in all.
    pub in_all: usize,
}

impl Bounds {
    /// The bounds on queues that go with a number of seats.
    pub fn of(seats: usize) -> Bounds {
        Bounds {
            seats,
            of_one: seats - seats / limits::SEATS_FOR_OTHERS,
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
}

impl Pool {
    /// All seats are free.
    pub fn new(bounds: Bounds) -> Arc<Pool> {
        let state = State { free: bounds.seats, ..State::default() };
        Arc::new(Pool { bounds, state: Mutex::new(state) })
    }

    /// A seat, or a place in the queue of `user`.
    pub fn enter(self: &Arc<Self>, user: &str) -> Entry {
        let mut state = self.lock();
        if state.free > 0 && state.holds(user) < self.bounds.of_one {
            state.free -= 1;
            let user = state.sit(user);
            return Entry::Seat(Seat(Some((self.clone(), user))));
        }
        let own = state.queues.get(user).map_or(0, VecDeque::len);
        if own >= self.bounds.per_user {
            return Entry::Full;
        }
        if state.waiting >= self.bounds.in_all && !state.push_out(own) {
            return Entry::Full;
        }
        let (hand, seat) = oneshot::channel();
        let (user, ticket) = state.queue(user, hand);
        Entry::Place(Place { seat, line: Line { pool: self.clone(), user, ticket } })
    }

    /// How many seats are taken.
    pub fn taken(&self) -> usize {
        self.bounds.seats.saturating_sub(self.lock().free)
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Passes a seat that `user` had on to whose turn it is.
    fn pass_on(self: &Arc<Self>, mut user: Arc<str>) {
        loop {
            let next = {
                let mut state = self.lock();
                state.rise(&user);
                match state.next(self.bounds.of_one) {
                    Some((next, whose)) => {
                        user = whose;
                        next
                    }
                    None => {
                        state.free += 1;
                        return;
                    }
                }
            };
            // Outside of the lock: one who left in this moment hands the seat back.
            match next.hand.send(Seat(Some((self.clone(), user.clone())))) {
                Ok(()) => return,
                Err(mut seat) => seat.0 = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    /// Puts somebody at the end of their queue.
    fn queue(&mut self, user: &str, hand: oneshot::Sender<Seat>) -> (Arc<str>, u64) {
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
        self.queues.entry(user.clone()).or_default().push_back(Waiter { ticket, hand });
        (user, ticket)
    }

    fn holds(&self, user: &str) -> usize {
        self.held.get(user).copied().unwrap_or_default()
    }

    /// Counts a seat as the user's.
    fn sit(&mut self, user: &str) -> Arc<str> {
        let known = self.held.get_key_value(user).map(|(user, _)| user.clone());
        let user = known.unwrap_or_else(|| user.into());
        *self.held.entry(user.clone()).or_default() += 1;
        user
    }

    /// Counts a seat as the user's no more.
    fn rise(&mut self, user: &Arc<str>) {
        let Some(held) = self.held.get_mut(user) else { return };
        *held -= 1;
        if *held == 0 {
            self.held.remove(user);
        }
    }

    /// Seats the first request of the user whose turn it is, of those who have less than `of_one`; the
    /// user goes to the end of the round.
    fn next(&mut self, of_one: usize) -> Option<(Waiter, Arc<str>)> {
        let at = self.round.iter().position(|user| self.holds(user) < of_one)?;
        let user = self.round.remove(at)?;
        let queue = self.queues.get_mut(&user)?;
        let next = queue.pop_front()?;
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(&user);
        } else {
            self.round.push_back(user.clone());
        }
        Some((next, self.sit(&user)))
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
        // Its sender is dropped, and that tells it.
        let newest = self.queues.get_mut(&user).and_then(VecDeque::pop_back);
        self.waiting -= usize::from(newest.is_some());
        newest.is_some()
    }

    fn forget(&mut self, user: &Arc<str>) {
        self.queues.remove(user);
        self.round.retain(|other| other != user);
    }
}

/// One of the seats; passed on when dropped.
pub struct Seat(Option<(Arc<Pool>, Arc<str>)>);

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some((pool, user)) = self.0.take() {
            pool.pass_on(user);
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
        self.pool.lock().leave(&self.user, self.ticket);
    }
}

#[cfg(test)]
mod tests;
