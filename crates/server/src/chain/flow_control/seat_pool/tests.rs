use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const LONG: Duration = Duration::from_secs(600);

fn pool(seats: usize, per_user: usize, in_all: usize) -> Arc<SeatPool> {
    SeatPool::new(PoolBounds {
        seats,
        seats_per_user: seats,
        seats_per_request: seats,
        queued_per_user: per_user,
        queued_total: in_all,
    })
}

#[track_caller]
fn seat(entry: PoolEntry) -> PoolSeat {
    match entry {
        PoolEntry::Seat(seat) => seat,
        PoolEntry::Queued(_) => panic!("a seat was free"),
        PoolEntry::Full => panic!("not even a place"),
    }
}

#[track_caller]
fn place(entry: PoolEntry) -> QueueTicket {
    match entry {
        PoolEntry::Queued(place) => place,
        PoolEntry::Seat(_) => panic!("no seat was free"),
        PoolEntry::Full => panic!("the queue has room"),
    }
}

#[track_caller]
fn assert_empty(pool: &SeatPool) {
    assert_eq!((pool.seats_in_use(), pool.executing(), pool.waiting()), (0, 0, 0));
    let state = pool.lock();
    assert!(state.queues.is_empty() && state.user_order.is_empty(), "users are remembered");
    assert!(state.held.is_empty(), "users are remembered");
}

#[tokio::test]
async fn many_requests_of_one_user_delay_another_by_one_round() {
    let pool = pool(1, 10_000, 20_000);
    let first = seat(pool.enter("greedy", 1));
    let crowd: Vec<QueueTicket> = (0..10_000).map(|_| place(pool.enter("greedy", 1))).collect();
    let mut modest = Box::pin(place(pool.enter("modest", 1)).wait(LONG));
    assert!(modest.as_mut().now_or_never().is_none(), "the seat is taken");
    drop(first);
    let mut rounds = 1;
    let mut crowd = crowd.into_iter();
    let modest = loop {
        if let Some(got) = modest.as_mut().now_or_never() {
            break got;
        }
        rounds += 1;
        // In order of arrival.
        let next = crowd.next().unwrap().wait(LONG).now_or_never();
        drop(next.expect("its turn").expect("a seat"));
    };
    assert!(rounds <= 2, "after {rounds} rounds");
    assert!(modest.is_ok());
    drop((modest, crowd));
    assert_empty(&pool);
}

#[tokio::test]
async fn users_take_turns_and_their_requests_keep_their_order() {
    let pool = pool(1, 10, 100);
    let mut held = Some(seat(pool.enter("z", 1)));
    let waiting = ["a", "a", "a", "b", "c", "b"].map(|user| (user, pool.enter(user, 1)));
    let mut waiting: Vec<_> = waiting
        .into_iter()
        .enumerate()
        .map(|(number, (user, entry))| (number, user, Box::pin(place(entry).wait(LONG))))
        .collect();
    let mut order = Vec::new();
    while !waiting.is_empty() {
        held.take();
        let at = waiting.iter_mut().position(|(_, _, wait)| {
            wait.as_mut().now_or_never().is_some_and(|got| {
                held = got.ok();
                true
            })
        });
        let (number, user, _) = waiting.remove(at.expect("somebody's turn"));
        order.push(format!("{user}{number}"));
    }
    assert_eq!(order, ["a0", "b3", "c4", "a1", "b5", "a2"]);
    held.take();
    assert_empty(&pool);
}

#[tokio::test]
async fn no_user_gets_all_seats() {
    let pool = SeatPool::new(PoolBounds::for_seats(8));
    let mut slow: Vec<PoolSeat> = (0..6).map(|_| seat(pool.enter("slow", 1))).collect();
    let mut next = Box::pin(place(pool.enter("slow", 1)).wait(LONG));
    let (first, second) = (seat(pool.enter("a", 1)), seat(pool.enter("b", 1)));
    let mut third = Box::pin(place(pool.enter("c", 1)).wait(LONG));
    drop(first);
    assert!(next.as_mut().now_or_never().is_none(), "it is not for one who has enough");
    let third = third.as_mut().now_or_never().expect("c's turn");
    drop(second);
    assert_eq!(pool.seats_in_use(), 7, "a seat is free, and no waiting request may have it");
    slow.pop();
    let next = next.as_mut().now_or_never().expect("the slow one's turn");
    assert!(next.is_ok());
    drop((slow, third, next));
    assert_empty(&pool);
    for seats in 1..10 {
        assert!((1..=seats).contains(&PoolBounds::for_seats(seats).seats_per_user), "{seats}");
    }
}

#[tokio::test]
async fn requests_beyond_the_queue_limit_are_rejected_at_once() {
    let pool = pool(1, 2, 4);
    let held = seat(pool.enter("a", 1));
    let mut places: Vec<QueueTicket> = ["a", "a", "b", "b"].map(|u| place(pool.enter(u, 1))).into();
    assert!(matches!(pool.enter("a", 1), PoolEntry::Full), "its own queue is full");
    // All queues are full, but a new user has fewer queued requests than others.
    places.push(place(pool.enter("c", 1)));
    assert_eq!(pool.waiting(), 4);
    let mut outcomes = Vec::new();
    for place in places.drain(..) {
        outcomes.push(place.wait(LONG).now_or_never().map(|got| got.err()));
    }
    let pushed_out = outcomes.iter().filter(|o| **o == Some(Some(RejectReason::QueueFull))).count();
    assert_eq!(pushed_out, 1, "{outcomes:?}");
    assert!(matches!(outcomes.last(), Some(None)), "the newcomer waits");
    drop(held);
    assert_empty(&pool);
}

#[tokio::test]
async fn new_requests_are_rejected_when_no_user_has_more() {
    let pool = pool(1, 2, 2);
    let _held = seat(pool.enter("a", 1));
    let _places = [place(pool.enter("a", 1)), place(pool.enter("b", 1))];
    assert!(matches!(pool.enter("c", 1), PoolEntry::Full));
}

#[tokio::test]
async fn waiting_requests_time_out() {
    let pool = pool(1, 2, 2);
    let held = seat(pool.enter("a", 1));
    let got = place(pool.enter("b", 1)).wait(Duration::ZERO).await;
    assert_eq!(got.err(), Some(RejectReason::TimeOut));
    assert_eq!(pool.waiting(), 0);
    drop(held);
    assert_empty(&pool);
}

#[tokio::test]
async fn a_seat_of_a_canceled_request_is_passed_on() {
    let pool = pool(1, 5, 5);
    let held = seat(pool.enter("a", 1));
    let (gone, next) = (place(pool.enter("b", 1)), place(pool.enter("c", 1)));
    drop(held); // now it is b's, who has not looked yet
    drop(gone);
    let got = next.wait(LONG).now_or_never().expect("c's turn");
    assert!(got.is_ok());
    drop(got);
    assert_empty(&pool);
}

#[tokio::test]
async fn heavy_requests_are_not_starved_by_light_ones() {
    let pool = pool(4, 100, 100);
    let mut light: VecDeque<PoolSeat> = (0..4).map(|_| seat(pool.enter("light", 1))).collect();
    let mut heavy = Box::pin(place(pool.enter("heavy", 4)).wait(LONG));
    // Light requests keep arriving, from other users and from the same one.
    let mut behind: Vec<QueueTicket> = Vec::new();
    for user in ["light", "other", "heavy"] {
        behind.push(place(pool.enter(user, 1)));
    }
    while let Some(done) = light.pop_front() {
        assert!(heavy.as_mut().now_or_never().is_none(), "not enough seats are free");
        drop(done);
        behind.push(place(pool.enter("new", 1)));
    }
    let heavy = heavy.as_mut().now_or_never().expect("its turn").expect("seats");
    assert_eq!((pool.seats_in_use(), pool.executing(), pool.waiting()), (4, 1, 7));
    drop(heavy);
    assert_eq!((pool.seats_in_use(), pool.executing(), pool.waiting()), (4, 4, 3), "all seats are used");
    drop(behind);
    assert_empty(&pool);
}

#[tokio::test]
async fn reserved_seats_of_a_canceled_request_are_passed_on() {
    let pool = pool(3, 10, 10);
    let held = seat(pool.enter("a", 2));
    let heavy = place(pool.enter("b", 3));
    let mut light = Box::pin(place(pool.enter("c", 1)).wait(LONG));
    assert!(light.as_mut().now_or_never().is_none(), "it came after the heavy one");
    drop(heavy);
    let light = light.as_mut().now_or_never().expect("its turn");
    assert_eq!((pool.seats_in_use(), pool.executing()), (3, 2));
    drop((held, light));
    assert_empty(&pool);
}

#[tokio::test]
async fn seats_that_are_given_back_early_are_passed_on() {
    let pool = pool(3, 10, 10);
    let mut heavy = seat(pool.enter("a", 3));
    let mut light = Box::pin(place(pool.enter("b", 2)).wait(LONG));
    heavy.shrink(2);
    assert!(light.as_mut().now_or_never().is_none(), "one seat is not enough");
    heavy.shrink(5);
    assert_eq!(pool.seats_in_use(), 2, "shrinking takes nothing");
    heavy.shrink(0);
    let light = light.as_mut().now_or_never().expect("its turn");
    assert_eq!((pool.seats_in_use(), pool.executing()), (3, 2), "one seat is the least");
    drop((heavy, light));
    assert_empty(&pool);
}

#[tokio::test]
async fn no_request_is_heavier_than_what_it_may_have() {
    for seats in 1..100 {
        let pool = SeatPool::new(PoolBounds::for_seats(seats));
        let heavy = seat(pool.enter("a", 1000));
        assert!(pool.seats_in_use() <= (seats / limits::HEAVIEST_SHARE).max(1), "{seats}");
        drop(heavy);
        assert_empty(&pool);
    }
}

/// Random steps in sequence, so that a failing seed is reproducible.
#[tokio::test]
async fn no_seat_is_lost_in_any_order() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let seats = random.random_range(1..8);
        let of_one = random.random_range(1..=seats);
        let heaviest = random.random_range(1..=seats);
        let pool = SeatPool::new(PoolBounds {
            seats,
            seats_per_user: of_one,
            seats_per_request: heaviest,
            queued_per_user: 5,
            queued_total: 12,
        });
        let (mut seats, mut waits) = (Vec::new(), Vec::new());
        for _ in 0..300 {
            match random.random_range(0..6) {
                0 | 1 => {
                    let user = format!("user-{}", random.random_range(0..6));
                    match pool.enter(&user, random.random_range(1..6)) {
                        PoolEntry::Seat(seat) => seats.push(seat),
                        PoolEntry::Queued(place) => waits.push(Box::pin(place.wait(LONG))),
                        PoolEntry::Full => {}
                    }
                }
                2 if !seats.is_empty() => {
                    seats.swap_remove(random.random_range(0..seats.len()));
                }
                3 if !waits.is_empty() => {
                    drop(waits.swap_remove(random.random_range(0..waits.len())));
                }
                4 if !waits.is_empty() => {
                    let at = random.random_range(0..waits.len());
                    if let Some(got) = waits[at].as_mut().now_or_never() {
                        drop(waits.swap_remove(at));
                        seats.extend(got.ok());
                    }
                }
                5 if !seats.is_empty() => {
                    let at = random.random_range(0..seats.len());
                    seats[at].shrink(random.random_range(0..6));
                }
                _ => {}
            }
            assert_consistent(&pool, seed);
            assert!(seats.len() <= pool.executing(), "seed {seed}");
        }
        drop((seats, waits));
        assert_empty(&pool);
    }
}

/// Asserts that no user exceeds the limits, and that seats are free only if the next request needs
/// more.
#[track_caller]
fn assert_consistent(pool: &SeatPool, seed: u64) {
    let PoolBounds { seats, seats_per_user: of_one, .. } = pool.bounds;
    let state = pool.lock();
    let queued: usize = state.queues.values().map(VecDeque::len).sum();
    assert_eq!(queued, state.waiting, "seed {seed}");
    assert!(state.waiting <= 12, "seed {seed}");
    let taken: usize = state.held.values().sum();
    assert_eq!(taken + state.free, seats, "seed {seed}");
    assert!(state.executing <= taken, "seed {seed}");
    assert!(state.held.values().all(|held| *held <= of_one), "seed {seed}");
    if let Some(turn) = state.next_user_position(of_one) {
        let next = state.queues[&state.user_order[turn]].front().unwrap();
        assert!(next.weight > state.free, "seed {seed}");
    }
}

/// Counts executing requests, including those cancelled while executing.
struct ExecutingGuard(Arc<AtomicUsize>);

impl Drop for ExecutingGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The same on real threads, where a seat may arrive during cancellation.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_seat_is_lost_between_threads() {
    let pool = pool(3, 1000, 10_000);
    let [inside, most, served] = [0; 3].map(|zero| Arc::new(AtomicUsize::new(zero)));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..2000_u64 {
        let pool = pool.clone();
        let (inside, most, served) = (inside.clone(), most.clone(), served.clone());
        let work = async move {
            let _seat = match pool.enter(&format!("user-{}", number % 7), 1) {
                PoolEntry::Seat(seat) => seat,
                PoolEntry::Queued(place) => place.wait(LONG).await.expect("a seat in time"),
                PoolEntry::Full => panic!("there is room for all"),
            };
            let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
            let _inside = ExecutingGuard(inside);
            most.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            served.fetch_add(1, Ordering::SeqCst);
        };
        tasks.spawn(async move {
            if number % 2 == 0 {
                return work.await;
            }
            // A client that disconnects after a few polls, in whatever state it is.
            let polls = StdRng::seed_from_u64(number).random_range(0..6);
            let give_up = async {
                for _ in 0..polls {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                () = work => {}
                () = give_up => {}
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert!(served.load(Ordering::SeqCst) >= 1000);
    assert_empty(&pool);
}
