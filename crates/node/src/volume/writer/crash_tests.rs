//! Writes that are killed at each operation, with a reader before each: it sees all old or all new
//! files.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use time::Duration;
use windlass_pki::PrivateKey;

use super::super::payload::{PayloadFile, VolumePayload};
use super::tests::{add, expected, names, payload, visible, volume};
use super::{VolumeWriter, WriteOutcome};
use crate::key_pair::CertificateKeyPair;
use crate::testing::{CertificateFixture, DiskFailure, FailingDisk, START};
use windlass_runtime::durable::{DiskOperation, FileSystem};

/// Content of a volume before a write, and the expected content after it.
struct KillScenario {
    what: &'static str,
    old: Option<VolumePayload>,
    new: VolumePayload,
    /// Additional damage in the directory.
    damage: fn(&Path),
}

fn scenarios() -> Vec<KillScenario> {
    let nothing: fn(&Path) = |_| {};
    let pair = |n: &str, more: &[(&str, &str)]| {
        let (key, chain) = (format!("key {n}"), format!("chain {n}"));
        let mut files = payload(more);
        add(&mut files, "key", PayloadFile::new(key, 0o600));
        add(&mut files, "pki/chain", PayloadFile::new(chain, 0o644));
        files
    };
    vec![
        KillScenario {
            what: "first write",
            old: None,
            new: pair("1", &[("ca/a", "A"), ("ca/b/c", "B")]),
            damage: nothing,
        },
        KillScenario {
            what: "change",
            old: Some(pair("1", &[("ca/a", "A"), ("ca/b/c", "B"), ("gone", "G")])),
            new: pair("2", &[("ca/a", "A"), ("new/c", "C")]),
            damage: nothing,
        },
        KillScenario {
            what: "directory in the place of a file and the other way round",
            old: Some(pair("1", &[("x", "X"), ("y/z", "Z")])),
            new: pair("2", &[("x/w", "W"), ("y", "Y")]),
            damage: nothing,
        },
        KillScenario {
            what: "change after a crash",
            old: Some(pair("1", &[("a", "A")])),
            new: pair("2", &[("b", "B")]),
            damage: |directory| {
                let orphan = directory.join("..2026_02_28_00_00_00.7");
                fs::create_dir_all(orphan.join("ca/b")).unwrap();
                fs::write(orphan.join("ca/half"), "ha").unwrap();
                symlink("..2026_02_28_00_00_00.7", directory.join("..data_tmp")).unwrap();
                symlink("..data/b", directory.join("b")).unwrap();
            },
        },
        KillScenario {
            what: "many files",
            old: Some(pair("1", &[("a/b/c/d", "D"), ("a/b/e", "E"), ("f", "F")])),
            new: pair("2", &[("a/b/c/d", "D"), ("a/b/e2", "E"), ("f", "F"), ("g", "G")]),
            damage: nothing,
        },
        KillScenario {
            what: "everything goes",
            old: Some(pair("1", &[("a", "A")])),
            new: VolumePayload::default(),
            damage: nothing,
        },
    ]
}

/// A disk that is killed at an operation, with a reader before each operation.
fn watched(directory: &Path, scenario: &KillScenario, at: usize, done: Arc<AtomicUsize>) -> FileSystem {
    let directory = directory.to_owned();
    let old = scenario.old.as_ref().map(expected).unwrap_or_default();
    let new = expected(&scenario.new);
    let what = scenario.what;
    FileSystem::with_hook(Arc::new(move |operation: DiskOperation, _: &Path| {
        let number = done.fetch_add(1, SeqCst);
        if number > at {
            return Err(io::Error::other("dead"));
        }
        let seen = visible(&directory);
        assert!(seen == old || seen == new, "{what}, before {operation:?} ({number}): {seen:?}");
        if number == at { Err(io::Error::other("killed")) } else { Ok(()) }
    }))
}

fn begin(scenario: &KillScenario) -> (tempfile::TempDir, VolumeWriter) {
    let (dir, writer) = volume();
    if let Some(old) = &scenario.old {
        writer.write(old, START).unwrap();
    }
    (scenario.damage)(writer.directory());
    (dir, writer)
}

/// Runs a process that is killed at an operation. Returns whether the write completed.
fn live(writer: &VolumeWriter, scenario: &KillScenario, at: usize) -> bool {
    let done = Arc::new(AtomicUsize::new(0));
    let files = watched(writer.directory(), scenario, at, done.clone());
    let later = START + Duration::MINUTE;
    let written = VolumeWriter::new(writer.directory(), files).write(&scenario.new, later);
    let ended = done.load(SeqCst) <= at;
    assert!(written.is_ok() || !ended, "{}: {written:?}", scenario.what);
    ended
}

fn check_end(writer: &VolumeWriter, scenario: &KillScenario, what: &str) {
    writer.write(&scenario.new, START + Duration::HOUR).unwrap();
    let what = format!("{}, {what}", scenario.what);
    assert_eq!(visible(writer.directory()), expected(&scenario.new), "{what}");
    let names = names(writer.directory());
    // The directory, the symlink to it, and a symlink for every name: nothing is left over.
    assert_eq!(names.len(), 2 + super::tops(&scenario.new).len(), "{what}: {names:?}");
    let again = writer.write(&scenario.new, START + Duration::HOUR).unwrap();
    assert_eq!(again, WriteOutcome::Unchanged, "{what}");
}

#[test]
fn a_volume_is_whole_whenever_its_writer_is_killed() {
    let mut lives = 0;
    for scenario in scenarios() {
        for at in 0.. {
            let (_dir, writer) = begin(&scenario);
            let ended = live(&writer, &scenario, at);
            lives += 1;
            check_end(&writer, &scenario, &format!("killed at {at}"));
            if ended {
                assert!(at > 20, "{}: {at} operations", scenario.what);
                break;
            }
        }
    }
    assert!(lives > 500, "{lives}");
}

#[test]
fn a_volume_is_whole_when_its_writer_is_killed_twice() {
    let mut lives = 0;
    for scenario in scenarios() {
        for first in (0..).step_by(7) {
            let mut ended = false;
            for second in (0..).step_by(9) {
                let (_dir, writer) = begin(&scenario);
                ended = live(&writer, &scenario, first);
                let ended_again = live(&writer, &scenario, second);
                lives += 1;
                check_end(&writer, &scenario, &format!("killed at {first} and at {second}"));
                if ended || ended_again {
                    break;
                }
            }
            if ended {
                break;
            }
        }
    }
    assert!(lives > 500, "{lives}");
}

#[test]
fn a_volume_is_whole_when_its_disk_fails() {
    for scenario in scenarios() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::ReadOnlyFilesystem] {
            for at in 0.. {
                let (_dir, writer) = begin(&scenario);
                let breaking = FailingDisk::fail_at(at, DiskFailure::Fail(kind));
                let failing = VolumeWriter::new(writer.directory(), breaking.files());
                let what = format!("{kind} at {at}");
                let old = scenario.old.as_ref().map(expected).unwrap_or_default();
                let written = failing.write(&scenario.new, START);
                let seen = visible(writer.directory());
                if written.is_ok() {
                    assert_eq!(seen, expected(&scenario.new), "{}, {what}", scenario.what);
                } else {
                    assert!(seen == old || seen == expected(&scenario.new), "{what}: {seen:?}");
                }
                // The same process continues once the disk is repaired.
                breaking.repair();
                failing.write(&scenario.new, START).unwrap();
                check_end(&writer, &scenario, &what);
                if !breaking.was_hit() {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_reader_never_finds_a_key_with_the_chain_of_another() {
    let (_dir, writer) = volume();
    let sets = [0, 1].map(|_| {
        let key = PrivateKey::generate().unwrap();
        let chain = CertificateFixture::client(START).pem(key.public_key());
        payload(&[("key", &key.to_pem().unwrap()), ("chain", &chain)])
    });
    writer.write(&sets[0], START).unwrap();
    let (stop, seen) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 2]);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(SeqCst) {
                let data = writer.directory().join("..data");
                let Ok(data) = fs::canonicalize(data) else { continue };
                // The directory may be removed meanwhile; then there is a newer one.
                let Ok(key) = fs::read(data.join("key")) else { continue };
                let Ok(chain) = fs::read(data.join("chain")) else { continue };
                let pair = [chain, key.clone()].concat();
                CertificateKeyPair::from_pem(&pair).expect("a key and its own chain");
                let first = sets[0].files().any(|(_, file)| *file.bytes == key);
                seen[usize::from(!first)].fetch_add(1, SeqCst);
            }
        });
        let enough = || seen.iter().all(|seen| seen.load(SeqCst) > 20);
        while !enough() && !reader.is_finished() {
            for files in &sets {
                writer.write(files, START).unwrap();
            }
        }
        stop.store(true, SeqCst);
    });
}
