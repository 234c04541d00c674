//! Tests of layouts, damaged files, killed processes and full disks.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use time::Duration;

use super::*;
use crate::testing::{
    CertificateFixture, DiskFailure, FailingDisk, IdentityFixture as _, START, client_identity,
};

const PREFIX: &str = "kubelet-client";

fn store(dir: &TempDir) -> CertStore {
    CertStore::new(&dir.path().join("pki"), PREFIX, FileSystem::default())
}

fn path(dir: &TempDir, name: &str) -> PathBuf {
    dir.path().join("pki").join(name)
}

fn names(dir: &TempDir) -> Vec<String> {
    FileSystem::default().list_names(&dir.path().join("pki")).unwrap()
}

fn put(dir: &TempDir, name: &str, text: &str) {
    fs::create_dir_all(dir.path().join("pki")).unwrap();
    fs::write(path(dir, name), text).unwrap();
}

fn same(found: Option<&CertificateKeyPair>, wanted: &CertificateKeyPair) -> bool {
    found.is_some_and(|found| found.leaf().der() == wanted.leaf().der())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn saves_in_kubelets_layout() {
    let dir = tempfile::tempdir().unwrap();
    let identity = client_identity(START);
    store(&dir).save(&identity, START).unwrap();
    let file = "kubelet-client-2026-03-01-12-00-00.pem";
    assert_eq!(names(&dir), [file, "kubelet-client-current.pem"]);
    assert_eq!(fs::read_link(path(&dir, "kubelet-client-current.pem")).unwrap(), Path::new(file));
    assert_eq!((mode(&dir.path().join("pki")), mode(&path(&dir, file))), (0o700, 0o600));
    let text = fs::read_to_string(path(&dir, file)).unwrap();
    assert!(text.starts_with("-----BEGIN CERTIFICATE-----\n"), "the certificate comes first");
    assert!(text.ends_with("-----END PRIVATE KEY-----\n"));
    let loaded = store(&dir).load(START);
    assert!(same(loaded.identity.as_ref(), &identity) && loaded.warnings.is_empty());
}

#[test]
fn keeps_the_current_and_the_previous_pair_under_separate_names() {
    let dir = tempfile::tempdir().unwrap();
    let saved = [0, 0, 0, 5].map(|seconds| {
        let now = START + Duration::seconds(seconds);
        let identity = client_identity(now);
        store(&dir).save(&identity, now).unwrap();
        identity
    });
    let kept = names(&dir);
    assert_eq!(kept.len(), 3, "{kept:?}");
    assert!(kept.contains(&"kubelet-client-2026-03-01-12-00-05.pem".to_owned()));
    let before = kept.iter().find(|name| name.contains("12-00-00")).unwrap();
    let before = CertificateKeyPair::from_pem(&fs::read(path(&dir, before)).unwrap()).unwrap();
    assert!(same(Some(&before), &saved[2]));
    assert!(same(store(&dir).load(START).identity.as_ref(), &saved[3]));
}

#[test]
fn reads_what_kubelet_and_others_leave_behind() {
    let identity = client_identity(START);
    let pem = identity.to_pem().unwrap();
    let key = identity.key().to_pem().unwrap();
    let certificate = pem.strip_suffix(key.as_str()).unwrap();
    let file = "kubelet-client-2026-03-01-11-00-00.pem";
    type DirectorySetup<'a> = &'a dyn Fn(&TempDir);
    let table: [(&str, DirectorySetup<'_>); 6] = [
        ("an absolute link", &|dir| {
            put(dir, file, &pem);
            symlink(path(dir, file), path(dir, "kubelet-client-current.pem")).unwrap();
        }),
        ("a file that is no link", &|dir| put(dir, "kubelet-client-current.pem", &pem)),
        ("a link that was not renamed yet", &|dir| {
            put(dir, file, &pem);
            symlink(path(dir, file), path(dir, "kubelet-client-updated.pem")).unwrap();
        }),
        ("a link that leads nowhere, and a file", &|dir| {
            put(dir, file, &pem);
            symlink("gone.pem", path(dir, "kubelet-client-current.pem")).unwrap();
        }),
        ("a file that nothing leads to", &|dir| put(dir, file, &pem)),
        ("two files", &|dir| {
            put(dir, "kubelet-client.crt", certificate);
            put(dir, "kubelet-client.key", &key);
        }),
    ];
    for (what, make) in table {
        let dir = tempfile::tempdir().unwrap();
        make(&dir);
        assert!(same(store(&dir).load(START).identity.as_ref(), &identity), "{what}");
        assert!(same(store(&dir).load(START).identity.as_ref(), &identity), "{what}, again");
        let next = client_identity(START);
        store(&dir).save(&next, START).unwrap();
        let loaded = store(&dir).load(START);
        assert!(same(loaded.identity.as_ref(), &next), "{what}, replaced");
        assert_eq!(loaded.warnings, [""; 0], "{what}");
        assert!(!names(&dir).contains(&"kubelet-client-updated.pem".to_owned()), "{what}");
    }
}

#[test]
fn renames_damaged_files() {
    let (good, other) = (client_identity(START), client_identity(START));
    let whole = good.to_pem().unwrap();
    let mismatch = whole.replace(&*good.key().to_pem().unwrap(), &other.key().to_pem().unwrap());
    for broken in ["", "garbage", &whole[..whole.len() - 30], &whole[..300], &mismatch] {
        let dir = tempfile::tempdir().unwrap();
        store(&dir).save(&other, START - Duration::HOUR).unwrap();
        store(&dir).save(&good, START).unwrap();
        put(&dir, "kubelet-client-2026-03-01-12-00-00.pem", broken);
        let loaded = store(&dir).load(START);
        assert!(same(loaded.identity.as_ref(), &other), "the one before is used: {broken:?}");
        assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
        let aside = "kubelet-client-2026-03-01-12-00-00.pem.corrupt-2026-03-01-12-00-00";
        assert_eq!(fs::read_to_string(path(&dir, aside)).unwrap(), broken);
        assert_eq!(store(&dir).load(START).warnings, [""; 0], "said once");
        // If the previous certificate has expired, there is none.
        let dir = tempfile::tempdir().unwrap();
        store(&dir).save(&client_identity(START - Duration::days(2)), START).unwrap();
        store(&dir).save(&good, START).unwrap();
        put(&dir, "kubelet-client-2026-03-01-12-00-00-2.pem", broken);
        assert!(store(&dir).load(START).identity.is_none());
        store(&dir).save(&good, START).unwrap();
        assert!(same(store(&dir).load(START).identity.as_ref(), &good));
    }
}

#[test]
fn a_damaged_key_is_renamed_and_regenerated() {
    for broken in ["", "garbage", "-----BEGIN PRIVATE KEY-----\nAAAA\n"] {
        let dir = tempfile::tempdir().unwrap();
        put(&dir, "kubelet-client.key.tmp", broken);
        let key = store(&dir).load_or_create_key(None, START).unwrap();
        let aside = "kubelet-client.key.tmp.corrupt-2026-03-01-12-00-00";
        assert_eq!(fs::read_to_string(path(&dir, aside)).unwrap(), broken);
        let again = store(&dir).load_or_create_key(None, START).unwrap();
        assert_eq!(key.public_key(), again.public_key());
        assert_eq!(mode(&path(&dir, "kubelet-client.key.tmp")), 0o600);
    }
}

#[test]
fn a_key_is_kept_until_its_certificate_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let key = store.load_or_create_key(None, START).unwrap();
    let public = key.public_key().clone();
    assert_eq!(store.load_or_create_key(None, START).unwrap().public_key(), &public, "it is used again");
    // A certificate for another key does not remove it.
    store.save(&client_identity(START), START).unwrap();
    assert_eq!(store.load_or_create_key(None, START).unwrap().public_key(), &public);
    store.save(&CertificateFixture::client(START).identity(key), START).unwrap();
    assert!(!names(&dir).contains(&"kubelet-client.key.tmp".to_owned()));
    // A leftover key of a stored certificate is not reused.
    let loaded = store.load(START).identity.unwrap();
    put(&dir, "kubelet-client.key.tmp", &loaded.key().to_pem().unwrap());
    let next = store.load_or_create_key(Some(&public), START).unwrap();
    assert_ne!(next.public_key(), &public);
    let newer = store.new_key().unwrap();
    assert_ne!(newer.public_key(), next.public_key());
}

/// Checks the invariants after a restart, wherever the process was killed.
fn check(dir: &TempDir, old: Option<&CertificateKeyPair>, new: &CertificateKeyPair, what: &str) {
    let loaded = store(dir).load(START);
    let is_new = same(loaded.identity.as_ref(), new);
    match old {
        Some(old) => assert!(is_new || same(loaded.identity.as_ref(), old), "{what}"),
        None => assert!(is_new || loaded.identity.is_none(), "{what}"),
    }
    let current = fs::read(store(dir).current_path()).ok();
    let current = current.map(|text| CertificateKeyPair::from_pem(&text).unwrap());
    assert_eq!(current.is_some(), loaded.identity.is_some(), "{what}: the link leads there");
    if let (Some(current), Some(loaded)) = (&current, &loaded.identity) {
        assert!(same(Some(current), loaded), "{what}");
    }
    if !is_new {
        // The pending key is not lost, so that its certificate can be fetched again.
        let key = store(dir).load_or_create_key(None, START).unwrap();
        assert_eq!(key.public_key(), new.key().public_key(), "{what}");
    }
    let left = names(dir).into_iter().filter(|name| durable::is_staged(name)).collect::<Vec<_>>();
    assert_eq!(left, [""; 0], "{what}");
}

#[test]
fn a_kill_at_any_operation_leaves_one_good_certificate() {
    for old in [None, Some(client_identity(START - Duration::HOUR))] {
        for at in 0.. {
            let dir = tempfile::tempdir().unwrap();
            if let Some(old) = &old {
                store(&dir).save(old, START - Duration::HOUR).unwrap();
            }
            let new = CertificateFixture::client(START)
                .identity(store(&dir).load_or_create_key(None, START).unwrap());
            let breaking = FailingDisk::fail_at(at, DiskFailure::Kill);
            let dying = CertStore::new(&dir.path().join("pki"), PREFIX, breaking.files());
            let saved = dying.save(&new, START);
            check(&dir, old.as_ref(), &new, &format!("killed at {at}"));
            if !breaking.was_hit() {
                assert!(at > 8 && saved.is_ok(), "{at} operations");
                break;
            }
        }
    }
}

#[test]
fn a_disk_that_fails_leaves_the_old_certificate() {
    for kind in [ErrorKind::StorageFull, ErrorKind::ReadOnlyFilesystem, ErrorKind::Other] {
        for at in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let old = client_identity(START - Duration::HOUR);
            store(&dir).save(&old, START - Duration::HOUR).unwrap();
            let breaking = FailingDisk::fail_at(at, DiskFailure::Fail(kind));
            let failing = CertStore::new(&dir.path().join("pki"), PREFIX, breaking.files());
            let saved = failing.load_or_create_key(Some(old.key().public_key()), START).map(|key| {
                let new = CertificateFixture::client(START).identity(key);
                let saved = failing.save(&new, START);
                check(&dir, Some(&old), &new, &format!("{kind} at {at}"));
                saved.is_ok()
            });
            if !breaking.was_hit() {
                assert!(at > 8 && saved.unwrap(), "{at} operations");
                break;
            }
            // The same store succeeds once the disk is repaired.
            breaking.repair();
            let key = failing.load_or_create_key(Some(old.key().public_key()), START).unwrap();
            let new = CertificateFixture::client(START).identity(key);
            failing.save(&new, START).unwrap();
            assert!(same(failing.load(START).identity.as_ref(), &new), "{kind} at {at}");
        }
    }
}

#[test]
fn only_certificates_are_taken_for_certificates() {
    let layout = CertDirLayout::new(Path::new("/"), PREFIX);
    for (name, expected) in [
        ("kubelet-client-2026-03-01-12-00-00.pem", true),
        ("kubelet-client-2026-03-01-12-00-00-12.pem", true),
        ("kubelet-client-current.pem", false),
        ("kubelet-client-2026-03-01-12-00-00-.pem", false),
        ("kubelet-client-2026-03-01-12-00-00-x.pem", false),
        ("kubelet-client-2026-03-01-12-00.pem", false),
        ("kubelet-client-2026-03-01-12-00-00.pem.corrupt-2026-03-01-12-00-00", false),
        ("kubelet-server-2026-03-01-12-00-00.pem", false),
        (".kubelet-client-2026-03-01-12-00-00.pem.new", false),
    ] {
        assert_eq!(layout.is_certificate_file(name), expected, "{name}");
    }
}
