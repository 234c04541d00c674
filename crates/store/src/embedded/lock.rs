//! One process per data directory: an advisory lock on `<dir>/lock`.
//!
//! The kernel releases the lock when its holder dies, so a stale file never blocks a start. The
//! file contains the holder's process ID only for the error message.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use windlass_safe_path::private;

use crate::Error;
use crate::file_output::io_error;

/// The held lock; dropping it releases the directory.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

/// Locks the directory for this process, or reports the holder.
pub(super) fn lock_directory(dir: &Path) -> Result<DirectoryLock, Error> {
    let path = dir.join("lock");
    // Not through a symlink: the target would be truncated below.
    let mut file = private::open_regular(&path).map_err(|e| io_error(&path, &e))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(Error::Locked { dir: dir.to_owned(), holder: holder(&mut file) });
        }
        Err(errno) => return Err(io_error(&path, &errno.into())),
    }
    // The ID is informational: a full disk must not prevent opening the store.
    let _ = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
    Ok(DirectoryLock { _file: file })
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
