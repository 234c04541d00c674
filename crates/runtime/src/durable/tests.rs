use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Mutex;

use tempfile::TempDir;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// A file system whose n-th operation that changes something fails, and all after it.
fn failing_from(n: usize) -> (FileSystem, Arc<Mutex<usize>>) {
    let count = Arc::new(Mutex::new(0));
    let counted = count.clone();
    let hook = move |operation: DiskOperation, _: &Path| {
        let mut count = counted.lock().unwrap();
        *count += usize::from(!operation.is_read_only());
        if *count > n { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    };
    (FileSystem::with_hook(Arc::new(hook)), count)
}

fn names(dir: &TempDir) -> Vec<String> {
    FileSystem::default().list_names(dir.path()).unwrap()
}

#[test]
fn a_file_is_replaced_atomically_whatever_fails() {
    for n in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        FileSystem::default().replace(&path, b"old", PRIVATE_MODE).unwrap();
        let (files, count) = failing_from(n);
        let replaced = files.replace(&path, b"new content", PUBLIC_MODE);
        let content = fs::read(&path).unwrap();
        match &replaced {
            Ok(()) => assert_eq!(content, b"new content"),
            Err(error) => {
                assert!(error.is_full(), "{error}");
                assert!(error.to_string().starts_with("cannot "), "{error}");
                assert!(content == b"old" || content == b"new content", "{content:?}");
            }
        }
        assert!(names(&dir).iter().all(|name| name == "key" || is_staged(name)));
        if replaced.is_ok() {
            assert_eq!((*count.lock().unwrap(), mode(&path)), (5, PUBLIC_MODE));
            return;
        }
    }
}

#[test]
fn a_new_file_never_replaces_another() {
    let dir = tempfile::tempdir().unwrap();
    let (path, files) = (dir.path().join("ca.key"), FileSystem::default());
    files.create_new(&path, b"first", PRIVATE_MODE).unwrap();
    let error = files.create_new(&path, b"second", PRIVATE_MODE).unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!((names(&dir), mode(&path)), (vec!["ca.key".to_owned()], PRIVATE_MODE));
}

#[test]
fn files_of_a_batch_are_written_or_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let batch = |text: &str| {
        let key = Zeroizing::new(text.as_bytes().to_vec());
        [NewFile::private(path("a.key"), key), NewFile::public(path("a.crt"), text)]
    };
    FileSystem::default().write_all(&batch("one")).unwrap();
    assert_eq!((mode(&path("a.key")), mode(&path("a.crt"))), (PRIVATE_MODE, PUBLIC_MODE));
    // Two creations, two writes and two syncs come before the first file appears.
    for n in 0..6 {
        failing_from(n).0.write_all(&batch("two")).unwrap_err();
        assert_eq!(fs::read(path("a.key")).unwrap(), b"one", "{n}");
        assert_eq!(fs::read(path("a.crt")).unwrap(), b"one", "{n}");
    }
    FileSystem::default().write_all(&batch("three")).unwrap();
    assert_eq!(fs::read(path("a.crt")).unwrap(), b"three");
    assert_eq!(names(&dir), ["a.crt", "a.key"]);
}

#[test]
fn symlinks_are_replaced_and_inspected() {
    let dir = tempfile::tempdir().unwrap();
    let (path, files) = (dir.path().join("current"), FileSystem::default());
    assert_eq!(files.entry(&path).unwrap(), PathEntry::Nothing);
    for target in ["a", "b"] {
        files.replace_symlink(&path, Path::new(target)).unwrap();
        assert_eq!(files.entry(&path).unwrap(), PathEntry::Symlink(target.into()));
    }
    files.remove(&path).unwrap();
    files.remove(&path).unwrap();
    assert_eq!(files.read(&path, 10).unwrap(), None);
    files.replace(&path, b"0123456789", PRIVATE_MODE).unwrap();
    assert_eq!(files.read(&path, 4).unwrap().unwrap().as_slice(), b"0123");
    files.overwrite(&path, b"short").unwrap();
    assert_eq!(files.read(&path, 10).unwrap().unwrap().as_slice(), b"short");
    assert_eq!(files.entry(&path).unwrap(), PathEntry::Other);
}

#[test]
fn an_open_directory_follows_no_symlink() {
    let dir = tempfile::tempdir().unwrap();
    let files = FileSystem::default();
    let root = files.create_directories(&dir.path().join("a/b"), 0o750).unwrap();
    assert_eq!(mode(&dir.path().join("a")), 0o750);
    let access = FileAccess { mode: 0o640, owner: None, group: None };
    let name = OsStr::new("file");
    root.write(name, b"text", &access).unwrap();
    assert!(root.write(name, b"other", &access).is_err(), "the name is used");
    let contents = root.read(name, 100).unwrap().unwrap();
    assert_eq!(contents.bytes.as_slice(), b"text");
    assert!(access.is_satisfied_by(&contents.access));
    root.symlink(OsStr::new("link"), Path::new("file")).unwrap();
    assert!(root.read(OsStr::new("link"), 100).unwrap().is_none());
    assert_eq!(root.entry(OsStr::new("link")).unwrap(), DirectoryEntry::Symlink("file".into()));
    root.symlink(OsStr::new("up"), Path::new("..")).unwrap();
    assert!(root.open_directory(OsStr::new("up")).unwrap().is_none());
    for name in ["../x", "a/b", "", ".."] {
        let error = root.write(OsStr::new(name), b"", &access).unwrap_err();
        assert_eq!(error.source.kind(), ErrorKind::InvalidInput, "{name}");
    }
    root.rename(name, OsStr::new("renamed")).unwrap();
    assert_eq!(root.list_names().unwrap(), ["link", "renamed", "up"]);
}

#[test]
fn trees_are_removed_without_leaving_them() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("tree/a/b/c")).unwrap();
    fs::write(dir.path().join("kept"), "").unwrap();
    fs::write(dir.path().join("tree/a/b/file"), "").unwrap();
    std::os::unix::fs::symlink("../../kept", dir.path().join("tree/a/link")).unwrap();
    let root = FileSystem::default().open_directory(dir.path()).unwrap().unwrap();
    assert!(root.descend(Path::new("tree/a/b")).unwrap().is_some());
    root.remove_all(OsStr::new("tree")).unwrap();
    root.remove_all(OsStr::new("tree")).unwrap();
    assert_eq!(names(&dir), ["kept"]);
    assert_eq!(root.entry(OsStr::new("tree")).unwrap(), DirectoryEntry::Nothing);
}
