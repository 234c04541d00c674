//! An open directory. What is done goes to what was opened, wherever paths lead by then: no link is
//! ever followed, whoever puts one there.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use zeroize::Zeroizing;

use super::{DiskError, FileOperation, FileSystem, failed, optional};

/// A directory that is open.
pub struct OpenDirectory {
    handle: File,
    path: PathBuf,
    files: FileSystem,
}

/// Whose a file or a directory is, and who may do what with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePermissions {
    /// Permission bits as for `chmod`, such as `0o640`.
    pub mode: u32,
    /// The user; none leaves it to the system.
    pub owner: Option<u32>,
    /// The group; none leaves it to the system.
    pub group: Option<u32>,
}

/// A file that was read.
pub struct FileContents {
    /// The contents, truncated to the reader's limit and wiped when dropped.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Mode, owner and group of the file when it was read.
    pub access: FilePermissions,
}

/// What has a name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryEntry {
    /// Nothing in the directory has this name.
    Nothing,
    /// A link to this, which need not be there.
    Link(PathBuf),
    /// A directory, which is not opened by the lookup.
    Folder,
    /// A file, or something that is none of these.
    Other,
}

impl FilePermissions {
    /// Whether what is there is as it should be.
    pub fn matches(&self, there: &Self) -> bool {
        let same = |want: Option<u32>, has: Option<u32>| want.is_none() || want == has;
        self.mode == there.mode && same(self.owner, there.owner) && same(self.group, there.group)
    }
}

impl FileSystem {
    /// Opens a directory, unless there is none. A link to one is an error; of the links above it those
    /// are followed that no other user can have put there.
    pub fn open_directory(&self, path: &Path) -> Result<Option<OpenDirectory>, DiskError> {
        let open = || match path.file_name() {
            None => Ok(windlass_safe_path::open_directory(path)?.into()),
            Some(_) => {
                let (above, name) = windlass_safe_path::open_parent(path)?;
                Ok(rustix::fs::openat(above, name, directory_flags(), Mode::empty())?)
            }
        };
        let handle = optional(self.perform(FileOperation::Read, path, open))?;
        Ok(handle.map(|handle| self.opened(handle, path.to_owned())))
    }

    /// Creates a directory with a mode, and those above it, unless they exist. Those that exist keep
    /// their mode.
    pub fn create_and_open(&self, path: &Path, mode: u32) -> Result<OpenDirectory, DiskError> {
        if let Some(folder) = self.open_directory(path)? {
            return Ok(folder);
        }
        let access = FilePermissions { mode, owner: None, group: None };
        for above in path.ancestors().skip(1) {
            let open = || windlass_safe_path::open_directory(above);
            if let Some(handle) = optional(self.perform(FileOperation::Read, above, open))? {
                let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
                let missing = path.strip_prefix(above).unwrap_or(path);
                return self
                    .opened(handle.into(), above.to_owned())
                    .create_below(missing, &access, &access);
            }
        }
        Err(failed(FileOperation::Read, path)(ErrorKind::NotFound.into()))
    }

    /// Works in a directory that is open already.
    pub fn within(&self, directory: File, path: &Path) -> OpenDirectory {
        self.opened(directory.into(), path.to_owned())
    }

    fn opened(&self, handle: OwnedFd, path: PathBuf) -> OpenDirectory {
        OpenDirectory { handle: handle.into(), path, files: self.clone() }
    }
}

impl OpenDirectory {
    /// Opens a directory in it. None if there is none under this name, or something else.
    pub fn open_directory(&self, name: &OsStr) -> Result<Option<OpenDirectory>, DiskError> {
        let path = self.path.join(name);
        let open = || match rustix::fs::openat(&self.handle, name, directory_flags(), Mode::empty())
        {
            Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => Ok(None),
            opened => Ok(Some(opened?)),
        };
        let handle = optional(self.perform(FileOperation::Read, name, open))?.flatten();
        Ok(handle.map(|handle| self.files.opened(handle, path)))
    }

    /// Makes a directory that nothing else has the name of, and opens it.
    pub fn create_directory(
        &self,
        name: &OsStr,
        access: &FilePermissions,
    ) -> Result<OpenDirectory, DiskError> {
        let path = self.path.join(name);
        let handle = self.perform(FileOperation::CreateDirectory, name, || {
            rustix::fs::mkdirat(&self.handle, name, Mode::RWXU)?;
            Ok(rustix::fs::openat(&self.handle, name, directory_flags(), Mode::empty())?)
        })?;
        let folder = self.files.opened(handle, path);
        folder.set_permissions(access)?;
        Ok(folder)
    }

    /// What has a name in it.
    pub fn entry(&self, name: &OsStr) -> Result<DirectoryEntry, DiskError> {
        let look = || {
            let facts = rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(match FileType::from_raw_mode(facts.st_mode) {
                FileType::Directory => DirectoryEntry::Folder,
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&self.handle, name, Vec::new())?;
                    DirectoryEntry::Link(OsStr::from_bytes(target.as_bytes()).into())
                }
                _ => DirectoryEntry::Other,
            })
        };
        let found = optional(self.perform(FileOperation::Read, name, look))?;
        Ok(found.unwrap_or(DirectoryEntry::Nothing))
    }

    /// The names in it, sorted.
    pub fn names(&self) -> Result<Vec<OsString>, DiskError> {
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
        self.files.perform(FileOperation::Read, &self.path, list)
    }

    /// A file's contents, cut off after `limit` bytes, and whose it is. None if there is no file.
    pub fn read(&self, name: &OsStr, limit: usize) -> Result<Option<FileContents>, DiskError> {
        let read = || {
            // A pipe under this name must not keep anybody waiting.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&self.handle, name, flags, Mode::empty());
            let file = match opened {
                Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => return Ok(None),
                opened => File::from(opened?),
            };
            let access = read_permissions(&file)?;
            if !file.metadata()?.is_file() {
                return Ok(None);
            }
            let mut bytes = Zeroizing::new(Vec::new());
            file.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
            Ok(Some(FileContents { bytes, access }))
        };
        Ok(optional(self.perform(FileOperation::Read, name, read))?.flatten())
    }

    /// Writes a file that nothing else has the name of. It is on the disk when this returns.
    pub fn write(
        &self,
        name: &OsStr,
        contents: &[u8],
        access: &FilePermissions,
    ) -> Result<(), DiskError> {
        let path = self.path.join(name);
        let mut file = self.perform(FileOperation::Create, name, || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            // Nobody else may read it before it has its owner.
            let opened = rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR)?;
            Ok(File::from(opened))
        })?;
        if let Err(error) = self.files.check_hook(FileOperation::Write, &path) {
            // A disk that fills up, or a process that ends, leaves half of it.
            let _ = file.write_all(contents.get(..contents.len() / 2).unwrap_or_default());
            return Err(error);
        }
        file.write_all(contents).map_err(failed(FileOperation::Write, &path))?;
        self.perform(FileOperation::SetPermissions, name, || apply_permissions(&file, access))?;
        self.perform(FileOperation::Sync, name, || file.sync_all())
    }

    /// Makes a link that nothing else has the name of.
    pub fn link(&self, name: &OsStr, target: &Path) -> Result<(), DiskError> {
        let link = || Ok(rustix::fs::symlinkat(target, &self.handle, name)?);
        self.perform(FileOperation::Link, name, link)
    }

    /// Gives something in it another name, which may be another file's or link's until then.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), DiskError> {
        let rename = || {
            single(from)?;
            Ok(rustix::fs::renameat(&self.handle, from, &self.handle, to)?)
        };
        self.perform(FileOperation::Rename, to, rename)
    }

    /// Removes a file or a link, if it is there.
    pub fn remove(&self, name: &OsStr) -> Result<(), DiskError> {
        self.unlink(name, AtFlags::empty())
    }

    /// Removes an empty directory, if it is there.
    pub fn remove_directory(&self, name: &OsStr) -> Result<(), DiskError> {
        self.unlink(name, AtFlags::REMOVEDIR)
    }

    /// Removes whatever has this name, with all that is in it.
    pub fn remove_all(&self, name: &OsStr) -> Result<(), DiskError> {
        match self.entry(name)? {
            DirectoryEntry::Nothing => return Ok(()),
            DirectoryEntry::Link(_) | DirectoryEntry::Other => return self.remove(name),
            DirectoryEntry::Folder => {}
        }
        // However deep it is, no more than two directories are open.
        let mut folders = vec![PathBuf::from(name)];
        let mut next = 0;
        while let Some(path) = folders.get(next).cloned() {
            next += 1;
            let Some(folder) = self.descend(&path)? else { continue };
            for name in folder.names()? {
                match folder.entry(&name)? {
                    DirectoryEntry::Folder => folders.push(path.join(name)),
                    DirectoryEntry::Nothing | DirectoryEntry::Link(_) | DirectoryEntry::Other => {
                        folder.remove(&name)?
                    }
                }
            }
        }
        for path in folders.iter().rev() {
            let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { continue };
            if above.as_os_str().is_empty() {
                self.remove_directory(name)?;
            } else if let Some(above) = self.descend(above)? {
                above.remove_directory(name)?;
            }
        }
        Ok(())
    }

    /// Opens what is some levels down. None if it is not there, or is something else.
    pub fn descend(&self, path: &Path) -> Result<Option<OpenDirectory>, DiskError> {
        let mut names = path.iter();
        let mut at = match names.next() {
            Some(first) => self.open_directory(first)?,
            None => self.open_directory(OsStr::new("."))?,
        };
        for name in names {
            let Some(folder) = &at else { break };
            at = folder.open_directory(name)?;
        }
        Ok(at)
    }

    /// Creates directories some levels down, unless they exist: the last one with `access`, those on
    /// the way with `between`. Something else under one of the names, also a link to a directory, is
    /// an error.
    pub fn create_below(
        self,
        path: &Path,
        between: &FilePermissions,
        access: &FilePermissions,
    ) -> Result<OpenDirectory, DiskError> {
        let mut at = self;
        let mut names = path.iter().peekable();
        while let Some(name) = names.next() {
            let access = if names.peek().is_some() { between } else { access };
            at = match at.open_directory(name)? {
                Some(folder) => folder,
                None => at.create_or_open(name, access)?,
            };
        }
        Ok(at)
    }

    /// Creates a directory, or opens the one that somebody else has created in the meantime.
    fn create_or_open(
        &self,
        name: &OsStr,
        access: &FilePermissions,
    ) -> Result<OpenDirectory, DiskError> {
        match self.create_directory(name, access) {
            Err(error) if error.source.kind() == ErrorKind::AlreadyExists => {
                self.open_directory(name)?.ok_or(error)
            }
            made => {
                let made = made?;
                self.sync()?;
                Ok(made)
            }
        }
    }

    /// Whose it is, and who may do what with it.
    pub fn permissions(&self) -> Result<FilePermissions, DiskError> {
        self.files.perform(FileOperation::Read, &self.path, || read_permissions(&self.handle))
    }

    /// Sets whose it is, and who may do what with it.
    pub fn set_permissions(&self, access: &FilePermissions) -> Result<(), DiskError> {
        self.files.perform(FileOperation::SetPermissions, &self.path, || {
            apply_permissions(&self.handle, access)
        })
    }

    /// Waits until the names in it are on the disk.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.files.perform(FileOperation::Sync, &self.path, || self.handle.sync_all())
    }

    fn unlink(&self, name: &OsStr, flags: AtFlags) -> Result<(), DiskError> {
        let unlink = || Ok(rustix::fs::unlinkat(&self.handle, name, flags)?);
        optional(self.perform(FileOperation::Remove, name, unlink)).map(drop)
    }

    fn perform<T>(
        &self,
        operation: FileOperation,
        name: &OsStr,
        act: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, DiskError> {
        self.files.perform(operation, &self.path.join(name), || single(name).and_then(|()| act()))
    }
}

/// Refuses what is no name but a path: it could lead anywhere.
fn single(name: &OsStr) -> io::Result<()> {
    if name.as_bytes().contains(&b'/') || name == ".." || name.is_empty() {
        return Err(ErrorKind::InvalidInput.into());
    }
    Ok(())
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn read_permissions(file: &File) -> io::Result<FilePermissions> {
    let facts = file.metadata()?;
    let (owner, group) = (Some(facts.uid()), Some(facts.gid()));
    Ok(FilePermissions { mode: facts.mode() & 0o7777, owner, group })
}

fn apply_permissions(file: &File, access: &FilePermissions) -> io::Result<()> {
    let there = read_permissions(file)?;
    let other = |want: Option<u32>, has: Option<u32>| want.filter(|_| want != has);
    let (owner, group) = (other(access.owner, there.owner), other(access.group, there.group));
    // Only what differs: who is not root may not even set what is so already.
    if owner.is_some() || group.is_some() {
        fchown(file, owner, group)?;
    }
    // Last, because a new owner takes bits away; and always, because the umask does, too.
    file.set_permissions(Permissions::from_mode(access.mode))
}
