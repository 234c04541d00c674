//! The conformance suite on a real etcd, and tests of what only this engine has.
//!
//! `cargo xtask test` says in `WINDLASS_ETCD` where etcd is; without it, it is looked for on
//! `PATH`. A process is used by one store at a time and again by the next, because the suite
//! expects no other writer.

mod busy;
mod compaction;
mod counting;
mod faults;
mod members;
mod pauses;
mod process;
mod replicas;
mod reset;

use bytes::Bytes;

use super::*;
use crate::suite::{Fixture, conformance};
use crate::{Change, Expect};
use process::Process;

conformance!(fixture);

/// A new prefix on an etcd that nobody else uses, with no history before it.
fn fixture() -> Fixture {
    let process = Process::take();
    let options = patient(vec![process.url()], &format!("/test-{}", process.uses()));
    without_history(process, options)
}

/// A store that has forgotten what was before.
fn without_history(process: Process, options: EtcdOptions) -> Fixture {
    let store = Etcd::open(options.clone()).unwrap();
    wait(&store.handle, {
        let core = Arc::clone(&store.core);
        async move { reader::compact(&core, core.position()).await }
    })
    .unwrap();
    Fixture {
        open: Box::new(move || Arc::new(Etcd::open(options.clone()).unwrap())),
        _keep: Box::new(process),
    }
}

fn put(key: &str, value: impl Into<Vec<u8>>) -> Write {
    let change = Change::Put(Bytes::from(value.into()));
    Write { key: key.to_owned(), expect: Expect::Any, change }
}

fn delete(key: &str) -> Write {
    Write { key: key.to_owned(), expect: Expect::Any, change: Change::Delete }
}

/// Opens a store under a prefix, with patience for a machine that has much else to do.
fn open(process: &Process, prefix: &str) -> Result<Etcd, Error> {
    Etcd::open(patient(vec![process.url()], prefix))
}

/// Opens a store that soon gives up.
fn open_hasty(process: &Process, prefix: &str) -> Result<Etcd, Error> {
    Etcd::open(hasty(vec![process.url()], prefix))
}

fn patient(urls: Vec<String>, prefix: &str) -> EtcdOptions {
    let mut options = EtcdOptions::new(urls);
    options.prefix = prefix.to_owned();
    options.attempt = Duration::from_secs(10);
    options.patience = Duration::from_secs(30);
    options
}

fn hasty(urls: Vec<String>, prefix: &str) -> EtcdOptions {
    let mut options = patient(urls, prefix);
    options.attempt = Duration::from_secs(1);
    options.patience = Duration::from_secs(3);
    options
}

/// The keys a sink has seen change, in order.
fn keys_seen(store: &Etcd, after: Revision) -> Arc<Mutex<Vec<String>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let take = move |message: crate::Message<'_>| {
        sink.lock().unwrap().extend(message.changes().iter().map(|event| event.key.clone()));
    };
    store.follow(after, Box::new(take)).unwrap();
    seen
}

async fn until(holds: impl Fn() -> bool) {
    until_within(Duration::from_secs(10), holds).await;
}

async fn until_within(limit: Duration, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < limit, "it never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Commits as often as it takes.
async fn commit_at_last(store: &Etcd, write: Write) -> crate::Committed {
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
