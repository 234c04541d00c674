use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const LONG: Duration = Duration::from_secs(600);

fn pool(seats: usize, per_user: usize, in_all: usize) -> Arc<Pool> {
    Pool::new(Bounds { seats, of_one: seats, per_user, in_all })
}

#[track_caller]
fn seat(entry: Entry) -> Seat {
    match entry {
        Entry::Seat(seat) => seat,
        Entry::Place(_) => panic!("a seat was free"),
        Entry::Full => panic!("not even a place"),
    }
}

#[track_caller]
fn place(entry: Entry) -> Place {
    match entry {
        Entry::Place(place) => place,
        Entry::Seat(_) => panic!("no seat was free"),
        Entry::Full => panic!("the queue has room"),
    }
}

#[track_caller]
fn is_empty(pool: &Pool) {
    assert_eq!((pool.taken(), pool.waiting()), (0, 0));
    let state = pool.lock();
    assert!(state.queues.is_empty() && state.round.is_empty(), "users are remembered");
    assert!(state.held.is_empty(), "users are remembered");
}

#[tokio::test]
async fn a_crowd_of_one_user_delays_another_by_one_round() {
    let pool = pool(1, 10_000, 20_000);
    let first = seat(pool.enter("greedy"));
    let crowd: Vec<Place> = (0..10_000).map(|_| place(pool.enter("greedy"))).collect();
    let mut modest = Box::pin(place(pool.enter("modest")).wait(LONG));
    assert!(modest.as_mut().now_or_never().is_none(), "the seat is taken");
    drop(first);
    let mut rounds = 1;
    let mut crowd = crowd.into_iter();
    let modest = loop {
        if let Some(got) = modest.as_mut().now_or_never() {
            break got;
        }
        rounds += 1;
        // In the order in which they came.
        let next = crowd.next().unwrap().wait(LONG).now_or_never();
        drop(next.expect("its turn").expect("a seat"));
    };
    assert!(rounds <= 2, "after {rounds} rounds");
    assert!(modest.is_ok());
    drop((modest, crowd));
    is_empty(&pool);
}

#[tokio::test]
async fn users_take_turns_and_their_requests_keep_their_order() {
    let pool = pool(1, 10, 100);
    let mut held = Some(seat(pool.enter("z")));
    let waiting = ["a", "a", "a", "b", "c", "b"].map(|user| (user, pool.enter(user)));
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
    is_empty(&pool);
}

#[tokio::test]
async fn nobody_has_all_the_seats() {
    let pool = Pool::new(Bounds::of(8));
    let mut slow: Vec<Seat> = (0..6).map(|_| seat(pool.enter("slow"))).collect();
    let mut next = Box::pin(place(pool.enter("slow")).wait(LONG));
    let (first, second) = (seat(pool.enter("a")), seat(pool.enter("b")));
    let mut third = Box::pin(place(pool.enter("c")).wait(LONG));
    drop(first);
    assert!(next.as_mut().now_or_never().is_none(), "it is not for one who has enough");
    let third = third.as_mut().now_or_never().expect("c's turn");
    drop(second);
    assert_eq!(pool.taken(), 7, "a seat is free, and nobody who waits may have it");
    slow.pop();
    let next = next.as_mut().now_or_never().expect("the slow one's turn");
    assert!(next.is_ok());
    drop((slow, third, next));
    is_empty(&pool);
    for seats in 1..10 {
        assert!((1..=seats).contains(&Bounds::of(seats).of_one), "{seats}");
    }
}

#[tokio::test]
async fn who_finds_too_many_waiting_is_told_at_once() {
    let pool = pool(1, 2, 4);
    let held = seat(pool.enter("a"));
    let mut places: Vec<Place> = ["a", "a", "b", "b"].map(|u| place(pool.enter(u))).into();
    assert!(matches!(pool.enter("a"), Entry::Full), "its own queue is full");
    // All are full, but a newcomer has less than others have.
    places.push(place(pool.enter("c")));
    assert_eq!(pool.waiting(), 4);
    let mut outcomes = Vec::new();
    for place in places.drain(..) {
        outcomes.push(place.wait(LONG).now_or_never().map(|got| got.err()));
    }
    let pushed_out = outcomes.iter().filter(|o| **o == Some(Some(Rejected::QueueFull))).count();
    assert_eq!(pushed_out, 1, "{outcomes:?}");
    assert!(matches!(outcomes.last(), Some(None)), "the newcomer waits");
    drop(held);
    is_empty(&pool);
}

#[tokio::test]
async fn newcomers_are_refused_when_nobody_has_more() {
    let pool = pool(1, 2, 2);
    let _held = seat(pool.enter("a"));
    let _places = [place(pool.enter("a")), place(pool.enter("b"))];
    assert!(matches!(pool.enter("c"), Entry::Full));
}

#[tokio::test]
async fn who_waits_too_long_leaves() {
    let pool = pool(1, 2, 2);
    let held = seat(pool.enter("a"));
    let got = place(pool.enter("b")).wait(Duration::ZERO).await;
    assert_eq!(got.err(), Some(Rejected::TimeOut));
    assert_eq!(pool.waiting(), 0);
    drop(held);
    is_empty(&pool);
}

#[tokio::test]
async fn a_seat_given_to_one_who_left_goes_on() {
    let pool = pool(1, 5, 5);
    let held = seat(pool.enter("a"));
    let (gone, next) = (place(pool.enter("b")), place(pool.enter("c")));
    drop(held); // now it is b's, who has not looked yet
    drop(gone);
    let got = next.wait(LONG).now_or_never().expect("c's turn");
    assert!(got.is_ok());
    drop(got);
    is_empty(&pool);
}

/// Every step at random, one after the other, so that a seed that fails fails again.
#[tokio::test]
async fn no_seat_is_lost_in_any_order() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let seats = random.random_range(1..4);
        let of_one = random.random_range(1..=seats);
        let pool = Pool::new(Bounds { seats, of_one, per_user: 5, in_all: 12 });
        let (mut seats, mut waits) = (Vec::new(), Vec::new());
        for _ in 0..300 {
            match random.random_range(0..5) {
                0 | 1 => {
                    let user = format!("user-{}", random.random_range(0..6));
                    match pool.enter(&user) {
                        Entry::Seat(seat) => seats.push(seat),
                        Entry::Place(place) => waits.push(Box::pin(place.wait(LONG))),
                        Entry::Full => {}
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
                _ => {}
            }
            assert!(pool.taken() <= pool.bounds.seats && pool.waiting() <= 12, "seed {seed}");
            let queued: usize = pool.lock().queues.values().map(VecDeque::len).sum();
            assert_eq!(queued, pool.waiting(), "seed {seed}");
            {
                let state = pool.lock();
                assert!(state.held.values().all(|held| *held <= of_one), "seed {seed}");
                let may = |user: &Arc<str>| state.holds(user) < of_one;
                assert!(state.free == 0 || !state.queues.keys().any(may), "seed {seed}");
            }
            assert!(seats.len() <= pool.bounds.seats, "seed {seed}");
        }
        drop((seats, waits));
        is_empty(&pool);
    }
}

/// Counts who is inside, also those who are cancelled there.
struct Inside(Arc<AtomicUsize>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The same on real threads, where a seat may come while somebody leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_seat_is_lost_between_threads() {
    let pool = pool(3, 1000, 10_000);
    let [inside, most, served] = [0; 3].map(|zero| Arc::new(AtomicUsize::new(zero)));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..2000_u64 {
        let pool = pool.clone();
        let (inside, most, served) = (inside.clone(), most.clone(), served.clone());
        let work = async move {
            let _seat = match pool.enter(&format!("user-{}", number % 7)) {
                Entry::Seat(seat) => seat,
                Entry::Place(place) => place.wait(LONG).await.expect("a seat in time"),
                Entry::Full => panic!("there is room for all"),
            };
            let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
            let _inside = Inside(inside);
            most.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            served.fetch_add(1, Ordering::SeqCst);
        };
        tasks.spawn(async move {
            if number % 2 == 0 {
                return work.await;
            }
            // A client that goes away after a few polls, wherever it is then.
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
    is_empty(&pool);
}
