//! Stores whose revisions differ from etcd's.

use super::*;
use crate::raise_revision;
use crate::suite::{StoreFixture, conformance};

const BASE: u64 = 1_000_000;

mod counted {
    use super::*;

    conformance!(fixture);

    /// Runs the suite on a store that counts from a base.
    fn fixture() -> StoreFixture {
        let process = EtcdProcess::acquire();
        let options = options(&process, &format!("/test-{}", process.uses()));
        let raised = raise_revision(options.clone(), BASE).unwrap();
        assert!(raised.to > BASE);
        without_history(process, options)
    }
}

fn options(process: &EtcdProcess, prefix: &str) -> EtcdOptions {
    let mut options = EtcdOptions::new([process.url()]);
    options.prefix = prefix.to_owned();
    options
}

async fn overwrite_meta_key(store: &EtcdStore, text: &str) {
    let put = wire::PutRequest {
        key: store.core.keys.meta_key(),
        value: Bytes::copy_from_slice(text.as_bytes()),
        prev_kv: false,
    };
    let success = vec![wire::Request::Put(put).into()];
    let request = wire::TxnRequest { success, ..wire::TxnRequest::default() };
    store.core.client.txn(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raising_starts_above_all_reported_revisions() {
    let process = EtcdProcess::acquire();
    let options = options(&process, &format!("/raised-{}", process.uses()));
    let store = EtcdStore::open(options.clone()).unwrap();
    let old = store.commit(put("k", "1")).await.unwrap().revision;
    let raised = raise_revision(options.clone(), 500).unwrap();
    assert_eq!(raised, RaisedRevision { from: old, to: old + 500 });

    // A store with the old offset notices, and stops.
    let Error::Failed { what } = store.failed().await else { panic!("another failure") };
    assert!(what.ends_with("was changed"), "{what}");
    assert_eq!(store.commit(put("k", "2")).await, Err(Error::Failed { what }));

    let store = EtcdStore::open(options.clone()).unwrap();
    let found = store.get("k").await.unwrap().unwrap();
    assert_eq!((found.revision, found.created), (old + 500, old + 500));
    // Earlier revisions are compacted, not reinterpreted.
    for known in [old, old + 1, old + 499] {
        let floor = old + 500;
        assert_eq!(store.history(known, 1).await, Err(Error::Compacted { floor }), "{known}");
    }
    let stale = WriteRequest { expect: crate::WritePrecondition::Revision(old), ..put("k", "3") };
    assert_eq!(store.commit(stale).await, Err(Error::Conflict { current: Some(old + 500) }));
    let fresh = WriteRequest { expect: crate::WritePrecondition::Revision(old + 500), ..put("k", "3") };
    // Writing the meta key is a change too.
    assert_eq!(store.commit(fresh).await.unwrap().revision, old + 502);
    let events = store.history(old + 500, 10).await.unwrap();
    assert_eq!(events.iter().map(|event| event.revision).collect::<Vec<_>>(), [old + 502]);
    let result = raise_revision(options, 1 << 62);
    assert!(matches!(result, Err(Error::Refused { .. })), "{result:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_meta_key_fails_the_store() {
    let process = EtcdProcess::acquire();
    for (case, text) in ["base 7 floor 8", "importing abc base 9", "what"].iter().enumerate() {
        let options = options(&process, &format!("/scribbled-{}-{case}", process.uses()));
        let store = EtcdStore::open(options.clone()).unwrap();
        store.commit(put("k", "1")).await.unwrap();
        overwrite_meta_key(&store, text).await;
        let Error::Failed { what } = store.failed().await else { panic!("another failure") };
        assert!(what.ends_with("was changed"), "{what}");
        let opened = EtcdStore::open(options);
        match case {
            0 => assert_eq!(opened.unwrap().core.keys.offset, meta_key::RevisionOffset { base: 7, floor: 8 }),
            _ => {
                let error = opened.err().unwrap().to_string();
                let expected = ["", "`windlass store import --undo`", "does not know"][case];
                assert!(error.contains(expected), "{error}");
            }
        }
    }
}

/// A process must not mistake another's first write of the meta key for a changed offset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_write_the_first_mark_at_once() {
    let process = EtcdProcess::acquire();
    let prefix = format!("/first-{}", process.uses());
    let stores: Vec<_> = (0..4).map(|_| open(&process, &prefix).unwrap()).collect();
    let other = open(&process, &format!("/other-{}", process.uses())).unwrap();
    // After a change elsewhere, only a meta key write advances the feed.
    for round in 0..3 {
        other.commit(put("k", format!("{round}"))).await.unwrap();
        let all = futures::future::join_all(stores.iter().map(crate::Store::catch_up)).await;
        assert!(all.iter().all(Result::is_ok), "{all:?}");
    }
    assert!(stores.iter().all(|store| store.failure().is_none()));
}
