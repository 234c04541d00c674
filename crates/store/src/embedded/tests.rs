//! The conformance suite on this engine, and engine-specific tests: files, damage, locks, full
//! disks.

mod crash;
mod damage;
mod disk;
mod offline;
mod retention;

use bytes::Bytes;

use super::*;
use crate::suite::{StoreFixture, conformance};
use crate::{KeyChange, WritePrecondition};

conformance!(fixture);

fn fixture() -> StoreFixture {
    let dir = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions::new(dir.path());
    StoreFixture {
        open: Box::new(move || Arc::new(EmbeddedStore::open(options.clone()).unwrap())),
        _keep: Box::new(dir),
    }
}

fn open(dir: &Path) -> Result<EmbeddedStore, Error> {
    EmbeddedStore::open(EmbeddedOptions::new(dir))
}

fn put(key: &str, value: impl Into<Vec<u8>>) -> WriteRequest {
    let change = KeyChange::Put(Bytes::from(value.into()));
    WriteRequest { key: key.to_owned(), expect: WritePrecondition::Any, change }
}

fn delete(key: &str) -> WriteRequest {
    WriteRequest { key: key.to_owned(), expect: WritePrecondition::Any, change: KeyChange::Delete }
}

#[derive(Debug, Clone, PartialEq)]
struct StoreSnapshot {
    revision: Revision,
    floor: Revision,
    page: RangePage,
    history: Vec<ChangeEvent>,
}

async fn snapshot(store: &EmbeddedStore) -> Result<StoreSnapshot, Error> {
    let (revision, floor) = (store.revision(), store.floor());
    let page = store.range(KeyRange::default()).await?;
    let history = store.history(floor, usize::MAX).await?;
    for (key, stored) in &page.items {
        assert_eq!(store.get(key).await?.as_ref(), Some(stored));
    }
    Ok(StoreSnapshot { revision, floor, page, history })
}

/// Writes data that creates all kinds of pages: long and short values, old versions, deletions.
async fn populate(store: &EmbeddedStore) {
    for n in 0..40 {
        let value = vec![n as u8; if n % 10 == 0 { 9_000 } else { 150 }];
        store.commit(put(&format!("/registry/things/{n:03}"), value)).await.unwrap();
    }
    store.compact(store.revision() - 10).await.unwrap();
    for n in (0..40).step_by(3) {
        let key = format!("/registry/things/{n:03}");
        let write = if n % 2 == 0 { put(&key, "changed") } else { delete(&key) };
        store.commit(write).await.unwrap();
    }
}

/// Copies the files of a store, as a power loss would leave them.
fn copy(from: &Path, to: &Path) {
    for file in ["windlass.db", "windlass.db-wal", "revision"] {
        if from.join(file).exists() {
            std::fs::copy(from.join(file), to.join(file)).unwrap();
        }
    }
}
