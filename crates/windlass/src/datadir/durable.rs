//! Writing files so that a crash leaves the old or the new one, and never half of one.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow};
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
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY)
        .create(path)
        .with_context(|| format!("cannot make the directory {}", path.display()))?;
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
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
            staged.iter().map(|(_, handle)| scope.spawn(|| handle.sync_all())).collect::<Vec<_>>();
        waiting.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for (synced, file) in synced.into_iter().zip(files) {
        let panicked = |_| Err(io::Error::other("the thread that waited for the disk panicked"));
        synced.unwrap_or_else(panicked).map_err(failed(&file.path))?;
    }
    let mut directories = Vec::new();
    for ((temporary, _), file) in staged.iter().zip(files) {
        fs::rename(temporary, &file.path).map_err(failed(&file.path))?;
        directories.extend(file.path.parent());
    }
    directories.sort();
    directories.dedup();
    directories.into_iter().try_for_each(sync_directory)
}

/// Writes the contents beside the place where they will go.
fn stage(file: &NewFile) -> io::Result<(PathBuf, File)> {
    let mut name = std::ffi::OsString::from(".");
    name.push(file.path.file_name().unwrap_or_default());
    name.push(".new");
    let temporary = file.path.with_file_name(name);
    // What a crash left behind. Made anew, so that its mode and owner are ours.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut handle =
        OpenOptions::new().write(true).create_new(true).mode(file.mode).open(&temporary)?;
    // The umask may have taken bits away.
    handle.set_permissions(Permissions::from_mode(file.mode))?;
    handle.write_all(file.contents.as_bytes())?;
    Ok((temporary, handle))
}

fn sync_directory(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .with_context(|| format!("cannot sync the directory {}", path.display()))
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
