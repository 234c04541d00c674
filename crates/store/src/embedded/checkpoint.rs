//! WAL checkpoints off the commit path.
//!
//! A dedicated thread copies pages whenever the WAL has grown. Under continuous commits that alone
//! never empties the WAL, so beyond a limit the commit thread copies the few remaining pages and
//! the next commit restarts the WAL. When the store is idle, the file is truncated.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::failure::PathContext;
use super::schema::{AccessMode, BUSY, connect, wal_path};
use crate::Error;
use crate::fatal_latch::FatalLatch;

/// WAL pages at which the thread starts a checkpoint.
const START: u32 = 1_000;
/// WAL pages at which the commit thread helps.
const HELP: u32 = 8_000;
/// WAL size in bytes above which an idle store truncates the file.
const CUT: u64 = 4 << 20;
/// Delay after a failure; a full disk does not clear up at once.
const REST: Duration = Duration::from_secs(1);

/// The commit thread's side of checkpointing.
#[derive(Debug)]
pub(super) struct CheckpointScheduler {
    path: PathBuf,
    failures: CheckpointBackoff,
    pages: Arc<AtomicU32>,
    working: Arc<AtomicBool>,
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CheckpointScheduler {
    /// Starts the thread, and counts WAL pages on the commit thread's connection.
    pub(super) fn start(path: &Path, conn: &mut Connection, fuse: &FatalLatch) -> Result<Self, Error> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&pages);
        conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count: std::ffi::c_int| {
            seen.store(u32::try_from(count).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))
        .with_path(path)?;
        let working = Arc::new(AtomicBool::new(false));
        let (wake, woken) = sync_channel(1);
        let own = connect(path, AccessMode::Write)?;
        let failures = CheckpointBackoff::new(fuse);
        let task = CheckpointTask { path: path.to_owned(), failures, working: Arc::clone(&working) };
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || task.run(&own, &woken))
            .with_path(path)?;
        let (wake, thread, failures) = (Some(wake), Some(thread), CheckpointBackoff::new(fuse));
        Ok(Self { path: path.to_owned(), failures, pages, working, wake, thread })
    }

    /// Requests a checkpoint if the WAL has grown enough; called after every commit.
    pub(super) fn after_commit(&self, conn: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < START {
            return;
        }
        if pages < HELP {
            if let Some(wake) = &self.wake {
                // If the channel is full, the thread will wake up anyway.
                let _ = wake.try_send(());
            }
        } else if !self.working.load(Ordering::Acquire) {
            self.failures.guard(|| run_checkpoint(&self.path, conn, "PASSIVE"));
        }
    }

    /// Truncates a long WAL; called when no commit is pending.
    pub(super) fn on_idle(&self, conn: &Connection) {
        let long = std::fs::metadata(wal_path(&self.path)).is_ok_and(|wal| wal.len() > CUT);
        if long && !self.working.load(Ordering::Acquire) {
            self.truncate_wal(conn);
        }
    }

    /// Stops the thread and checkpoints the rest of the WAL.
    pub(super) fn stop(&mut self, conn: &Connection) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.truncate_wal(conn);
    }

    fn truncate_wal(&self, conn: &Connection) {
        self.failures.guard(|| {
            // Readers may hold the WAL indefinitely; commits do not wait for them.
            conn.busy_timeout(Duration::ZERO).with_path(&self.path)?;
            let result = run_checkpoint(&self.path, conn, "TRUNCATE");
            conn.busy_timeout(BUSY).with_path(&self.path)?;
            result?;
            self.pages.store(0, Ordering::Relaxed);
            Ok(())
        });
    }
}

struct CheckpointTask {
    path: PathBuf,
    failures: CheckpointBackoff,
    working: Arc<AtomicBool>,
}

impl CheckpointTask {
    fn run(&self, conn: &Connection, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            self.working.store(true, Ordering::Release);
            self.failures.guard(|| run_checkpoint(&self.path, conn, "PASSIVE"));
            self.working.store(false, Ordering::Release);
        }
    }
}

/// Prevents checkpoints from failing in a tight loop, and from running on a failed store.
#[derive(Debug)]
struct CheckpointBackoff {
    latch: FatalLatch,
    rest_until: Cell<Option<Instant>>,
}

impl CheckpointBackoff {
    fn new(fuse: &FatalLatch) -> Self {
        Self { latch: fuse.clone(), rest_until: Cell::new(None) }
    }

    fn guard(&self, work: impl FnOnce() -> Result<(), Error>) {
        let resting = self.rest_until.get().is_some_and(|until| Instant::now() < until);
        if resting || self.latch.cause().is_some() {
            return;
        }
        if let Err(error) = work() {
            self.latch.trip_if_fatal(&error);
            self.rest_until.set(Some(Instant::now() + REST));
            tracing::warn!(%error, "checkpoint failed");
        }
    }
}

fn run_checkpoint(path: &Path, conn: &Connection, mode: &str) -> Result<(), Error> {
    // Ignores the "busy" column: the next run makes further progress.
    conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())).with_path(path)
}
