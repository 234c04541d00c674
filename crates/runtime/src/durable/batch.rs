//! Several files at once, with as few waits for the disk as possible.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use zeroize::Zeroizing;

use super::{
    DiskError, DiskOperation, FileSystem, PRIVATE_MODE, PUBLIC_MODE, failed, parent_directory, staged_path,
};

/// File to be written by [`FileSystem::write_all`].
pub struct NewFile {
    /// Where the file appears. An existing one is replaced.
    pub path: PathBuf,
    /// Content, wiped from memory when dropped.
    pub contents: Zeroizing<Vec<u8>>,
    /// Permission bits, whatever the umask is.
    pub mode: u32,
}

impl NewFile {
    /// Describes a file that only its owner may read.
    pub fn private(path: PathBuf, contents: Zeroizing<Vec<u8>>) -> Self {
        Self { path, contents, mode: PRIVATE_MODE }
    }

    /// Describes a file that everybody may read.
    pub fn public(path: PathBuf, contents: impl Into<Vec<u8>>) -> Self {
        Self { path, contents: Zeroizing::new(contents.into()), mode: PUBLIC_MODE }
    }
}

impl FileSystem {
    /// Writes files that appear in their order, each atomically. All contents are on the disk before the first file appears.
    pub fn write_all(&self, files: &[NewFile]) -> Result<(), DiskError> {
        let written = self.stage_all(files).and_then(|handles| {
            self.sync_all(files, &handles)?;
            for file in files {
                self.rename(&staged_path(&file.path), &file.path)?;
            }
            Ok(())
        });
        if written.is_err() {
            for file in files {
                let _ = self.remove(&staged_path(&file.path));
            }
        }
        written?;
        let mut synced: Vec<&Path> = Vec::new();
        for directory in files.iter().map(|file| parent_directory(&file.path)) {
            if !synced.contains(&directory) {
                self.sync_directory(directory)?;
                synced.push(directory);
            }
        }
        Ok(())
    }

    fn stage_all(&self, files: &[NewFile]) -> Result<Vec<File>, DiskError> {
        let stage = |file: &NewFile| {
            let staged = staged_path(&file.path);
            // A crash may have left it, with another owner or mode.
            self.remove(&staged)?;
            self.stage_unsynced(&staged, &file.contents, file.mode)
        };
        files.iter().map(stage).collect()
    }

    /// Syncs concurrently: the journal of a file system commits those that wait together in one go.
    fn sync_all(&self, files: &[NewFile], handles: &[File]) -> Result<(), DiskError> {
        for file in files {
            self.call_hook(DiskOperation::Sync, &file.path)?;
        }
        let synced: Vec<io::Result<()>> = thread::scope(|scope| {
            let threads: Vec<_> = handles.iter().map(|handle| scope.spawn(|| handle.sync_all())).collect();
            let panicked = |_| Err(io::Error::other("syncing panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        });
        for (result, file) in synced.into_iter().zip(files) {
            result.map_err(failed(DiskOperation::Sync, &file.path))?;
        }
        Ok(())
    }
}
