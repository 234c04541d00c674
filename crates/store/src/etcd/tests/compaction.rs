//! Which server compacts when, and how the others detect it.

use super::*;
use crate::etcd::compactor::CompactedBy;

const MINUTE: Duration = Duration::from_secs(60);

struct ManualCompactor<'a> {
    store: &'a EtcdStore,
    compactor: Option<Compactor>,
    begun: Instant,
}

impl<'a> ManualCompactor<'a> {
    fn new(store: &'a EtcdStore, interval: Option<Duration>) -> Self {
        let begun = Instant::now();
        let compactor = Compactor::new(Arc::clone(&store.core), interval, 5 * MINUTE, begun);
        Self { store, compactor: Some(compactor), begun }
    }

    async fn round_at(&mut self, minute: u32) -> Option<(CompactedBy, Revision)> {
        let mut compactor = self.compactor.take().unwrap();
        let now = self.begun + MINUTE * minute;
        let round = async move {
            let outcome = compactor.round(now).await.unwrap();
            (compactor, outcome)
        };
        let (compactor, outcome) = self.store.handle.spawn(round).await.unwrap();
        self.compactor = Some(compactor);
        outcome
    }
}

async fn write(store: &EtcdStore) -> Revision {
    store.commit(put("k", "1")).await.unwrap().revision
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_compact_in_turn_and_record_the_compactor() {
    let process = EtcdProcess::start_own(&[]);
    let [a, b] = [0, 1].map(|_| open(&process, "/shared").unwrap());
    let stranger = open(&process, "/strange").unwrap();
    let [mut one, mut two] = [&a, &b].map(|store| ManualCompactor::new(store, Some(5 * MINUTE)));
    let seen = record_keys(&b, b.revision());
    let first = write(&a).await;
    assert_eq!((one.round_at(1).await, two.round_at(1).await), (None, None));
    let second = write(&a).await;
    // History younger than five minutes is kept.
    assert_eq!((one.round_at(5).await, two.round_at(5).await), (None, None));
    assert_eq!(one.round_at(10).await, Some((CompactedBy::ThisStore, second)));
    assert_eq!(two.round_at(10).await, Some((CompactedBy::Sibling, second)));
    assert_eq!((a.floor(), b.floor()), (second, second));
    assert_eq!(b.history(first, 1).await, Err(Error::Compacted { floor: second }));
    // The first is gone, and the second takes over.
    write(&a).await;
    assert_eq!(two.round_at(11).await, None);
    let outcome = two.round_at(16).await.unwrap();
    assert_eq!((outcome.0, b.floor()), (CompactedBy::ThisStore, outcome.1));
    assert!(outcome.1 > second);
    // When the first is back, it is not its turn.
    assert_eq!(one.round_at(20).await, Some((CompactedBy::Sibling, outcome.1)));
    // Another user compacts, and both detect it.
    let third = write(&a).await;
    stranger.catch_up().await.unwrap();
    stranger.compact(third).await.unwrap();
    assert_eq!(one.round_at(21).await, Some((CompactedBy::Other, third)));
    assert_eq!(two.round_at(21).await, Some((CompactedBy::Other, third)));
    assert_eq!(two.round_at(22).await, None);
    assert_eq!(seen.lock().unwrap().len(), 4, "the feed shows nothing of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_compacts_by_itself_is_followed() {
    let args = ["--auto-compaction-mode=periodic", "--auto-compaction-retention=1s"];
    let process = EtcdProcess::start_own(&args);
    let store = open(&process, "/x").unwrap();
    let mut driven = ManualCompactor::new(&store, None);
    let begun = Instant::now();
    let floor = loop {
        write(&store).await;
        match driven.round_at(0).await {
            Some((by, floor)) => {
                assert_eq!(by, CompactedBy::Other);
                break floor;
            }
            None => assert!(begun.elapsed() < 2 * MINUTE, "it never compacts"),
        }
    };
    assert!(store.floor() >= floor && floor > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_compacts_while_it_is_open() {
    let process = EtcdProcess::start_own(&[]);
    let mut options = long_timeout_options(vec![process.url()], "/x");
    options.compaction = Some(Duration::from_millis(50));
    options.retain_age = Duration::from_millis(50);
    let store = EtcdStore::open(options).unwrap();
    let seen = record_keys(&store, store.revision());
    let mut written = 0;
    for _ in 0..3 {
        let revision = write(&store).await;
        written += 1;
        wait_until(|| store.floor() >= revision).await;
    }
    assert_eq!(seen.lock().unwrap().len(), written);
    assert_eq!(store.failure(), None);
}

/// Compaction frees space, so a full database must not prevent it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_database_is_compacted_and_then_written_to() {
    let process = EtcdProcess::start_own(&["--quota-backend-bytes=8000000"]);
    let store = open(&process, "/x").unwrap();
    let mut driven = ManualCompactor::new(&store, Some(5 * MINUTE));
    let mut written = 0;
    let refused = loop {
        match store.commit(put("k", vec![7; 500_000])).await {
            Ok(_) | Err(Error::Unknown { .. }) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "it is never full");
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    let newest = store.catch_up().await.unwrap();
    assert_eq!(driven.round_at(1).await, None);
    assert_eq!(driven.round_at(6).await, Some((CompactedBy::ThisStore, newest)));
    assert!(store.catch_up().await.is_ok(), "it is still read");
    process.free_space();
    store.commit(put("k", vec![7; 500_000])).await.unwrap();
    assert_eq!(store.failure(), None);
}

/// A read of many pages that is overtaken restarts: its result is of one revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_many_pages_are_whole_whatever_is_compacted() {
    let process = EtcdProcess::start_own(&[]);
    let [a, b] = [0, 1].map(|_| open(&process, "/shared").unwrap());
    let many = (0..1_200).map(|n| a.commit(put(&format!("{n:04}"), "0")));
    for made in futures::future::join_all(many).await {
        made.unwrap();
    }
    // The writer changes the first key, then the last.
    let writing = async {
        for n in 1..=60 {
            a.commit(put("0000", format!("{n}"))).await.unwrap();
            let last = a.commit(put("1199", format!("{n}"))).await.unwrap().revision;
            a.compact(last).await.unwrap();
        }
    };
    let reading = async {
        loop {
            match b.range(KeyRange::default()).await {
                Ok(page) => {
                    assert_eq!(page.items.len(), 1_200);
                    let value = |at: usize| {
                        let text = std::str::from_utf8(&page.items[at].1.value).unwrap();
                        text.parse::<u32>().unwrap()
                    };
                    let (first, last) = (value(0), value(1_199));
                    assert!(first == last || first == last + 1, "{first} and {last}");
                    if last == 60 {
                        return;
                    }
                }
                Err(Error::Unavailable { what, .. }) => {
                    assert!(what.contains("overtook"), "{what}")
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::join!(writing, reading);
}
