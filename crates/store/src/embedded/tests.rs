//! Tests of what only the embedded engine has: files, damage, locks, full disks.

use bytes::Bytes;

use super::*;
use crate::{Change, Expect};

fn put(key: &str, value: &str) -> Write {
    let change = Change::Put(Bytes::copy_from_slice(value.as_bytes()));
    Write { key: key.to_owned(), expect: Expect::Any, change }
}

#[tokio::test]
async fn first_steps() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(Options::new(dir.path())).unwrap();
    assert_eq!(store.revision(), 1);
    let (tx, rx) = std::sync::mpsc::channel();
    store.follow(1, Box::new(move |events| tx.send(events.to_vec()).unwrap())).unwrap();
    let first = store.commit(put("a", "1")).await.unwrap();
    assert_eq!(first.revision, 2);
    let second = store.commit(put("a", "2")).await.unwrap();
    assert_eq!(second.previous.unwrap().revision, 2);
    assert_eq!(rx.try_iter().flatten().map(|e| e.revision).collect::<Vec<_>>(), [2, 3]);
    let page = store.range(Range::default()).await.unwrap();
    assert_eq!((page.revision, page.items.len()), (3, 1));
    let history = store.history(1, 10).await.unwrap();
    assert_eq!(history.len(), 2);
    store.compact(3).await.unwrap();
    assert_eq!(store.floor(), 3);
    assert_eq!(store.history(2, 10).await, Err(Error::Compacted { floor: 3 }));
    store.close().await.unwrap();
    let report = check(dir.path()).unwrap();
    assert_eq!((report.revision, report.keys, report.records), (3, 1, 1));
    let store = Embedded::open(Options::new(dir.path())).unwrap();
    assert_eq!(store.commit(put("b", "1")).await.unwrap().revision, 4);
}
