//! Which symlinks are followed. Tests that need another user run only as root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::Path;

use super::*;

const OTHER: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn change_owner(path: &Path) {
    lchown(path, Some(OTHER), Some(OTHER)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Resolves a path in both ways, which must agree.
fn find_inode(path: &Path) -> Result<u64, String> {
    let inode = |found: OwnedFd| stat(&found, None).map(|facts| facts.st_ino);
    let quick = open_directory_path(path).and_then(inode).map_err(|error| error.to_string());
    let walked =
        PathResolver::new(path).and_then(|walk| walk.resolve(|_, _| Err(ErrorKind::NotFound.into())));
    let walked = walked.and_then(inode).map_err(|error| error.to_string());
    if let (Ok(quick), Ok(walked)) = (&quick, &walked) {
        assert_eq!(quick, walked, "{}", path.display());
    }
    assert_eq!(quick.is_ok(), walked.is_ok(), "{}: {quick:?} {walked:?}", path.display());
    walked
}

fn inode(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
}

#[test]
fn own_symlinks_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(dir.path()).unwrap();
    fs::create_dir_all(base.join("a/b")).unwrap();
    symlink("a", base.join("relative")).unwrap();
    symlink(base.join("a"), base.join("absolute")).unwrap();
    symlink("../relative/b", base.join("a/up")).unwrap();
    let wanted = inode(&base.join("a/b"));
    for path in ["a/b", "relative/b", "absolute/b", "a/up", "a/./b/../b", "relative/../a/b"] {
        assert_eq!(find_inode(&base.join(path)), Ok(wanted), "{path}");
    }
    symlink("loop", base.join("loop")).unwrap();
    fs::write(base.join("file"), "").unwrap();
    for path in ["loop", "file", "file/b", "nothing", "nothing/b"] {
        find_inode(&base.join(path)).unwrap_err();
    }
    assert_eq!(find_untrusted_directory(&base.join("relative/b")).unwrap(), None);
    assert_eq!(find_inode(Path::new("/..")), Ok(inode(Path::new("/"))));
    assert_eq!(find_inode(Path::new("")), Ok(inode(Path::new("."))));
    assert_eq!(find_inode(Path::new("..")), Ok(inode(Path::new(".."))));
}

#[test]
fn symlinks_of_others_and_below_their_directories_are_refused() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(dir.path()).unwrap();
    fs::create_dir_all(base.join("home/sub")).unwrap();
    fs::create_dir(base.join("secret")).unwrap();
    symlink(base.join("secret"), base.join("theirs")).unwrap();
    change_owner(&base.join("theirs"));
    // Owned by root, but the directory's owner may have moved it here.
    symlink(base.join("secret"), base.join("home/ours")).unwrap();
    symlink(base.join("secret"), base.join("home/sub/ours")).unwrap();
    change_owner(&base.join("home"));
    for path in ["theirs", "home/ours", "home/sub/ours"] {
        let error = find_inode(&base.join(path)).unwrap_err();
        assert!(error.starts_with("refusing to follow the symlink"), "{error}");
        create_directory(&base.join(path).join("new"), 0o755).unwrap_err();
    }
    assert!(fs::read_dir(base.join("secret")).unwrap().next().is_none());
    // Another user's directories are entered, and new directories are created inside them.
    create_directory(&base.join("home/sub/x/y"), 0o750).unwrap();
    assert_eq!((mode(&base.join("home/sub/x")), mode(&base.join("home/sub/x/y"))), (0o750, 0o750));
    let found = find_untrusted_directory(&base.join("home/sub")).unwrap().unwrap();
    assert_eq!((found.directory, found.owner), (base.join("home"), OTHER));
}

#[test]
fn world_writable_directories_are_trusted_with_the_sticky_bit_only() {
    let dir = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(dir.path()).unwrap();
    let open = base.join("open");
    fs::create_dir(&open).unwrap();
    symlink(&base, open.join("link")).unwrap();
    for (mode, is_trusted) in [(0o1777, true), (0o777, false), (0o775, true), (0o755, true)] {
        fs::set_permissions(&open, Permissions::from_mode(mode)).unwrap();
        assert_eq!(find_inode(&open.join("link")).is_ok(), is_trusted, "{mode:o}");
        assert_eq!(find_untrusted_directory(&open).unwrap().is_none(), is_trusted, "{mode:o}");
    }
}

#[test]
fn private_files_of_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    assert_eq!(private::open(&path).unwrap().metadata().unwrap().len(), 0);
    assert_eq!(mode(&path), 0o600);
    fs::write(&path, "kept").unwrap();
    assert_eq!(private::open(&path).unwrap().metadata().unwrap().len(), 4);
    for open in [0o666, 0o644, 0o620] {
        fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
        let error = private::open(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("{open:04o}")), "{error}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    assert_eq!(private::open(&link).unwrap_err().to_string(), "it is a symlink");
    private::open(dir.path()).unwrap_err();
    fs::hard_link(&path, dir.path().join("second")).unwrap();
    assert_eq!(private::open(&path).unwrap_err().to_string(), "it has 2 hard links");
    fs::remove_file(dir.path().join("second")).unwrap();
    if is_root() {
        change_owner(&path);
        let error = private::open(&path).unwrap_err().to_string();
        assert!(error.starts_with("it is owned by user 65534"), "{error}");
        private::open_regular(&path).unwrap();
    }
}
