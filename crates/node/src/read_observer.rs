//! Observes whether applications opened the trust-anchor files of volumes after their last change.
//!
//! - `inotify`: the kernel interface.
//! - `read_table`: which files are watched, and what their events mean. It is pure.
//! - `state_file`: what is known across restarts.
//!
//! A file is watched from the moment at which it is complete, before applications can see it, until it is opened for
//! the first time. So a file that is opened for every connection causes one event, and a node on which everything has
//! been read has no watches. Opens through bind mounts in other mount namespaces are seen, because the kernel watches
//! inodes. Processes that still hold an earlier file open do not open the new one, and do not count.
//!
//! The agent reads files itself when it checks them. Events have no process ID, so for that time
//! ([`ReadObserver::own_reads`]) one open of each file is attributed to the agent. If an application opens a file in
//! the same moment, the kernel may merge both events; then the file counts as not read until it is opened again.

mod inotify;
mod read_table;
mod state_file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;
use windlass_runtime::durable::FileSystem;

use crate::clock::Clock;
use crate::volume::id::VolumeId;
use crate::volume::trust_anchors::Digest;

use inotify::InotifyInstance;
use read_table::ReadTable;

/// Interval at which events are read from the kernel's queue, which merges repeated ones.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Delay between a change and the write of the state file, so that many changes become one write.
const SAVE_DELAY: Duration = Duration::from_secs(2);
/// How long the state of an earlier process is kept for volumes that have not appeared yet.
const RESTORE_PERIOD: Duration = Duration::from_secs(10 * 60);

/// Whether an application opened the files of a source after its anchors last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadState {
    /// At least one of the files was opened.
    Read,
    /// None of the files was opened, as far as this agent could observe.
    NotRead {
        /// When the anchors were written.
        since: OffsetDateTime,
    },
    /// Opens cannot be observed, because there are too many files or they are on a network file system.
    NotObservable,
}

/// What is known about the files of one `clusterTrustBundle` source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnchorReads {
    /// When the anchors were last changed.
    pub changed: OffsetDateTime,
    /// Whether they were read since.
    pub state: ReadState,
}

/// What is known of all volumes, by volume and path of the source.
pub type ReadStates = Arc<BTreeMap<(VolumeId, String), AnchorReads>>;

/// The files that contain the anchors of one `clusterTrustBundle` source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnchorFiles {
    /// Path of the source, relative to the volume.
    pub path: String,
    /// Trust stores that are built from it, relative to the volume. An application reads one of the formats.
    pub stores: Vec<String>,
    /// Digest of the anchors.
    pub digest: Digest,
}

/// Observes the trust-anchor files of all volumes.
pub struct ReadObserver {
    /// `None` if the kernel provides no instance; then nothing is observable.
    inotify: Option<InotifyInstance>,
    table: Mutex<ReadTable>,
    states: watch::Sender<ReadStates>,
    clock: Clock,
    files: FileSystem,
    state_file: PathBuf,
}

/// While it exists, the agent itself may open each file of a volume once.
pub struct OwnReads<'a> {
    observer: &'a ReadObserver,
    volume: VolumeId,
}

impl ReadObserver {
    /// Creates an observer that restores the state of an earlier process from a file below `root_dir`.
    pub fn new(root_dir: &Path, files: FileSystem, clock: Clock) -> Arc<Self> {
        let state_file = root_dir.join(state_file::FILE);
        let restored = state_file::load(&state_file, &files);
        let inotify = InotifyInstance::new();
        if let Err(error) = &inotify {
            tracing::warn!(%error, "inotify unavailable; cannot observe whether applications read trust anchors");
        }
        Arc::new(Self {
            inotify: inotify.ok(),
            table: Mutex::new(ReadTable::new(restored)),
            states: watch::Sender::default(),
            clock,
            files,
            state_file,
        })
    }

    /// Subscribes to the states of all sources.
    pub fn states(&self) -> watch::Receiver<ReadStates> {
        self.states.subscribe()
    }

    /// Processes events and saves the state. Never returns.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(self.process_events(), self.save_changes(), async {
            tokio::time::sleep(RESTORE_PERIOD).await;
            self.update(|table, _| table.drop_restored());
        });
    }

    /// Declares that the agent opens the files of a volume itself, at most once each, until the result is dropped.
    pub fn own_reads(&self, volume: &VolumeId) -> OwnReads<'_> {
        self.update(|table, _| table.begin_own_reads(volume));
        OwnReads { observer: self, volume: volume.clone() }
    }

    /// Watches the files of a complete directory before it becomes visible to applications.
    pub fn prepare(&self, volume: &VolumeId, directory: &Path, anchors: &[AnchorFiles]) {
        let now = (self.clock)().wall;
        self.update(|table, inotify| table.prepare(volume, directory, anchors, now, inotify));
    }

    /// The prepared directory is visible.
    pub fn switch(&self, volume: &VolumeId) {
        self.update(|table, inotify| table.switch(volume, inotify));
    }

    /// The prepared directory was discarded.
    pub fn discard(&self, volume: &VolumeId) {
        self.update(|table, inotify| table.discard(volume, inotify));
    }

    /// The visible directory already had these anchors, which were written at `written`.
    pub fn confirm(
        &self,
        volume: &VolumeId,
        directory: &Path,
        anchors: &[AnchorFiles],
        written: OffsetDateTime,
    ) {
        self.update(|table, inotify| table.confirm(volume, directory, anchors, written, inotify));
    }

    /// The volume does not exist any more.
    pub fn forget(&self, volume: &VolumeId) {
        self.update(|table, inotify| table.forget(volume, inotify));
    }

    /// Processes the events so far, applies a change, and publishes the states if they differ.
    fn update(&self, change: impl FnOnce(&mut ReadTable, Option<&InotifyInstance>)) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let inotify = self.inotify.as_ref();
        if let Some(inotify) = inotify {
            for event in inotify.drain() {
                table.apply(event, Some(inotify));
            }
        }
        change(&mut table, inotify);
        let states = table.states();
        self.states.send_if_modified(|before| {
            let is_changed = **before != states;
            if is_changed {
                *before = Arc::new(states);
            }
            is_changed
        });
    }

    /// Reads the queue from time to time. Its file descriptor cannot be registered with tokio without `unsafe`, and
    /// nobody needs to know of a read sooner.
    async fn process_events(&self) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let is_idle = self.table.lock().unwrap_or_else(PoisonError::into_inner).is_idle();
            if !is_idle {
                self.update(|_, _| {});
            }
        }
    }

    async fn save_changes(&self) {
        let mut states = self.states.subscribe();
        // The sender is a field of this observer.
        while states.changed().await.is_ok() {
            tokio::time::sleep(SAVE_DELAY).await;
            states.borrow_and_update();
            let records = self.table.lock().unwrap_or_else(PoisonError::into_inner).records();
            let (path, files) = (self.state_file.clone(), self.files.clone());
            let saved = tokio::task::spawn_blocking(move || state_file::save(&path, &records, &files)).await;
            if let Ok(Err(error)) = saved {
                tracing::debug!(%error, "cannot save which trust anchors were read");
            }
        }
    }
}

impl Drop for OwnReads<'_> {
    fn drop(&mut self) {
        self.observer.update(|table, _| table.end_own_reads(&self.volume));
    }
}
