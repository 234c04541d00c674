//! Looks at something again when its time has come.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// When to look at what again.
#[derive(Debug)]
pub struct DelayQueue<K> {
    due: watch::Sender<BTreeMap<K, Instant>>,
}

impl<K: Clone + Ord> DelayQueue<K> {
    /// With nothing to look at.
    pub fn new() -> DelayQueue<K> {
        DelayQueue { due: watch::Sender::new(BTreeMap::new()) }
    }

    /// Looks at this after a while, and no longer when that was said before.
    pub fn schedule(&self, key: K, after: Duration) {
        self.due.send_modify(|due| {
            due.insert(key, Instant::now() + after);
        });
    }

    /// Hands over what is due, when it is; does not end.
    pub async fn run(&self, on: impl Fn(K)) {
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
                    // It cannot fail: the sender is here.
                    let _ = changed.await;
                    continue;
                }
            }
            let mut rung = Vec::new();
            self.due.send_modify(|due| {
                let now = Instant::now();
                rung = due.iter().filter(|(_, at)| **at <= now).map(|(k, _)| k.clone()).collect();
                due.retain(|_, at| *at > now);
            });
            rung.into_iter().for_each(&on);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_rings_when_it_was_last_said_to() {
        let (alarm, start) = (DelayQueue::new(), Instant::now());
        let (rang, mut ringing) = tokio::sync::mpsc::unbounded_channel();
        let bell = alarm.run(|key| rang.send((key, start.elapsed().as_secs())).unwrap());
        let told = async {
            alarm.schedule("a", Duration::from_secs(30));
            alarm.schedule("b", Duration::from_secs(20));
            alarm.schedule("a", Duration::from_secs(10));
            assert_eq!(ringing.recv().await, Some(("a", 10)));
            assert_eq!(ringing.recv().await, Some(("b", 20)));
            alarm.schedule("b", Duration::ZERO);
            assert_eq!(ringing.recv().await, Some(("b", 20)));
        };
        tokio::select! {
            () = bell => unreachable!("it does not end"),
            () = told => {}
        }
    }
}
