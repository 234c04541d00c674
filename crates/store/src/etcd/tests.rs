//! The conformance suite on a real etcd, and engine-specific tests.
//!
//! `cargo xtask test` sets `WINDLASS_ETCD` to the path of etcd; otherwise it is searched on `PATH`.
//! A process is used by one store at a time and then reused by the next, because the suite expects
//! no other writer.

mod compaction;
mod faults;
mod members;
mod pauses;
mod process;
mod replicas;
mod reset;
mod retries;
mod revision_offset;

use bytes::Bytes;

use super::*;
use crate::suite::{StoreFixture, conformance};
use crate::{KeyChange, WritePrecondition};
use process::EtcdProcess;

conformance!(fixture);

/// Creates a new prefix without history on an unshared etcd.
fn fixture() -> StoreFixture {
    let process = EtcdProcess::acquire();
    let options = long_timeout_options(vec![process.url()], &format!("/test-{}", process.uses()));
    without_history(process, options)
}

/// Opens a store whose earlier history is compacted.
fn without_history(process: EtcdProcess, options: EtcdOptions) -> StoreFixture {
    let store = EtcdStore::open(options.clone()).unwrap();
    block_on(&store.handle, {
        let core = Arc::clone(&store.core);
        async move { reader::compact(&core, core.position()).await }
    })
    .unwrap();
    StoreFixture {
        open: Box::new(move || Arc::new(EtcdStore::open(options.clone()).unwrap())),
        _keep: Box::new(process),
    }
}

fn put(key: &str, value: impl Into<Vec<u8>>) -> WriteRequest {
    let change = KeyChange::Put(Bytes::from(value.into()));
    WriteRequest { key: key.to_owned(), expect: WritePrecondition::Any, change }
}

fn delete(key: &str) -> WriteRequest {
    WriteRequest { key: key.to_owned(), expect: WritePrecondition::Any, change: KeyChange::Delete }
}

/// Opens a store under a prefix, with long timeouts for a busy machine.
fn open(process: &EtcdProcess, prefix: &str) -> Result<EtcdStore, Error> {
    EtcdStore::open(long_timeout_options(vec![process.url()], prefix))
}

fn open_with_short_timeouts(process: &EtcdProcess, prefix: &str) -> Result<EtcdStore, Error> {
    EtcdStore::open(short_timeout_options(vec![process.url()], prefix))
}

fn long_timeout_options(urls: Vec<String>, prefix: &str) -> EtcdOptions {
    let mut options = EtcdOptions::new(urls);
    options.prefix = prefix.to_owned();
    options.attempt = Duration::from_secs(10);
    options.patience = Duration::from_secs(30);
    options
}

fn short_timeout_options(urls: Vec<String>, prefix: &str) -> EtcdOptions {
    let mut options = long_timeout_options(urls, prefix);
    options.attempt = Duration::from_secs(1);
    options.patience = Duration::from_secs(3);
    options
}

/// Records the keys whose changes a sink receives, in order.
fn record_keys(store: &EtcdStore, after: Revision) -> Arc<Mutex<Vec<String>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let take = move |message: crate::FeedMessage<'_>| {
        sink.lock().unwrap().extend(message.changes().iter().map(|event| event.key.clone()));
    };
    store.watch(after, Box::new(take)).unwrap();
    seen
}

async fn wait_until(holds: impl Fn() -> bool) {
    wait_until_within(Duration::from_secs(10), holds).await;
}

async fn wait_until_within(limit: Duration, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < limit, "it never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn commit_with_retry(store: &EtcdStore, write: WriteRequest) -> crate::CommittedWrite {
    let begun = Instant::now();
    loop {
        match store.commit(write.clone()).await {
            Ok(done) => return done,
            Err(Error::Unavailable { .. } | Error::Unknown { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "it never works");
    }
}
