//! An etcd that is unavailable, full, or replaced.

use windlass_testkit::etcd::EtcdCluster;

use super::process::QUICK;
use super::*;

#[test]
fn no_etcd_is_an_error_in_time() {
    let mut process = EtcdProcess::start_own(&[]);
    process.kill();
    let begun = Instant::now();
    let Err(Error::Unavailable { path, what }) = open_with_short_timeouts(&process, "/x") else {
        panic!("opened without an etcd");
    };
    assert!(path.to_string_lossy().contains(&process.url()), "{path:?}");
    assert!(what.contains("onnect"), "{what}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_feed_resumes_when_etcd_is_available() {
    let mut process = EtcdProcess::start_own(&[]);
    let store = open_with_short_timeouts(&process, "/x").unwrap();
    let start = store.revision();
    let seen = record_keys(&store, start);
    commit_with_retry(&store, put("before", "1")).await;
    for n in 0..3 {
        process.kill();
        let refused = store.commit(put("during", "1")).await;
        let cut_off = matches!(refused, Err(Error::Unavailable { .. } | Error::Unknown { .. }));
        assert!(cut_off, "{refused:?}");
        wait_until(|| store.lost_since().is_some()).await;
        process.restart(&[]);
        commit_with_retry(&store, put(&format!("after {n}"), "1")).await;
        wait_until(|| store.lost_since().is_none()).await;
    }
    assert_eq!(store.failure(), None);
    // An unacknowledged write may have been applied, and then again.
    let mut seen = seen.lock().unwrap().clone();
    seen.dedup();
    assert_eq!(seen, ["before", "after 0", "after 1", "after 2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_in_the_same_place_fails_the_store() {
    let mut process = EtcdProcess::start_own(&[]);
    let store = open(&process, "/x").unwrap();
    store.commit(put("k", "1")).await.unwrap();
    process.kill();
    process.wipe();
    process.restart(&["--initial-cluster-token=another"]);
    let Error::Failed { what } = store.failed().await else { panic!("another failure") };
    assert!(what.contains("answers as cluster"), "{what}");
    let refused = store.commit(put("k", "2")).await;
    assert_eq!(refused, Err(Error::Failed { what }));
}

/// The same cluster with older data, as after a restore from a backup.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolled_back_cluster_fails_the_store() {
    let mut process = EtcdProcess::start_own(&[]);
    let store = open(&process, "/x").unwrap();
    store.commit(put("k", "1")).await.unwrap();
    let newest = store.commit(put("k", "2")).await.unwrap().revision;
    process.kill();
    process.wipe();
    process.restart(&[]);
    let Err(Error::Failed { what }) = store.catch_up().await else { panic!("not noticed") };
    assert!(what.contains(&format!("has been at revision {newest}")), "{what}");
    assert_eq!(store.failure(), Some(Error::Failed { what }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_database_reports_full_and_stays_readable() {
    let process = EtcdProcess::start_own(&["--quota-backend-bytes=4000000"]);
    let store = open(&process, "/x").unwrap();
    let mut written = Vec::new();
    let mut open = Vec::new();
    for n in 0.. {
        let key = format!("{n:03}");
        match store.commit(put(&key, vec![7; 500_000])).await {
            Ok(_) => written.push(key),
            // etcd notices too late, and reports no space for what it has written.
            Err(Error::Unknown { .. }) => open.push(key),
            Err(Error::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(n < 100, "it is never full");
    }
    assert_eq!(store.failure(), None);
    store.catch_up().await.unwrap();
    let page = store.range(KeyRange::default()).await.unwrap();
    let mut found: Vec<_> = page.items.into_iter().map(|(key, _)| key).collect();
    found.retain(|key| !open.contains(key));
    assert_eq!(found, written);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_too_large_is_refused() {
    let process = EtcdProcess::start_own(&[]);
    let store = open(&process, "/x").unwrap();
    for megabytes in [2, 3, 20] {
        let refused = store.commit(put("k", vec![7; megabytes * 1_000_000])).await;
        let Err(Error::Refused { what, .. }) = refused else { panic!("{refused:?}") };
        assert!(what.contains("large"), "{what}");
    }
    assert_eq!(store.get("k").await, Ok(None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_secured() {
    let process = EtcdProcess::start_own(&["--auto-tls"]);
    let ca = process.data_dir().join("fixtures/client/cert.pem");
    wait_until(|| ca.exists()).await;
    let mut options = EtcdOptions::new([process.url()]);
    options.attempt = Duration::from_secs(10);
    options.patience = Duration::from_secs(1);
    options.tls = Some(EtcdTlsFiles { ca: None, identity: None });
    let refused = EtcdStore::open(options.clone()).err();
    assert!(matches!(refused, Some(Error::Unavailable { .. })), "{refused:?}");
    options.patience = Duration::from_secs(30);
    options.tls = Some(EtcdTlsFiles { ca: Some(ca), identity: None });
    let store = EtcdStore::open(options).unwrap();
    store.commit(put("k", "1")).await.unwrap();
}

/// Every member is killed in turn, including the leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_loses_its_members_one_by_one() {
    let mut cluster = EtcdCluster::start(3, &QUICK).unwrap();
    let mut options = EtcdOptions::new(cluster.urls());
    options.patience = Duration::from_secs(5);
    let store = EtcdStore::open(options).unwrap();
    let start = store.revision();
    let seen = record_keys(&store, start);
    let mut acknowledged = Vec::new();
    for round in 0..6 {
        let member = &mut cluster.members_mut()[round % 3];
        member.kill().unwrap();
        let begun = Instant::now();
        let mut n = 0;
        while n < 20 {
            let key = format!("{round}/{n}");
            match store.commit(put(&key, "1")).await {
                Ok(_) => {
                    acknowledged.push(key);
                    n += 1;
                }
                Err(Error::Unavailable { .. } | Error::Unknown { .. }) => {
                    assert!(begun.elapsed().as_secs() < 5)
                }
                Err(error) => panic!("{error}"),
            }
        }
        member.restart(&QUICK).unwrap();
        // It answers when it has rejoined the cluster; then the next may be killed.
        drop(EtcdStore::open(long_timeout_options(vec![member.url().to_owned()], "/x")).unwrap());
    }
    // An unacknowledged write may have been applied, and then again.
    let mut seen = seen.lock().unwrap().clone();
    let history = store.history(start, usize::MAX).await.unwrap();
    assert_eq!(history.into_iter().map(|event| event.key).collect::<Vec<_>>(), seen);
    seen.dedup();
    assert_eq!(seen, acknowledged);
    assert_eq!(store.failure(), None);
}
