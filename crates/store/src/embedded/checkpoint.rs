//! Moving the write-ahead log into the database, off the commit path.
//!
//! A thread of its own copies pages whenever the log has grown. While commits keep coming that
//! alone never empties the log, so beyond a limit the commit thread copies the few pages left and
//! the next commit starts the log over. When nothing is written the file is cut to nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::failure::{Fuse, OnPath};
use super::schema::{Access, connect, wal_path};
use crate::Error;

/// Pages in the log from which on the thread copies.
const START: u32 = 1_000;
/// Pages in the log from which on the commit thread helps.
const HELP: u32 = 8_000;
/// A log file longer than this is cut when the store is idle.
const CUT: u64 = 4 << 20;

/// The commit thread's side of checkpointing.
#[derive(Debug)]
pub(super) struct Checkpoints {
    path: PathBuf,
    fuse: Fuse,
    pages: Arc<AtomicU32>,
    working: Arc<AtomicBool>,
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Starts the thread, and counts the log's pages on the commit thread's connection.
    pub(super) fn start(path: &Path, conn: &mut Connection, fuse: &Fuse) -> Result<Self, Error> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&pages);
        conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count: std::ffi::c_int| {
            seen.store(u32::try_from(count).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))
        .on(path)?;
        let working = Arc::new(AtomicBool::new(false));
        let (wake, woken) = sync_channel(1);
        let own = connect(path, Access::Write)?;
        let task = Task { path: path.to_owned(), fuse: fuse.clone(), working: working.clone() };
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || task.run(&own, &woken))
            .on(path)?;
        let (wake, thread) = (Some(wake), Some(thread));
        Ok(Self { path: path.to_owned(), fuse: fuse.clone(), pages, working, wake, thread })
    }

    /// Called after every commit.
    pub(super) fn after_commit(&self, conn: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < START {
            return;
        }
        if let Some(wake) = &self.wake {
            // A full channel means that it will wake up anyway.
            let _ = wake.try_send(());
        }
        if pages >= HELP && !self.working.load(Ordering::Acquire) {
            self.report(run(&self.path, conn, "PASSIVE"));
        }
    }

    /// Called when nothing waits to be committed.
    pub(super) fn when_idle(&self, conn: &Connection) {
        let long = std::fs::metadata(wal_path(&self.path)).is_ok_and(|wal| wal.len() > CUT);
        if long && !self.working.load(Ordering::Acquire) {
            self.cut(conn);
        }
    }

    /// Ends the thread and copies the rest of the log.
    pub(super) fn stop(&mut self, conn: &Connection) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if self.fuse.blown().is_none() {
            self.cut(conn);
        }
    }

    fn cut(&self, conn: &Connection) {
        // Readers may hold on to the log for as long as they like; commits do not wait for them.
        let patient = Duration::from_secs(5);
        let result = conn.busy_timeout(Duration::ZERO).on(&self.path);
        let result = result.and_then(|()| run(&self.path, conn, "TRUNCATE"));
        self.report(result.and_then(|()| conn.busy_timeout(patient).on(&self.path)));
        self.pages.store(0, Ordering::Relaxed);
    }

    fn report(&self, result: Result<(), Error>) {
        report(&self.fuse, result);
    }
}

struct Task {
    path: PathBuf,
    fuse: Fuse,
    working: Arc<AtomicBool>,
}

impl Task {
    fn run(&self, conn: &Connection, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            if self.fuse.blown().is_some() {
                continue;
            }
            self.working.store(true, Ordering::Release);
            report(&self.fuse, run(&self.path, conn, "PASSIVE"));
            self.working.store(false, Ordering::Release);
        }
    }
}

fn run(path: &Path, conn: &Connection, mode: &str) -> Result<(), Error> {
    // The answer has a column that says "busy"; whoever was in the way, the next run gets further.
    conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())).on(path)
}

fn report(fuse: &Fuse, result: Result<(), Error>) {
    if let Err(error) = result {
        fuse.blow_if_fatal(&error);
        tracing::warn!(%error, "checkpoint failed");
    }
}
