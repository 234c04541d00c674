use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::testing::{CertificateFixture, DiskFailure, FailingDisk, START};
use crate::volume_certificates::testing::{host_id, id, source};
use tempfile::TempDir;
use time::Duration;
use windlass_pki::AltNames;

fn test_spec(dir: &TempDir) -> CertificateSpec {
    CertificateSpec {
        source: source("ECDSAP256"),
        subject: CertificateSubject::Pod { service_account: "frontend".into() },
        state: dir.path().join("certificates"),
    }
}

fn current(subject: &CertificateSubject) -> Arc<IssuedCertificate> {
    let key = PrivateKey::generate().unwrap();
    let chain = format!(
        "a note\n{}between\n{}",
        CertificateFixture::client(START).pem(key.public_key()),
        CertificateFixture::client(START).pem(PrivateKey::generate().unwrap().public_key())
    );
    let begin = Some(START + Duration::hours(7));
    Arc::new(IssuedCertificate::issued(&key, &chain, subject, begin, START).unwrap())
}

fn begun() -> Arc<PendingRequest> {
    Arc::new(PendingRequest { name: "req-1".into(), key: PrivateKey::generate().unwrap() })
}

type Pair = (String, String, RenewalTimes);

fn shape(kept: &CertificateState) -> (Option<Pair>, Option<(String, Vec<u8>)>) {
    let current = kept.current.as_ref();
    let current = current.map(|c| (c.key.to_string(), c.chain.clone(), c.times));
    let begun = kept.begun.as_ref();
    (current, begun.map(|b| (b.name.clone(), b.key.public_key().as_der().to_vec())))
}

#[test]
fn round_trips_through_disk() {
    let dir = tempfile::tempdir().unwrap();
    let host = CertificateSubject::Host { common_name: None, names: AltNames::default() };
    for (id, subject) in [(id("web", 1), test_spec(&dir).subject), (host_id("edge"), host)] {
        let wanted = CertificateSpec { subject: subject.clone(), ..test_spec(&dir) };
        let (place, files) = (StateFile::for_source(&id, &wanted), FileSystem::default());
        assert_eq!(shape(&place.load(&files).kept), (None, None));
        for kept in [
            CertificateState { current: None, begun: Some(begun()) },
            CertificateState { current: Some(current(&subject)), begun: None },
            CertificateState { current: Some(current(&subject)), begun: Some(begun()) },
            CertificateState::default(),
        ] {
            place.save(&files, &kept).unwrap();
            let loaded = place.load(&files);
            assert_eq!((loaded.warning, loaded.outdated), (None, false));
            assert_eq!(shape(&loaded.kept), shape(&kept));
        }
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&place.path), mode(&wanted.state)), (0o600, 0o700));
        place.remove(&files).unwrap();
        assert!(!place.path.exists());
    }
}

#[test]
fn a_chain_is_written_clean() {
    let chain = &current(&CertificateSubject::Pod { service_account: "a".into() }).chain;
    assert!(chain.starts_with("-----BEGIN CERTIFICATE-----\n"), "{chain}");
    assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(!chain.contains("note") && !chain.contains("between"));
}

#[test]
fn damaged_state_is_reported_and_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = test_spec(&dir);
    let (place, files) = (StateFile::for_source(&id("web", 0), &wanted), FileSystem::default());
    place
        .save(&files, &CertificateState { current: Some(current(&wanted.subject)), begun: Some(begun()) })
        .unwrap();
    let good = fs::read(&place.path).unwrap();
    let lines = good.split_inclusive(|byte| *byte == b'\n').collect::<Vec<_>>();
    let mut bad = vec![Vec::new(), b"{}\n".to_vec(), b"\xff\xfe\n".to_vec(), vec![0; 4096]];
    // Truncated after every line, and with every line missing.
    bad.extend((1..lines.len()).map(|end| lines[..end].concat()));
    for missing in 0..lines.len() {
        let mut rest = lines.clone();
        rest.remove(missing);
        bad.push(rest.concat());
    }
    // A key and a certificate that do not match.
    let other = place.text(&CertificateState { current: Some(current(&wanted.subject)), begun: None });
    let (head, rest) = other.split_once('\n').unwrap();
    let key = PrivateKey::generate().unwrap().to_pem().unwrap();
    let chain = &rest[rest.find("-----BEGIN CERTIFICATE").unwrap()..];
    bad.push(format!("{head}\n{}{chain}", *key).into_bytes());
    bad.push([good.as_slice(), key.as_bytes()].concat());
    let version = String::from_utf8(good.clone()).unwrap().replacen(":1,", ":2,", 1);
    bad.push(version.into_bytes());
    for bad in bad {
        fs::write(&place.path, &bad).unwrap();
        let loaded = place.load(&files);
        assert!(loaded.warning.is_some(), "{}", String::from_utf8_lossy(&bad));
        assert_eq!(shape(&loaded.kept), (None, None));
    }
    fs::remove_file(&place.path).unwrap();
    fs::create_dir(&place.path).unwrap();
    assert!(place.load(&files).warning.is_some());
}

#[test]
fn another_definition_keeps_the_pair_unless_the_signer_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let (before, files) = (test_spec(&dir), FileSystem::default());
    let kept = CertificateState { current: Some(current(&before.subject)), begun: Some(begun()) };
    let change = |change: fn(&mut CertificateSpec)| {
        let mut wanted = before.clone();
        change(&mut wanted);
        StateFile::for_source(&id("web", 0), &wanted).save(&files, &kept).unwrap();
        let loaded = StateFile::for_source(&id("web", 0), &before).load(&files);
        let all = [loaded.kept.current.is_some(), loaded.kept.begun.is_some(), loaded.outdated];
        assert_eq!(loaded.warning, None);
        all
    };
    assert_eq!(change(|_| ()), [true, true, false]);
    assert_eq!(change(|w| w.source.owner = Some(7)), [true, true, false], "that is of its file");
    let table: [fn(&mut CertificateSpec); 4] = [
        |w| w.source.key_type = "ED25519".into(),
        |w| w.source.max_expiration_seconds = Some(3600),
        |w| w.source.user_annotations = BTreeMap::from([("a/b".into(), "c".into())]),
        |w| w.subject = CertificateSubject::Pod { service_account: "other".into() },
    ];
    for each in table {
        assert_eq!(change(each), [true, false, true]);
    }
    assert_eq!(change(|w| w.source.signer = "a.b/c".into()), [false, false, false]);
}

#[test]
fn crash_leaves_old_or_new_state() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = test_spec(&dir);
    let place = StateFile::for_source(&id("web", 0), &wanted);
    let old = CertificateState { current: Some(current(&wanted.subject)), begun: None };
    let new = CertificateState { current: old.current.clone(), begun: Some(begun()) };
    for operation in 0.. {
        place.save(&FileSystem::default(), &old).unwrap();
        let disk = FailingDisk::fail_at(operation, DiskFailure::Kill);
        let saved = place.save(&disk.files(), &new);
        let found = place.load(&FileSystem::default());
        assert_eq!(found.warning, None);
        let found = shape(&found.kept);
        assert!(found == shape(&old) || found == shape(&new), "{operation}");
        if !disk.was_hit() {
            saved.unwrap();
            assert_eq!(found, shape(&new));
            assert!(operation >= 4, "{operation}");
            return;
        }
    }
}

#[test]
fn names_of_volumes_are_fit_for_files_and_stay_apart() {
    let name = |name: &str| file_name(name);
    assert_eq!(name("tls"), "tls");
    for odd in ["", "..", "a/b", "../../etc", "a.b", &"x".repeat(300)] {
        let made = name(odd);
        assert!(made.len() < 100 && !made.contains('/') && made.ends_with('.'), "{made}");
        assert!(made.len() > 60);
    }
    assert_ne!(name("a/b"), name("a.b"));
}

#[test]
fn issued_certificate_is_validated() {
    let subject = CertificateSubject::Pod { service_account: "a".into() };
    let (key, other) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let good = CertificateFixture::client(START).pem(key.public_key());
    let judge = |chain: &str, now| {
        let issued = IssuedCertificate::issued(&key, chain, &subject, None, now);
        issued.map(|current| current.times).map_err(|why| why.to_string())
    };
    let day = Duration::DAY;
    let times = judge(&good, START).unwrap();
    assert_eq!((times.not_before, times.not_after), (START, START + day));
    assert_eq!(times.begin_refresh_at, START + Duration::hours(16), "two thirds");
    assert!(judge(&good, START + day).is_ok());
    let why = "the certificate expired at 2026-03-02T12:00:00Z, according to the local clock";
    assert_eq!(judge(&good, START + day + Duration::SECOND), Err(why.into()));
    let why = "the certificate belongs to another key";
    assert_eq!(judge(&CertificateFixture::client(START).pem(other.public_key()), START), Err(why.into()));
    let secret = format!("{good}{}", *other.to_pem().unwrap());
    for bad in ["", "text", &secret, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert!(judge(bad, START).is_err(), "{bad}");
    }
}
