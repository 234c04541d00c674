//! Metadata by which a changed file is recognized without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Granularity of timestamps on file systems without fractions of seconds, such as FAT.
const COARSE: Duration = Duration::from_secs(2);
/// Granularity of timestamps elsewhere: a tick of the kernel's clock, generously.
const FINE: Duration = Duration::from_millis(50);

/// Identity and times of a file. The time of the last status change cannot be set back by a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    status_changed: (i64, i64),
}

/// Identity of a directory, which changes when it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectoryId(u64, u64);

impl FileStamp {
    /// Follows symlinks. `None` if the file cannot be reached.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            inode: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            status_changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// Granularity of the timestamps, if the file is so young that another write could leave the same stamp.
    pub(super) fn ambiguity(&self, now: SystemTime) -> Option<Duration> {
        let (seconds, nanoseconds) = self.status_changed;
        let granularity = if nanoseconds == 0 { COARSE } else { FINE };
        let changed = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
        // A file from the future is as old as the clock allows.
        let age = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.checked_sub(changed)?;
        (age < granularity).then_some(granularity)
    }
}

impl DirectoryId {
    /// Follows symlinks. `None` if the directory cannot be reached.
    pub(super) fn read(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self(metadata.dev(), metadata.ino()))
    }
}
