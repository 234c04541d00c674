//! Somebody else writes to the volume: nothing outside it changes, and the next write repairs it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use super::tests::{expected, names, payload, visible, volume};
use super::{Writer, Written};
use crate::files::Files;
use crate::testing::START;

/// A directory that is nobody's business, looking like a volume, so that everything would fit.
fn outside(dir: &Path) -> PathBuf {
    let outside = dir.join("outside");
    let generation = outside.join("..2026_03_01_12_00_00.5");
    fs::create_dir_all(generation.join("pki")).unwrap();
    for path in ["ca.pem", "pki/key", "victim"] {
        fs::write(generation.join(path), "mine").unwrap();
    }
    symlink("..2026_03_01_12_00_00.5", outside.join("..data")).unwrap();
    symlink("..data/victim", outside.join("victim")).unwrap();
    fs::write(outside.join("plain"), "mine").unwrap();
    fs::create_dir(outside.join("pki")).unwrap();
    fs::write(outside.join("pki/key"), "mine").unwrap();
    outside
}

/// Everything there is to know of a file.
type Facts = (u64, u64, [u32; 3], [i64; 2]);

/// Everything there is to know of everything in a directory.
fn facts(directory: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut found = BTreeMap::new();
    let mut rest = vec![directory.to_owned()];
    while let Some(path) = rest.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        if facts.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let access = [facts.mode(), facts.uid(), facts.gid()];
        let changed = [facts.ctime(), facts.ctime_nsec()];
        found.insert(path, (facts.ino(), facts.size(), access, changed));
    }
    found
}

fn replace(path: &Path, target: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir_all(path);
    let _ = symlink(target, path);
}

type Attack = fn(&Path, &Path);

const ATTACKS: [(&str, Attack); 9] = [
    ("the link to the current directory", |volume, outside| {
        replace(&volume.join("..data"), outside);
    }),
    ("the same, by name", |volume, outside| {
        let generation = outside.join("..2026_03_01_12_00_00.5");
        replace(&volume.join("..data"), &generation);
    }),
    ("the current directory", |volume, outside| {
        let current = fs::read_link(volume.join("..data")).unwrap();
        replace(&volume.join(current), outside);
    }),
    ("a directory of it", |volume, outside| {
        replace(&volume.join("..data/pki"), &outside.join("pki"));
    }),
    ("a file of it", |volume, outside| {
        replace(&volume.join("..data/ca.pem"), &outside.join("plain"));
    }),
    ("what users see", |volume, outside| {
        replace(&volume.join("ca.pem"), &outside.join("plain"));
        replace(&volume.join("pki"), &outside.join("pki"));
    }),
    ("the link that is about to be one", |volume, outside| {
        fs::create_dir(volume.join("..data_tmp")).unwrap();
        symlink(outside, volume.join("..data_tmp/deeper")).unwrap();
    }),
    ("what is left over", |volume, outside| {
        symlink(outside, volume.join("..2026_01_01_00_00_00.1")).unwrap();
        let orphan = volume.join("..2026_01_01_00_00_00.2/deeper");
        fs::create_dir_all(&orphan).unwrap();
        symlink(outside, orphan.join("directory")).unwrap();
        symlink(outside.join("plain"), orphan.join("file")).unwrap();
        fs::hard_link(outside.join("plain"), orphan.join("second name")).unwrap();
    }),
    ("a directory for a link", |volume, outside| {
        fs::remove_file(volume.join("..data")).unwrap();
        fs::create_dir(volume.join("..data")).unwrap();
        symlink(outside, volume.join("..data/pki")).unwrap();
    }),
];

#[test]
fn links_to_other_places_are_not_followed() {
    for (what, attack) in ATTACKS {
        for changes in [false, true] {
            let (dir, writer) = volume();
            let outside = outside(dir.path());
            let files = payload(&[("ca.pem", "A"), ("pki/key", "K")]);
            writer.write(&files, START).unwrap();
            let before = facts(&outside);
            attack(writer.directory(), &outside);
            let contents = if changes { "B" } else { "A" };
            let files = payload(&[("ca.pem", contents), ("pki/key", "K")]);
            writer.write(&files, START).unwrap();
            assert_eq!(visible(writer.directory()), expected(&files), "{what}");
            assert_eq!(names(writer.directory()).len(), 4, "{what}");
            let (mut before, mut after) = (before, facts(&outside));
            // A second name of a file, made and removed, changes its time: that was the attack.
            for facts in [&mut before, &mut after] {
                facts.remove(&outside.join("plain"));
            }
            assert_eq!(before, after, "{what}");
            assert_eq!(fs::read_to_string(outside.join("plain")).unwrap(), "mine", "{what}");
            writer.remove().unwrap();
            assert_eq!(facts(&outside).len(), before.len() + 1, "{what}");
        }
    }
}

#[test]
fn a_volume_that_is_a_link_is_refused() {
    let (dir, writer) = volume();
    let outside = outside(dir.path());
    let before = facts(&outside);
    symlink(&outside, writer.directory()).unwrap();
    writer.write(&payload(&[("ca.pem", "A")]), START).unwrap_err();
    writer.remove().unwrap();
    assert_eq!(facts(&outside), before);
    assert!(fs::symlink_metadata(writer.directory()).is_err());
}

#[test]
fn a_directory_under_a_name_that_is_needed_keeps_what_is_in_it() {
    let (_dir, writer) = volume();
    let old = payload(&[("key", "K")]);
    writer.write(&old, START).unwrap();
    fs::create_dir(writer.directory().join("ca.pem")).unwrap();
    fs::write(writer.directory().join("ca.pem/mine"), "M").unwrap();
    let error = writer.write(&payload(&[("ca.pem", "A"), ("key", "K2")]), START).unwrap_err();
    assert!(error.to_string().contains("cannot rename"), "{error}");
    let mut wanted = expected(&old);
    wanted.insert("ca.pem/mine".to_owned(), "M".to_owned());
    assert_eq!(visible(writer.directory()), wanted);
    assert_eq!(names(writer.directory()).len(), 4, "{:?}", names(writer.directory()));
}

#[test]
fn a_pipe_keeps_nobody_waiting() {
    let (_dir, writer) = volume();
    let files = payload(&[("ca.pem", "A")]);
    writer.write(&files, START).unwrap();
    let file = writer.directory().join("..data/ca.pem");
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &file,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert!(writer.read().unwrap().unwrap().files().next().is_none());
    assert_eq!(writer.write(&files, START).unwrap(), Written::Changed);
    assert_eq!(visible(writer.directory()), expected(&files));
}

#[test]
fn links_swapped_in_meanwhile_are_not_followed() {
    let (dir, writer) = volume();
    let outside = outside(dir.path());
    let sets = ["A", "B"].map(|text| payload(&[("ca.pem", text), ("pki/key", "K")]));
    writer.write(&sets[0], START).unwrap();
    let before = facts(&outside);
    let (stop, swaps) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            while !stop.load(SeqCst) {
                swap_everything(writer.directory(), &outside);
                swaps.fetch_add(1, SeqCst);
            }
        });
        // Some of it fails, and that is all that may happen.
        for round in 0.. {
            let _ =
                Writer::new(writer.directory(), Files::default()).write(&sets[round % 2], START);
            if (round > 300 && swaps.load(SeqCst) > 100) || attacker.is_finished() {
                break;
            }
        }
        stop.store(true, SeqCst);
    });
    assert_eq!(facts(&outside), before);
    writer.write(&sets[0], START).unwrap();
    assert_eq!(visible(writer.directory()), expected(&sets[0]));
}

/// Replaces every directory of a volume, and every directory in those, by a link.
fn swap_everything(volume: &Path, outside: &Path) {
    for entry in fs::read_dir(volume).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let inner = path.join("pki");
            // Moved aside, as an open directory would be, and not removed.
            let _ = fs::rename(&inner, path.join("moved"));
            let _ = symlink(outside.join("pki"), &inner);
            let _ = fs::rename(&path, volume.join("..2026_01_01_00_00_00.9"));
        }
        let _ = symlink(outside, &path);
    }
}
