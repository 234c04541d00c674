use std::os::unix::fs::PermissionsExt as _;

use time::macros::datetime;
use windlass_pki::{CertificateTemplate, CertificateUsages, IssuedSubject, issue_certificate};

use super::*;

const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn open_ca(directory: &Path, key: KeyType) -> Arc<CaSource> {
    let subject = Subject::new("Example CA", &[]).unwrap();
    let recipe = SelfSignedCaSpec { key, subject: &subject, lifetime: YEAR };
    open(directory, recipe, &(Arc::new(|| NOW) as Clock))
}

#[test]
fn a_ca_of_every_key_type_is_generated_once() {
    for key in [KeyType::EcdsaP256, KeyType::EcdsaP384, KeyType::Rsa3072, KeyType::Rsa4096, KeyType::Ed25519]
    {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("ca/mine");
        let made = open_ca(&directory, key).current().unwrap();
        let certificate = made.certificate();
        assert_eq!(certificate.common_name(), Some("Example CA"));
        assert_eq!(certificate.validity().not_after(), NOW + YEAR);
        assert!(certificate.is_self_signed());
        assert_eq!(made.intermediates().count(), 0);
        assert_eq!(made.anchor().der(), certificate.der());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&directory.join(KEY)), 0o600);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "nothing else is left there");
        // Later settings do not change an existing CA.
        let again = open_ca(&directory, KeyType::EcdsaP256).current().unwrap();
        assert_eq!(again.certificate().der(), certificate.der());
        // The CA can sign.
        let leaf = PrivateKey::generate().unwrap();
        let public = windlass_pki::SubjectKey::from_der(leaf.public_key().as_der()).unwrap();
        let wanted = CertificateTemplate {
            subject: IssuedSubject::new("leaf", &[]),
            alt_names: Default::default(),
            usages: CertificateUsages::from_names(&["client auth"]).unwrap(),
            validity: Validity::lasting(NOW, time::Duration::HOUR).unwrap(),
            public_key: &public,
            serial: Serial::random(&SystemRandom::new()).unwrap(),
            crl_distribution_points: Vec::new(),
        };
        issue_certificate(again.authority(), &wanted).unwrap();
    }
}

/// Returns the error for a CA that cannot be used.
fn problem(directory: &Path) -> String {
    let source = open_ca(directory, KeyType::EcdsaP256);
    assert!(source.current().is_none());
    source.error().unwrap()
}

#[test]
fn damaged_files_are_reported_and_unchanged() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path();
    assert!(open_ca(directory, KeyType::EcdsaP256).current().is_some());
    let files = [KEY, CERTIFICATE].map(|name| directory.join(name));
    let good = files.each_ref().map(|file| fs::read(file).unwrap());
    for (file, contents) in files.iter().zip(&good) {
        for bad in [&b""[..], b"garbage", contents.get(..contents.len() / 2).unwrap()] {
            fs::write(file, bad).unwrap();
            let error = problem(directory);
            assert!(error.contains(&file.display().to_string()), "{error}");
            assert_eq!(fs::read(file).unwrap(), bad);
        }
        fs::remove_file(file).unwrap();
        let error = problem(directory);
        assert!(error.contains(&file.display().to_string()), "{error}");
        assert!(!file.exists());
        fs::write(file, contents).unwrap();
        assert_eq!(open_ca(directory, KeyType::EcdsaP256).error(), None);
    }
}

#[test]
fn a_directory_that_cannot_be_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    let error = problem(&file.join("ca"));
    assert!(error.contains(&file.display().to_string()), "{error}");
}
