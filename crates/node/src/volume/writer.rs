//! Writes the files of a volume atomically: readers see all of the old files or all of the new
//! ones, whenever this process is killed.
//!
//! The layout is kubelet's:
//!
//! - `..2026_03_01_12_00_00.123`: a directory with the files. Never changed once it is complete.
//! - `..data`: a symlink to it, replaced by a rename. This is the atomic switch.
//! - `ca.pem` → `..data/ca.pem`, for every top-level name: the path that applications open. New
//!   links are created before the switch and old ones removed after it, so that the names are right
//!   at the switch, too.
//! - `..data_tmp`: a symlink that is about to be renamed.
//!
//! All operations are relative to a directory that is opened once, and follow no symlink below it.
//! On the path to that directory, only symlinks that no other user can have created are followed
//! (`windlass_safe_path`). Other files and directories are left alone, because a host projection
//! may share its directory with other files. Only one process at a time may write to a volume.
//! Writes by anyone else damage only that volume, until the next write.

#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

use super::path::VolumePath;
use super::payload::{PayloadFile, VolumePayload};
use windlass_runtime::durable::{
    DirectoryEntry, DiskError, DiskOperation, FileAccess, FileContents, FileSystem, OpenDirectory,
};

const DATA: &str = "..data";
const STAGED: &str = "..data_tmp";
/// Mode of a volume's directory: its readers may be any users. The modes of the files decide what
/// they can read, and the directories above decide who can enter.
const OPEN: u32 = 0o755;
/// Mode of the directories above pod volumes, the same as kubelet's: containers have the volume
/// mounted, and other users of the host need no access.
pub const GUARDED: u32 = 0o750;
/// Size limit in bytes, above any object that the API can store, even encoded as text.
const MAX_FILE: usize = 8 << 20;

/// Writes the directory of a volume.
#[derive(Clone)]
pub struct VolumeWriter {
    files: FileSystem,
    /// A parent directory, below which no symlink is followed.
    base: Option<PathBuf>,
    directory: PathBuf,
}

/// Outcome of a successful write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The files were up to date; none was touched.
    Unchanged,
    /// The files were replaced by new ones.
    Changed,
}

impl VolumeWriter {
    /// Creates a writer for this directory, without touching the disk.
    pub fn new(directory: &Path, files: FileSystem) -> Self {
        Self { files, base: None, directory: directory.to_owned() }
    }

    /// Creates a writer for a volume below `base`, which must exist. Symlinks between the two are
    /// not followed.
    pub fn below(base: &Path, path: &Path, files: FileSystem) -> Self {
        Self { files, base: Some(base.to_owned()), directory: base.join(path) }
    }

    /// Returns the directory of the volume, which need not exist.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Replaces the files of the volume, and cleans up after a killed process. On error the
    /// previous files stay. The files are synced to disk on return.
    pub fn write(&self, payload: &VolumePayload, now: OffsetDateTime) -> Result<WriteOutcome, DiskError> {
        self.write_observed(payload, now, &|_| {})
    }

    /// As [`Self::write`]. `before_switch` is called with the new directory when its files are complete, but not
    /// visible to readers yet. If the write fails after that, the directory is removed.
    pub fn write_observed(
        &self,
        payload: &VolumePayload,
        now: OffsetDateTime,
        before_switch: &dyn Fn(&Path),
    ) -> Result<WriteOutcome, DiskError> {
        let root = self.root(payload)?;
        sweep(&root)?;
        if let Some(current) = current(&root)?
            && holds(&current, payload)?
        {
            if link_all(&root, payload)? | unlink_rest(&root, payload)? {
                root.sync()?;
            }
            return Ok(WriteOutcome::Unchanged);
        }
        let before_switch = |name: &str| before_switch(&self.directory.join(name));
        if let Err(error) = replace(&root, payload, now, &before_switch) {
            // Leftovers may be what fills the disk. If they cannot be removed, the next write
            // retries.
            let _ = sweep(&root);
            return Err(error);
        }
        // The write has succeeded from here on. The next write removes leftovers.
        if let Err(error) = unlink_rest(&root, payload).and_then(|_| sweep(&root)) {
            tracing::warn!(volume = %self.directory.display(), "{error}");
        }
        Ok(WriteOutcome::Changed)
    }

    /// Reads the files of the volume, or returns `None` if it was never written. Other files are
    /// ignored.
    pub fn read(&self) -> Result<Option<VolumePayload>, DiskError> {
        let Some(root) = self.open(&self.directory)? else { return Ok(None) };
        let Some(current) = current(&root)? else { return Ok(None) };
        let mut payload = VolumePayload::new(None);
        visit(&current, |folder, path| {
            if let Some(FileContents { bytes, access }) = folder.read(name_of(path.as_str()), MAX_FILE)? {
                let file = PayloadFile { bytes, mode: access.mode, owner: access.owner };
                // Paths on a disk cannot conflict.
                let _ = payload.add(path, file);
            }
            Ok(())
        })?;
        Ok(Some(payload))
    }

    /// Returns the directory of the visible files and when it was created, without following symlinks of others.
    /// `None` if the volume was never written.
    pub fn visible(&self) -> Result<Option<(PathBuf, OffsetDateTime)>, DiskError> {
        let Some(root) = self.open(&self.directory)? else { return Ok(None) };
        let name = current_name(&root)?;
        Ok(name.and_then(|name| Some((self.directory.join(&name), creation_time(&name)?))))
    }

    /// Removes the volume with all its content.
    pub fn remove(&self) -> Result<(), DiskError> {
        let (Some(above), Some(name)) = (self.directory.parent(), self.directory.file_name()) else {
            return Ok(());
        };
        match self.open(above)? {
            Some(above) => above.remove_all(name).and_then(|()| above.sync()),
            None => Ok(()),
        }
    }

    /// Opens a directory of this writer; `None` if it does not exist.
    fn open(&self, path: &Path) -> Result<Option<OpenDirectory>, DiskError> {
        match self.steps(path) {
            None => self.files.open_directory(path),
            Some((base, steps)) => match self.files.open_directory(base)? {
                Some(base) => base.descend(steps),
                None => Ok(None),
            },
        }
    }

    /// Splits a path into the directory below which no symlink is followed, and the rest.
    fn steps<'a>(&'a self, path: &'a Path) -> Option<(&'a Path, &'a Path)> {
        let base = self.base.as_deref()?;
        Some((base, path.strip_prefix(base).ok()?))
    }

    /// Opens or creates the directory of the volume, readable by its group.
    fn root(&self, payload: &VolumePayload) -> Result<OpenDirectory, DiskError> {
        let root = match self.steps(&self.directory) {
            None => self.files.create_directories(&self.directory, OPEN)?,
            Some((base, steps)) => {
                let access = |mode| FileAccess { mode, owner: None, group: None };
                let base = self.files.create_directories(base, GUARDED)?;
                base.create_below(steps, &access(GUARDED), &access(OPEN))?
            }
        };
        if payload.group().is_some() {
            let (wanted, there) = (payload.folder_access(), root.access()?);
            let access = FileAccess { mode: there.mode | wanted.mode, ..wanted };
            if !access.is_satisfied_by(&there) {
                root.set_access(&access)?;
            }
        }
        Ok(root)
    }
}

/// Writes all files to a new directory, then switches to it.
fn replace(
    root: &OpenDirectory,
    payload: &VolumePayload,
    now: OffsetDateTime,
    before_switch: &dyn Fn(&str),
) -> Result<(), DiskError> {
    let name = fill(root, payload, now)?;
    root.sync()?;
    link_all(root, payload)?;
    if root.entry(OsStr::new(DATA))? == DirectoryEntry::Directory {
        // This name is reserved for us, and a symlink cannot replace a directory.
        root.remove_all(OsStr::new(DATA))?;
    }
    before_switch(&name);
    link(root, OsStr::new(DATA), Path::new(&name))?;
    root.sync()
}

/// Writes all files to a new directory. Returns its name.
fn fill(root: &OpenDirectory, payload: &VolumePayload, now: OffsetDateTime) -> Result<String, DiskError> {
    let name = generation(now);
    let access = payload.folder_access();
    let generation = root.create_directory(OsStr::new(&name), &access)?;
    let mut made = BTreeSet::new();
    for (path, file) in payload.files() {
        let folder = open_parent(&generation, path, |above, name, path| {
            if made.insert(path) {
                above.create_directory(name, &access).map(Some)
            } else {
                above.open_directory(name)
            }
        })?;
        let folder = folder.ok_or_else(|| removed_error(path))?;
        folder.write(name_of(path.as_str()), &file.bytes, &payload.access(file))?;
    }
    // Only now, because all entries must exist before their directories are synced.
    for (path, _) in payload.files() {
        open_parent(&generation, path, |above, name, path| {
            let folder = above.open_directory(name)?;
            if let Some(folder) = folder.as_ref().filter(|_| made.remove(path)) {
                folder.sync()?;
            }
            Ok(folder)
        })?;
    }
    generation.sync()?;
    Ok(name)
}

/// Creates the top-level symlinks. Returns whether any was missing.
fn link_all(root: &OpenDirectory, payload: &VolumePayload) -> Result<bool, DiskError> {
    let mut changed = false;
    for name in tops(payload) {
        changed |= link(root, OsStr::new(name), &Path::new(DATA).join(name))?;
    }
    Ok(changed)
}

/// Removes top-level symlinks without a target. Files of others stay. Returns whether any was
/// removed.
fn unlink_rest(root: &OpenDirectory, payload: &VolumePayload) -> Result<bool, DiskError> {
    let wanted = tops(payload);
    let mut changed = false;
    for name in root.list_names()? {
        let is_wanted = name.to_str().is_some_and(|name| wanted.contains(name));
        if !is_wanted && root.entry(&name)? == DirectoryEntry::Symlink(Path::new(DATA).join(&name)) {
            root.remove(&name)?;
            changed = true;
        }
    }
    Ok(changed)
}

/// Replaces whatever has this name by a symlink. Returns whether it changed. A directory is not
/// replaced, because its content may be needed.
fn link(root: &OpenDirectory, name: &OsStr, target: &Path) -> Result<bool, DiskError> {
    if root.entry(name)? == DirectoryEntry::Symlink(target.to_owned()) {
        return Ok(false);
    }
    root.symlink(OsStr::new(STAGED), target)?;
    root.rename(OsStr::new(STAGED), name)?;
    Ok(true)
}

/// Removes what interrupted writes and earlier generations left.
fn sweep(root: &OpenDirectory) -> Result<(), DiskError> {
    let current = current_name(root)?;
    for name in root.list_names()? {
        let Some(text) = name.to_str() else { continue };
        if text == STAGED || (is_generation(text) && Some(text) != current.as_deref()) {
            root.remove_all(&name)?;
        }
    }
    Ok(())
}

/// Opens the current generation directory, if there is one.
fn current(root: &OpenDirectory) -> Result<Option<OpenDirectory>, DiskError> {
    match current_name(root)? {
        Some(name) => root.open_directory(OsStr::new(&name)),
        None => Ok(None),
    }
}

/// Returns the name of the current generation. A symlink to anything else counts as none.
fn current_name(root: &OpenDirectory) -> Result<Option<String>, DiskError> {
    let DirectoryEntry::Symlink(target) = root.entry(OsStr::new(DATA))? else { return Ok(None) };
    let name = target.into_os_string().into_string().ok();
    Ok(name.filter(|name| is_generation(name)))
}

/// Returns whether a directory has exactly these files, with the right owners and modes.
fn holds(current: &OpenDirectory, payload: &VolumePayload) -> Result<bool, DiskError> {
    let mut unseen = names_by_folder(payload);
    let mut is_good = |folder: &OpenDirectory, path: &str| match unseen.remove(path) {
        None => Ok(true),
        Some(names) => Ok(payload.folder_access().is_satisfied_by(&folder.access()?)
            && folder.list_names()?.iter().map(OsString::as_os_str).eq(names)),
    };
    if !is_good(current, "")? {
        return Ok(false);
    }
    for (path, file) in payload.files() {
        let folder = open_parent(current, path, |above, name, path| match above.open_directory(name)? {
            Some(folder) if is_good(&folder, path)? => Ok(Some(folder)),
            Some(_) | None => Ok(None),
        })?;
        let Some(folder) = folder else { return Ok(false) };
        let found = folder.read(name_of(path.as_str()), file.bytes.len().saturating_add(1))?;
        let is_same = |found: FileContents| {
            found.bytes == file.bytes && payload.access(file).is_satisfied_by(&found.access)
        };
        if !found.is_some_and(is_same) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn names_by_folder(payload: &VolumePayload) -> BTreeMap<&str, BTreeSet<&OsStr>> {
    let mut names = BTreeMap::from([("", BTreeSet::new())]);
    for (path, _) in payload.files() {
        for path in path.folders().chain([path.as_str()]) {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            names.entry(above).or_default().insert(OsStr::new(name));
        }
    }
    names
}

/// Opens the parent directory of a file. `step` opens each directory on the path from its parent,
/// name and path; if it returns `None`, so does this function.
fn open_parent<'path>(
    top: &OpenDirectory,
    path: &'path VolumePath,
    mut step: impl FnMut(&OpenDirectory, &OsStr, &'path str) -> Result<Option<OpenDirectory>, DiskError>,
) -> Result<Option<OpenDirectory>, DiskError> {
    let mut at = top.open_directory(OsStr::new("."))?;
    for path in path.folders() {
        let Some(above) = at else { return Ok(None) };
        at = step(&above, name_of(path), path)?;
    }
    Ok(at)
}

/// Calls `call` for every non-directory below a directory, with its parent.
fn visit(
    top: &OpenDirectory,
    mut call: impl FnMut(&OpenDirectory, VolumePath) -> Result<(), DiskError>,
) -> Result<(), DiskError> {
    let mut folders = vec![PathBuf::new()];
    while let Some(path) = folders.pop() {
        let Some(folder) = top.descend(&path)? else { continue };
        for name in folder.list_names()? {
            let path = path.join(&name);
            if folder.entry(&name)? == DirectoryEntry::Directory {
                folders.push(path);
            } else if let Some(Ok(path)) = path.to_str().map(VolumePath::parse) {
                call(&folder, path)?;
            }
        }
    }
    Ok(())
}

fn removed_error(path: &VolumePath) -> DiskError {
    let (operation, path) = (DiskOperation::Read, path.as_path().to_owned());
    DiskError { operation, path, source: ErrorKind::NotFound.into() }
}

/// Returns the last element of a path.
fn name_of(path: &str) -> &OsStr {
    OsStr::new(path.rsplit('/').next().unwrap_or(path))
}

fn tops(payload: &VolumePayload) -> BTreeSet<&str> {
    payload.files().map(|(path, _)| path.first_element()).collect()
}

/// Beginning of the name of a generation directory.
const GENERATION: &[BorrowedFormatItem<'_>] =
    format_description!("..[year]_[month]_[day]_[hour]_[minute]_[second].");

/// Returns the name of a new generation directory, in kubelet's format.
fn generation(now: OffsetDateTime) -> String {
    let time = now.to_offset(time::UtcOffset::UTC).format(GENERATION).unwrap_or_default();
    format!("{time}{}", rand::random::<u32>())
}

/// Returns when a generation directory was created, from its name.
fn creation_time(name: &str) -> Option<OffsetDateTime> {
    let (time, _) = name.split_at_checked(SHAPE.len())?;
    PrimitiveDateTime::parse(time, GENERATION).ok().map(PrimitiveDateTime::assume_utc)
}

/// Beginning of the name of a generation directory, with digits as zeros.
const SHAPE: &str = "..0000_00_00_00_00_00.";

/// Returns whether a name is that of a generation directory.
fn is_generation(name: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((time, number)) = name.split_at_checked(SHAPE.len()) else { return false };
    let same = time.bytes().zip(SHAPE.bytes()).all(|(byte, pattern)| match pattern {
        b'0' => byte.is_ascii_digit(),
        _ => byte == pattern,
    });
    same && !number.is_empty() && digits(number)
}
