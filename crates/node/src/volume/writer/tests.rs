//! Tests of the layout of a volume on disk, and of when it changes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tempfile::TempDir;
use time::Duration;

use super::super::path::VolumePath;
use super::super::payload::{PayloadFile, VolumePayload};
use super::{VolumeWriter, WriteOutcome};
use crate::testing::START;
use windlass_runtime::durable::FileSystem;

/// Creates a directory and a volume in it. It is on a tmpfs where possible, like pod volumes; a
/// thousand runs on a disk that really syncs would take minutes.
pub fn volume() -> (TempDir, VolumeWriter) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let writer = VolumeWriter::new(&dir.path().join("volume"), FileSystem::default());
    (dir, writer)
}

/// Returns files that differ only in path and contents.
pub fn payload(files: &[(&str, &str)]) -> VolumePayload {
    let mut payload = VolumePayload::default();
    for (path, contents) in files {
        add(&mut payload, path, PayloadFile::new(*contents, 0o644));
    }
    payload
}

pub fn add(payload: &mut VolumePayload, path: &str, file: PayloadFile) {
    payload.add(VolumePath::parse(path).unwrap(), file).unwrap();
}

/// Returns the visible files of a directory by path. Dangling symlinks are ignored.
pub fn visible(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    collect_visible(directory, "", &mut found);
    found
}

fn collect_visible(directory: &Path, above: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let path = directory.join(&name);
        if above.is_empty() && name.starts_with("..") {
            continue;
        } else if path.is_dir() {
            collect_visible(&path, &format!("{above}{name}/"), found);
        } else if let Ok(contents) = fs::read_to_string(&path) {
            found.insert(format!("{above}{name}"), contents);
        }
    }
}

pub fn expected(payload: &VolumePayload) -> BTreeMap<String, String> {
    let text = |file: &PayloadFile| String::from_utf8(file.bytes.to_vec()).unwrap();
    payload.files().map(|(path, file)| (path.to_string(), text(file))).collect()
}

pub fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names = names.map(|name| name.into_string().unwrap()).collect::<Vec<_>>();
    names.sort();
    names
}

/// Returns what only a rewrite changes: inodes and modification times.
fn traces(directory: &Path) -> BTreeMap<PathBuf, (u64, SystemTime, u32)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let facts = fs::symlink_metadata(&path).unwrap();
            if facts.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path, (facts.ino(), facts.modified().unwrap(), facts.mode()));
        }
    }
    let facts = fs::symlink_metadata(directory).unwrap();
    found.insert(directory.to_owned(), (facts.ino(), facts.modified().unwrap(), facts.mode()));
    found
}

fn mode(path: PathBuf) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn the_layout_is_kubelets() {
    let (_dir, writer) = volume();
    let files = payload(&[("ca.pem", "A"), ("pki/key", "K"), ("pki/sub/chain", "C")]);
    assert_eq!(writer.write(&files, START).unwrap(), WriteOutcome::Changed);

    let directory = writer.directory();
    let names = names(directory);
    let [generation, data, ca, pki] = names.as_slice() else { panic!("{names:?}") };
    assert_eq!([data.as_str(), ca, pki], ["..data", "ca.pem", "pki"]);
    assert!(generation.starts_with("..2026_03_01_12_00_00."), "{generation}");
    let target = |name: &str| fs::read_link(directory.join(name)).unwrap();
    assert_eq!(target("..data"), Path::new(generation));
    assert_eq!(target("ca.pem"), Path::new("..data/ca.pem"));
    assert_eq!(target("pki"), Path::new("..data/pki"));
    assert_eq!(visible(directory), expected(&files));
    for folder in ["", generation, "pki", "pki/sub"] {
        assert_eq!(mode(directory.join(folder)), 0o755, "{folder}");
    }
}

#[test]
fn unchanged_files_are_not_touched() {
    let (_dir, writer) = volume();
    let files = payload(&[("ca.pem", "A"), ("empty", ""), ("pki/key", "K")]);
    writer.write(&files, START).unwrap();
    let before = traces(writer.directory());
    // A day of checks every ten minutes, each by a new process.
    for minutes in (0..24 * 60).step_by(10) {
        let writer = VolumeWriter::new(writer.directory(), FileSystem::default());
        let written = writer.write(&files, START + Duration::minutes(minutes)).unwrap();
        assert_eq!(written, WriteOutcome::Unchanged);
    }
    assert_eq!(traces(writer.directory()), before);
}

#[test]
fn any_difference_is_written() {
    let first = || payload(&[("ca.pem", "A"), ("pki/key", "K")]);
    let with = |path: &str, file: PayloadFile| {
        let mut files = first();
        add(&mut files, path, file);
        files
    };
    let mut strict = VolumePayload::default();
    add(&mut strict, "ca.pem", PayloadFile::new("A", 0o644));
    add(&mut strict, "pki/key", PayloadFile::new("K", 0o600));
    let mut grouped = VolumePayload::new(Some(fs::metadata("/proc/self").unwrap().gid()));
    for (path, file) in first().files() {
        add(&mut grouped, path.as_str(), file.clone());
    }
    let cases = [
        ("other contents", payload(&[("ca.pem", "B"), ("pki/key", "K")])),
        ("longer", payload(&[("ca.pem", "AA"), ("pki/key", "K")])),
        ("nothing in it", payload(&[("ca.pem", ""), ("pki/key", "K")])),
        ("another mode", strict),
        ("a group", grouped),
        ("one more", with("new", PayloadFile::new("N", 0o644))),
        ("one more, further down", with("pki/new/new", PayloadFile::new("N", 0o644))),
        ("one less", payload(&[("ca.pem", "A")])),
        ("another name", payload(&[("ca.pem", "A"), ("pki/key2", "K")])),
        ("a directory for a file", payload(&[("ca.pem/x", "A"), ("pki/key", "K")])),
        ("a file for a directory", payload(&[("ca.pem", "A"), ("pki", "K")])),
        ("none at all", VolumePayload::default()),
    ];
    for (what, second) in cases {
        let (_dir, writer) = volume();
        writer.write(&first(), START).unwrap();
        let before = traces(writer.directory());
        assert_eq!(writer.write(&second, START).unwrap(), WriteOutcome::Changed, "{what}");
        assert_eq!(visible(writer.directory()), expected(&second), "{what}");
        let generations = names(writer.directory());
        let generations = generations.iter().filter(|name| name.starts_with("..2026"));
        assert_eq!(generations.count(), 1, "{what}");
        let tops = super::tops(&second).len();
        assert_eq!(names(writer.directory()).len(), 2 + tops, "{what}");
        // Every file has a new inode, so that watchers of times or files notice.
        for (path, (file, ..)) in traces(&writer.directory().join("..data/")) {
            assert!(!before.values().any(|(old, ..)| *old == file), "{what}: {path:?}");
        }
        assert_eq!(writer.write(&second, START).unwrap(), WriteOutcome::Unchanged, "{what}");
    }
}

#[test]
fn files_have_their_modes_and_owners() {
    let (_dir, writer) = volume();
    let own = fs::metadata("/proc/self").unwrap();
    // Only root can change the owner of files.
    let (user, group) = if own.uid() == 0 { (1234, 5678) } else { (own.uid(), own.gid()) };
    let mut files = VolumePayload::new(Some(group));
    add(&mut files, "a/key", PayloadFile { owner: Some(user), ..PayloadFile::new("K", 0o600) });
    add(&mut files, "ca", PayloadFile::new("A", 0o444));
    writer.write(&files, START).unwrap();
    let facts = |name: &str| {
        let facts = fs::metadata(writer.directory().join(name)).unwrap();
        (facts.mode() & 0o7777, facts.uid(), facts.gid())
    };
    assert_eq!(facts("a/key"), (0o640, user, group));
    assert_eq!(facts("ca"), (0o444, own.uid(), group));
    for folder in ["", "..data", "a"] {
        assert_eq!(facts(folder), (0o2755, own.uid(), group), "{folder}");
    }
    assert_eq!(writer.write(&files, START).unwrap(), WriteOutcome::Unchanged);
    let other = fs::Permissions::from_mode(0o600);
    fs::set_permissions(writer.directory().join("ca"), other).unwrap();
    assert_eq!(writer.write(&files, START).unwrap(), WriteOutcome::Changed);
    assert_eq!(facts("ca"), (0o444, own.uid(), group));

    // Without the group, the files have no explicit owner again.
    let files = payload(&[("a/key", "K"), ("ca", "A")]);
    assert_eq!(writer.write(&files, START).unwrap(), WriteOutcome::Changed);
    assert_eq!((facts("a").0, facts("a/key").0), (0o755, 0o644));
    assert_eq!(writer.write(&files, START).unwrap(), WriteOutcome::Unchanged);
}

#[test]
fn links_are_repaired_and_other_peoples_files_stay() {
    let (_dir, writer) = volume();
    let files = payload(&[("ca.pem", "A"), ("key", "K"), ("old", "O")]);
    writer.write(&files, START).unwrap();
    let directory = writer.directory();
    fs::remove_file(directory.join("ca.pem")).unwrap();
    fs::remove_file(directory.join("key")).unwrap();
    fs::write(directory.join("key"), "in the way").unwrap();
    fs::write(directory.join("mine"), "M").unwrap();
    fs::create_dir(directory.join("..mine")).unwrap();
    std::os::unix::fs::symlink("elsewhere", directory.join("link")).unwrap();
    assert_eq!(writer.write(&files, START).unwrap(), WriteOutcome::Unchanged);
    let mut wanted = expected(&files);
    wanted.insert("mine".to_owned(), "M".to_owned());
    assert_eq!(visible(directory), wanted);

    writer.write(&payload(&[("ca.pem", "A")]), START).unwrap();
    let names = names(directory);
    let shown = names.iter().filter(|name| !name.starts_with("..2026")).collect::<Vec<_>>();
    assert_eq!(shown, ["..data", "..mine", "ca.pem", "link", "mine"]);
}

#[test]
fn leftovers_go_with_the_next_write_even_of_the_same() {
    let (_dir, writer) = volume();
    let files = payload(&[("ca.pem", "A")]);
    writer.write(&files, START).unwrap();
    let directory = writer.directory();
    let orphan = directory.join("..2026_02_28_00_00_00.7");
    fs::create_dir_all(orphan.join("a/b/c")).unwrap();
    fs::write(orphan.join("a/b/half"), "ha").unwrap();
    std::os::unix::fs::symlink("..gone", directory.join("..data_tmp")).unwrap();
    std::os::unix::fs::symlink("..data/gone", directory.join("gone")).unwrap();
    assert_eq!(writer.write(&files, START).unwrap(), WriteOutcome::Unchanged);
    assert_eq!(names(directory).len(), 3, "{:?}", names(directory));
}

#[test]
fn written_files_can_be_read_and_removed() {
    let (dir, writer) = volume();
    assert_eq!(writer.read().unwrap(), None);
    writer.remove().unwrap();
    let files = payload(&[("ca.pem", "A"), ("pki/key", "K"), ("pki/sub/chain", "C")]);
    writer.write(&files, START).unwrap();
    let read = VolumeWriter::new(writer.directory(), FileSystem::default()).read().unwrap().unwrap();
    assert_eq!(expected(&read), expected(&files));
    assert!(read.files().all(|(_, file)| file.mode == 0o644));
    writer.remove().unwrap();
    assert_eq!(names(dir.path()), [""; 0]);
    assert_eq!(writer.read().unwrap(), None);
}

#[test]
fn paths_may_be_as_deep_as_they_may_be_long() {
    let (dir, writer) = volume();
    let deep = ["a"; 500].join("/");
    let files = payload(&[(&deep, "A")]);
    writer.write(&files, START).unwrap();
    assert_eq!(writer.write(&files, START).unwrap(), WriteOutcome::Unchanged);
    assert_eq!(expected(&writer.read().unwrap().unwrap()), expected(&files));
    writer.write(&payload(&[("a", "A")]), START).unwrap();
    assert_eq!(names(writer.directory()).len(), 3);
    writer.remove().unwrap();
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn names_of_directories_are_recognised() {
    assert!(super::is_generation(&super::generation(START)));
    for name in ["..data", "..2026_03_01_12_00_00.", "..2026_03_01_12_00_00.x", "..2026", "..é"] {
        assert!(!super::is_generation(name), "{name}");
    }
}
