//! Paused members, as by a hung disk or a network that drops all packets.

use std::collections::BTreeSet;

use windlass_testkit::etcd::EtcdCluster;

use super::process::QUICK;
use super::*;

/// Timeout for an idle feed to detect a dead stream: eight seconds, and some more for a busy
/// machine.
const NOTICED: Duration = Duration::from_secs(15);

/// Options with the default timeouts of production.
fn options(urls: Vec<String>) -> EtcdOptions {
    let mut options = EtcdOptions::new(urls);
    options.prefix = "/x".to_owned();
    options
}

/// Without calls and changes, the store still detects that it is cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_store_notices_that_it_is_cut_off() {
    let cluster = EtcdCluster::start(1, &QUICK).unwrap();
    let member = &cluster.members()[0];
    let store = EtcdStore::open(options(cluster.urls())).unwrap();
    let seen = record_keys(&store, store.revision());
    commit_with_retry(&store, put("before", "1")).await;
    member.pause().unwrap();
    wait_until_within(NOTICED, || store.lost_since().is_some()).await;
    member.resume().unwrap();
    wait_until_within(NOTICED, || store.lost_since().is_none()).await;
    commit_with_retry(&store, put("after", "1")).await;
    let mut seen = seen.lock().unwrap().clone();
    seen.dedup();
    assert_eq!(seen, ["before", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_store_moves_away_from_a_member_that_hangs() {
    let cluster = EtcdCluster::start(3, &QUICK).unwrap();
    let urls = cluster.urls();
    let quiet = EtcdStore::open(options(urls.clone())).unwrap();
    let seen = record_keys(&quiet, quiet.revision());
    let writer = EtcdStore::open(options(urls[1..].to_vec())).unwrap();
    commit_with_retry(&writer, put("before", "1")).await;
    wait_until(|| !seen.lock().unwrap().is_empty()).await;
    // Without earlier failures, the stream is on the first member.
    cluster.members()[0].pause().unwrap();
    commit_with_retry(&writer, put("after", "1")).await;
    wait_until_within(NOTICED, || seen.lock().unwrap().iter().any(|key| key == "after")).await;
    wait_until(|| quiet.lost_since().is_none()).await;
    assert_eq!(quiet.failure(), None);
    cluster.members()[0].resume().unwrap();
}

/// Acknowledged writes exist, rejected ones do not, and unknown ones may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hangs_loses_nothing() {
    let cluster = EtcdCluster::start(3, &QUICK).unwrap();
    let mut options = options(cluster.urls());
    options.attempt = Duration::from_secs(1);
    let store = Arc::new(EtcdStore::open(options.clone()).unwrap());
    options.patience = Duration::from_secs(30);
    let start = store.revision();
    let seen = record_keys(&store, start);
    let [mut there, mut absent, mut open] = [(); 3].map(|()| BTreeSet::new());
    for round in 0..4 {
        let begun = Instant::now();
        let leader = loop {
            if let Some(leader) = cluster.leader() {
                break leader;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no leader");
        };
        let writers = (0..4).map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut outcomes = Vec::new();
                for n in 0..15 {
                    let key = format!("{round}/{writer}/{n}");
                    outcomes.push((key.clone(), store.commit(put(&key, "1")).await));
                }
                outcomes
            })
        });
        let writers: Vec<_> = writers.collect();
        wait_until(|| seen.lock().unwrap().iter().any(|key| key.starts_with(&format!("{round}/")))).await;
        cluster.members()[leader].pause().unwrap();
        for writer in writers {
            for (key, outcome) in writer.await.unwrap() {
                match outcome {
                    Ok(_) => there.insert(key),
                    Err(Error::Unavailable { .. }) => absent.insert(key),
                    Err(Error::Unknown { .. }) => open.insert(key),
                    Err(error) => panic!("{error}"),
                };
            }
        }
        // Every replica immediately shows what any has acknowledged.
        let other = EtcdStore::open(options.clone()).unwrap();
        other.catch_up().await.unwrap();
        let page = other.range(KeyRange::default()).await.unwrap();
        let found: BTreeSet<_> = page.items.into_iter().map(|(key, _)| key).collect();
        assert!(there.is_subset(&found));
        cluster.members()[leader].resume().unwrap();
    }
    let newest = EtcdStore::open(options).unwrap().catch_up().await.unwrap();
    wait_until_within(Duration::from_secs(30), || store.revision() >= newest).await;
    let page = store.range(KeyRange::default()).await.unwrap();
    let found: BTreeSet<_> = page.items.into_iter().map(|(key, _)| key).collect();
    assert!(there.is_subset(&found) && absent.is_disjoint(&found));
    assert!(found.iter().all(|key| there.contains(key) || open.contains(key)));
    // The feed has delivered each of them once.
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen, found.into_iter().collect::<Vec<_>>());
    assert!(there.len() > 60, "{} of 240", there.len());
    assert_eq!(store.failure(), None);
}

/// Closing finishes in time although etcd does not answer, and every commit gets a reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_though_etcd_hangs() {
    let cluster = EtcdCluster::start(1, &QUICK).unwrap();
    let member = &cluster.members()[0];
    let store = Arc::new(EtcdStore::open(short_timeout_options(cluster.urls(), "/x")).unwrap());
    let seen = record_keys(&store, store.revision());
    commit_with_retry(&store, put("before", "1")).await;
    member.pause().unwrap();
    let commit = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.commit(put("during", "1")).await })
    };
    wait_until(|| store.core.gate.try_write().is_err()).await;
    let begun = Instant::now();
    store.close().await.unwrap();
    let limit = 2 * store.core.client.patience + 3 * store.core.client.attempt;
    assert!(begun.elapsed() < limit, "{:?}", begun.elapsed());
    let outcome = commit.await.unwrap();
    let open = matches!(outcome, Err(Error::Unknown { .. } | Error::Unavailable { .. }));
    assert!(open, "{outcome:?}");
    assert_eq!(store.commit(put("after", "1")).await, Err(Error::Closed));
    assert_eq!(store.catch_up().await, Err(Error::Closed));
    assert_eq!(Arc::strong_count(&seen), 1, "the sinks are dropped");
    member.resume().unwrap();
}
