//! The files of a volume.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Bound;

use aws_lc_rs::digest::{Context, SHA256};
use zeroize::Zeroizing;

use super::path::VolumePath;
use super::trust_anchors::Digest;
use windlass_runtime::durable::FileAccess;

/// Mode bits added for the volume's group: read access to every file.
const GROUP_READS: u32 = 0o440;
/// Mode of directories; with a group, the setgid bit is added so that new files inherit it.
const FOLDER: u32 = 0o755;
const GROUP_FOLDER: u32 = 0o2755;

/// One file. It may contain a key, so it is wiped on drop and has no debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct PayloadFile {
    /// The contents of the file; wiped when dropped.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Permission bits, before those added for the group.
    pub mode: u32,
    /// User ID that owns the file; `None` leaves it to the system.
    pub owner: Option<u32>,
}

/// All files of a volume, without conflicting paths.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct VolumePayload {
    files: BTreeMap<VolumePath, PayloadFile>,
    group: Option<u32>,
}

/// Two files have conflicting paths. Displayed, it is the API's message about the pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("conflicting duplicate paths: {0}")]
pub struct PathConflict(pub VolumePath);

impl PayloadFile {
    /// Creates a file without an explicit owner.
    pub fn new(bytes: impl Into<Vec<u8>>, mode: u32) -> Self {
        Self { bytes: Zeroizing::new(bytes.into()), mode, owner: None }
    }
}

impl VolumePayload {
    /// Creates an empty payload whose files will belong to this group.
    pub fn new(group: Option<u32>) -> Self {
        Self { files: BTreeMap::new(), group }
    }

    /// Adds a file. Fails if a file or directory has its path, or a file is in place of a parent
    /// directory.
    pub fn add(&mut self, path: VolumePath, file: PayloadFile) -> Result<(), PathConflict> {
        let is_taken = |folder: &str| self.files.keys().any(|taken| taken.as_str() == folder);
        if path.folders().any(is_taken) || self.has_below(&path) {
            return Err(PathConflict(path));
        }
        match self.files.entry(path) {
            Entry::Occupied(taken) => Err(PathConflict(taken.key().clone())),
            Entry::Vacant(free) => {
                free.insert(file);
                Ok(())
            }
        }
    }

    /// Returns all files with their paths, sorted by path.
    pub fn files(&self) -> impl ExactSizeIterator<Item = (&VolumePath, &PayloadFile)> {
        self.files.iter()
    }

    /// Returns the file at a path.
    pub fn get(&self, path: &VolumePath) -> Option<&PayloadFile> {
        self.files.get(path)
    }

    /// Returns the group that the files belong to.
    pub fn group(&self) -> Option<u32> {
        self.group
    }

    /// Returns the owner, group and mode of a file.
    pub fn access(&self, file: &PayloadFile) -> FileAccess {
        let more = if self.group.is_some() { GROUP_READS } else { 0 };
        FileAccess { mode: file.mode | more, owner: file.owner, group: self.group }
    }

    /// Returns the owner, group and mode of directories.
    pub fn folder_access(&self) -> FileAccess {
        let mode = if self.group.is_some() { GROUP_FOLDER } else { FOLDER };
        FileAccess { mode, owner: None, group: self.group }
    }

    /// Returns a digest over the paths, owners, modes and contents.
    pub fn digest(&self) -> Digest {
        let mut context = Context::new(&SHA256);
        let number = |number: Option<u32>| u64::from(number.unwrap_or(u32::MAX)).to_be_bytes();
        context.update(&number(self.group));
        for (path, file) in &self.files {
            let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes();
            context.update(&length(path.as_str().as_bytes()));
            context.update(path.as_str().as_bytes());
            context.update(&number(Some(file.mode)));
            context.update(&number(file.owner));
            context.update(&length(&file.bytes));
            context.update(&file.bytes);
        }
        let mut all = Digest::default();
        all.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
        all
    }

    /// Returns whether the payload has a file below this path.
    pub fn has_below(&self, path: &VolumePath) -> bool {
        let inside = |other: &VolumePath| {
            other.as_str().strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        // Only names with the same prefix sort between a directory and its content.
        let after = (Bound::Excluded(path), Bound::Unbounded);
        let similar = self.files.range::<VolumePath, _>(after).map(|(other, _)| other);
        similar.take_while(|other| other.as_str().starts_with(path.as_str())).any(inside)
    }
}

/// Shows paths, modes and lengths, never contents.
impl fmt::Debug for VolumePayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (path, file) in &self.files {
            map.entry(&path.as_str(), file);
        }
        map.finish()
    }
}

impl fmt::Debug for PayloadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, mode {:04o}", self.bytes.len(), self.mode)?;
        if let Some(owner) = self.owner {
            write!(f, ", of user {owner}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> VolumePath {
        VolumePath::parse(text).unwrap()
    }

    #[test]
    fn conflicting_files_are_rejected() {
        let cases: [(&[&str], &str, bool); 8] = [
            (&["a"], "b", true),
            (&["a"], "a", false),
            (&["a"], "a/b", false),
            (&["a/b"], "a", false),
            (&["a/b/c"], "a", false),
            (&["a-b", "a.b/c"], "a", true),
            (&["a/b"], "a/c", true),
            (&["a-b", "a/c"], "a", false),
        ];
        for (taken, next, good) in cases {
            let mut payload = VolumePayload::default();
            for taken in taken {
                payload.add(path(taken), PayloadFile::new("", 0o644)).unwrap();
            }
            let added = payload.add(path(next), PayloadFile::new("", 0o644));
            assert_eq!(added.is_ok(), good, "{taken:?} and {next}");
        }
    }

    #[test]
    fn nothing_shows_what_is_in_a_file() {
        let mut payload = VolumePayload::default();
        payload.add(path("key"), PayloadFile::new("secret", 0o600)).unwrap();
        assert_eq!(format!("{payload:?}"), "{\"key\": 6 bytes, mode 0600}");
    }

    #[test]
    fn a_digest_distinguishes_files() {
        let payload = |group, name: &str, bytes: &str, mode, owner| {
            let mut payload = VolumePayload::new(group);
            payload.add(path(name), PayloadFile { owner, ..PayloadFile::new(bytes, mode) }).unwrap();
            payload
        };
        let all = [
            VolumePayload::new(None),
            VolumePayload::new(Some(1)),
            payload(None, "a", "b", 0o644, None),
            payload(Some(1), "a", "b", 0o644, None),
            payload(None, "ab", "", 0o644, None),
            payload(None, "a", "c", 0o644, None),
            payload(None, "a", "b", 0o600, None),
            payload(None, "a", "b", 0o644, Some(0)),
        ];
        let digests = all.iter().map(VolumePayload::digest).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(digests.len(), all.len());
        assert_eq!(all[2].digest(), all[2].clone().digest());
    }

    #[test]
    fn a_group_may_read_everything() {
        let payload = VolumePayload::new(Some(7));
        let access = payload.access(&PayloadFile { owner: Some(5), ..PayloadFile::new("", 0o600) });
        assert_eq!(access, FileAccess { mode: 0o640, owner: Some(5), group: Some(7) });
        let access = payload.folder_access();
        assert_eq!(access, FileAccess { mode: 0o2755, owner: None, group: Some(7) });
        let access = VolumePayload::new(None).access(&PayloadFile::new("", 0o400));
        assert_eq!(access, FileAccess { mode: 0o400, owner: None, group: None });
    }
}
