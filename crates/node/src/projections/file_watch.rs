//! Reloads the projections file when it or a password file that it names changes.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_runtime::durable::FileSystem;
use windlass_runtime::file_watch::{FileWatchTiming, FileWatcher, ReloadOutcome, ReloadableFile};

use super::{HostProjections, read};

/// Reloads the file whenever it or one of its password files changes. An invalid file keeps the previous projections;
/// its errors are reported while it is invalid.
pub async fn watch_file(
    path: PathBuf,
    files: FileSystem,
    projections: Arc<ReloadableFile<HostProjections>>,
) -> Infallible {
    let mut watcher =
        FileWatcher::new(watched_files(&path, &projections.current()), FileWatchTiming::default());
    loop {
        let reloaded = tokio::task::spawn_blocking({
            let (path, files, projections) = (path.clone(), files.clone(), projections.clone());
            move || reload(&path, &files, &projections)
        });
        if let Err(error) = reloaded.await {
            tracing::error!(%error, file = %path.display(), "reload panicked; waiting for the next change");
        }
        // The new version may name other password files.
        watcher.set_files(watched_files(&path, &projections.current()));
        watcher.changed().await;
    }
}

fn reload(path: &Path, files: &FileSystem, projections: &ReloadableFile<HostProjections>) {
    match projections.update(read(path, files)) {
        ReloadOutcome::Unchanged => {}
        ReloadOutcome::Changed => tracing::info!(file = %path.display(), "host projections changed"),
        ReloadOutcome::Recovered => {
            tracing::info!(file = %path.display(), "projections file is valid again");
        }
        ReloadOutcome::Rejected(error) => {
            tracing::error!(error, "projections file rejected; still using the previous projections");
        }
    }
}

/// Returns the projections file and the password files that it names.
fn watched_files(path: &Path, projections: &HostProjections) -> Vec<PathBuf> {
    let stores = projections.iter().flat_map(|projection| &projection.stores);
    let passwords = stores.filter_map(|store| store.kind.passphrase()?.file());
    std::iter::once(path).chain(passwords).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests;
