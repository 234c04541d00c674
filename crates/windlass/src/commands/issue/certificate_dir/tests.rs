use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use tempfile::TempDir;
use time::{Duration, OffsetDateTime};
use windlass_pki::{CertificateAuthority, PrivateKey, Serial, Subject, SystemRandom, Validity};

use super::*;

/// Creates a self-signed CA with this key.
pub fn authority(name: &str, key: PrivateKey) -> CertificateAuthority {
    let now = OffsetDateTime::now_utc();
    let validity = Validity::new(now - Duration::HOUR, now + Duration::HOUR).unwrap();
    let subject = Subject::new(name, &[]).unwrap();
    let serial = Serial::random(&SystemRandom::new()).unwrap();
    CertificateAuthority::self_signed(&subject, validity, key, serial).unwrap()
}

fn set(number: u8, anchors: bool) -> CertificateFiles {
    let key = PrivateKey::generate().unwrap();
    CertificateFiles {
        key: Zeroizing::new(format!("key {number}")),
        chain: authority(&format!("certificate {number}"), key).certificate().to_pem(),
        anchors: anchors.then(|| format!("anchors {number}")),
        note: format!("{{\"signer\": \"example.com/{number}\", \"usages\": [], \"keyType\": \"ed25519\"}}"),
    }
}

/// Reads the files by name, as users of the certificate do.
fn read_files(dir: &TempDir) -> BTreeMap<&'static str, String> {
    let read = |name| Some((name, fs::read_to_string(dir.path().join(name)).ok()?));
    FILES.into_iter().filter_map(read).collect()
}

fn entries(dir: &TempDir) -> Vec<String> {
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names = names.map(|name| name.into_string().unwrap()).collect::<Vec<_>>();
    names.sort();
    names
}

#[test]
fn a_set_replaces_another_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let place = CertificateDir::open(dir.path()).unwrap();
    place.must_be_free().unwrap();
    assert!(place.renewable().unwrap_err().to_string().contains("omit --renew"));
    place.write(set(1, true)).unwrap();
    let first = read_files(&dir);
    assert_eq!((first["tls.key"].as_str(), first["ca.crt"].as_str()), ("key 1", "anchors 1"));
    let mode = |name| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("tls.key"), mode("tls.crt")), (0o600, 0o644));

    let place = CertificateDir::open(dir.path()).unwrap();
    assert!(place.must_be_free().unwrap_err().to_string().contains("--renew"));
    let renewable = place.renewable().unwrap();
    assert_eq!(renewable.certificate.subject().common_name(), "certificate 1");
    assert_eq!(renewable.note.unwrap().signer, "example.com/1");
    place.write(set(2, false)).unwrap();
    let second = read_files(&dir);
    assert_eq!(second["tls.key"], "key 2");
    assert!(!second.contains_key("ca.crt"));
    // One set, its link, and three links into it: the old set is gone.
    let names = entries(&dir);
    assert_eq!(names.len(), 5, "{names:?}");
    CertificateDir::open(dir.path()).unwrap().write(set(3, true)).unwrap();
    assert_eq!(read_files(&dir)["ca.crt"], "anchors 3");
}

/// Leaves the state of a run that is killed after this many steps, without cleanup.
fn killed_after(steps: u8, dir: &TempDir) {
    let mut place = CertificateDir::open(dir.path()).unwrap();
    place.set.write(OsStr::new("tls.key"), b"new key", &access(KEY)).unwrap();
    if steps > 0 {
        place.link(true).unwrap();
    }
    if steps > 1 {
        symlink(&place.set_name, place.root.join(NEXT)).unwrap();
    }
    // Prevents the cleanup on drop.
    place.written = true;
}

#[test]
fn an_interruption_at_any_step_keeps_the_old_set() {
    for steps in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        CertificateDir::open(dir.path()).unwrap().write(set(1, false)).unwrap();
        let old = read_files(&dir);
        killed_after(steps, &dir);
        assert_eq!(read_files(&dir), old, "{steps}");
        let sets = |dir| entries(dir).into_iter().filter(|name| name.starts_with(SETS)).count();
        assert_eq!(sets(&dir), 2, "{steps}");
        // The next run finds the old set, and removes the key that has no certificate.
        let place = CertificateDir::open(dir.path()).unwrap();
        assert_eq!(place.renewable().unwrap().note.unwrap().signer, "example.com/1");
        place.write(set(2, true)).unwrap();
        assert_eq!(read_files(&dir)["tls.key"], "key 2");
        assert_eq!(sets(&dir), 1, "{steps}");
        assert!(!dir.path().join(NEXT).exists());
    }
}

#[test]
fn an_abandoned_issue_leaves_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("a/b");
    drop(CertificateDir::open(&new).unwrap());
    assert!(!new.exists());
    fs::create_dir_all(&new).unwrap();
    drop(CertificateDir::open(&new).unwrap());
    assert!(new.exists());
    assert_eq!(fs::read_dir(&new).unwrap().count(), 0);
}

#[test]
fn foreign_files_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tls.key"), "mine").unwrap();
    let place = CertificateDir::open(dir.path()).unwrap();
    assert!(place.must_be_free().is_err());
    let refused = place.renewable().unwrap_err().to_string();
    assert!(refused.contains("was not written by windlass issue"), "{refused}");
    drop(place);
    assert_eq!(fs::read_to_string(dir.path().join("tls.key")).unwrap(), "mine");
    assert_eq!(entries(&dir), ["tls.key"]);
}

#[test]
fn dangling_links_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    symlink("..data/tls.key", dir.path().join("tls.key")).unwrap();
    let place = CertificateDir::open(dir.path()).unwrap();
    place.must_be_free().unwrap();
    place.write(set(1, false)).unwrap();
    assert_eq!(read_files(&dir)["tls.key"], "key 1");
}

#[test]
fn a_second_process_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let _first = CertificateDir::open(dir.path()).unwrap();
    assert!(CertificateDir::open(dir.path()).err().unwrap().to_string().contains("another windlass issue"));
}

#[test]
fn a_directory_swapped_by_another_user_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let (home, victim) = (dir.path().join("home"), dir.path().join("victim"));
    fs::create_dir(&home).unwrap();
    fs::create_dir(&victim).unwrap();
    let place = CertificateDir::open(&home.join("tls")).unwrap();
    // The owner of the parent directory replaces both between two steps.
    fs::rename(home.join("tls").join(&place.set_name), home.join("set")).unwrap();
    symlink(&victim, home.join("tls").join(&place.set_name)).unwrap();
    fs::rename(home.join("tls"), home.join("moved")).unwrap();
    symlink(&victim, home.join("tls")).unwrap();
    place.write(set(1, true)).unwrap();
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(home.join("set/tls.key")).unwrap(), "key 1");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(&home, Some(65534), Some(65534)).unwrap();
        let error = format!("{:#}", CertificateDir::open(&home.join("tls")).err().unwrap());
        assert!(error.contains("refusing to follow the symlink"), "{error}");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    }
}
