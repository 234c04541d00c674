//! Offloads work on large objects from the threads that serve requests.
//!
//! Decoding, validating and encoding three MiB takes a few hundred milliseconds of CPU time. On a
//! worker of the async runtime nothing else would be served meanwhile, and as many such requests as
//! workers would block the server. That work is therefore done in stages on a few separate threads,
//! which users get in turn. Between the stages, a request ends if its client has disconnected or
//! its timeout has passed.

use std::sync::Arc;

use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::chain::flow_control::seat_pool::{PoolBounds, PoolEntry, SeatPool};
use crate::error::Error;
use crate::limits;
use crate::user::User;

/// The threads for work on large objects.
pub struct OffloadPool(Arc<SeatPool>);

impl OffloadPool {
    /// Creates as many threads as `cores`, at least two; one user never takes the last one.
    pub fn new(cores: usize) -> OffloadPool {
        let seats = cores.max(2);
        let for_others = (seats / limits::SEATS_FOR_OTHERS).max(1);
        // Flow control already limits how many requests can wait here.
        let (per_user, in_all) = (usize::MAX, usize::MAX);
        OffloadPool(SeatPool::new(PoolBounds {
            seats,
            seats_per_user: seats - for_others,
            seats_per_request: 1,
            queued_per_user: per_user,
            queued_total: in_all,
        }))
    }

    /// Runs one stage for `user`: inline if `size` is below [`limits::LARGE`], else on one of the
    /// threads in the user's turn.
    pub async fn run<T>(
        &self,
        user: &User,
        size: usize,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if size < limits::LARGE {
            return work();
        }
        let _seat = match self.0.enter(&user.name, 1) {
            PoolEntry::Seat(seat) => seat,
            PoolEntry::Queued(place) => {
                place.wait(limits::REQUEST).await.map_err(|_| Error::TooManyRequests)?
            }
            PoolEntry::Full => return Err(Error::TooManyRequests),
        };
        // Lets hyper poll the connection: a request whose client has disconnected ends here.
        tokio::task::yield_now().await;
        run_in_place(work)
    }
}

/// Estimates the size of a value as JSON, counted up to [`limits::LARGE`].
pub(crate) fn size(value: &Value) -> usize {
    fn add(value: &Value, sum: &mut usize) {
        *sum += match value {
            Value::String(text) => text.len() + 3,
            _ => 3,
        };
        match value {
            Value::Array(list) => {
                for element in list {
                    if *sum >= limits::LARGE {
                        return;
                    }
                    add(element, sum);
                }
            }
            Value::Object(map) => {
                for (key, member) in map {
                    if *sum >= limits::LARGE {
                        return;
                    }
                    *sum += key.len() + 3;
                    add(member, sum);
                }
            }
            _ => {}
        }
    }
    let mut sum = 0;
    add(value, &mut sum);
    sum
}

/// Runs the work while another thread takes over this worker's queue.
fn run_in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(work)
        }
        // A single-threaded runtime, as in tests, has no other thread.
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn user(name: &str) -> User {
        User { name: name.into(), ..User::default() }
    }

    #[test]
    fn sizes_are_counted_as_far_as_they_matter() {
        assert!((10..40).contains(&size(&json!({"a": ["b", 1, null]}))));
        let large: Value = vec!["x"; 1 << 20].into();
        assert!((limits::LARGE..limits::LARGE + 10).contains(&size(&large)));
        assert!(size(&json!("x".repeat(limits::LARGE))) >= limits::LARGE);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_requests_are_answered_during_expensive_ones() {
        let offload = Arc::new(OffloadPool::new(2));
        let (started, done) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let work = {
            let (offload, started, done) = (offload.clone(), started.clone(), done.clone());
            tokio::spawn(async move {
                let stage = || {
                    started.wait();
                    done.wait();
                    Ok(1)
                };
                offload.run(&user("a"), limits::LARGE, stage).await
            })
        };
        tokio::task::spawn_blocking(move || started.wait()).await.unwrap();
        // The only worker of the runtime is free while the work is in progress.
        assert_eq!(tokio::spawn(async { 2 }).await.unwrap(), 2);
        // Another user gets a thread; the same one waits.
        let (a, b) = (user("a"), user("b"));
        assert_eq!(offload.run(&b, limits::LARGE, || Ok(3)).await.unwrap(), 3);
        let same = offload.run(&a, limits::LARGE, || Ok(4));
        tokio::pin!(same);
        let early = tokio::time::timeout(Duration::from_millis(1), &mut same).await;
        assert!(early.is_err(), "one user took all threads");
        tokio::task::spawn_blocking(move || done.wait()).await.unwrap();
        assert_eq!(same.await.unwrap(), 4);
        assert_eq!(work.await.unwrap().unwrap(), 1);
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_does_no_further_stage() {
        let (offload, user) = (OffloadPool::new(2), user("a"));
        let mut done = false;
        {
            let stage = offload.run(&user, limits::LARGE, || {
                done = true;
                Ok(())
            });
            // Polled once, up to the yield point, and dropped.
            assert!(futures::FutureExt::now_or_never(stage).is_none());
        }
        assert!(!done);
        offload.run(&user, limits::LARGE, || Ok(())).await.unwrap();
    }
}
