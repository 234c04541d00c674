//! Resolves a path component by component.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::{UntrustedDirectory, stat};

/// The kernel's limit of symlinks per path.
const MAX_SYMLINKS: u32 = 40;

pub struct PathResolver {
    /// Directories traversed so far; the last is the current one. Never empty.
    way: Vec<OpenedDirectory>,
    /// Remaining components, in reverse order.
    rest: Vec<OsString>,
    symlinks: u32,
    /// Path traversed so far, for messages.
    shown: PathBuf,
}

struct OpenedDirectory {
    directory: OwnedFd,
    /// First untrusted directory: this one or an ancestor.
    untrusted: Option<UntrustedDirectory>,
}

impl PathResolver {
    pub fn new(path: &Path) -> io::Result<Self> {
        let shown = PathBuf::from(if path.has_root() { "/" } else { "." });
        let first = OpenedDirectory::new(open_start(path)?, &shown, None)?;
        let mut walk = Self { way: vec![first], rest: Vec::new(), symlinks: 0, shown };
        walk.push_components(path);
        Ok(walk)
    }

    /// Resolves the whole path. Calls `missing` with the directory and name of a component that
    /// does not exist; it may create it.
    pub fn resolve(mut self, missing: impl FnMut(&OwnedFd, &OsStr) -> io::Result<()>) -> io::Result<OwnedFd> {
        self.resolve_components(missing)?;
        let last = self.way.pop().ok_or(ErrorKind::NotFound)?;
        Ok(last.directory)
    }

    pub fn resolve_components(
        &mut self,
        mut missing: impl FnMut(&OwnedFd, &OsStr) -> io::Result<()>,
    ) -> io::Result<()> {
        while let Some(name) = self.rest.pop() {
            if name == ".." {
                self.enter_parent()?;
                continue;
            }
            let here = self.current()?;
            let opened = match open_component(&here.directory, &name) {
                Err(Errno::NOENT) => {
                    missing(&here.directory, &name)?;
                    open_component(&here.directory, &name)
                }
                opened => opened,
            }?;
            let facts = stat(&opened, None)?;
            match FileType::from_raw_mode(facts.st_mode) {
                FileType::Directory => self.enter(opened, &name)?,
                FileType::Symlink => self.follow_symlink(&opened, &facts, &name)?,
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
        Ok(())
    }

    /// Returns the first untrusted directory on the path.
    pub fn untrusted(&self) -> Option<UntrustedDirectory> {
        self.way.last().and_then(|step| step.untrusted.clone())
    }

    fn current(&self) -> io::Result<&OpenedDirectory> {
        self.way.last().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn enter(&mut self, directory: OwnedFd, name: &OsStr) -> io::Result<()> {
        self.shown.push(name);
        let step = OpenedDirectory::new(directory, &self.shown, self.untrusted())?;
        self.way.push(step);
        Ok(())
    }

    fn enter_parent(&mut self) -> io::Result<()> {
        if self.way.len() > 1 {
            self.way.pop();
            self.shown.pop();
            return Ok(());
        }
        // Above the start of a relative path. The parent of the root is the root.
        self.shown.push("..");
        let above = open_component(&self.current()?.directory, OsStr::new(".."))?;
        let step = OpenedDirectory::new(above, &self.shown, self.untrusted())?;
        self.way = vec![step];
        Ok(())
    }

    fn follow_symlink(&mut self, link: &OwnedFd, facts: &Stat, name: &OsStr) -> io::Result<()> {
        let path = self.shown.join(name);
        if let Some(untrusted) = self.untrusted() {
            let text = format!("refusing to follow the symlink {}: {untrusted}", path.display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, text));
        }
        if !is_trusted_user(facts.st_uid) {
            let (path, owner) = (path.display(), facts.st_uid);
            let text = format!("refusing to follow the symlink {path}: owned by user {owner}");
            return Err(io::Error::new(ErrorKind::PermissionDenied, text));
        }
        self.symlinks += 1;
        if self.symlinks > MAX_SYMLINKS {
            return Err(Errno::LOOP.into());
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.has_root() {
            self.shown = PathBuf::from("/");
            let first = OpenedDirectory::new(open_start(&target)?, &self.shown, None)?;
            self.way = vec![first];
        }
        self.push_components(&target);
        Ok(())
    }

    /// Prepends the components of a path to the remaining ones.
    fn push_components(&mut self, path: &Path) {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.rest.push(name.to_owned()),
                Component::ParentDir => self.rest.push(OsString::from("..")),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
    }
}

impl OpenedDirectory {
    fn new(directory: OwnedFd, path: &Path, above: Option<UntrustedDirectory>) -> io::Result<Self> {
        let facts = stat(&directory, None)?;
        let mode = Mode::from_raw_mode(facts.st_mode);
        let world_writable = mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX);
        let is_trusted = is_trusted_user(facts.st_uid) && !world_writable;
        let here = || UntrustedDirectory { directory: path.to_owned(), owner: facts.st_uid, world_writable };
        let untrusted = above.or_else(|| (!is_trusted).then(here));
        Ok(Self { directory, untrusted })
    }
}

fn open_start(path: &Path) -> io::Result<OwnedFd> {
    let name = if path.has_root() { "/" } else { "." };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, name, flags, Mode::empty())?)
}

/// Opens the file of any type at a name, including a symlink itself.
fn open_component(at: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    // The name was a path component, so it never contains a separator.
    debug_assert!(!name.as_bytes().contains(&b'/'));
    rustix::fs::openat(at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn is_trusted_user(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}
