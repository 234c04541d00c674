//! Durable, atomic file writes: a crash leaves the old or the new content, never half of it.
//!
//! - [`FileSystem`]: operations on paths. All go through one hook, so that tests make each of them fail, or be the last.
//! - [`OpenDirectory`]: operations below a directory that was opened before, wherever paths lead by then.
//! - [`NewFile`], [`FileSystem::write_all`]: several files, with as few waits for the disk as possible.
//!
//! Whatever creates, replaces or removes something first opens the directory that holds it, as `windlass_safe_path`
//! describes: symlinks of other users above it are not followed.

mod batch;
mod directory;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use windlass_safe_path::{open_directory_path, open_parent};
use zeroize::Zeroizing;

pub use batch::NewFile;
pub use directory::{DirectoryEntry, FileAccess, FileContents, OpenDirectory};

/// Mode of files that only their owner may read.
pub const PRIVATE_MODE: u32 = 0o600;
/// Mode of files that everybody may read.
pub const PUBLIC_MODE: u32 = 0o644;
/// Mode of directories that only their owner may enter.
pub const PRIVATE_DIRECTORY_MODE: u32 = 0o700;

/// Called before every operation; an error takes the place of the operation.
pub type OperationHook = Arc<dyn Fn(DiskOperation, &Path) -> io::Result<()> + Send + Sync>;

/// The file system, optionally with a hook for fault injection.
#[derive(Clone, Default)]
pub struct FileSystem {
    hook: Option<OperationHook>,
}

/// Operation on a file or a directory. [`DiskError`] names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskOperation {
    /// Read a file, a symlink or a directory.
    Read,
    /// Create a directory, which fails if the name exists.
    CreateDirectory,
    /// Create an empty file, before its content is written.
    Create,
    /// Write the content of a file.
    Write,
    /// Wait until a file or a directory is on the disk.
    Sync,
    /// Rename a file, possibly over another one.
    Rename,
    /// Create a symlink or a hard link.
    Link,
    /// Set the owner or the mode of a file or a directory.
    SetAccess,
    /// Remove a file or a directory.
    Remove,
}

/// Failed operation on a file or a directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot {} {}: {source}", .operation.verb(), .path.display())]
pub struct DiskError {
    /// Operation that failed, or was made to fail by the hook.
    pub operation: DiskOperation,
    /// File or directory on which it failed.
    pub path: PathBuf,
    /// Error of the operating system, or of the hook.
    #[source]
    pub source: io::Error,
}

/// What exists at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEntry {
    /// Neither a file nor anything else exists there.
    Nothing,
    /// A symlink with this target, which need not exist.
    Symlink(PathBuf),
    /// A file, a directory or anything else.
    Other,
}

impl DiskOperation {
    /// Whether the operation changes nothing on the disk.
    pub fn is_read_only(self) -> bool {
        self == Self::Read
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::CreateDirectory => "create the directory",
            Self::Create => "create",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Link => "create the link",
            Self::SetAccess => "set the owner or mode of",
            Self::Remove => "remove",
        }
    }
}

impl DiskError {
    /// Whether the disk is full or the quota of the user is exhausted.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}

impl FileSystem {
    /// Creates a file system whose operations call a hook first.
    pub fn with_hook(hook: OperationHook) -> Self {
        Self { hook: Some(hook) }
    }

    /// Reads a file; `None` if it does not exist. Content beyond `limit` bytes is cut off.
    pub fn read(&self, path: &Path, limit: usize) -> Result<Option<Zeroizing<Vec<u8>>>, DiskError> {
        let read = || {
            let file = File::open(path)?;
            let mut contents = Zeroizing::new(Vec::new());
            let limit = u64::try_from(limit).unwrap_or(u64::MAX);
            file.take(limit).read_to_end(&mut contents)?;
            Ok(contents)
        };
        optional(self.perform(DiskOperation::Read, path, read))
    }

    /// Inspects a path without following a symlink at its end.
    pub fn entry(&self, path: &Path) -> Result<PathEntry, DiskError> {
        let inspect = || {
            if fs::symlink_metadata(path)?.file_type().is_symlink() {
                Ok(PathEntry::Symlink(fs::read_link(path)?))
            } else {
                Ok(PathEntry::Other)
            }
        };
        let found = optional(self.perform(DiskOperation::Read, path, inspect))?;
        Ok(found.unwrap_or(PathEntry::Nothing))
    }

    /// Lists the names in a directory, sorted, without those that are not UTF-8. Empty if the directory does not exist.
    pub fn list_names(&self, directory: &Path) -> Result<Vec<String>, DiskError> {
        let list = || {
            let mut names = Vec::new();
            for entry in fs::read_dir(directory)? {
                names.extend(entry?.file_name().into_string());
            }
            names.sort_unstable();
            Ok(names)
        };
        Ok(optional(self.perform(DiskOperation::Read, directory, list))?.unwrap_or_default())
    }

    /// Creates a directory that only the owner may enter, and those above it, unless they exist.
    pub fn create_directory(&self, path: &Path) -> Result<(), DiskError> {
        if open_directory_path(path).is_ok() {
            return Ok(());
        }
        self.perform(DiskOperation::CreateDirectory, path, || {
            windlass_safe_path::create_directory(path, PRIVATE_DIRECTORY_MODE)
        })?;
        match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => self.sync_directory(parent),
            None => Ok(()),
        }
    }

    /// Replaces a file atomically. The new content is on the disk when this returns.
    pub fn replace(&self, path: &Path, contents: &[u8], mode: u32) -> Result<(), DiskError> {
        let staged = staged_path(path);
        self.remove(&staged)?;
        let written = self.stage(&staged, contents, mode);
        let renamed = written.and_then(|()| self.rename(&staged, path));
        if renamed.is_err() {
            // The staged file may be what fills the disk.
            let _ = self.remove(&staged);
        }
        renamed?;
        self.sync_directory(parent_directory(path))
    }

    /// Creates a file atomically: it appears with all of its content, and an existing one is never replaced, which
    /// is an error of kind `AlreadyExists`.
    pub fn create_new(&self, path: &Path, contents: &[u8], mode: u32) -> Result<(), DiskError> {
        // Two processes may create the same file at once, and must not remove what the other one stages.
        let suffix = format!(".{:016x}.new", rand::random::<u64>());
        let staged = staged_with_suffix(path, &suffix);
        let written = self.stage(&staged, contents, mode);
        // Unlike a rename, a hard link does not replace an existing file.
        let linked = written.and_then(|()| self.hard_link(&staged, path));
        let removed = self.remove(&staged);
        linked.and(removed)?;
        self.sync_directory(parent_directory(path))
    }

    /// Overwrites an existing file in place, for a full disk. A crash leaves half of the content, so use it
    /// only for files that can be lost.
    pub fn overwrite(&self, path: &Path, contents: &[u8]) -> Result<(), DiskError> {
        self.perform(DiskOperation::Write, path, || {
            let (directory, name) = open_parent(path)?;
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
            let mut file = File::from(file);
            file.write_all(contents)?;
            file.set_len(u64::try_from(contents.len()).unwrap_or(u64::MAX))
        })
    }

    /// Replaces a file or a symlink by a symlink, atomically.
    pub fn replace_symlink(&self, path: &Path, target: &Path) -> Result<(), DiskError> {
        let staged = staged_path(path);
        self.remove(&staged)?;
        self.perform(DiskOperation::Link, &staged, || {
            let (directory, name) = open_parent(&staged)?;
            Ok(rustix::fs::symlinkat(target, directory, name)?)
        })?;
        self.rename(&staged, path)?;
        self.sync_directory(parent_directory(path))
    }

    /// Gives a file a second name. Fails if the name exists.
    pub fn hard_link(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.perform(DiskOperation::Link, to, || {
            let ((there, old), (here, new)) = (open_parent(from)?, open_parent(to)?);
            Ok(rustix::fs::linkat(there, old, here, new, AtFlags::empty())?)
        })
    }

    /// Renames a file, over another one if that exists.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.perform(DiskOperation::Rename, to, || {
            let ((there, old), (here, new)) = (open_parent(from)?, open_parent(to)?);
            Ok(rustix::fs::renameat(there, old, here, new)?)
        })
    }

    /// Removes a file or a symlink, if it exists.
    pub fn remove(&self, path: &Path) -> Result<(), DiskError> {
        // A file that does not exist must not count as an operation for the hook.
        if fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(());
        }
        let remove = || {
            let (directory, name) = open_parent(path)?;
            Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
        };
        optional(self.perform(DiskOperation::Remove, path, remove)).map(drop)
    }

    /// Makes the names in a directory durable.
    pub fn sync_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.perform(DiskOperation::Sync, path, || windlass_safe_path::open_directory(path)?.sync_all())
    }

    fn stage(&self, path: &Path, contents: &[u8], mode: u32) -> Result<(), DiskError> {
        let file = self.stage_unsynced(path, contents, mode)?;
        self.perform(DiskOperation::Sync, path, || file.sync_all())
    }

    fn stage_unsynced(&self, path: &Path, contents: &[u8], mode: u32) -> Result<File, DiskError> {
        let mut file = self.perform(DiskOperation::Create, path, || {
            let (directory, name) = open_parent(path)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
            let file = File::from(file);
            // The umask may have removed bits.
            file.set_permissions(Permissions::from_mode(mode))?;
            Ok(file)
        })?;
        if let Err(error) = self.call_hook(DiskOperation::Write, path) {
            // As a disk that fills up, or a process that is killed, would leave it.
            let _ = file.write_all(contents.get(..contents.len() / 2).unwrap_or_default());
            return Err(error);
        }
        file.write_all(contents).map_err(failed(DiskOperation::Write, path))?;
        Ok(file)
    }

    fn perform<T>(
        &self,
        operation: DiskOperation,
        path: &Path,
        action: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, DiskError> {
        self.call_hook(operation, path)?;
        action().map_err(failed(operation, path))
    }

    fn call_hook(&self, operation: DiskOperation, path: &Path) -> Result<(), DiskError> {
        match &self.hook {
            Some(hook) => hook(operation, path).map_err(failed(operation, path)),
            None => Ok(()),
        }
    }
}

/// Whether a file name is one under which content is staged before it gets its name.
pub fn is_staged(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".new")
}

/// Path under which content is staged before it gets its name.
fn staged_path(path: &Path) -> PathBuf {
    staged_with_suffix(path, ".new")
}

fn staged_with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(suffix);
    path.with_file_name(name)
}

fn parent_directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn failed(operation: DiskOperation, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.to_owned();
    move |source| DiskError { operation, path, source }
}

fn optional<T>(result: Result<T, DiskError>) -> Result<Option<T>, DiskError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
