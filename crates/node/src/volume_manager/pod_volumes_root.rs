//! The directory of pod volumes, and the check that it belongs to the agent.
//!
//! UIDs and volume names come from the server and become file names, so each must be a single path
//! element. The agent does not remove what it did not create: it may have been pointed at a
//! directory of another program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::tmpfs;
use crate::volume::writer::{GUARDED, VolumeWriter};
use windlass_runtime::durable::{DiskError, FileAccess, FileSystem, PRIVATE_MODE};

/// Name of the directory of all pods.
const PODS: &str = "pods";
/// Marker file of directories that the agent created.
const MARK: &str = ".windlass";
/// Longest name of a directory, in bytes.
const MAX_NAME: usize = 255;

pub struct PodVolumesRoot {
    pods: PathBuf,
    files: FileSystem,
    /// Whether to mount a tmpfs, where possible.
    memory: bool,
    prepared: Mutex<bool>,
}

/// Why the directory of pod volumes cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PodVolumesRootError {
    /// A disk operation failed, for this reason.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The directory contains files of another program; the agent does not touch it.
    #[error("{} contains files of another program; choose another --root-dir", .0.display())]
    Foreign(PathBuf),
}

/// Returns whether a text is a single path element other than `.` and `..`.
pub fn is_path_element(name: &str) -> bool {
    let is_plain = !name.is_empty() && !name.starts_with('.') && name.len() <= MAX_NAME;
    is_plain && !name.contains(['/', '\0'])
}

/// Unmounts the tmpfs of pod volumes if it is empty; called at shutdown.
pub fn release(root_dir: &Path) {
    tmpfs::unmount_tmpfs(&root_dir.join(PODS), &[MARK]);
}

impl PodVolumesRoot {
    pub fn new(root_dir: &Path, files: FileSystem, memory: bool) -> Self {
        Self { pods: root_dir.join(PODS), files, memory, prepared: Mutex::new(false) }
    }

    /// Returns the writer of a volume; `None` if a name is invalid.
    pub fn volume(&self, uid: &str, name: &str) -> Option<VolumeWriter> {
        let is_good = is_path_element(uid) && is_path_element(name);
        let path = || Path::new(uid).join("volumes/kubernetes.io~projected").join(name);
        is_good.then(|| VolumeWriter::below(&self.pods, &path(), self.files.clone()))
    }

    /// Returns the directory of a pod's certificate state. The UID must be a valid path element.
    pub fn certificates(&self, uid: &str) -> PathBuf {
        self.pods.join(uid).join("certificates")
    }

    /// Creates the directory, as a tmpfs where wanted and possible. Later calls are cheap.
    pub fn prepare(&self) -> Result<(), PodVolumesRootError> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if !*prepared {
            self.files.create_directories(&self.pods, GUARDED)?;
            if !self.is_owned_by_agent()? {
                return Err(PodVolumesRootError::Foreign(self.pods.clone()));
            }
            if self.memory {
                tmpfs::mount_tmpfs(&self.pods, &[MARK]);
            }
            self.restrict_permissions()?;
            let mark = self.pods.join(MARK);
            if !mark.exists() {
                self.files.replace(&mark, b"", PRIVATE_MODE)?;
            }
            *prepared = true;
        }
        Ok(())
    }

    /// Removes the permissions of other users, which earlier versions granted.
    fn restrict_permissions(&self) -> Result<(), DiskError> {
        let Some(pods) = self.files.open_directory(&self.pods)? else { return Ok(()) };
        let there = pods.access()?;
        let mode = there.mode & (GUARDED | 0o7000);
        if mode == there.mode {
            return Ok(());
        }
        let directory = self.pods.display();
        let (from, to) = (format!("{:04o}", there.mode), format!("{mode:04o}"));
        match pods.set_access(&FileAccess { mode, owner: None, group: None }) {
            Ok(()) => tracing::info!(%directory, from, to, "restricted access to pod volumes"),
            // The directory belongs to another user, who gave us access.
            Err(error) => tracing::warn!(%error, "cannot restrict access to pod volumes"),
        }
        Ok(())
    }

    /// Returns the UIDs of pods that have a directory.
    pub fn uids(&self) -> Result<Vec<String>, DiskError> {
        if !self.is_owned_by_agent()? {
            return Ok(Vec::new());
        }
        let mut names = self.files.list_names(&self.pods)?;
        names.retain(|name| is_path_element(name));
        Ok(names)
    }

    pub fn remove(&self, uid: &str) -> Result<(), DiskError> {
        if !is_path_element(uid) || !self.is_owned_by_agent()? {
            return Ok(());
        }
        let Some(pods) = self.files.open_directory(&self.pods)? else { return Ok(()) };
        pods.remove_all(OsStr::new(uid))?;
        pods.sync()
    }

    /// Returns whether this agent, or an earlier one, created the directory. An empty one may be
    /// taken over.
    fn is_owned_by_agent(&self) -> Result<bool, DiskError> {
        let names = self.files.list_names(&self.pods)?;
        Ok(names.is_empty() || names.iter().any(|name| name == MARK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::START;
    use crate::volume::payload::VolumePayload;

    #[test]
    fn only_names_become_names() {
        let long = "x".repeat(256);
        for bad in ["", ".", "..", "...", ".x", "a/b", "/", "/etc", "../x", "a\0b", &long] {
            assert!(!is_path_element(bad), "{bad:?}");
        }
        for good in ["a", "a..b", "a b", "0e9e8f4c-6f0f-4b0e-a3f5-6a1d2f9f8f10", &long[1..]] {
            assert!(is_path_element(good), "{good:?}");
        }
        let place = PodVolumesRoot::new(Path::new("/r"), FileSystem::default(), false);
        let expected = Path::new("/r/pods/u/volumes/kubernetes.io~projected/v");
        let volume = place.volume("u", "v").unwrap();
        assert_eq!(volume.directory(), expected);
        assert!(place.volume("u", "..").is_none());
        assert!(place.volume("../../etc", "v").is_none());
    }

    #[test]
    fn foreign_directories_are_preserved() {
        let dir = tempfile::tempdir().unwrap();
        let place = PodVolumesRoot::new(dir.path(), FileSystem::default(), false);
        assert_eq!(place.uids().unwrap(), [""; 0]);
        let theirs = dir.path().join("pods/u1/volumes");
        std::fs::create_dir_all(&theirs).unwrap();
        assert_eq!(place.uids().unwrap(), [""; 0]);
        place.remove("u1").unwrap();
        assert!(theirs.exists());
        assert!(matches!(place.prepare(), Err(PodVolumesRootError::Foreign(_))));
        // An empty directory is taken over, and its later content is ours.
        std::fs::remove_dir_all(dir.path().join("pods/u1")).unwrap();
        place.prepare().unwrap();
        std::fs::create_dir_all(&theirs).unwrap();
        let again = PodVolumesRoot::new(dir.path(), FileSystem::default(), false);
        again.prepare().unwrap();
        assert_eq!(again.uids().unwrap(), ["u1"]);
        again.remove("u1").unwrap();
        assert!(!theirs.exists());
        again.remove("u1").unwrap();
        again.remove("../x").unwrap();
    }

    #[test]
    fn other_users_have_no_access_to_pod_volumes() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |name: &str| {
            let facts = dir.path().join(name).metadata().unwrap();
            std::os::unix::fs::PermissionsExt::mode(&facts.permissions()) & 0o777
        };
        let place = PodVolumesRoot::new(dir.path(), FileSystem::default(), false);
        place.prepare().unwrap();
        assert_eq!(mode("pods"), 0o750);
        let volume = place.volume("u1", "tls").unwrap();
        volume.write(&VolumePayload::default(), START).unwrap();
        for above in ["pods/u1", "pods/u1/volumes", "pods/u1/volumes/kubernetes.io~projected"] {
            assert_eq!(mode(above), 0o750, "{above}");
        }
        // Containers have it mounted, and run as any user.
        assert_eq!(mode("pods/u1/volumes/kubernetes.io~projected/tls"), 0o755);
        // The mode that an earlier version left.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path().join("pods"), open).unwrap();
        PodVolumesRoot::new(dir.path(), FileSystem::default(), false).prepare().unwrap();
        assert_eq!(mode("pods"), 0o750);
        // A directory of another program is not touched.
        let other = tempfile::tempdir().unwrap();
        let theirs = other.path().join("pods");
        std::fs::create_dir_all(theirs.join("u1")).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&theirs, open).unwrap();
        PodVolumesRoot::new(other.path(), FileSystem::default(), true).prepare().unwrap_err();
        let facts = theirs.metadata().unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&facts.permissions()) & 0o777, 0o755);
    }

    #[test]
    fn memory_is_given_back_when_nothing_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let device = || std::os::unix::fs::MetadataExt::dev(&dir.path().join("pods").metadata().unwrap());
        let place = PodVolumesRoot::new(dir.path(), FileSystem::default(), true);
        place.prepare().unwrap();
        let covered = device();
        let inside = dir.path().join("pods/u1/volumes");
        std::fs::create_dir_all(&inside).unwrap();
        // A restarted agent finds the mount as it is.
        let again = PodVolumesRoot::new(dir.path(), FileSystem::default(), true);
        again.prepare().unwrap();
        assert_eq!(again.uids().unwrap(), ["u1"]);
        release(dir.path());
        assert!(inside.exists());
        assert_eq!(device(), covered);
        again.remove("u1").unwrap();
        release(dir.path());
        let bare = std::os::unix::fs::MetadataExt::dev(&dir.path().metadata().unwrap());
        assert_eq!(device(), bare);
        // Without mount permission, or on a tmpfs, the files were in place all the time.
        PodVolumesRoot::new(dir.path(), FileSystem::default(), false).prepare().unwrap();
    }
}
