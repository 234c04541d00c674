//! Another user writes to the volume: nothing outside changes, and the next write repairs it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::tests::{expected, names, payload, visible, volume};
use super::{VolumeWriter, WriteOutcome};
use crate::testing::START;
use windlass_runtime::durable::{DiskOperation, FileSystem};

/// A directory outside the volume, which must not change. It has the same layout and content, so
/// that every path would resolve.
fn outside(dir: &Path) -> PathBuf {
    let outside = dir.join("outside");
    let generation = outside.join(GENERATION);
    fs::create_dir_all(generation.join("pki")).unwrap();
    fs::write(generation.join("ca.pem"), "A").unwrap();
    fs::write(generation.join("pki/key"), "K").unwrap();
    symlink(GENERATION, outside.join("..data")).unwrap();
    symlink("..data/victim", outside.join("victim")).unwrap();
    fs::write(outside.join("plain"), "A").unwrap();
    fs::create_dir(outside.join("pki")).unwrap();
    fs::write(outside.join("pki/key"), "K").unwrap();
    outside
}

const GENERATION: &str = "..2026_03_01_12_00_00.5";

/// All metadata of a file.
type Facts = (u64, u64, [u32; 3], [i64; 2]);

/// Returns the metadata of everything in a directory.
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
        replace(&volume.join("..data"), &outside.join(GENERATION));
    }),
    ("the current directory", |volume, outside| {
        let current = fs::read_link(volume.join("..data")).unwrap();
        replace(&volume.join(current), &outside.join(GENERATION));
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
            for name in ["ca.pem", "pki/key"] {
                let real = fs::canonicalize(writer.directory().join(name)).unwrap();
                assert!(real.starts_with(writer.directory()), "{what}: {real:?}");
            }
            assert_eq!(names(writer.directory()).len(), 4, "{what}");
            let (mut before, mut after) = (before, facts(&outside));
            // A hard link that is created and removed changes the ctime: that was the attack.
            for facts in [&mut before, &mut after] {
                facts.remove(&outside.join("plain"));
            }
            assert_eq!(before, after, "{what}");
            assert_eq!(fs::read_to_string(outside.join("plain")).unwrap(), "A", "{what}");
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
fn a_link_above_a_volume_is_refused_from_where_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let (base, outside) = (dir.path().join("pods"), outside(dir.path()));
    let path = Path::new("u/volumes/v");
    let writer = VolumeWriter::below(&base, path, FileSystem::default());
    let files = payload(&[("ca.pem", "A")]);
    assert_eq!(writer.write(&files, START).unwrap(), WriteOutcome::Changed);
    assert_eq!(visible(&base.join(path)), expected(&files));
    for above in ["u", "u/volumes"] {
        let name = if above == "u" { "volumes" } else { "v" };
        let _ = fs::create_dir_all(outside.join(name));
        let before = facts(&outside);
        replace(&base.join(above), &outside);
        writer.write(&payload(&[("ca.pem", "B")]), START).unwrap_err();
        assert!(writer.read().unwrap().is_none(), "{above}");
        writer.remove().unwrap();
        assert_eq!(facts(&outside), before, "{above}");
        fs::remove_file(base.join(above)).unwrap();
        assert_eq!(writer.write(&files, START).unwrap(), WriteOutcome::Changed, "{above}");
    }
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
fn a_pipe_does_not_block_the_writer() {
    let (_dir, writer) = volume();
    let files = payload(&[("ca.pem", "A")]);
    writer.write(&files, START).unwrap();
    let file = writer.directory().join("..data/ca.pem");
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    assert!(writer.read().unwrap().unwrap().files().next().is_none());
    assert_eq!(writer.write(&files, START).unwrap(), WriteOutcome::Changed);
    assert_eq!(visible(writer.directory()), expected(&files));
}

#[test]
fn links_swapped_in_before_any_operation_are_not_followed() {
    let swaps: [Attack; 3] = [swap_inner, swap_outer, |volume, outside| {
        swap_inner(volume, outside);
        swap_outer(volume, outside);
    }];
    let mut attacks = 0;
    for swap in swaps {
        for at in 0.. {
            let (dir, writer) = volume();
            let outside = outside(dir.path());
            let old = payload(&[("ca.pem", "A"), ("pki/key", "K")]);
            let new = payload(&[("ca.pem", "B"), ("pki/key", "K"), ("pki/more", "M")]);
            writer.write(&old, START).unwrap();
            let before = facts(&outside);
            let done = Arc::new(AtomicUsize::new(0));
            let attacked = {
                let (done, outside) = (done.clone(), outside.clone());
                let directory = writer.directory().to_owned();
                FileSystem::with_hook(Arc::new(move |_: DiskOperation, _: &Path| {
                    if done.fetch_add(1, SeqCst) == at {
                        swap(&directory, &outside);
                    }
                    Ok(())
                }))
            };
            // Some of the writes fail, which is allowed.
            let _ = VolumeWriter::new(writer.directory(), attacked).write(&new, START);
            assert_eq!(facts(&outside), before, "at {at}");
            writer.write(&new, START).unwrap();
            assert_eq!(visible(writer.directory()), expected(&new), "at {at}");
            assert_eq!(facts(&outside), before, "at {at}");
            attacks += 1;
            if done.load(SeqCst) <= at {
                break;
            }
        }
    }
    assert!(attacks > 150, "{attacks}");
}

/// Replaces the directories inside a generation by symlinks.
fn swap_inner(volume: &Path, outside: &Path) {
    for generation in generations(volume) {
        if generation.join("pki").is_dir() {
            // Moved aside, so that it still exists for processes that have it open.
            fs::rename(generation.join("pki"), generation.join("moved")).unwrap();
            symlink(outside.join("pki"), generation.join("pki")).unwrap();
        }
    }
}

/// Replaces the directories of a volume by symlinks.
fn swap_outer(volume: &Path, outside: &Path) {
    for (number, generation) in generations(volume).into_iter().enumerate() {
        fs::rename(&generation, volume.join(format!("..2026_01_01_00_00_00.{number}"))).unwrap();
        symlink(outside.join(GENERATION), &generation).unwrap();
    }
}

fn generations(volume: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(volume).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| fs::symlink_metadata(path).unwrap().is_dir()).collect()
}

/// Owner of the directories above a volume; no process of the tests runs as this user.
const OTHER: u32 = 65534;

/// Changes the owner of a file, where that is allowed.
fn change_owner(path: &Path) {
    let _ = std::os::unix::fs::lchown(path, Some(OTHER), Some(OTHER));
}

#[test]
fn a_link_swapped_in_for_a_new_directory_gets_no_mode() {
    let dir = tempfile::tempdir().unwrap();
    let (home, secret) = (dir.path().join("home"), dir.path().join("secret"));
    fs::create_dir(&home).unwrap();
    fs::create_dir(&secret).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
    change_owner(&home);
    let volume = home.join("app/tls");
    for swapped in [home.join("app"), volume.clone()] {
        let before = facts(&secret);
        let files = {
            let (secret, swapped) = (secret.clone(), swapped.clone());
            FileSystem::with_hook(Arc::new(move |operation: DiskOperation, path: &Path| {
                if operation == DiskOperation::SetAccess && path == swapped {
                    fs::rename(&swapped, swapped.with_extension("moved")).unwrap();
                    symlink(&secret, &swapped).unwrap();
                    change_owner(&swapped);
                }
                Ok(())
            }))
        };
        let _ = VolumeWriter::new(&volume, files).write(&payload(&[("ca.pem", "A")]), START);
        assert!(fs::symlink_metadata(&swapped).unwrap().is_symlink(), "nothing was swapped");
        assert_eq!(facts(&secret), before, "{}", swapped.display());
        fs::remove_dir_all(home.join("app")).or_else(|_| fs::remove_file(home.join("app"))).unwrap();
    }
}

#[test]
fn links_swapped_in_above_a_volume_of_another_user_are_not_followed() {
    if !rustix::process::geteuid().is_root() {
        // Only root can create a directory of another user.
        return;
    }
    let mut attacks = 0;
    for is_new in [true, false] {
        for at in 0.. {
            let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
            let (home, outside) = (dir.path().join("home"), outside(dir.path()));
            fs::create_dir(&home).unwrap();
            change_owner(&home);
            // The target that would be written if the symlink were followed.
            fs::create_dir(outside.join("tls")).unwrap();
            let volume = home.join("app/tls");
            let files = payload(&[("ca.pem", "A"), ("pki/key", "K")]);
            if !is_new {
                VolumeWriter::new(&volume, FileSystem::default()).write(&files, START).unwrap();
            }
            let before = facts(&outside);
            let done = Arc::new(AtomicUsize::new(0));
            let attacked = {
                let (done, outside, app) = (done.clone(), outside.clone(), home.join("app"));
                FileSystem::with_hook(Arc::new(move |_: DiskOperation, _: &Path| {
                    if done.fetch_add(1, SeqCst) == at {
                        let _ = fs::rename(&app, app.with_extension("moved"));
                        symlink(&outside, &app).unwrap();
                        change_owner(&app);
                    }
                    Ok(())
                }))
            };
            let new = payload(&[("ca.pem", "B"), ("pki/key", "K")]);
            let writer = VolumeWriter::new(&volume, attacked);
            let _ = writer.write(&new, START);
            let _ = writer.remove();
            assert_eq!(facts(&outside), before, "new {is_new}, at {at}");
            attacks += 1;
            if done.load(SeqCst) <= at {
                break;
            }
        }
    }
    assert!(attacks > 60, "{attacks}");
}
