//! A tmpfs for pod volumes: their keys and tokens should not be on a disk.

use std::ffi::{CStr, CString};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::limits::{POD_VOLUME_INODES, POD_VOLUME_MEMORY};
use crate::volume::writer::GUARDED;

/// File system type of tmpfs in `statfs`.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// State of a directory before a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MountTarget {
    /// Whether it is on a tmpfs already.
    memory: bool,
    /// Whether it has content, which a mount would hide.
    used: bool,
    root: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MountDecision {
    Mount,
    Leave,
}

/// Mounts a tmpfs on an existing directory, if possible and if it hides nothing but these names.
pub fn mount_tmpfs(directory: &Path, but: &[&str]) {
    let ground = MountTarget {
        memory: is_tmpfs(directory),
        used: !is_empty_except(directory, but),
        root: rustix::process::geteuid().is_root(),
    };
    if choose(ground) == MountDecision::Leave {
        return;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match with_options(|options| mount("tmpfs", directory, "tmpfs", flags, options)) {
        Ok(swaps) => {
            tracing::info!(directory = %directory.display(), swaps, "mounted a tmpfs for pod volumes");
        }
        Err(error) => {
            let directory = directory.display();
            tracing::warn!(%directory, %error, "cannot mount a tmpfs; pod volumes are on the disk");
        }
    }
}

/// Unmounts the tmpfs if it contains nothing but these names.
pub fn unmount_tmpfs(directory: &Path, but: &[&str]) {
    if !(is_tmpfs(directory) && is_mounted(directory) && is_empty_except(directory, but)) {
        return;
    }
    if let Err(error) = unmount(directory, UnmountFlags::NOFOLLOW) {
        tracing::debug!(directory = %directory.display(), %error, "cannot unmount the tmpfs of pod volumes");
    }
}

/// Mounts without swap, which Linux supports since 6.4, or else with swap. Returns whether the
/// content may be swapped to disk.
fn with_options(mut mount: impl FnMut(&CStr) -> Result<(), Errno>) -> Result<bool, Errno> {
    let options = |more: &str| {
        let (size, inodes) = (POD_VOLUME_MEMORY, POD_VOLUME_INODES);
        let text = format!("mode={GUARDED:04o},size={size},nr_inodes={inodes}{more}");
        CString::new(text).map_err(|_| Errno::INVAL)
    };
    match mount(&options(",noswap")?) {
        // Also returned for mounts in a user namespace.
        Err(Errno::INVAL) => mount(&options("")?).map(|()| true),
        mounted => mounted.map(|()| false),
    }
}

fn choose(ground: MountTarget) -> MountDecision {
    match ground {
        MountTarget { memory: false, used: false, root: true } => MountDecision::Mount,
        MountTarget { .. } => MountDecision::Leave,
    }
}

/// Returns whether a directory contains nothing but these names; false on errors.
fn is_empty_except(directory: &Path, but: &[&str]) -> bool {
    let Ok(mut entries) = std::fs::read_dir(directory) else { return false };
    entries.all(|entry| {
        entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(|name| but.contains(&name)))
    })
}

fn is_tmpfs(directory: &Path) -> bool {
    // The width of the number differs between platforms.
    statfs(directory).is_ok_and(|facts| i128::from(facts.f_type) == i128::from(TMPFS_MAGIC))
}

/// Returns whether it is on another file system than its parent directory.
fn is_mounted(directory: &Path) -> bool {
    let device = |path: &Path| std::fs::symlink_metadata(path).map(|facts| facts.dev());
    let above = directory.parent().ok_or_else(|| ErrorKind::NotFound.into()).and_then(device);
    match (device(directory), above) {
        (Ok(here), Ok(above)) => here != above,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_hidden_and_nothing_is_mounted_twice() {
        for memory in [false, true] {
            for used in [false, true] {
                for root in [false, true] {
                    let chosen = choose(MountTarget { memory, used, root });
                    let mounts = root && !used && !memory;
                    assert_eq!(chosen == MountDecision::Mount, mounts, "{memory} {used} {root}");
                }
            }
        }
    }

    #[test]
    fn swap_is_left_out_where_the_kernel_can() {
        let attempt = |answers: &[Result<(), Errno>]| {
            let (mut said, mut answers) = (Vec::new(), answers.iter());
            let mounted = with_options(|options| {
                said.push(options.to_str().unwrap().to_owned());
                *answers.next().unwrap()
            });
            assert!(said[0].ends_with(",noswap"), "{said:?}");
            assert!(said.iter().all(|one| one.starts_with("mode=0750,size=20%,nr_inodes=200k")));
            (mounted, said.len())
        };
        assert_eq!(attempt(&[Ok(())]), (Ok(false), 1));
        assert_eq!(attempt(&[Err(Errno::INVAL), Ok(())]), (Ok(true), 2));
        assert_eq!(attempt(&[Err(Errno::INVAL), Err(Errno::PERM)]), (Err(Errno::PERM), 2));
        assert_eq!(attempt(&[Err(Errno::PERM)]), (Err(Errno::PERM), 1));
    }

    /// Returns the options of the mount on a directory, as the kernel shows them.
    fn mounted(directory: &Path) -> String {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let place = directory.to_str().unwrap();
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(place));
        line.unwrap().split(' ').nth(3).unwrap().to_owned()
    }

    #[test]
    fn root_mounts_tmpfs() {
        let dir = tempfile::tempdir().unwrap();
        let [probe, place] = ["probe", "place"].map(|name| dir.path().join(name));
        std::fs::create_dir(&probe).unwrap();
        std::fs::create_dir(&place).unwrap();
        let probed = mount("tmpfs", &probe, "tmpfs", MountFlags::empty(), None);
        if probed.is_ok() {
            unmount(&probe, UnmountFlags::empty()).unwrap();
        }
        let was_memory = is_tmpfs(&place);
        std::fs::write(place.join("mark"), "").unwrap();
        mount_tmpfs(&place, &["mark"]);
        assert_eq!(is_mounted(&place), probed.is_ok() && !was_memory);
        if is_mounted(&place) {
            let options = mounted(&place);
            let has = |name: &str| options.split(',').any(|one| one.starts_with(name));
            assert!(has("size=") && has("nr_inodes=") && has("mode=750"), "{options}");
        }
        std::fs::write(place.join("other"), "").unwrap();
        unmount_tmpfs(&place, &["mark"]);
        assert!(place.join("other").exists(), "it was in use");
        std::fs::remove_file(place.join("other")).unwrap();
        unmount_tmpfs(&place, &["mark"]);
        assert!(!is_mounted(&place));
        // A directory with content is not hidden by a mount.
        std::fs::write(place.join("other"), "").unwrap();
        mount_tmpfs(&place, &["mark"]);
        assert!(place.join("other").exists());
    }

    #[test]
    fn mounted_directories_are_detected() {
        assert!(is_mounted(Path::new("/proc")));
        assert!(!is_tmpfs(Path::new("/proc")));
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        assert!(!is_mounted(&inner));
        // A mount that is not ours is not unmounted.
        unmount_tmpfs(&inner, &[]);
        assert!(inner.exists());
    }
}
