//! Reloads the projections file when it or a password file that it names changes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;

use super::{HostProjections, ProjectionsError, read};
use windlass_runtime::durable::FileSystem;

/// Polling interval of the files.
const LOOK: Duration = Duration::from_secs(1);
/// How long a file must stay unchanged before it is read, because its writer may not be done.
const SETTLE: Duration = Duration::from_millis(100);

/// Reloads the file whenever it changes. An invalid file keeps the previous projections; its errors
/// are reported while it is invalid. Never returns.
pub async fn watch_file(
    path: PathBuf,
    files: FileSystem,
    out: watch::Sender<HostProjections>,
    problem: watch::Sender<Option<String>>,
) {
    let mut follower = FileWatcher { path, files, last: Vec::new(), again: true };
    loop {
        // The runtime catches a panic in the task; the next round retries.
        let looked = tokio::task::spawn_blocking({
            let (follower, current) = (follower.clone(), out.borrow().clone());
            move || follower.poll(&current)
        });
        let pause = match looked.await {
            Ok((next, PollResult::Same)) => {
                follower = next;
                LOOK
            }
            Ok((next, PollResult::Changing)) => {
                follower = next;
                SETTLE
            }
            Ok((next, PollResult::Read(result))) => {
                follower = next;
                publish(result, &out, &problem);
                LOOK
            }
            Err(error) => {
                tracing::error!(%error, "looking at the file of projections");
                LOOK
            }
        };
        tokio::time::sleep(pause).await;
    }
}

fn publish(
    result: Result<HostProjections, ProjectionsError>,
    out: &watch::Sender<HostProjections>,
    problem: &watch::Sender<Option<String>>,
) {
    let (projections, trouble) = match result {
        Ok(projections) => (Some(projections), None),
        Err(error) => (None, Some(error.to_string())),
    };
    problem.send_if_modified(|known| {
        let is_new = *known != trouble;
        if is_new {
            match &trouble {
                Some(text) => tracing::error!("projections stay as they were: {text}"),
                None => tracing::info!("the file of projections is right again"),
            }
            *known = trouble;
        }
        is_new
    });
    out.send_if_modified(|known| match projections {
        Some(projections) if *known != projections => {
            *known = projections;
            true
        }
        _ => false,
    });
}

/// Metadata of a file when it was last checked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Clone)]
struct FileWatcher {
    path: PathBuf,
    files: FileSystem,
    last: Vec<Option<FileStamp>>,
    /// Whether to read the files even if they look the same: a coarse clock may not distinguish two
    /// writes.
    again: bool,
}

enum PollResult {
    Same,
    /// The files changed and may still be changing; checked again shortly.
    Changing,
    Read(Result<HostProjections, ProjectionsError>),
}

impl FileWatcher {
    fn poll(mut self, current: &HostProjections) -> (Self, PollResult) {
        let now = self.stamps(current);
        // The first check has nothing to compare with.
        let is_first = self.last.is_empty();
        if now != self.last {
            (self.last, self.again) = (now, true);
            if !is_first {
                return (self, PollResult::Changing);
            }
        }
        if !self.again {
            return (self, PollResult::Same);
        }
        let result = read(&self.path, &self.files);
        // The new version may name other password files.
        let after = self.stamps(result.as_ref().unwrap_or(current));
        self.again = is_first || after != self.last;
        self.last = after;
        (self, PollResult::Read(result))
    }

    /// Returns the stamps of the projections file, then of the password files.
    fn stamps(&self, projections: &HostProjections) -> Vec<Option<FileStamp>> {
        let stores = projections.iter().flat_map(|projection| &projection.stores);
        let passwords = stores.filter_map(|store| store.kind.passphrase()?.file());
        std::iter::once(self.path.as_path()).chain(passwords).map(stamp).collect()
    }
}

fn stamp(path: &Path) -> Option<FileStamp> {
    let seen = fs::metadata(path).ok()?;
    Some(FileStamp {
        inode: (seen.dev(), seen.ino()),
        size: seen.size(),
        modified: (seen.mtime(), seen.mtime_nsec()),
        changed: (seen.ctime(), seen.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests;
