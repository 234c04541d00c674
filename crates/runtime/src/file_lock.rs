//! Advisory locks that keep a second process out of a directory. The kernel releases them when their holder dies, so a
//! stale file never blocks a start.
//!
//! `store` has its own lock: it is a library below this one.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_safe_path::private;

/// Attempts to get a lock on a directory: [`DirectoryLock::is_held`] takes it for a moment.
const ATTEMPTS: u32 = 10;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(10);
/// Longest process number that is read from a lock file, in bytes.
const MAX_PID_BYTES: u64 = 20;

/// Reason for which a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error("{} is locked by another process{}", .path.display(), format_holder(*.holder))]
    Held {
        /// File or directory that is locked.
        path: PathBuf,
        /// Process that holds the lock, if it has written its number.
        holder: Option<u32>,
    },
    /// The file or directory cannot be opened or locked.
    #[error("cannot lock {}: {source}", .path.display())]
    Io {
        /// File or directory that was to be locked.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

fn format_holder(holder: Option<u32>) -> String {
    holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

/// Exclusive lock on a directory, until it is dropped. Leaves no file behind.
#[derive(Debug)]
pub struct DirectoryLock {
    directory: File,
}

impl DirectoryLock {
    /// Locks a directory, which must exist.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io { path: path.to_owned(), source };
        Self::lock(windlass_safe_path::open_directory(path).map_err(failed)?, path)
    }

    /// Locks a directory that is open. `path` is for errors.
    pub fn lock(directory: File, path: &Path) -> Result<Self, LockError> {
        let path = || path.to_owned();
        match try_repeatedly(&directory) {
            Ok(()) => Ok(Self { directory }),
            Err(TryLockError::WouldBlock) => Err(LockError::Held { path: path(), holder: None }),
            // Not every file system has locks, and a single process is the usual case.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                Ok(Self { directory })
            }
            Err(TryLockError::Error(source)) => Err(LockError::Io { path: path(), source }),
        }
    }

    /// Handle on the locked directory.
    pub fn directory(&self) -> &File {
        &self.directory
    }

    /// Whether a process holds the lock on a directory now. False if the directory does not exist.
    pub fn is_held(path: &Path) -> io::Result<bool> {
        let directory = match File::open(path) {
            Ok(directory) => directory,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        match directory.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

fn try_repeatedly(file: &File) -> Result<(), TryLockError> {
    for _ in 0..ATTEMPTS {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(ATTEMPT_INTERVAL),
            result => return result,
        }
    }
    file.try_lock()
}

/// Exclusive lock on a file that names its holder, until it is dropped.
#[derive(Debug)]
pub struct PidFileLock {
    _file: File,
}

impl PidFileLock {
    /// Locks a file, which is created if it does not exist, and writes the number of this process into it.
    /// A symlink is refused: its target would be overwritten.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io { path: path.to_owned(), source };
        let mut file = private::open_regular(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The holder may not have written its number yet.
                let _ = (&mut file).take(MAX_PID_BYTES).read_to_string(&mut text);
                let holder = text.trim().parse().ok();
                return Err(LockError::Held { path: path.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_locked_until_the_lock_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!DirectoryLock::is_held(dir.path()).unwrap());
        assert!(!DirectoryLock::is_held(&dir.path().join("missing")).unwrap());
        let lock = DirectoryLock::acquire(dir.path()).unwrap();
        assert!(lock.directory().metadata().unwrap().is_dir());
        assert!(DirectoryLock::is_held(dir.path()).unwrap());
        let error = DirectoryLock::acquire(dir.path()).unwrap_err();
        assert!(error.to_string().ends_with("is locked by another process"), "{error}");
        drop(lock);
        DirectoryLock::acquire(dir.path()).unwrap();
        let missing = DirectoryLock::acquire(&dir.path().join("missing")).unwrap_err();
        assert!(matches!(missing, LockError::Io { .. }));
    }

    #[test]
    fn a_lock_file_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = PidFileLock::acquire(&path).unwrap();
        let error = PidFileLock::acquire(&path).unwrap_err();
        let holder = std::process::id();
        assert!(matches!(error, LockError::Held { holder: Some(pid), .. } if pid == holder));
        assert!(error.to_string().ends_with(&format!(" (process {holder})")), "{error}");
        drop(lock);
        PidFileLock::acquire(&path).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(PidFileLock::acquire(&link), Err(LockError::Io { .. })));
    }
}
