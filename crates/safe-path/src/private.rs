//! Files with a predictable name that several runs or processes write: no other user may have
//! prepared them.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::open_parent;

/// How many times a file may vanish between two calls.
const ATTEMPTS: usize = 8;
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Opens a file that only the current user can read and write, or creates it with mode 0600.
/// Rejects symlinks, hard links, other owners and other permissions.
pub fn open(path: &Path) -> io::Result<File> {
    let (directory, name) = open_parent(path)?;
    open_at(directory.as_fd(), name.as_ref())
}

/// Like `open`, for a name in an open directory.
pub fn open_at(directory: impl AsFd, name: &Path) -> io::Result<File> {
    let file = open_regular_at(directory.as_fd(), name)?;
    let facts = file.metadata()?;
    let user = rustix::process::geteuid().as_raw();
    if facts.uid() != user {
        return Err(permission_denied(format!("it is owned by user {}, not by user {user}", facts.uid())));
    }
    if facts.mode() & 0o077 != 0 {
        let mode = facts.mode() & 0o777;
        return Err(permission_denied(format!("other users have access to it: its mode is {mode:04o}")));
    }
    Ok(file)
}

/// Opens a regular file for reading and writing, or creates it with mode 0600. Rejects symlinks and
/// hard links; does not check the owner.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let (directory, name) = open_parent(path)?;
    open_regular_at(directory.as_fd(), name.as_ref())
}

fn open_regular_at(directory: impl AsFd, name: &Path) -> io::Result<File> {
    // Without NONBLOCK, another user's FIFO would block this process.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |more| rustix::fs::openat(directory.as_fd(), name, flags | more, PRIVATE);
    let mut opened = Err(Errno::NOENT);
    for _ in 0..ATTEMPTS {
        opened = match open(OFlags::CREATE | OFlags::EXCL) {
            Err(Errno::EXIST) => open(OFlags::empty()),
            created => created,
        };
        if !matches!(opened, Err(Errno::NOENT)) {
            break;
        }
    }
    let file = match opened {
        Err(Errno::LOOP) => return Err(permission_denied("it is a symlink".to_owned())),
        Err(Errno::NXIO | Errno::ISDIR) => {
            return Err(permission_denied("it is not a file".to_owned()));
        }
        opened => File::from(opened?),
    };
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(permission_denied("it is not a file".to_owned()));
    }
    if facts.nlink() != 1 {
        return Err(permission_denied(format!("it has {} hard links", facts.nlink())));
    }
    Ok(file)
}

fn permission_denied(why: String) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why)
}
