//! Only responding members of the store's cluster are used.

use std::net::TcpListener;

use windlass_testkit::etcd::{EtcdCluster, MemberAddress};

use super::process::QUICK;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_different_clusters_are_refused() {
    let clusters = [0, 1].map(|_| EtcdCluster::start(1, &QUICK).unwrap());
    let urls: Vec<_> = clusters.iter().flat_map(EtcdCluster::urls).collect();
    let Err(Error::Refused { what, .. }) = EtcdStore::open(short_timeout_options(urls.clone(), "/x")) else {
        panic!("opened in two clusters");
    };
    assert!(what.contains("different clusters"), "{what}");
    assert!(urls.iter().all(|url| what.contains(url)), "{what}");
}

/// A member of another cluster that appears later is never written to, and does no harm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_another_cluster_is_not_used() {
    let [mut ours, mut theirs] = [0, 1].map(|_| EtcdProcess::start_own(&[]));
    let before = open(&theirs, "/x").unwrap().revision();
    theirs.kill();
    let store = EtcdStore::open(short_timeout_options(vec![ours.url(), theirs.url()], "/x")).unwrap();
    commit_with_retry(&store, put("k", "1")).await;
    theirs.restart(&[]);
    ours.kill();
    for _ in 0..3 {
        let refused = store.commit(put("k", "2")).await;
        let away = matches!(refused, Err(Error::Unavailable { .. } | Error::Unknown { .. }));
        assert!(away, "{refused:?}");
    }
    assert_eq!(store.failure(), None, "one of its own may come back");
    ours.restart(&[]);
    let last = commit_with_retry(&store, put("k", "3")).await.revision;
    let reader = open(&ours, "/x").unwrap();
    assert_eq!(reader.get("k").await.unwrap().unwrap().revision, last);
    let untouched = open(&theirs, "/x").unwrap();
    assert_eq!(untouched.revision(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unresponsive_member_is_replaced_in_time() {
    let cluster = EtcdCluster::start(3, &QUICK).unwrap();
    let options = short_timeout_options(cluster.urls(), "/x");
    let store = EtcdStore::open(options.clone()).unwrap();
    commit_with_retry(&store, put("k", "1")).await;
    cluster.members()[0].pause().unwrap();
    // Each of these would fail if it waited for that member; one attempt leaves time for others.
    assert!(store.get("k").await.unwrap().is_some());
    let late = EtcdStore::open(options).unwrap();
    assert!(late.get("k").await.unwrap().is_some());
    cluster.members()[0].resume().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_may_come_later() {
    let mut cluster = EtcdCluster::start(3, &QUICK).unwrap();
    cluster.members_mut()[0].kill().unwrap();
    let store = EtcdStore::open(short_timeout_options(cluster.urls()[..2].to_vec(), "/x")).unwrap();
    commit_with_retry(&store, put("k", "1")).await;
    cluster.members_mut()[0].restart(&QUICK).unwrap();
    cluster.members_mut()[1].kill().unwrap();
    // Of the members that the store knows, only the late one is left.
    commit_with_retry(&store, put("k", "2")).await;
    let reader = EtcdStore::open(long_timeout_options(cluster.urls()[..1].to_vec(), "/x")).unwrap();
    assert_eq!(reader.get("k").await.unwrap().unwrap().value, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_have_names_and_addresses_of_both_kinds() {
    let process = EtcdProcess::start_own(&[]);
    let named = process.url().replace("127.0.0.1", "localhost");
    let store = EtcdStore::open(long_timeout_options(vec![named], "/x")).unwrap();
    store.commit(put("k", "1")).await.unwrap();
    let free = || TcpListener::bind("[::1]:0").unwrap().local_addr().unwrap();
    let place = MemberAddress {
        client: format!("http://{}", free()),
        peer: format!("http://{}", free()),
        through: Vec::new(),
    };
    let cluster = EtcdCluster::start_at(vec![place], &QUICK).unwrap();
    let store = EtcdStore::open(long_timeout_options(cluster.urls(), "/x")).unwrap();
    store.commit(put("k", "1")).await.unwrap();
}
