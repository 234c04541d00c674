use std::fs;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use time::macros::datetime;
use windlass_pki::{
    Certificate, KeyPurpose, LeafTemplate, PrivateKey, Serial, Subject, SystemRandom, Validity, issue,
};
use windlass_runtime::metrics::MetricsRegistry;

use super::*;

const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

/// CA certificate and key files, and the pairs written to them.
struct CaFiles {
    dir: tempfile::TempDir,
}

struct PemPair {
    certificate: String,
    key: String,
}

impl CaFiles {
    fn with_pair(pair: &PemPair) -> CaFiles {
        let files = CaFiles { dir: tempfile::tempdir().unwrap() };
        files.write(pair);
        files
    }

    fn write(&self, pair: &PemPair) {
        fs::write(self.certificate_file(), &pair.certificate).unwrap();
        fs::write(self.key_file(), &pair.key).unwrap();
    }

    fn certificate_file(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    fn key_file(&self) -> PathBuf {
        self.dir.path().join("ca.key")
    }

    fn source(&self) -> Arc<CaSource> {
        CaSource::from_files(self.certificate_file(), self.key_file(), Arc::new(|| NOW))
    }
}

fn serial() -> Serial {
    Serial::random(&SystemRandom::new()).unwrap()
}

/// Generates a pair that is valid for `from..until` hours from now.
fn pair(name: &str, from: i64, until: i64) -> PemPair {
    let hours = time::Duration::hours;
    let validity = Validity::new(NOW + hours(from), NOW + hours(until)).unwrap();
    let subject = Subject::new(name, &[]).unwrap();
    let key = PrivateKey::generate().unwrap();
    let authority = CertificateAuthority::self_signed(&subject, validity, key, serial()).unwrap();
    to_pem_pair(authority.certificate(), &authority.key().to_pem().unwrap())
}

fn to_pem_pair(certificate: &Certificate, key: &str) -> PemPair {
    PemPair { certificate: certificate.to_pem(), key: key.to_owned() }
}

/// Generates a leaf certificate, which may not sign, with its key.
fn leaf() -> PemPair {
    let good = pair("issuer", -1, 24);
    let authority = CertificateAuthority::from_pem(good.certificate.as_bytes(), good.key.as_bytes()).unwrap();
    let key = PrivateKey::generate().unwrap();
    let der = signed(&authority, "leaf", &key);
    to_pem_pair(&Certificate::from_der(&der).unwrap(), &key.to_pem().unwrap())
}

fn signed(authority: &CertificateAuthority, name: &str, key: &PrivateKey) -> Vec<u8> {
    let leaf = LeafTemplate {
        subject: Subject::new(name, &[]).unwrap(),
        alt_names: Vec::new(),
        purposes: vec![KeyPurpose::ClientAuth],
        validity: Validity::lasting(NOW, time::Duration::HOUR).unwrap(),
        public_key: key.public_key(),
        serial: serial(),
    };
    issue(authority, &leaf).unwrap()
}

/// Invalid pairs with their names and error messages.
fn bad_pairs() -> Vec<(&'static str, PemPair, &'static str)> {
    let good = pair("good", -1, 24);
    let other = pair("other", -1, 24);
    let half = |text: &str| text[..text.len() / 2].to_owned();
    let mixed =
        |certificate: &str, key: &str| PemPair { certificate: certificate.to_owned(), key: key.to_owned() };
    vec![
        ("mismatched", mixed(&good.certificate, &other.key), "does not belong"),
        ("half a certificate", mixed(&half(&good.certificate), &good.key), "does not end"),
        ("half a key", mixed(&good.certificate, &half(&good.key)), "does not end"),
        ("no certificate", mixed("", &good.key), "is empty"),
        ("no key", mixed(&good.certificate, ""), "is empty"),
        ("garbage", mixed("\u{1}garbage", "garbage"), "no certificate found"),
        (
            "two certificates",
            mixed(&format!("{}{}", good.certificate, other.certificate), &good.key),
            "more than one certificate",
        ),
        ("a leaf", leaf(), "not a certificate authority"),
        ("expired", pair("old", -48, -1), "expired at"),
        ("not valid yet", pair("young", 1, 24), "is not valid before"),
    ]
}

/// Returns a CA, its issuer, and that issuer's self-signed root.
fn chain() -> [CertificateAuthority; 3] {
    let validity = Validity::new(NOW - time::Duration::HOUR, NOW + time::Duration::DAY).unwrap();
    let next = |above: Option<&CertificateAuthority>, name| {
        let (subject, key) = (Subject::new(name, &[]).unwrap(), PrivateKey::generate().unwrap());
        match above {
            Some(above) => above.intermediate(&subject, validity, key, serial()).unwrap(),
            None => CertificateAuthority::self_signed(&subject, validity, key, serial()).unwrap(),
        }
    };
    let root = next(None, "root");
    let middle = next(Some(&root), "middle");
    let ca = next(Some(&middle), "ca");
    [ca, middle, root]
}

#[test]
fn a_chain_ends_before_the_self_signed_root() {
    let authorities = chain();
    let [ca, middle, root] = authorities.each_ref().map(|each| each.certificate().to_pem());
    let key = authorities[0].key().to_pem().unwrap().to_string();
    let source = |certificates: &[&String]| {
        let pair = PemPair { certificate: certificates.iter().copied().cloned().collect(), key: key.clone() };
        let files = CaFiles::with_pair(&pair);
        CaSource::from_chain_files(files.certificate_file(), files.key_file(), Arc::new(|| NOW))
    };
    // Certificates in the file, chain that is sent, and trust anchor.
    let table: [(&[&String], &[&str], &str); 3] = [
        (&[&ca], &["ca"], "ca"),
        (&[&ca, &middle], &["ca", "middle"], "ca"),
        (&[&ca, &middle, &root], &["ca", "middle"], "root"),
    ];
    for (certificates, sent, trusted) in table {
        let current = source(certificates).current().unwrap();
        assert_eq!(current.certificate().common_name(), Some("ca"));
        let found: Vec<&str> = current.intermediates().map(|each| each.common_name().unwrap()).collect();
        assert_eq!(found, sent);
        assert_eq!(current.anchor().common_name(), Some(trusted));
    }
    let old = pair("old", -48, -1).certificate;
    let bad: [&[&String]; 4] =
        [&[&ca, &root], &[&ca, &root, &middle], &[&middle, &ca], &[&ca, &middle, &old]];
    for certificates in bad {
        let error = source(certificates).error().unwrap();
        assert!(error.contains("are not in order of issuance"), "{error}");
    }
}

#[test]
fn a_chain_that_changes_is_a_change() {
    let authorities = chain();
    let [ca, middle, root] = authorities.each_ref().map(|each| each.certificate().to_pem());
    let key = authorities[0].key().to_pem().unwrap().to_string();
    let files = CaFiles::with_pair(&PemPair { certificate: ca.clone(), key: key.clone() });
    let source = CaSource::from_chain_files(files.certificate_file(), files.key_file(), Arc::new(|| NOW));
    files.write(&PemPair { certificate: format!("{ca}{middle}{root}"), key });
    source.reload();
    assert_eq!(*source.changes().borrow(), 2);
    assert_eq!(source.current().unwrap().anchor().common_name(), Some("root"));
    // Built-in Kubernetes signers reject a chain: they take one certificate.
    assert!(files.source().current().is_none());
}

/// An invalid pair at startup degrades the signer until the files are valid; waiting requests are
/// woken then.
#[test]
fn an_invalid_pair_at_startup_is_reported_until_it_is_valid() {
    let good = CaFiles::with_pair(&pair("good", -1, 24)).source();
    assert!(good.current().is_some() && good.error().is_none());
    let next = pair("next", -1, 24);
    let registry = MetricsRegistry::new();
    let metrics = CaMetrics::register(&registry);
    for (what, bad, said) in bad_pairs() {
        let files = CaFiles::with_pair(&bad);
        let source = files.source();
        metrics.add_source("example.com/degraded", &source);
        assert!(source.current().is_none(), "{what}");
        let problem = source.error().unwrap();
        assert!(problem.contains(said), "{what}: {problem}");
        // Requesters see the cause, but not the operator's file paths.
        let told = source.unavailable_message();
        let folder = files.dir.path().to_str().unwrap();
        assert!(told.starts_with("the signer's CA cannot be used: "), "{what}: {told}");
        assert!(!told.contains(folder) && problem.contains(folder), "{what}: {told}");
        let text = registry.encode();
        let gauge = "windlass_signer_ca_degraded{signer=\"example.com/degraded\"} 1\n";
        assert!(text.contains(gauge), "{what}: {text}");
        let absent = "windlass_signer_ca_expiration_seconds{signer=\"example.com/degraded\"}";
        assert!(!text.contains(absent), "{what}: {text}");

        assert_eq!(*source.changes().borrow(), 0, "{what}");
        files.write(&next);
        source.reload();
        assert_eq!(source.current().unwrap().certificate().common_name(), Some("next"), "{what}");
        assert_eq!((source.error(), *source.changes().borrow()), (None, 1), "{what}");
    }
    let files = CaFiles::with_pair(&next);
    fs::remove_file(files.key_file()).unwrap();
    assert!(files.source().current().is_none());
}

#[test]
fn a_further_check_counts_as_any_other() {
    let files = CaFiles::with_pair(&pair("theirs", -1, 24));
    let check: CaCheck = Box::new(|ca| {
        ensure!(ca.common_name() == Some("ours"), "is not the CA that other servers use");
        Ok(())
    });
    let clock: Clock = Arc::new(|| NOW);
    let source = CaSource::from_files_with_check(files.certificate_file(), files.key_file(), check, clock);
    assert!(source.current().is_none());
    assert!(source.error().unwrap().ends_with("ca.crt is not the CA that other servers use"));
    files.write(&pair("ours", -1, 24));
    source.reload();
    assert!(source.current().is_some() && source.error().is_none());
}

#[test]
fn an_invalid_pair_leaves_the_last_valid_one_and_reports_the_reason() {
    let good = pair("good", -1, 24);
    let files = CaFiles::with_pair(&good);
    let source = files.source();
    let der = source.current().unwrap().certificate().der().clone();
    for (what, bad, said) in bad_pairs() {
        files.write(&bad);
        source.reload();
        assert_eq!(source.current().unwrap().certificate().der(), &der, "{what}");
        let problem = source.error().unwrap_or_default();
        assert!(problem.contains(said), "{what}: {problem}");
        assert!(!problem.contains("PRIVATE"), "{what}: {problem}");
    }
    fs::remove_file(files.certificate_file()).unwrap();
    source.reload();
    assert!(source.error().unwrap().contains("cannot read"));
    assert_eq!(*source.changes().borrow(), 1);

    files.write(&good);
    source.reload();
    assert_eq!(source.error(), None);
    assert_eq!(*source.changes().borrow(), 1, "the same pair is no change");
    files.write(&pair("next", -1, 24));
    source.reload();
    assert_eq!(source.current().unwrap().certificate().common_name(), Some("next"));
    assert_eq!(*source.changes().borrow(), 2);
}

#[test]
fn a_ca_that_expires_in_use_is_reported() {
    let files = CaFiles::with_pair(&pair("good", -1, 24));
    let hours = Arc::new(AtomicI64::new(0));
    let clock = hours.clone();
    let clock: Clock = Arc::new(move || NOW + time::Duration::hours(clock.load(SeqCst)));
    let source = CaSource::from_files(files.certificate_file(), files.key_file(), clock);
    let registry = MetricsRegistry::new();
    CaMetrics::register(&registry).add_source("example.com/told", &source);
    let told = |name: &str| {
        let text = registry.encode();
        let line = format!("{name}{{signer=\"example.com/told\"}} ");
        let value = text.lines().find_map(|l| l.strip_prefix(&line)).map(str::to_owned);
        value.unwrap_or_default()
    };
    assert_eq!(told("windlass_signer_ca_expiration_seconds"), "86400");
    assert_eq!(told("windlass_signer_ca_lifetime_seconds"), "90000");
    assert_eq!(told("windlass_signer_ca_degraded"), "0");
    hours.store(25, SeqCst);
    source.reload();
    assert_eq!(told("windlass_signer_ca_expiration_seconds"), "-3600");
    assert_eq!(told("windlass_signer_ca_degraded"), "1");
    assert!(source.error().unwrap().contains("expired at"));
    drop(source);
    assert_eq!(told("windlass_signer_ca_degraded"), "");
}

#[tokio::test(start_paused = true)]
async fn a_watched_ca_that_expires_is_reported_without_a_change_of_its_files() {
    let files = CaFiles::with_pair(&pair("good", -1, 24));
    let hours = Arc::new(AtomicI64::new(0));
    let clock = hours.clone();
    let clock: Clock = Arc::new(move || NOW + time::Duration::hours(clock.load(SeqCst)));
    let source = CaSource::from_files(files.certificate_file(), files.key_file(), clock);
    let watching = tokio::spawn(source.clone().watch());
    hours.store(25, SeqCst);
    let expired = async {
        while source.error().is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), expired).await.unwrap();
    assert!(source.error().unwrap().contains("expired at"));
    watching.abort();
}

#[tokio::test]
async fn files_that_change_are_reloaded() {
    let files = CaFiles::with_pair(&pair("first", -1, 24));
    let source = files.source();
    let following = tokio::spawn(source.clone().watch());
    let mut changes = source.changes();
    for (round, name) in ["second", "third"].into_iter().enumerate() {
        let next = pair(name, -1, 24);
        if round == 0 {
            files.write(&next);
        } else {
            // Replaces each file atomically by rename, as mounted Secrets do.
            let new = files.dir.path().join("new");
            fs::write(&new, &next.key).unwrap();
            fs::rename(&new, files.key_file()).unwrap();
            fs::write(&new, &next.certificate).unwrap();
            fs::rename(&new, files.certificate_file()).unwrap();
        }
        let patience = Duration::from_secs(30);
        tokio::time::timeout(patience, changes.changed()).await.unwrap().unwrap();
        assert_eq!(source.current().unwrap().certificate().common_name(), Some(name));
    }
    following.abort();
}

/// Writes valid and invalid pairs of every sort while another thread signs: every certificate comes
/// from one complete valid pair, and each valid pair is used once it is written.
#[test]
fn swaps_under_a_signer() {
    const SWAPS: usize = 200;
    let first = pair("good 0", -1, 24);
    let files = CaFiles::with_pair(&first);
    let source = files.source();
    let stop = AtomicBool::new(false);
    let signed = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let key = PrivateKey::generate().unwrap();
            let mut signed = 0;
            while !stop.load(SeqCst) {
                let ca = source.current().unwrap();
                let authority = ca.authority();
                let der = self::signed(authority, "reader", &key);
                let certificate = Certificate::from_der(&der).unwrap();
                assert!(authority.has_issued(&certificate));
                let name = authority.certificate().common_name().unwrap();
                // Between two invalid pairs the files may briefly contain the valid pair that both
                // were derived from.
                assert!(name.starts_with("good"), "signed by {name}");
                assert!(authority.certificate().validity().contains(NOW));
                signed += 1;
            }
            signed
        });
        // This thread reloads all the time, so also between the writes of the two files.
        let looker = scope.spawn(|| {
            while !stop.load(SeqCst) {
                source.reload();
            }
        });
        for round in 1..=SWAPS {
            // Generated each time: halves of two invalid pairs must not form a valid one in
            // between.
            let bad = bad_pairs();
            match bad.get(usize::from(rand::random::<u8>()) % (bad.len() * 2)) {
                Some((_, bad, _)) => files.write(bad),
                None => {
                    let name = format!("good {round}");
                    files.write(&pair(&name, -1, 24));
                    source.reload();
                    assert_eq!(source.current().unwrap().certificate().common_name(), Some(name.as_str()));
                    assert_eq!(source.error(), None);
                }
            }
        }
        stop.store(true, SeqCst);
        looker.join().unwrap();
        reader.join().unwrap()
    });
    assert!(signed > 0, "no thread signed");
}
