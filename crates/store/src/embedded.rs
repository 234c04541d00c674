//! The embedded engine: one directory, one SQLite database, one commit thread.
//!
//! - `windlass.db` is a log of changes whose rowid is the revision ([`schema`]), with its
//!   write-ahead log beside it while the store is open;
//! - `lock` excludes a second process ([`lock`]);
//! - `revision` records the newest acknowledged revision, so that data loss is detected
//!   ([`watermark`]).

mod checkpoint;
mod failure;
mod lock;
mod migrate;
mod offline;
mod reader;
mod record;
mod retention;
mod schema;
#[cfg(test)]
mod tests;
mod verify;
mod watermark;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::fatal_latch::FatalLatch;
use crate::file_output::partial_path;
use crate::sink::deliver_changes;
use crate::{
    BoxFuture, ChangeEvent, CommittedWrite, Error, KeyRange, RangePage, Revision, Sink, Store, WriteRequest,
};
use checkpoint::CheckpointScheduler;
use failure::PathContext;
pub(crate) use migrate::{EmbeddedSource, EmbeddedTarget};
pub use offline::{StoreReport, backup, check, check_file, restore};
use reader::ReaderPool;
use retention::{CompactionStride, RetentionPolicy};
use schema::{AccessMode, connect, db_path, wal_path};
use verify::VerifiedContents;
use watermark::WatermarkFile;
use writer::{CommitWriter, REPLAY, StorePosition, WriteJob, WriterCommand};

/// A monotonic clock for the age of history.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// Options for opening an [`EmbeddedStore`] store.
#[derive(Clone)]
pub struct EmbeddedOptions {
    /// The data directory; created if it does not exist.
    pub dir: PathBuf,
    /// Maximum age of history; older history is compacted.
    pub retain_age: Duration,
    /// Approximate maximum number of changes in the history.
    pub retain_events: u64,
    /// Approximate maximum size of the history in bytes.
    pub retain_bytes: u64,
    /// Maximum number of concurrent reads.
    pub readers: usize,
    /// Clock that determines the age of history.
    pub clock: Clock,
    /// Maximum number of database pages; for tests of a full disk.
    #[cfg(test)]
    pub(crate) max_pages: Option<u32>,
}

impl EmbeddedOptions {
    /// Returns the defaults for a data directory: five minutes of history, within limits.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            retain_age: Duration::from_secs(5 * 60),
            retain_events: 200_000,
            retain_bytes: 256 << 20,
            readers: 4,
            clock: Arc::new(Instant::now),
            #[cfg(test)]
            max_pages: None,
        }
    }
}

/// The store on a local disk. Dropping it closes the store.
#[derive(Debug)]
pub struct EmbeddedStore {
    inbox: Sender<WriterCommand>,
    position: Arc<StorePosition>,
    readers: Arc<ReaderPool>,
    latch: FatalLatch,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EmbeddedStore {
    /// Opens the store in a directory, or creates one there.
    ///
    /// Reads and verifies the whole database first, so it blocks for a few seconds per gigabyte,
    /// and rejects damaged data instead of serving it.
    pub fn open(options: EmbeddedOptions) -> Result<Self, Error> {
        let dir = &options.dir;
        create_dir(dir)?;
        let lock = lock::lock_directory(dir)?;
        let path = db_path(dir);
        if !path.try_exists().with_path(&path)? {
            refuse_leftover_files(dir)?;
            schema::create(dir)?;
        }
        let mut conn = connect(&path, AccessMode::Write)?;
        let contents = open_verified(dir, &path, &conn)?;
        #[cfg(test)]
        if let Some(pages) = options.max_pages {
            conn.pragma_update(None, "max_page_count", pages).with_path(&path)?;
        }
        let latch = FatalLatch::new(path.clone());
        let position = Arc::new(StorePosition {
            revision: AtomicU64::new(contents.revision),
            floor: AtomicU64::new(contents.floor),
        });
        let mut watermark = WatermarkFile::open(dir)?;
        watermark.record(contents.revision);
        let (inbox, commands) = channel();
        let writer = CommitWriter {
            checkpoints: CheckpointScheduler::start(&path, &mut conn, &latch)?,
            path: path.clone(),
            conn,
            inbox: commands,
            position: Arc::clone(&position),
            latch: latch.clone(),
            sinks: Vec::new(),
            watermark,
            retention: retention(&options, &contents),
            stride: CompactionStride::new(),
            compactions: Vec::new(),
            resting_until: None,
            lock,
        };
        let thread = std::thread::Builder::new()
            .name("store-commit".to_owned())
            .spawn(move || writer.run())
            .with_path(&path)?;
        let readers = ReaderPool::new(path, options.readers);
        tracing::debug!(dir = %options.dir.display(), revision = contents.revision, "opened store");
        Ok(Self { inbox, position, readers, latch, thread: Mutex::new(Some(thread)) })
    }

    fn send(&self, command: WriterCommand) -> Result<(), Error> {
        self.inbox.send(command).map_err(|_| self.ended())
    }

    /// Returns the reason why the commit thread has stopped.
    fn ended(&self) -> Error {
        self.latch.cause().unwrap_or(Error::Closed)
    }

    /// Signals the commit thread to stop; returns it the first time.
    fn shut_down(&self) -> Option<JoinHandle<()>> {
        self.readers.close();
        let _ = self.inbox.send(WriterCommand::Close);
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Creates the data directory, durably and accessible to its owner only, if it does not exist.
fn create_dir(dir: &Path) -> Result<(), Error> {
    windlass_safe_path::create_directory(dir, 0o700).map(drop).with_path(dir)
}

/// Rejects a directory without a database that contains files of one.
fn refuse_leftover_files(dir: &Path) -> Result<(), Error> {
    let path = db_path(dir);
    let wal = wal_path(&path);
    let what = if wal.try_exists().with_path(&wal)? {
        "it is missing, but its write-ahead log exists".to_owned()
    } else if partial_path(&path).try_exists().with_path(&path)? {
        "it is missing, and a restore was not finished".to_owned()
    } else if schema::importing_path(&path).try_exists().with_path(&path)? {
        "it is missing, and an import was not finished; finish it with `windlass store \
         import` and the same file, or undo it with `windlass store import --undo`"
            .to_owned()
    } else if let Some(revision) = watermark::read(dir) {
        format!("it is missing, but revision {revision} was acknowledged")
    } else {
        return Ok(());
    };
    Err(Error::Corrupt { path, what })
}

/// Returns the retention policy, initialized with the history in the database.
fn retention(options: &EmbeddedOptions, contents: &VerifiedContents) -> RetentionPolicy {
    let EmbeddedOptions { retain_age, retain_events, retain_bytes, clock, .. } = options;
    let clock = Arc::clone(clock);
    let mut retention = RetentionPolicy::new(*retain_age, *retain_events, *retain_bytes, clock);
    for (revision, bytes) in &contents.history {
        retention.record(*revision, *bytes);
    }
    retention
}

fn open_verified(dir: &Path, path: &Path, conn: &Connection) -> Result<VerifiedContents, Error> {
    schema::check_format(path, conn)?;
    schema::refuse_read_only(path, conn)?;
    schema::use_wal(path, conn)?;
    let contents = verify::verify(path, conn)?;
    // Verification read everything once; none of it is worth caching.
    conn.execute_batch("PRAGMA shrink_memory").with_path(path)?;
    match watermark::read(dir) {
        Some(noted) if noted > contents.revision => {
            Err(verify::behind_watermark_error(path, contents.revision, noted))
        }
        _ => Ok(contents),
    }
}

impl Store for EmbeddedStore {
    fn commit(&self, write: WriteRequest) -> BoxFuture<'_, Result<CommittedWrite, Error>> {
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            self.send(WriterCommand::Write(WriteJob { write, done }))?;
            answer.await.unwrap_or_else(|_| Err(self.ended()))
        })
    }

    fn range(&self, range: KeyRange) -> BoxFuture<'_, Result<RangePage, Error>> {
        Box::pin(self.readers.read(move |path, tx| reader::range(path, tx, &range)))
    }

    fn history(&self, after: Revision, limit: usize) -> BoxFuture<'_, Result<Vec<ChangeEvent>, Error>> {
        Box::pin(self.readers.read(move |path, tx| reader::history(path, tx, after, limit)))
    }

    fn watch(&self, after: Revision, mut sink: Sink) -> Result<(), Error> {
        // Most of the replay happens here, so that commits wait only for the rest.
        let mut seen = after;
        loop {
            let events = self.readers.with_connection(|path, tx| reader::history(path, tx, seen, REPLAY))?;
            if let Some(last) = events.last() {
                seen = last.revision;
                deliver_changes(&mut sink, &events)?;
            }
            if events.len() < REPLAY {
                break;
            }
        }
        let (done, answer) = sync_channel(1);
        self.send(WriterCommand::AttachSink { after: seen, sink, done })?;
        answer.recv().unwrap_or_else(|_| Err(self.ended()))
    }

    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            self.send(WriterCommand::Compact { upto, done })?;
            answer.await.unwrap_or_else(|_| Err(self.ended()))
        })
    }

    fn revision(&self) -> Revision {
        self.position.revision.load(Ordering::Acquire)
    }

    fn floor(&self) -> Revision {
        self.position.floor.load(Ordering::Acquire)
    }

    fn failure(&self) -> Option<Error> {
        self.latch.cause()
    }

    fn failed(&self) -> BoxFuture<'static, Error> {
        Box::pin(self.latch.wait())
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            if let Some(thread) = self.shut_down() {
                // Stopping runs a last checkpoint, which may take a while.
                let _ = tokio::task::spawn_blocking(|| thread.join()).await;
            }
            self.latch.cause().map_or(Ok(()), Err)
        })
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // A sink that owns the store may drop it on the commit thread, which cannot join itself.
        if let Some(thread) = self.shut_down()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
