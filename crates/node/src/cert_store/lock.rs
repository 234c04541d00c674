//! One process at a time in a directory.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files::{DiskError, FileOperation, FileSystem};

/// How often to try, and how soon again.
const ATTEMPTS: u32 = 10;
const MOMENT: Duration = Duration::from_millis(10);

/// Keeps others of our kind out of a directory, until it is dropped or the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _directory: File,
}

/// Why a directory is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else is at work.
    #[error("another process keeps its certificates in {}", .0.display())]
    Taken(PathBuf),
    /// The disk did not do it.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl DirectoryLock {
    /// Makes the directory if need be, and takes it.
    pub fn acquire(directory: &Path, files: &FileSystem) -> Result<Self, LockError> {
        files.create_directory(directory)?;
        let failed = |source| DiskError {
            operation: FileOperation::Read,
            path: directory.to_owned(),
            source,
        };
        let file = windlass_safe_path::open_directory(directory).map_err(failed)?;
        match lock_with_retry(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Taken(directory.to_owned())),
            // Not every file system has locks, and one at a time is the usual case.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(failed(error).into()),
        }
        Ok(Self { _directory: file })
    }
}

/// Who only looks whether it is taken takes it for a moment.
fn lock_with_retry(file: &File) -> Result<(), TryLockError> {
    for _ in 0..ATTEMPTS {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(MOMENT),
            taken => return taken,
        }
    }
    file.try_lock()
}
