//! An open directory. Operations apply to what was opened, wherever paths lead by then: symlinks are
//! never followed.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use zeroize::Zeroizing;

use super::{DiskError, DiskOperation, FileSystem, failed, optional};

/// Handle on a directory, for operations on the names in it.
pub struct OpenDirectory {
    handle: File,
    path: PathBuf,
    files: FileSystem,
}

/// Owner, group and mode of a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAccess {
    /// Permission bits, as for `chmod`.
    pub mode: u32,
    /// Numeric user; `None` leaves it to the system.
    pub owner: Option<u32>,
    /// Numeric group; `None` leaves it to the system.
    pub group: Option<u32>,
}

/// Content of a file, with its owner and mode.
pub struct FileContents {
    /// Bytes of the file, wiped from memory when dropped.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Owner, group and mode when it was read.
    pub access: FileAccess,
}

/// What exists under a name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryEntry {
    /// Nothing exists under the name.
    Nothing,
    /// A symlink with this target, which need not exist.
    Symlink(PathBuf),
    /// A directory, which may be empty.
    Directory,
    /// A regular file, a device, a socket or a pipe.
    Other,
}

impl FileAccess {
    /// Whether `actual` satisfies this, where `None` is satisfied by anything.
    pub fn is_satisfied_by(&self, actual: &Self) -> bool {
        let same = |want: Option<u32>, has: Option<u32>| want.is_none() || want == has;
        self.mode == actual.mode && same(self.owner, actual.owner) && same(self.group, actual.group)
    }
}

impl FileSystem {
    /// Opens a directory; `None` if it does not exist. A symlink to one is an error; symlinks above it
    /// are followed if no other user can have created them.
    pub fn open_directory(&self, path: &Path) -> Result<Option<OpenDirectory>, DiskError> {
        let open = || match path.file_name() {
            None => Ok(windlass_safe_path::open_directory(path)?.into()),
            Some(_) => {
                let (above, name) = windlass_safe_path::open_parent(path)?;
                Ok(rustix::fs::openat(above, name, directory_flags(), Mode::empty())?)
            }
        };
        let handle = optional(self.perform(DiskOperation::Read, path, open))?;
        Ok(handle.map(|handle| self.opened(handle, path.to_owned())))
    }

    /// Creates a directory with a mode, and those above it, unless they exist. Those that exist keep
    /// their mode.
    pub fn create_directories(&self, path: &Path, mode: u32) -> Result<OpenDirectory, DiskError> {
        if let Some(directory) = self.open_directory(path)? {
            return Ok(directory);
        }
        let access = FileAccess { mode, owner: None, group: None };
        for above in path.ancestors().skip(1) {
            let open = || windlass_safe_path::open_directory(above);
            if let Some(handle) = optional(self.perform(DiskOperation::Read, above, open))? {
                let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
                let missing = path.strip_prefix(above).unwrap_or(path);
                return self.opened(handle.into(), above.to_owned()).create_below(missing, &access, &access);
            }
        }
        Err(failed(DiskOperation::Read, path)(ErrorKind::NotFound.into()))
    }

    /// Wraps a directory that is open already. `path` is for errors and the hook.
    pub fn wrap_directory(&self, directory: File, path: &Path) -> OpenDirectory {
        self.opened(directory.into(), path.to_owned())
    }

    fn opened(&self, handle: OwnedFd, path: PathBuf) -> OpenDirectory {
        OpenDirectory { handle: handle.into(), path, files: self.clone() }
    }
}

impl OpenDirectory {
    /// Opens a directory in this one; `None` if nothing or something else has this name.
    pub fn open_directory(&self, name: &OsStr) -> Result<Option<OpenDirectory>, DiskError> {
        let path = self.path.join(name);
        let open = || match rustix::fs::openat(&self.handle, name, directory_flags(), Mode::empty()) {
            Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => Ok(None),
            opened => Ok(Some(opened?)),
        };
        let handle = optional(self.perform(DiskOperation::Read, name, open))?.flatten();
        Ok(handle.map(|handle| self.files.opened(handle, path)))
    }

    /// Creates a directory under an unused name and opens it.
    pub fn create_directory(&self, name: &OsStr, access: &FileAccess) -> Result<OpenDirectory, DiskError> {
        let path = self.path.join(name);
        let handle = self.perform(DiskOperation::CreateDirectory, name, || {
            rustix::fs::mkdirat(&self.handle, name, Mode::RWXU)?;
            Ok(rustix::fs::openat(&self.handle, name, directory_flags(), Mode::empty())?)
        })?;
        let directory = self.files.opened(handle, path);
        directory.set_access(access)?;
        Ok(directory)
    }

    /// Inspects a name, without following a symlink.
    pub fn entry(&self, name: &OsStr) -> Result<DirectoryEntry, DiskError> {
        let inspect = || {
            let metadata = rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(match FileType::from_raw_mode(metadata.st_mode) {
                FileType::Directory => DirectoryEntry::Directory,
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&self.handle, name, Vec::new())?;
                    DirectoryEntry::Symlink(OsStr::from_bytes(target.as_bytes()).into())
                }
                _ => DirectoryEntry::Other,
            })
        };
        let found = optional(self.perform(DiskOperation::Read, name, inspect))?;
        Ok(found.unwrap_or(DirectoryEntry::Nothing))
    }

    /// Lists the names in the directory, sorted.
    pub fn list_names(&self) -> Result<Vec<OsString>, DiskError> {
        let list = || {
            let mut names = Vec::new();
            for entry in Dir::read_from(&self.handle)? {
                let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
                if name != "." && name != ".." {
                    names.push(name);
                }
            }
            names.sort_unstable();
            Ok(names)
        };
        self.files.perform(DiskOperation::Read, &self.path, list)
    }

    /// Reads a file, with its owner and mode; `None` if no regular file has this name. Content beyond `limit` bytes is cut off.
    pub fn read(&self, name: &OsStr, limit: usize) -> Result<Option<FileContents>, DiskError> {
        let read = || {
            // Opening a pipe must not block.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&self.handle, name, flags, Mode::empty());
            let file = match opened {
                Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => return Ok(None),
                opened => File::from(opened?),
            };
            let access = read_access(&file)?;
            if !file.metadata()?.is_file() {
                return Ok(None);
            }
            let mut bytes = Zeroizing::new(Vec::new());
            file.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
            Ok(Some(FileContents { bytes, access }))
        };
        Ok(optional(self.perform(DiskOperation::Read, name, read))?.flatten())
    }

    /// Creates a file under an unused name. Its content is on the disk when this returns; sync the directory for its name.
    pub fn write(&self, name: &OsStr, contents: &[u8], access: &FileAccess) -> Result<(), DiskError> {
        let path = self.path.join(name);
        let mut file = self.perform(DiskOperation::Create, name, || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            // Nobody else may read the file before it has its owner.
            let opened = rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR)?;
            Ok(File::from(opened))
        })?;
        if let Err(error) = self.files.call_hook(DiskOperation::Write, &path) {
            // As a disk that fills up, or a process that is killed, would leave it.
            let _ = file.write_all(contents.get(..contents.len() / 2).unwrap_or_default());
            return Err(error);
        }
        file.write_all(contents).map_err(failed(DiskOperation::Write, &path))?;
        self.perform(DiskOperation::SetAccess, name, || set_access(&file, access))?;
        self.perform(DiskOperation::Sync, name, || file.sync_all())
    }

    /// Creates a symlink under an unused name.
    pub fn symlink(&self, name: &OsStr, target: &Path) -> Result<(), DiskError> {
        let link = || Ok(rustix::fs::symlinkat(target, &self.handle, name)?);
        self.perform(DiskOperation::Link, name, link)
    }

    /// Renames an entry, over another file or symlink if that exists.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), DiskError> {
        let rename = || {
            check_single_name(from)?;
            Ok(rustix::fs::renameat(&self.handle, from, &self.handle, to)?)
        };
        self.perform(DiskOperation::Rename, to, rename)
    }

    /// Removes a file or a symlink, if it exists.
    pub fn remove(&self, name: &OsStr) -> Result<(), DiskError> {
        self.unlink(name, AtFlags::empty())
    }

    /// Removes an empty directory, if it exists.
    pub fn remove_directory(&self, name: &OsStr) -> Result<(), DiskError> {
        self.unlink(name, AtFlags::REMOVEDIR)
    }

    /// Removes whatever has this name, with everything below it.
    pub fn remove_all(&self, name: &OsStr) -> Result<(), DiskError> {
        match self.entry(name)? {
            DirectoryEntry::Nothing => return Ok(()),
            DirectoryEntry::Symlink(_) | DirectoryEntry::Other => return self.remove(name),
            DirectoryEntry::Directory => {}
        }
        // At most two directories are open at a time, however deep the tree is.
        let mut directories = vec![PathBuf::from(name)];
        let mut next = 0;
        while let Some(path) = directories.get(next).cloned() {
            next += 1;
            let Some(directory) = self.descend(&path)? else { continue };
            for name in directory.list_names()? {
                match directory.entry(&name)? {
                    DirectoryEntry::Directory => directories.push(path.join(name)),
                    DirectoryEntry::Nothing | DirectoryEntry::Symlink(_) | DirectoryEntry::Other => {
                        directory.remove(&name)?
                    }
                }
            }
        }
        for path in directories.iter().rev() {
            let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { continue };
            if above.as_os_str().is_empty() {
                self.remove_directory(name)?;
            } else if let Some(above) = self.descend(above)? {
                above.remove_directory(name)?;
            }
        }
        Ok(())
    }

    /// Opens a directory some levels down; `None` if it does not exist or is something else.
    pub fn descend(&self, path: &Path) -> Result<Option<OpenDirectory>, DiskError> {
        let mut names = path.iter();
        let mut at = match names.next() {
            Some(first) => self.open_directory(first)?,
            None => self.open_directory(OsStr::new("."))?,
        };
        for name in names {
            let Some(directory) = &at else { break };
            at = directory.open_directory(name)?;
        }
        Ok(at)
    }

    /// Creates directories some levels down, unless they exist: the last one with `access`, those on
    /// the way with `between`. Something else under one of the names, also a symlink to a directory, is
    /// an error.
    pub fn create_below(
        self,
        path: &Path,
        between: &FileAccess,
        access: &FileAccess,
    ) -> Result<OpenDirectory, DiskError> {
        let mut at = self;
        let mut names = path.iter().peekable();
        while let Some(name) = names.next() {
            let access = if names.peek().is_some() { between } else { access };
            at = match at.open_directory(name)? {
                Some(directory) => directory,
                None => at.create_or_open(name, access)?,
            };
        }
        Ok(at)
    }

    /// Creates a directory, or opens the one that another process has created in the meantime.
    fn create_or_open(&self, name: &OsStr, access: &FileAccess) -> Result<OpenDirectory, DiskError> {
        match self.create_directory(name, access) {
            Err(error) if error.source.kind() == ErrorKind::AlreadyExists => {
                self.open_directory(name)?.ok_or(error)
            }
            created => {
                let created = created?;
                self.sync()?;
                Ok(created)
            }
        }
    }

    /// Reads owner, group and mode of the directory.
    pub fn access(&self) -> Result<FileAccess, DiskError> {
        self.files.perform(DiskOperation::Read, &self.path, || read_access(&self.handle))
    }

    /// Sets owner, group and mode of the directory.
    pub fn set_access(&self, access: &FileAccess) -> Result<(), DiskError> {
        self.files.perform(DiskOperation::SetAccess, &self.path, || set_access(&self.handle, access))
    }

    /// Makes the names in the directory durable.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.files.perform(DiskOperation::Sync, &self.path, || self.handle.sync_all())
    }

    fn unlink(&self, name: &OsStr, flags: AtFlags) -> Result<(), DiskError> {
        let unlink = || Ok(rustix::fs::unlinkat(&self.handle, name, flags)?);
        optional(self.perform(DiskOperation::Remove, name, unlink)).map(drop)
    }

    fn perform<T>(
        &self,
        operation: DiskOperation,
        name: &OsStr,
        action: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, DiskError> {
        self.files
            .perform(operation, &self.path.join(name), || check_single_name(name).and_then(|()| action()))
    }
}

/// Rejects paths in place of names: they could lead anywhere.
fn check_single_name(name: &OsStr) -> io::Result<()> {
    if name.as_bytes().contains(&b'/') || name == ".." || name.is_empty() {
        return Err(ErrorKind::InvalidInput.into());
    }
    Ok(())
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn read_access(file: &File) -> io::Result<FileAccess> {
    let metadata = file.metadata()?;
    let (owner, group) = (Some(metadata.uid()), Some(metadata.gid()));
    Ok(FileAccess { mode: metadata.mode() & 0o7777, owner, group })
}

fn set_access(file: &File, access: &FileAccess) -> io::Result<()> {
    let actual = read_access(file)?;
    let other = |want: Option<u32>, has: Option<u32>| want.filter(|_| want != has);
    let (owner, group) = (other(access.owner, actual.owner), other(access.group, actual.group));
    // Only what differs: other users than root may not even set the owner that it has.
    if owner.is_some() || group.is_some() {
        fchown(file, owner, group)?;
    }
    // Last, because a new owner clears bits; and always, because the umask does, too.
    file.set_permissions(Permissions::from_mode(access.mode))
}
