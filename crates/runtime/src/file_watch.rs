//! Files that others replace: reloaded when they change, with the last good content in use meanwhile.
//!
//! - [`FileWatcher`]: waits until files have changed and their writer is done.
//! - [`reload_on_change`]: calls a function at the start and after every change.
//! - [`ReloadableFile`]: last good content, and why the present one is rejected.
//!
//! Directories are watched, not files: a mounted secret is replaced by swapping a symlink, of which the old file sends
//! no event. An event only causes an inspection of the metadata of the files, and reading a file does not change that, so a reload never
//! causes the next one. Polling finds what events miss: replaced directories, symlinks into other directories, network file systems.

mod stamp;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use zeroize::Zeroizing;

use stamp::{DirectoryId, FileStamp};

/// Inspections of files while they settle. A writer that never stops must not prevent the reload.
const SETTLE_ATTEMPTS: u32 = 20;

/// Polling interval and settle time of a [`FileWatcher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWatchTiming {
    /// Interval between inspections of the metadata without an event.
    pub poll: Duration,
    /// Time for which files must not change before they are read: writers touch several files, or write in parts.
    pub settle: Duration,
}

impl Default for FileWatchTiming {
    fn default() -> Self {
        Self { poll: Duration::from_secs(1), settle: Duration::from_millis(100) }
    }
}

/// Waits for changes of files. A file that does not exist may appear later.
pub struct FileWatcher {
    files: Vec<PathBuf>,
    timing: FileWatchTiming,
    touched: Arc<Notify>,
    /// Dropped and created again when a directory is replaced: events stay with the old one.
    watcher: Option<RecommendedWatcher>,
    directories: BTreeMap<PathBuf, Option<DirectoryId>>,
    /// Metadata of the files as last reported. A file without an entry is reported as changed.
    known: BTreeMap<PathBuf, Option<FileStamp>>,
    /// When to report a change once more, because a later write may have the same timestamp as the reported one.
    recheck_at: Option<Instant>,
}

impl FileWatcher {
    /// Watches files from now on: read them after this call, and no change is missed.
    pub fn new(files: impl IntoIterator<Item = PathBuf>, timing: FileWatchTiming) -> Self {
        let mut watcher = Self {
            files: files.into_iter().collect(),
            timing,
            touched: Arc::default(),
            watcher: None,
            directories: BTreeMap::new(),
            known: BTreeMap::new(),
            recheck_at: None,
        };
        let snapshot = FileSnapshot::read(&watcher.files);
        watcher.watch_directories(snapshot.directories);
        watcher.accept(snapshot.stamps);
        watcher
    }

    /// Files that are watched now, in the order in which they were given.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Watches other files, for those named by a file that was read. Files that were not watched before are
    /// reported as changed once, since they may have changed after they were read.
    pub fn set_files(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        self.files = files.into_iter().collect();
        self.known.retain(|path, _| self.files.contains(path));
        self.touched.notify_one();
    }

    /// Waits until files have changed and have settled, and returns which. The future can be dropped without losing a change.
    pub async fn changed(&mut self) -> Vec<PathBuf> {
        loop {
            // The result does not matter: an event and a poll both lead to an inspection.
            let _ = tokio::time::timeout(self.timing.poll, self.touched.notified()).await;
            let Some(snapshot) = self.inspect().await else { continue };
            self.watch_directories(snapshot.directories);
            if snapshot.stamps == self.known {
                if self.recheck_at.is_some_and(|at| at <= Instant::now()) {
                    self.recheck_at = None;
                    return self.files.clone();
                }
                continue;
            }
            let stamps = self.settle(snapshot.stamps).await;
            let is_changed = |path: &&PathBuf| stamps.get(*path) != self.known.get(*path);
            let changed: Vec<PathBuf> = self.files.iter().filter(is_changed).cloned().collect();
            self.accept(stamps);
            // Nothing differs any more if a file was changed and changed back.
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    /// Inspects the files off the async threads. `None` if that panicked, which the next poll retries.
    async fn inspect(&self) -> Option<FileSnapshot> {
        let files = self.files.clone();
        tokio::task::spawn_blocking(move || FileSnapshot::read(&files)).await.ok()
    }

    async fn settle(&self, mut stamps: FileStamps) -> FileStamps {
        for _ in 0..SETTLE_ATTEMPTS {
            tokio::time::sleep(self.timing.settle).await;
            match self.inspect().await {
                Some(snapshot) if snapshot.stamps != stamps => stamps = snapshot.stamps,
                _ => break,
            }
        }
        stamps
    }

    fn accept(&mut self, stamps: FileStamps) {
        let now = SystemTime::now();
        let granularity = stamps.values().flatten().filter_map(|stamp| stamp.ambiguity(now)).max();
        self.recheck_at = granularity.map(|granularity| Instant::now() + granularity);
        self.known = stamps;
    }

    fn watch_directories(&mut self, directories: BTreeMap<PathBuf, Option<DirectoryId>>) {
        if directories == self.directories {
            return;
        }
        self.directories = directories;
        let touched = self.touched.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the files is an event as well, which would only cause useless inspections.
            if !event.is_ok_and(|event| event.kind.is_access()) {
                touched.notify_one();
            }
        });
        let watcher = watcher.and_then(|mut watcher| {
            for (directory, _) in self.directories.iter().filter(|(_, id)| id.is_some()) {
                watcher.watch(directory, RecursiveMode::NonRecursive)?;
            }
            Ok(watcher)
        });
        self.watcher = match watcher {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                let poll = self.timing.poll;
                tracing::warn!(files = ?self.files, %error, "file watch unavailable; polling every {poll:?}");
                None
            }
        };
    }
}

type FileStamps = BTreeMap<PathBuf, Option<FileStamp>>;

/// Metadata of files and of the directories that hold them.
struct FileSnapshot {
    stamps: FileStamps,
    directories: BTreeMap<PathBuf, Option<DirectoryId>>,
}

impl FileSnapshot {
    fn read(files: &[PathBuf]) -> Self {
        let stamp = |path: &PathBuf| (path.clone(), FileStamp::read(path));
        let directory = |path: &PathBuf| {
            let directory = parent_directory(path);
            (directory.to_owned(), DirectoryId::read(directory))
        };
        // Directories first: files of one that is replaced meanwhile differ at the next inspection at the latest.
        let directories = files.iter().map(directory).collect();
        Self { directories, stamps: files.iter().map(stamp).collect() }
    }
}

fn parent_directory(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Calls `reload` now and after every change of the files, off the async threads.
pub async fn reload_on_change(
    files: impl IntoIterator<Item = PathBuf>,
    timing: FileWatchTiming,
    reload: impl Fn() + Clone + Send + 'static,
) -> Infallible {
    let mut watcher = FileWatcher::new(files, timing);
    loop {
        if let Err(error) = tokio::task::spawn_blocking(reload.clone()).await {
            tracing::error!(%error, files = ?watcher.files(), "reload panicked; waiting for the next change");
        }
        watcher.changed().await;
    }
}

/// Content of one or more files as last read with success, and the error of the last attempt if that failed.
pub struct ReloadableFile<T> {
    current: watch::Sender<Arc<T>>,
    error: watch::Sender<Option<String>>,
}

/// Result of offering new content to a [`ReloadableFile`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// The content differs and is in use.
    Changed,
    /// The content is the same, or is rejected for the same reason as before.
    Unchanged,
    /// The content is the same as the one in use, after it was rejected in between.
    Recovered,
    /// The content is rejected for this reason, which is new. The previous content stays in use.
    Rejected(String),
}

impl<T: PartialEq> ReloadableFile<T> {
    /// Starts with content that is good.
    pub fn new(content: T) -> Self {
        Self { current: watch::Sender::new(Arc::new(content)), error: watch::Sender::new(None) }
    }

    /// Content that was last read with success.
    pub fn current(&self) -> Arc<T> {
        self.current.borrow().clone()
    }

    /// Notifies of every change of the content in use.
    pub fn subscribe(&self) -> watch::Receiver<Arc<T>> {
        self.current.subscribe()
    }

    /// Why the present content of the files is not in use; `None` if it is.
    pub fn error(&self) -> Option<String> {
        self.error.borrow().clone()
    }

    /// Notifies of every change of the error.
    pub fn subscribe_error(&self) -> watch::Receiver<Option<String>> {
        self.error.subscribe()
    }

    /// Offers what was read. An error is kept with its causes.
    pub fn update<E: Display>(&self, read: Result<T, E>) -> ReloadOutcome {
        match read {
            Ok(content) => {
                let changed = self.current.send_if_modified(|current| {
                    let differs = **current != content;
                    if differs {
                        *current = Arc::new(content);
                    }
                    differs
                });
                let recovered = self.error.send_if_modified(|error| error.take().is_some());
                match (changed, recovered) {
                    (true, _) => ReloadOutcome::Changed,
                    (false, true) => ReloadOutcome::Recovered,
                    (false, false) => ReloadOutcome::Unchanged,
                }
            }
            Err(error) => {
                let text = format!("{error:#}");
                let is_new = self.error.send_if_modified(|known| {
                    let differs = known.as_ref() != Some(&text);
                    if differs {
                        *known = Some(text.clone());
                    }
                    differs
                });
                if is_new { ReloadOutcome::Rejected(text) } else { ReloadOutcome::Unchanged }
            }
        }
    }
}

/// Reason for which a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum FileReadError {
    /// The file does not exist or cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// File that was to be read.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file has no content, which no configuration or key has.
    #[error("{} is empty", .0.display())]
    Empty(PathBuf),
}

/// Reads a file that may hold a key: its bytes are wiped from memory when dropped. Of a longer file, `limit + 1` bytes
/// are returned, so that the parser with this limit rejects it.
pub fn read_limited(path: &Path, limit: usize) -> Result<Zeroizing<Vec<u8>>, FileReadError> {
    let failed = |source| FileReadError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    // A buffer that grows would leave copies of a key behind.
    let size = file.metadata().map_err(failed)?.len().min(limit);
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.is_empty() {
        return Err(FileReadError::Empty(path.to_owned()));
    }
    Ok(bytes)
}
