//! Puts the files of a volume on the disk, all at once: who reads them sees all of the old ones or
//! all of the new ones, whenever this process ends.
//!
//! The layout is kubelet's:
//!
//! - `..2026_03_01_12_00_00.123`: a directory with the files. Never changed once it is complete.
//! - `..data`: a link to it, replaced by a rename. This is the moment at which everything changes.
//! - `ca.pem` → `..data/ca.pem`, for every name at the top: what users of the volume open. Made before
//!   that moment if it is new and removed after it if it is old, so that at that moment the names are
//!   right, too.
//! - `..data_tmp`: a link that is about to get another name.
//!
//! Everything is done below the directory that was opened once, and no link is followed. On the way to
//! that directory links are followed that no other user can have put there (`windlass_safe_path`). Files and
//! directories that are not of these kinds are left alone, since a host's projection may share its
//! directory with other files. One process at a time may write to a volume; nobody else may write to
//! it, and whoever does so damages only the volume, until the next write.

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

use time::OffsetDateTime;
use time::macros::format_description;

use super::path::VolumePath;
use super::payload::{PayloadFile, VolumePayload};
use windlass_runtime::durable::{
    DirectoryEntry, DiskError, DiskOperation, FileAccess, FileContents, FileSystem, OpenDirectory,
};

const DATA: &str = "..data";
const STAGED: &str = "..data_tmp";
/// The mode of a volume's own directory: its readers may be any users. What they may read is a matter
/// of the files, and who gets there a matter of the directories above.
const OPEN: u32 = 0o755;
/// The mode of the directories above the volumes of pods, as kubelet's: containers get a volume
/// mounted, and users of the machine have no business there.
pub const GUARDED: u32 = 0o750;
/// More than any object that the API stores can hold, even as text.
const MAX_FILE: usize = 8 << 20;

/// The directory of a volume.
#[derive(Clone)]
pub struct VolumeWriter {
    files: FileSystem,
    /// A directory above it, from which on no link is followed.
    base: Option<PathBuf>,
    directory: PathBuf,
}

/// What a write has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// All of it was there already. No file was touched.
    Unchanged,
    /// The files are new ones.
    Changed,
}

impl VolumeWriter {
    /// A volume in this directory. Nothing is made or read yet.
    pub fn new(directory: &Path, files: FileSystem) -> Self {
        Self { files, base: None, directory: directory.to_owned() }
    }

    /// A volume below this directory, which has to be there. Links between the two are not followed.
    pub fn below(base: &Path, path: &Path, files: FileSystem) -> Self {
        Self { files, base: Some(base.to_owned()), directory: base.join(path) }
    }

    /// Returns the directory of the volume, which need not exist.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes these the files of the volume, and tidies up after a process that was killed. After an
    /// error it has the files from before. It is on the disk when this returns.
    pub fn write(
        &self,
        payload: &VolumePayload,
        now: OffsetDateTime,
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
        if let Err(error) = replace(&root, payload, now) {
            // It may be what fills the disk. Where it cannot be removed, the next write does so.
            let _ = sweep(&root);
            return Err(error);
        }
        // From here on it is written, whatever happens. What is left over goes next time.
        if let Err(error) = unlink_rest(&root, payload).and_then(|_| sweep(&root)) {
            tracing::warn!(volume = %self.directory.display(), "{error}");
        }
        Ok(WriteOutcome::Changed)
    }

    /// The files of the volume, if it was ever written. Whatever else is there is not looked at.
    pub fn read(&self) -> Result<Option<VolumePayload>, DiskError> {
        let Some(root) = self.open(&self.directory)? else { return Ok(None) };
        let Some(current) = current(&root)? else { return Ok(None) };
        let mut payload = VolumePayload::new(None);
        visit(&current, |folder, path| {
            if let Some(FileContents { bytes, access }) =
                folder.read(name_of(path.as_str()), MAX_FILE)?
            {
                let file = PayloadFile { bytes, mode: access.mode, owner: access.owner };
                // They have different paths: they are on a disk.
                let _ = payload.add(path, file);
            }
            Ok(())
        })?;
        Ok(Some(payload))
    }

    /// Removes the volume with everything in it.
    pub fn remove(&self) -> Result<(), DiskError> {
        let (Some(above), Some(name)) = (self.directory.parent(), self.directory.file_name())
        else {
            return Ok(());
        };
        match self.open(above)? {
            Some(above) => above.remove_all(name).and_then(|()| above.sync()),
            None => Ok(()),
        }
    }

    /// Opens a directory of ours, unless there is none.
    fn open(&self, path: &Path) -> Result<Option<OpenDirectory>, DiskError> {
        match self.steps(path) {
            None => self.files.open_directory(path),
            Some((base, steps)) => match self.files.open_directory(base)? {
                Some(base) => base.descend(steps),
                None => Ok(None),
            },
        }
    }

    /// The directory from which on no link is followed, and the way from there.
    fn steps<'a>(&'a self, path: &'a Path) -> Option<(&'a Path, &'a Path)> {
        let base = self.base.as_deref()?;
        Some((base, path.strip_prefix(base).ok()?))
    }

    /// The open directory of the volume, in which the group may look around.
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

/// Writes everything next to what is there, and then puts it in its place.
fn replace(
    root: &OpenDirectory,
    payload: &VolumePayload,
    now: OffsetDateTime,
) -> Result<(), DiskError> {
    let name = fill(root, payload, now)?;
    root.sync()?;
    link_all(root, payload)?;
    if root.entry(OsStr::new(DATA))? == DirectoryEntry::Directory {
        // Nobody but us has any business with this name, and a link cannot take its place.
        root.remove_all(OsStr::new(DATA))?;
    }
    link(root, OsStr::new(DATA), Path::new(&name))?;
    root.sync()
}

/// Writes everything to a new directory, whose name this returns.
fn fill(
    root: &OpenDirectory,
    payload: &VolumePayload,
    now: OffsetDateTime,
) -> Result<String, DiskError> {
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
    // Only now, when all names are in them.
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

/// Makes the links that users of the volume open. Returns whether there was anything to do.
fn link_all(root: &OpenDirectory, payload: &VolumePayload) -> Result<bool, DiskError> {
    let mut changed = false;
    for name in tops(payload) {
        changed |= link(root, OsStr::new(name), &Path::new(DATA).join(name))?;
    }
    Ok(changed)
}

/// Removes those links of which nothing is left. What somebody else put there stays. Returns whether
/// there was anything to do.
fn unlink_rest(root: &OpenDirectory, payload: &VolumePayload) -> Result<bool, DiskError> {
    let wanted = tops(payload);
    let mut changed = false;
    for name in root.list_names()? {
        let is_wanted = name.to_str().is_some_and(|name| wanted.contains(name));
        if !is_wanted && root.entry(&name)? == DirectoryEntry::Symlink(Path::new(DATA).join(&name))
        {
            root.remove(&name)?;
            changed = true;
        }
    }
    Ok(changed)
}

/// Puts a link in the place of whatever is there, unless it is there already; returns whether it was
/// not. A directory is not replaced: somebody may need what is in it.
fn link(root: &OpenDirectory, name: &OsStr, target: &Path) -> Result<bool, DiskError> {
    if root.entry(name)? == DirectoryEntry::Symlink(target.to_owned()) {
        return Ok(false);
    }
    root.symlink(OsStr::new(STAGED), target)?;
    root.rename(OsStr::new(STAGED), name)?;
    Ok(true)
}

/// Removes what is left of writes that did not come to their end, and of those before the last.
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

/// The directory that is current, if there is one.
fn current(root: &OpenDirectory) -> Result<Option<OpenDirectory>, DiskError> {
    match current_name(root)? {
        Some(name) => root.open_directory(OsStr::new(&name)),
        None => Ok(None),
    }
}

/// Its name. A link that leads anywhere else is as good as none.
fn current_name(root: &OpenDirectory) -> Result<Option<String>, DiskError> {
    let DirectoryEntry::Symlink(target) = root.entry(OsStr::new(DATA))? else { return Ok(None) };
    let name = target.into_os_string().into_string().ok();
    Ok(name.filter(|name| is_generation(name)))
}

/// Whether a directory has these files and nothing else, with the right owners and modes.
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
        let folder =
            open_parent(current, path, |above, name, path| match above.open_directory(name)? {
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

/// Which names each directory has.
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

/// Opens the directory that a file is in. `step` opens each one on the way, from the one above, its
/// name and its path; where it has none, this has none.
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

/// Calls for everything below a directory that is none itself, with the directory that it is in.
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

/// The last element of a path.
fn name_of(path: &str) -> &OsStr {
    OsStr::new(path.rsplit('/').next().unwrap_or(path))
}

fn tops(payload: &VolumePayload) -> BTreeSet<&str> {
    payload.files().map(|(path, _)| path.first_element()).collect()
}

/// A name for a directory, as kubelet's are.
fn generation(now: OffsetDateTime) -> String {
    let format = format_description!("..[year]_[month]_[day]_[hour]_[minute]_[second].");
    let time = now.to_offset(time::UtcOffset::UTC).format(format).unwrap_or_default();
    format!("{time}{}", rand::random::<u32>())
}

/// Whether it is such a name.
fn is_generation(name: &str) -> bool {
    let shape = "..0000_00_00_00_00_00.";
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((time, number)) = name.split_at_checked(shape.len()) else { return false };
    let same = time.bytes().zip(shape.bytes()).all(|(byte, pattern)| match pattern {
        b'0' => byte.is_ascii_digit(),
        _ => byte == pattern,
    });
    same && !number.is_empty() && digits(number)
}
