//! Files that others replace: read within limits, and again when they change.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};
use windlass_pki::limits::MAX_PEM_BYTES;
use zeroize::Zeroizing;

/// How often files are looked at even if nobody said that they changed: a folder that was replaced
/// as a whole is not heard of.
const LOOK: Duration = Duration::from_secs(1);
/// Writers touch several files: wait until they are done.
const SETTLE: Duration = Duration::from_millis(100);

/// What files hold, never worse than it last was.
pub struct ReloadableFile<T> {
    current: watch::Sender<Arc<T>>,
    problem: Mutex<Option<String>>,
}

/// What came of reading them once more.
#[derive(Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// The content is valid and differs from the previous one.
    Changed,
    /// They hold the same, or are still wrong in the same way.
    Same,
    /// They are wrong, and this was not known yet.
    Wrong(String),
}

impl<T: PartialEq> ReloadableFile<T> {
    /// Begins with what is good.
    pub fn new(first: T) -> Self {
        Self { current: watch::Sender::new(Arc::new(first)), problem: Mutex::new(None) }
    }

    /// The last valid content, even if the file is invalid now.
    pub fn current(&self) -> Arc<T> {
        self.current.borrow().clone()
    }

    /// A receiver that is notified whenever valid content changes.
    pub fn changes(&self) -> watch::Receiver<Arc<T>> {
        self.current.subscribe()
    }

    /// Why what the files hold now is not used.
    pub fn error(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes what was read, if it is good.
    pub fn update(&self, read: Result<T>) -> ReloadOutcome {
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(read) => {
                *problem = None;
                let changed = self.current.send_if_modified(|current| {
                    let differs = **current != read;
                    if differs {
                        *current = Arc::new(read);
                    }
                    differs
                });
                if changed { ReloadOutcome::Changed } else { ReloadOutcome::Same }
            }
            Err(error) => {
                let error = format!("{error:#}");
                if problem.as_ref() == Some(&error) {
                    return ReloadOutcome::Same;
                }
                *problem = Some(error.clone());
                ReloadOutcome::Wrong(error)
            }
        }
    }
}

/// Calls `reload` now and whenever one of the files may have changed, off the async threads; does
/// not end.
pub async fn watch_files(files: &[PathBuf], reload: impl Fn() + Clone + Send + 'static) {
    let touched = Arc::new(Notify::new());
    let _watcher = create_watcher(files, touched.clone());
    loop {
        // A panic in there is caught by the runtime, and the next round tries again.
        let _ = tokio::task::spawn_blocking(reload.clone()).await;
        if tokio::time::timeout(LOOK, touched.notified()).await.is_ok() {
            tokio::time::sleep(SETTLE).await;
        }
    }
}

/// The bytes of a PEM file, which may be a key: they are wiped when they are no longer needed.
pub fn read_file(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let limit = u64::try_from(MAX_PEM_BYTES).unwrap_or(u64::MAX);
    // Growing would leave copies behind.
    let size = file.metadata().with_context(cannot)?.len().min(limit);
    let mut text = Zeroizing::new(Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1));
    file.take(limit + 1).read_to_end(&mut text).with_context(cannot)?;
    ensure!(!text.is_empty(), "{} is empty", path.display());
    Ok(text)
}

/// Watches the folders, not the files: a mounted secret is replaced by swapping a link, which the
/// old file never hears of.
fn create_watcher(files: &[PathBuf], touched: Arc<Notify>) -> Option<RecommendedWatcher> {
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading the files is an event as well, and would bring the next.
        if !event.is_ok_and(|event| event.kind.is_access()) {
            touched.notify_one();
        }
    });
    let watcher = watcher.and_then(|mut watcher| {
        let mut folders: Vec<&Path> = files.iter().map(|file| parent_directory(file)).collect();
        folders.dedup();
        for folder in folders {
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
        }
        Ok(watcher)
    });
    let told = |error: &notify::Error| {
        tracing::warn!(?files, %error, "files are looked at every {LOOK:?} only");
    };
    watcher.inspect_err(told).ok()
}

fn parent_directory(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
