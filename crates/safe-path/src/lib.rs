//! Opens files and directories below other users' directories without following their symlinks.
//!
//! A root process that creates `/home/alice/app/tls` by path follows whatever alice puts at
//! `/home/alice/app` between two system calls. This crate resolves a path once, component by
//! component, and returns a descriptor on which the caller works.
//!
//! The rule, after systemd's "unsafe path transition":
//!
//! - A directory is **trusted** if root or the current user owns it and it is not world-writable,
//!   or it has the sticky bit. Group members are trusted as much as the owner who admitted them.
//! - A symlink is followed only if root or the current user owns it, and only while every directory
//!   on the path, including its own, is trusted. So `/var/run` → `/run` works, and a symlink below
//!   another user's home directory is rejected, whoever owns it: the owner of the home directory
//!   may have moved it there.
//! - Directories are entered regardless of owner. A user who owns one decides which of their
//!   directories has which name, but cannot move another user's directory there.
//! - `..` leads to the directory that was left, not to the present parent in the file system.
//!
//! Paths without symlinks are resolved with one `openat2`. If there is a symlink, or the kernel or
//! a seccomp filter does not allow the call, each component is opened separately with `O_NOFOLLOW`.
//!
//! - [`open_directory`], [`create_directory`], [`open_parent`]: entry points.
//! - [`private`]: files that no other user may have prepared.

mod path_resolver;
pub mod private;

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use path_resolver::PathResolver;

/// Reason why other users can replace the contents of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrustedDirectory {
    /// First untrusted directory on the path.
    pub directory: PathBuf,
    /// UID of the directory's owner.
    pub owner: u32,
    /// Whether the directory is world-writable.
    pub world_writable: bool,
}

/// Opens a directory for reading its entries.
pub fn open_directory(path: &Path) -> io::Result<File> {
    reopen(&open_directory_path(path)?)
}

/// Opens a directory as a base for `openat` and similar calls; it need not be readable.
pub fn open_directory_path(path: &Path) -> io::Result<OwnedFd> {
    // The kernel resolves `..` to the present parent, not to the directory that was traversed.
    if !path.components().any(|component| component == Component::ParentDir) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
            Err(Errno::LOOP | Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::AGAIN) => {}
            found => return Ok(found?),
        }
    }
    PathResolver::new(path)?.resolve(|_, _| Err(ErrorKind::NotFound.into()))
}

/// Creates a directory and its missing parents, and opens it for reading. New directories get
/// `mode` regardless of the umask; existing ones keep theirs.
pub fn create_directory(path: &Path, mode: u32) -> io::Result<File> {
    let found = match open_directory_path(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            PathResolver::new(path)?.resolve(|above, name| create_at(above, name, mode))?
        }
        found => found?,
    };
    reopen(&found)
}

/// Opens the parent directory of a path and returns the path's last component, which need not exist
/// and is not followed.
pub fn open_parent(path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let above = path.parent().unwrap_or(Path::new(""));
    Ok((open_directory_path(above)?, name.to_owned()))
}

/// Opens an already resolved directory for reading.
pub fn reopen(directory: &OwnedFd) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(directory, ".", flags, Mode::empty())?))
}

/// Syncs a directory, which makes its names durable.
pub fn sync(directory: &OwnedFd) -> io::Result<()> {
    reopen(directory)?.sync_all()
}

/// Returns the directory through which users other than root and the current one can replace the
/// path's contents; `None` if they cannot.
pub fn find_untrusted_directory(path: &Path) -> io::Result<Option<UntrustedDirectory>> {
    let path = std::path::absolute(path)?;
    let mut walk = PathResolver::new(&path)?;
    walk.resolve_components(|_, _| Err(ErrorKind::NotFound.into()))?;
    Ok(walk.untrusted())
}

impl std::fmt::Display for UntrustedDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { directory, owner, world_writable } = self;
        let directory = directory.display();
        match world_writable {
            true => write!(f, "{directory} is writable by all users and has no sticky bit"),
            false => write!(f, "{directory} is owned by user {owner}"),
        }
    }
}

fn create_at(above: &OwnedFd, name: &std::ffi::OsStr, mode: u32) -> io::Result<()> {
    match rustix::fs::mkdirat(above, name, Mode::RWXU) {
        // Another process created it first and chose its mode.
        Err(Errno::EXIST) => return Ok(()),
        created => created?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let created = File::from(rustix::fs::openat(above, name, flags, Mode::empty())?);
    created.set_permissions(Permissions::from_mode(mode))?;
    sync(above)
}

/// Returns the metadata of a descriptor, or of a name below it.
fn stat(at: &OwnedFd, name: Option<&std::ffi::OsStr>) -> io::Result<rustix::fs::Stat> {
    Ok(match name {
        None => rustix::fs::fstat(at)?,
        Some(name) => rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?,
    })
}

#[cfg(test)]
mod tests;
