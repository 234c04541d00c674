use time::Duration;
use time::macros::datetime;
use windlass_pki::{PrivateKey, Serial, Subject, SystemRandom, Validity};

use super::*;

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

/// Creates a CA with a validity in hours relative to now.
fn authority(name: &str, from: i64, until: i64) -> CertificateAuthority {
    let validity = Validity::new(NOW + Duration::hours(from), NOW + Duration::hours(until));
    windlass_testkit::ca_with_validity(name, validity.unwrap())
}

struct TestCaPair {
    dir: tempfile::TempDir,
}

impl TestCaPair {
    fn new(certificate: &str, key: &CertificateAuthority, mode: u32) -> Self {
        let pair = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(pair.file(self_signed::CERTIFICATE), certificate).unwrap();
        fs::write(pair.file(self_signed::KEY), key.key().to_pem().unwrap().as_bytes()).unwrap();
        fs::set_permissions(pair.file(self_signed::KEY), fs::Permissions::from_mode(mode)).unwrap();
        pair
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, form: CaFileForm) -> SignerCa {
        SignerCa::read(&self.file(self_signed::CERTIFICATE), &self.file(self_signed::KEY), form)
    }

    fn self_signed(&self) -> SignerCa {
        let subject = Subject::new("made", &[]).unwrap();
        SignerCa::from_choice(&CaConfig::SelfSigned {
            directory: self.dir.path().to_owned(),
            key: windlass_pki::KeyType::EcdsaP256,
            subject,
            duration: std::time::Duration::from_secs(86400),
        })
    }
}

#[test]
fn a_valid_pair_is_described_completely() {
    let root = authority("root", -2, 48);
    let serial = Serial::random(&SystemRandom::new()).unwrap();
    let validity = Validity::new(NOW - Duration::HOUR, NOW + Duration::DAY).unwrap();
    let (subject, key) = (Subject::new("between", &[]).unwrap(), PrivateKey::generate().unwrap());
    let between = root.intermediate(&subject, validity, key, serial).unwrap();
    let chain = between.certificate().to_pem() + &root.certificate().to_pem();
    let pair = TestCaPair::new(&chain, &between, 0o640);
    let SignerCa::Files(files) = pair.read(CaFileForm::Chain) else { panic!() };
    assert_eq!((files.mode, files.facts.subject.as_str()), (0o640, "CN=between"));
    assert_eq!(files.anchor, root.certificate().der().as_ref());
    assert_eq!(files.valid, (NOW - Duration::HOUR, NOW + Duration::DAY));
    assert_eq!(files.facts.key, "ECDSA P-256");
    assert_eq!(files.facts.fingerprint.as_ref().map(String::len), Some(64));
    let SignerCa::Unusable(why) = pair.read(CaFileForm::One) else { panic!() };
    assert!(why.contains("more than one certificate"), "{why}");

    // Without its root, the intermediate is the trust anchor; the validity period is checked
    // elsewhere.
    let pair = TestCaPair::new(&between.certificate().to_pem(), &between, 0o600);
    let SignerCa::Files(files) = pair.read(CaFileForm::Chain) else { panic!() };
    assert_eq!(files.anchor, between.certificate().der().as_ref());
    let old = authority("old", -48, -24);
    let pair = TestCaPair::new(&old.certificate().to_pem(), &old, 0o600);
    assert!(matches!(pair.read(CaFileForm::One), SignerCa::Files(files) if files.valid.1 < NOW));
}

#[test]
fn an_invalid_pair_names_its_files_and_no_secret() {
    let (one, other) = (authority("one", -1, 24), authority("other", -1, 24));
    let good = one.certificate().to_pem();
    for (certificate, key, words) in [
        (good.as_str(), &other, "does not belong"),
        ("", &one, "ca.crt is empty"),
        ("rubbish", &one, "no certificate found"),
    ] {
        let pair = TestCaPair::new(certificate, key, 0o600);
        let SignerCa::Unusable(why) = pair.read(CaFileForm::Chain) else { panic!("{words}") };
        assert!(why.contains(words) && why.contains("ca.crt"), "{why}");
        assert!(!why.contains("PRIVATE"), "{why}");
    }
}

#[test]
fn a_self_signed_ca_is_not_generated_here() {
    let one = authority("one", -1, 24);
    let pair = TestCaPair::new(&one.certificate().to_pem(), &one, 0o600);
    assert!(matches!(pair.self_signed(), SignerCa::Files(_)));
    fs::remove_file(pair.file(self_signed::KEY)).unwrap();
    let SignerCa::Unusable(why) = pair.self_signed() else { panic!() };
    assert!(why.contains("ca.key is missing, but") && why.ends_with("ca.crt exists"), "{why}");
    fs::remove_file(pair.file(self_signed::CERTIFICATE)).unwrap();
    assert_eq!(pair.self_signed(), SignerCa::ToBeMade(pair.dir.path().to_owned()));
    assert_eq!(fs::read_dir(pair.dir.path()).unwrap().count(), 0);
}
