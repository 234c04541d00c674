//! Every operation on the disk, in one place: each can be made to fail, or to be the last.
//!
//! Whatever creates, replaces or removes something first opens the directory that it is in, as
//! `windlass_safe_path` describes: links of other users above it are not followed.

mod directory;

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use windlass_safe_path::{open_directory_path, open_parent};
use zeroize::Zeroizing;

pub use directory::{DirectoryEntry, FileContents, FilePermissions, OpenDirectory};

/// Only the owner may read.
pub const PRIVATE: u32 = 0o600;
const DIRECTORY: u32 = 0o700;

/// Asked before every operation; an error takes its place.
pub type FileOperationHook = Arc<dyn Fn(FileOperation, &Path) -> io::Result<()> + Send + Sync>;

/// File system access of the agent, with an optional hook before each operation.
#[derive(Clone, Default)]
pub struct FileSystem {
    hook: Option<FileOperationHook>,
}

/// What is done to a file. Displayed, it completes the sentence "cannot …".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// Reads a file, a link or a directory.
    Read,
    /// Creates a directory, without its parents.
    CreateDirectory,
    /// Creates a file that must not exist yet.
    Create,
    /// Writes the contents of an open file.
    Write,
    /// Waits until a file or a directory is on the disk.
    Sync,
    /// Gives a file another name, which may be another file's until then.
    Rename,
    /// Creates a hard or symbolic link.
    Link,
    /// Says whose a file or a directory is, and who may do what with it.
    SetPermissions,
    /// Removes a file, a link or an empty directory.
    Remove,
}

/// Why the disk did not do it.
#[derive(Debug, thiserror::Error)]
#[error("cannot {} {}: {source}", .operation.verb(), .path.display())]
pub struct DiskError {
    /// What was to be done.
    pub operation: FileOperation,
    /// The path that the operation was applied to.
    pub path: PathBuf,
    /// The error of the operating system call.
    #[source]
    pub source: io::Error,
}

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEntry {
    /// Nothing exists at the path.
    Nothing,
    /// A link to this, which need not be there.
    Link(PathBuf),
    /// A file, a directory or anything else that is not a link.
    Other,
}

impl FileOperation {
    /// Whether it leaves the disk as it is.
    pub fn is_read_only(self) -> bool {
        self == Self::Read
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::CreateDirectory => "make the directory",
            Self::Create => "make",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::SetPermissions => "set the owner or mode of",
            Self::Remove => "remove",
        }
    }
}

impl DiskError {
    /// Whether the disk, or what this user may have of it, is full.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}

impl FileSystem {
    /// The disk, with somebody who is asked before each operation.
    pub fn with_hook(hook: FileOperationHook) -> Self {
        Self { hook: Some(hook) }
    }

    /// The contents of a file, unless there is none. Longer ones are cut off after `limit` bytes.
    pub fn read(&self, path: &Path, limit: usize) -> Result<Option<Zeroizing<Vec<u8>>>, DiskError> {
        let read = || {
            let file = File::open(path)?;
            let mut contents = Zeroizing::new(Vec::new());
            let limit = u64::try_from(limit).unwrap_or(u64::MAX);
            file.take(limit).read_to_end(&mut contents)?;
            Ok(contents)
        };
        optional(self.perform(FileOperation::Read, path, read))
    }

    /// What stands at a path.
    pub fn entry(&self, path: &Path) -> Result<PathEntry, DiskError> {
        let look = || {
            if fs::symlink_metadata(path)?.file_type().is_symlink() {
                Ok(PathEntry::Link(fs::read_link(path)?))
            } else {
                Ok(PathEntry::Other)
            }
        };
        let found = optional(self.perform(FileOperation::Read, path, look))?;
        Ok(found.unwrap_or(PathEntry::Nothing))
    }

    /// The names in a directory, sorted, without those that are no text. None if it is not there.
    pub fn names(&self, directory: &Path) -> Result<Vec<String>, DiskError> {
        let list = || {
            let mut names = Vec::new();
            for entry in fs::read_dir(directory)? {
                names.extend(entry?.file_name().into_string());
            }
            names.sort_unstable();
            Ok(names)
        };
        Ok(optional(self.perform(FileOperation::Read, directory, list))?.unwrap_or_default())
    }

    /// Makes a directory that only the owner may enter, unless it is there.
    pub fn create_directory(&self, path: &Path) -> Result<(), DiskError> {
        if open_directory_path(path).is_ok() {
            return Ok(());
        }
        self.perform(FileOperation::CreateDirectory, path, || {
            windlass_safe_path::create_directory(path, DIRECTORY)
        })?;
        match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => self.sync_directory(parent),
            None => Ok(()),
        }
    }

    /// Puts a whole file in the place of whatever is there.
    pub fn replace(&self, path: &Path, contents: &[u8], mode: u32) -> Result<(), DiskError> {
        let staged = staged(path);
        self.remove(&staged)?;
        let written = self.stage(&staged, contents, mode);
        let renamed = written.and_then(|()| self.rename(&staged, path));
        if renamed.is_err() {
            // It may be what fills the disk.
            let _ = self.remove(&staged);
        }
        renamed?;
        self.sync_directory(directory_of(path))
    }

    /// Writes over a file that is there, which may need no more room. Who is killed leaves half of
    /// it, so this is for what can do without.
    pub fn overwrite(&self, path: &Path, contents: &[u8]) -> Result<(), DiskError> {
        self.perform(FileOperation::Write, path, || {
            let (directory, name) = open_parent(path)?;
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
            let mut file = File::from(file);
            file.write_all(contents)?;
            file.set_len(u64::try_from(contents.len()).unwrap_or(u64::MAX))
        })
    }

    /// Puts a link in the place of whatever is there. There is no moment without one of the two.
    pub fn replace_link(&self, path: &Path, target: &Path) -> Result<(), DiskError> {
        let staged = staged(path);
        self.remove(&staged)?;
        self.perform(FileOperation::Link, &staged, || {
            let (directory, name) = open_parent(&staged)?;
            Ok(rustix::fs::symlinkat(target, directory, name)?)
        })?;
        self.rename(&staged, path)?;
        self.sync_directory(directory_of(path))
    }

    /// Gives a file a second name, which nothing has yet.
    pub fn link(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.perform(FileOperation::Link, to, || {
            let ((there, old), (here, new)) = (open_parent(from)?, open_parent(to)?);
            Ok(rustix::fs::linkat(there, old, here, new, AtFlags::empty())?)
        })
    }

    /// Gives a file another name.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.perform(FileOperation::Rename, to, || {
            let ((there, old), (here, new)) = (open_parent(from)?, open_parent(to)?);
            Ok(rustix::fs::renameat(there, old, here, new)?)
        })
    }

    /// Removes a file or a link, if it is there.
    pub fn remove(&self, path: &Path) -> Result<(), DiskError> {
        // Nothing to do is not worth an operation.
        if fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(());
        }
        let remove = || {
            let (directory, name) = open_parent(path)?;
            Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
        };
        optional(self.perform(FileOperation::Remove, path, remove)).map(drop)
    }

    /// Waits until the names in a directory are on the disk.
    pub fn sync_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.perform(FileOperation::Sync, path, || {
            windlass_safe_path::open_directory(path)?.sync_all()
        })
    }

    fn stage(&self, path: &Path, contents: &[u8], mode: u32) -> Result<(), DiskError> {
        let mut file = self.perform(FileOperation::Create, path, || {
            let (directory, name) = open_parent(path)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
            let file = File::from(file);
            // The umask may have taken bits away.
            file.set_permissions(Permissions::from_mode(mode))?;
            Ok(file)
        })?;
        if let Err(error) = self.check_hook(FileOperation::Write, path) {
            // A disk that fills up, or a process that ends, leaves half of it.
            let _ = file.write_all(contents.get(..contents.len() / 2).unwrap_or_default());
            return Err(error);
        }
        file.write_all(contents).map_err(failed(FileOperation::Write, path))?;
        self.perform(FileOperation::Sync, path, || file.sync_all())
    }

    fn perform<T>(
        &self,
        operation: FileOperation,
        path: &Path,
        act: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, DiskError> {
        self.check_hook(operation, path)?;
        act().map_err(failed(operation, path))
    }

    fn check_hook(&self, operation: FileOperation, path: &Path) -> Result<(), DiskError> {
        match &self.hook {
            Some(hook) => hook(operation, path).map_err(failed(operation, path)),
            None => Ok(()),
        }
    }
}

/// Whether this is a name under which something was being written.
pub fn is_staged(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".new")
}

/// Where something is written before it gets its name.
fn staged(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn failed(operation: FileOperation, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
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
