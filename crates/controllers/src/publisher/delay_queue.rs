//! Keys that become due at a given time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Keys with the time at which each is due.
#[derive(Debug)]
pub struct DelayQueue<K> {
    due: watch::Sender<BTreeMap<K, Instant>>,
}

impl<K: Clone + Ord> DelayQueue<K> {
    /// Creates an empty queue.
    pub fn new() -> DelayQueue<K> {
        DelayQueue { due: watch::Sender::new(BTreeMap::new()) }
    }

    /// Makes a key due after a delay, replacing an earlier schedule of the key.
    pub fn schedule(&self, key: K, after: Duration) {
        self.due.send_modify(|due| {
            due.insert(key, Instant::now() + after);
        });
    }

    /// Calls `on` with each key when it is due.
    pub async fn run(&self, on: impl Fn(K)) -> Infallible {
        let mut changes = self.due.subscribe();
        loop {
            let next = changes.borrow_and_update().values().min().copied();
            let changed = changes.changed();
            match next {
                Some(next) => {
                    if tokio::time::timeout_at(next, changed).await.is_ok() {
                        continue;
                    }
                }
                None => {
                    // It cannot fail: `self` holds the sender.
                    let _ = changed.await;
                    continue;
                }
            }
            let mut ready = Vec::new();
            self.due.send_modify(|due| {
                let now = Instant::now();
                ready = due.iter().filter(|(_, at)| **at <= now).map(|(k, _)| k.clone()).collect();
                due.retain(|_, at| *at > now);
            });
            ready.into_iter().for_each(&on);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_key_is_due_as_last_scheduled() {
        let (queue, start) = (DelayQueue::new(), Instant::now());
        let (sender, mut due) = tokio::sync::mpsc::unbounded_channel();
        let running = queue.run(|key| sender.send((key, start.elapsed().as_secs())).unwrap());
        let test = async {
            queue.schedule("a", Duration::from_secs(30));
            queue.schedule("b", Duration::from_secs(20));
            queue.schedule("a", Duration::from_secs(10));
            assert_eq!(due.recv().await, Some(("a", 10)));
            assert_eq!(due.recv().await, Some(("b", 20)));
            queue.schedule("b", Duration::ZERO);
            assert_eq!(due.recv().await, Some(("b", 20)));
        };
        tokio::select! {
            never = running => match never {},
            () = test => {}
        }
    }
}
