//! History is compacted automatically by age, number and size.

use std::sync::Mutex;

use super::*;

/// A clock that only advances manually.
#[derive(Clone)]
struct ManualClock(Arc<Mutex<Instant>>);

impl ManualClock {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn clock(&self) -> Clock {
        let hand = self.clone();
        Arc::new(move || *hand.0.lock().unwrap())
    }

    fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

/// Waits until the floor reaches at least this revision.
async fn wait_for_floor(store: &EmbeddedStore, floor: Revision) {
    let wait = async {
        while store.floor() < floor {
            tokio::task::yield_now().await;
        }
    };
    let Ok(()) = tokio::time::timeout(Duration::from_secs(20), wait).await else {
        panic!("the floor is at {} instead of {floor}", store.floor());
    };
}

#[tokio::test]
async fn history_goes_by_age() {
    let dir = tempfile::tempdir().unwrap();
    let hand = ManualClock::new();
    let options = EmbeddedOptions { clock: hand.clock(), ..EmbeddedOptions::new(dir.path()) };
    let store = EmbeddedStore::open(options.clone()).unwrap();
    for n in 0..50 {
        store.commit(put("k", format!("{n}"))).await.unwrap();
        hand.advance(Duration::from_secs(5));
    }
    assert_eq!(store.floor(), 1, "250 seconds are less than five minutes");
    hand.advance(Duration::from_secs(150));
    let newest = store.commit(put("k", "last")).await.unwrap().revision;
    // Written 400, 395, ... seconds ago: the first 21 are five minutes old.
    wait_for_floor(&store, 22).await;
    assert!(store.floor() < newest - 25, "not more than needed: {}", store.floor());
    assert_eq!(store.history(store.floor(), 100).await.unwrap().last().unwrap().revision, newest);

    // After a restart the age is unknown; the remaining history counts as new.
    let floor = store.floor();
    drop(store);
    let store = EmbeddedStore::open(options).unwrap();
    hand.advance(Duration::from_secs(299));
    store.commit(put("k", "x")).await.unwrap();
    assert_eq!(store.floor(), floor);
    hand.advance(Duration::from_secs(2));
    wait_for_floor(&store, newest).await;
}

#[tokio::test]
async fn history_goes_by_number() {
    let dir = tempfile::tempdir().unwrap();
    let store =
        EmbeddedStore::open(EmbeddedOptions { retain_events: 100, ..EmbeddedOptions::new(dir.path()) })
            .unwrap();
    for n in 0..400 {
        let revision = store.commit(put(&format!("{}", n % 9), "v")).await.unwrap().revision;
        assert!(store.floor() <= revision.saturating_sub(100).max(1), "100 are kept");
    }
    wait_for_floor(&store, 290).await;
    assert_eq!(store.range(KeyRange::default()).await.unwrap().items.len(), 9);
}

#[tokio::test]
async fn history_goes_by_size() {
    let dir = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { retain_bytes: 100_000, ..EmbeddedOptions::new(dir.path()) };
    let store = EmbeddedStore::open(options.clone()).unwrap();
    for _ in 0..400 {
        store.commit(put("k", vec![1; 1_000])).await.unwrap();
    }
    wait_for_floor(&store, 290).await;
    assert!(store.floor() <= 302, "{}", store.floor());
    drop(store);
    // The size is recomputed after a restart.
    let store = EmbeddedStore::open(EmbeddedOptions { retain_bytes: 50_000, ..options }).unwrap();
    wait_for_floor(&store, 340).await;
    assert!(store.floor() <= 352, "{}", store.floor());
    let report = check(dir.path()).unwrap();
    assert!(report.bytes < 65_000, "{report:?}");
}
