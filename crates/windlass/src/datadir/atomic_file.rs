//! Writing files so that a crash leaves the old or the new one, and never half of one. Directories
//! are opened as `windlass_safe_path` describes, since a file may be for a directory of another user.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow};
use rustix::fs::{AtFlags, Mode, OFlags};
use windlass_safe_path::open_parent;
use zeroize::Zeroizing;

const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;
const DIRECTORY: u32 = 0o700;

/// A file to be written.
pub struct NewFile {
    pub path: PathBuf,
    contents: Zeroizing<String>,
    mode: u32,
}

impl NewFile {
    /// A file that only the owner may read.
    pub fn private(path: PathBuf, contents: Zeroizing<String>) -> Self {
        Self { path, contents, mode: PRIVATE }
    }

    /// A file that everybody may read.
    pub fn public(path: PathBuf, contents: String) -> Self {
        Self { path, contents: Zeroizing::new(contents), mode: PUBLIC }
    }
}

/// Makes a directory that only the owner may enter, if there is none.
pub fn create_directory(path: &Path) -> Result<()> {
    windlass_safe_path::create_directory(path, DIRECTORY)
        .map(drop)
        .with_context(|| format!("cannot make the directory {}", path.display()))
}

/// Writes files that appear in their order, each whole.
///
/// All contents reach the disk before the first file appears, so that the disk is waited for as
/// few times as possible.
pub fn write_all(files: &[NewFile]) -> Result<()> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| anyhow!(error).context(format!("cannot write {}", path.display()))
    };
    let mut staged = Vec::with_capacity(files.len());
    for file in files {
        staged.push(stage(file).map_err(failed(&file.path))?);
    }
    // At the same time, because a file system's journal takes those who wait together in one go.
    let synced = thread::scope(|scope| {
        let waiting =
            staged.iter().map(|one| scope.spawn(|| one.handle.sync_all())).collect::<Vec<_>>();
        waiting.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for (synced, file) in synced.into_iter().zip(files) {
        let panicked = |_| Err(io::Error::other("the thread that waited for the disk panicked"));
        synced.unwrap_or_else(panicked).map_err(failed(&file.path))?;
    }
    for (StagedFile { directory, temporary, name, .. }, file) in staged.iter().zip(files) {
        rustix::fs::renameat(directory, temporary, directory, name)
            .map_err(|error| failed(&file.path)(error.into()))?;
    }
    let mut synced = Vec::new();
    for (StagedFile { directory, .. }, file) in staged.iter().zip(files) {
        let above = file.path.parent();
        if !synced.contains(&above) {
            windlass_safe_path::sync(directory).map_err(failed(&file.path))?;
            synced.push(above);
        }
    }
    Ok(())
}

/// A file that has its contents, but not yet its name.
struct StagedFile {
    directory: OwnedFd,
    temporary: OsString,
    name: OsString,
    handle: File,
}

/// Writes the contents beside the place where they will go.
fn stage(file: &NewFile) -> io::Result<StagedFile> {
    let (directory, name) = open_parent(&file.path)?;
    let mut temporary = OsString::from(".");
    temporary.push(&name);
    temporary.push(".new");
    // What a crash left behind. Made anew, so that its mode and owner are ours.
    match rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty()) {
        Err(error) if error != rustix::io::Errno::NOENT => return Err(error.into()),
        _ => {}
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let mut handle = File::from(rustix::fs::openat(&directory, &temporary, flags, mode)?);
    // The umask may have taken bits away.
    handle.set_permissions(Permissions::from_mode(file.mode))?;
    handle.write_all(file.contents.as_bytes())?;
    Ok(StagedFile { directory, temporary, name, handle })
}

/// Says so if others than the owner may read a private file. It is theirs to decide, not ours.
pub fn warn_if_exposed(path: &Path) -> Result<()> {
    let metadata =
        fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let (file, mode) = (path.display(), format!("{mode:04o}"));
        tracing::warn!(%file, mode, "private file can be read by other users");
    }
    Ok(())
}
