//! Durable, revisioned bytes: commit, range, watch, compact.
//!
//! A store is one sequence of changes to a map from keys to values. Every change gets the next
//! revision of a store-wide counter. The store never looks into a value and knows no kind.
//!
//! What it promises, on every engine:
//!
//! - A commit that was acknowledged survives `kill -9` and power loss on a disk that honours fsync.
//! - Revisions only grow, and none is used twice, also across restarts.
//! - The feed ([`Store::watch`]) delivers every change after its start once, in order, or refuses
//!   with [`Error::Compacted`], or restarts with [`FeedMessage::Reset`]; never a silent gap.
//! - A commit is acknowledged after the feed's sinks have seen it, so who reads what a sink keeps
//!   reads their own writes.
//! - A write that ends in [`Error::Conflict`], [`Error::Full`] or [`Error::Unavailable`] changed nothing.
//!   Any other error leaves it open whether the change took effect; the feed shows it.
//!
//! # Where to start
//!
//! [`Store`] is the interface; a server holds a `dyn Store` and does not know its engine.
//!
//! - [`EmbeddedStore`] is the engine on SQLite. In `embedded/`, `writer` is the commit thread and the
//!   feed, `reader` serves ranges and history, `schema`, `record` and `verify` define what is on disk,
//!   `retention` drops history, `offline` has [`check`], [`backup`] and [`restore`].
//! - [`EtcdStore`] is the engine on an etcd cluster. In `etcd/`, `client` makes the calls, `txn` and
//!   `reader` build and interpret them, `feed` owns the sinks and one `watcher`, `core` holds the state
//!   that these share.
//!
//! Neither engine imports the other. Both use `sink` (delivery of the feed), `fatal_latch` (the failure
//! that a store stops at) and `file_output` (files until they are complete). `migrate` moves a store
//! from one engine to the other, through a file ([`export()`], [`import()`]). `suite` has the promises
//! above as tests, which every engine must pass.
//!
//! ```no_run
//! # async fn example() -> Result<(), windlass_store::Error> {
//! use windlass_store::{EmbeddedOptions, EmbeddedStore, KeyChange, Store, WritePrecondition, WriteRequest};
//!
//! let store = EmbeddedStore::open(EmbeddedOptions::new("data"))?;
//! let write = WriteRequest {
//!     key: "core/configmaps/default/greeting".to_owned(),
//!     expect: WritePrecondition::Absent,
//!     change: KeyChange::Put("{}".into()),
//! };
//! let committed = store.commit(write).await?;
//! assert_eq!(committed.revision, store.revision());
//! # Ok(())
//! # }
//! ```

mod embedded;
mod error;
mod etcd;
mod fatal_latch;
mod file_output;
mod migrate;
mod sink;
#[cfg(test)]
mod suite;

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use bytes::Bytes;

pub use embedded::{Clock, EmbeddedOptions, EmbeddedStore, StoreReport, backup, check, check_file, restore};
pub use error::Error;
pub use etcd::{EtcdOptions, EtcdStore, EtcdTlsFiles, RaisedRevision, raise_revision};
pub use migrate::{
    MigrationEvent, MigrationListener, MigrationStep, MigrationSummary, StoreLocation, export, import,
    undo_import,
};

/// A point in the store's history: the number of the change that created it, from 1 up.
///
/// A new, empty store is at 1, so no state has revision 0.
pub type Revision = u64;

/// Distance of a restored store's revision above the one in its backup.
///
/// Clients may remember revisions from after the backup. None of those is reused if fewer changes
/// than this were made between the backup and the restore.
pub const RESTORE_JUMP: Revision = 1_000_000;

/// A boxed future, so that `dyn Store` works.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A requested change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRequest {
    /// Key to change; UTF-8 text that the store does not interpret.
    pub key: String,
    /// Precondition on the key's current state.
    pub expect: WritePrecondition,
    /// Change to apply if the precondition holds.
    pub change: KeyChange,
}

/// Precondition of a [`WriteRequest`] on its key's current state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePrecondition {
    /// The key may be in any state, present or absent.
    Any,
    /// The key does not exist.
    Absent,
    /// The key exists and was last changed at this revision.
    Revision(Revision),
}

/// Effect of a [`WriteRequest`] on its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    /// Creates the key or replaces its value.
    Put(Bytes),
    /// Removes the key. Removing a key that does not exist is a [`Error::Conflict`], whatever the
    /// precondition, because every success has a separate revision.
    Delete,
}

/// Result of a durably committed `WriteRequest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedWrite {
    /// Revision of the committed change.
    pub revision: Revision,
    /// Revision that created the key; for a deletion, that of the deleted incarnation.
    pub created: Revision,
    /// State of the key before, if it existed.
    pub previous: Option<StoredValue>,
}

/// One change, as delivered by the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeEvent {
    /// Revision of the delivered change.
    pub revision: Revision,
    /// Key that was created, updated or deleted.
    pub key: String,
    /// New value; `None` when the key was deleted.
    pub value: Option<Bytes>,
    /// Revision that created this incarnation of the key; equal to `revision` for a creation.
    pub created: Revision,
    /// State of the key before; `None` for a creation.
    pub previous: Option<StoredValue>,
}

/// State of an existing key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredValue {
    /// Revision that last changed the key.
    pub revision: Revision,
    /// Revision that created this incarnation of the key.
    pub created: Revision,
    /// Value of the key, never interpreted by the store.
    pub value: Bytes,
}

/// Selection of keys to read, and the revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// Prefix of the keys to read.
    pub prefix: String,
    /// Key after which to start, to continue after a page.
    pub after: Option<String>,
    /// Maximum number of keys; `None` for no limit.
    pub limit: Option<usize>,
    /// Revision to read at; `None` for the newest.
    pub at: Option<Revision>,
}

/// Keys in ascending byte order, all read at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangePage {
    /// Revision at which the page was read.
    pub revision: Revision,
    /// The existing keys with their state.
    pub items: Vec<(String, StoredValue)>,
    /// Whether the limit cut off further keys.
    pub more: bool,
}

/// Message of the feed to a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedMessage<'a> {
    /// One or more changes, in revision order, without gaps.
    Changes(&'a [ChangeEvent]),
    /// The whole state at a revision. The changes before it are lost: history was compacted before
    /// this process received it. The feed continues from this revision.
    Reset(&'a RangePage),
}

impl<'a> FeedMessage<'a> {
    /// Returns the changes; empty for a reset.
    pub fn changes(self) -> &'a [ChangeEvent] {
        match self {
            Self::Changes(events) => events,
            Self::Reset(_) => &[],
        }
    }
}

/// Receiver of the feed.
///
/// It runs on the commit thread and every commit waits for it, so it must be fast, must not block
/// and must not call back into the store. A sink that panics is dropped and fails the store,
/// because its state would be stale from then on.
pub type Sink = Box<dyn FnMut(FeedMessage<'_>) + Send>;

/// The durable store behind a server.
pub trait Store: Send + Sync + 'static {
    /// Commits one change durably if its precondition holds; returns after every sink has received
    /// it.
    fn commit(&self, write: WriteRequest) -> BoxFuture<'_, Result<CommittedWrite, Error>>;

    /// Reads keys at one revision; includes every commit acknowledged before the call.
    fn range(&self, range: KeyRange) -> BoxFuture<'_, Result<RangePage, Error>>;

    /// Returns the first `limit` changes after a revision.
    fn history(&self, after: Revision, limit: usize) -> BoxFuture<'_, Result<Vec<ChangeEvent>, Error>>;

    /// Attaches a sink: it first receives the retained changes after `after`, then every new one.
    ///
    /// Returns when the sink has caught up and is live; blocks the calling thread during the
    /// replay. On error the sink may have received a part of the history.
    fn watch(&self, after: Revision, sink: Sink) -> Result<(), Error>;

    /// Compacts the history up to a revision; the state at that revision stays.
    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Error>>;

    /// Returns the newest revision that all sinks have received.
    fn revision(&self) -> Revision;

    /// Returns the oldest revision whose state and later history are complete.
    fn floor(&self) -> Revision;

    /// Returns the reason why the store has permanently stopped accepting writes, if it has.
    fn failure(&self) -> Option<Error>;

    /// Resolves when the store fails permanently; the process should then restart.
    fn failed(&self) -> BoxFuture<'static, Error>;

    /// Finishes pending commits, drops the sinks and releases the data.
    fn close(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Waits until all sinks have received every commit acknowledged to anyone before the call;
    /// returns their revision.
    ///
    /// An engine with a single writing process has nothing to wait for.
    fn catch_up(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(std::future::ready(Ok(self.revision())))
    }

    /// Returns true if other processes may write too, so that catching up can be necessary.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns the time since which the store is cut off from others' changes, if it is.
    fn lost_since(&self) -> Option<Instant> {
        None
    }

    /// Reads one key, with the same guarantee as [`Store::range`].
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<StoredValue>, Error>> {
        Box::pin(async move {
            // Of all keys with a prefix, the prefix itself sorts first.
            let range = KeyRange { prefix: key.to_owned(), limit: Some(1), ..KeyRange::default() };
            let page = self.range(range).await?;
            Ok(page.items.into_iter().find(|(k, _)| k == key).map(|(_, stored)| stored))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                found.push(path);
            }
        }
    }

    #[test]
    fn neither_engine_imports_the_other() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for (engine, other) in [("embedded", "etcd"), ("etcd", "embedded")] {
            let mut files = vec![root.join(format!("{engine}.rs"))];
            sources(&root.join(engine), &mut files);
            assert!(files.len() > 10, "{files:?}");
            for file in files {
                let text = fs::read_to_string(&file).unwrap();
                assert!(!text.contains(&format!("crate::{other}")), "{}", file.display());
            }
        }
    }
}
