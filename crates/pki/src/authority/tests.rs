use std::fs;
use std::process::Command;
use std::time::Duration as StdDuration;

use aws_lc_rs::rand::SystemRandom;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage as Eku, anchor_from_trusted_cert};

use super::*;

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

fn days(days: i64) -> Validity {
    Validity::lasting(NOW, Duration::days(days)).unwrap()
}

fn serial() -> Serial {
    Serial::random(&SystemRandom::new()).unwrap()
}

fn authority(name: &str) -> CertificateAuthority {
    let subject = Subject::new(name, &[]).unwrap();
    CertificateAuthority::self_signed(&subject, days(3650), PrivateKey::generate().unwrap(), serial())
        .unwrap()
}

fn server<'a>(key: &'a PrivateKey, names: &[AltName]) -> LeafTemplate<'a> {
    LeafTemplate {
        subject: Subject::new("kube-apiserver", &[]).unwrap(),
        alt_names: names.to_vec(),
        purposes: vec![KeyPurpose::ServerAuth],
        validity: days(365),
        public_key: key.public_key(),
        serial: serial(),
    }
}

fn client<'a>(key: &'a PrivateKey, groups: &[&str]) -> LeafTemplate<'a> {
    LeafTemplate {
        subject: Subject::new("jane", groups).unwrap(),
        alt_names: Vec::new(),
        purposes: vec![KeyPurpose::ClientAuth],
        ..server(key, &[])
    }
}

fn names() -> Vec<AltName> {
    vec![
        AltName::Dns("localhost".into()),
        AltName::Dns("*.example.com".into()),
        AltName::Ip("10.96.0.1".parse().unwrap()),
        AltName::Ip("::1".parse().unwrap()),
        AltName::Uri("spiffe://example.com/ns/a/sa/b".into()),
    ]
}

fn webpki(authority: &CertificateAuthority, leaf: &[u8], usage: Eku) -> Result<(), webpki::Error> {
    let leaf = CertificateDer::from(leaf);
    let anchors = [anchor_from_trusted_cert(authority.certificate().der()).unwrap()];
    let seconds = u64::try_from(NOW.unix_timestamp()).unwrap();
    let now = UnixTime::since_unix_epoch(StdDuration::from_secs(seconds));
    let leaf = EndEntityCert::try_from(&leaf)?;
    leaf.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &[], now, usage, None, None)?;
    Ok(())
}

/// Verifies a certificate with OpenSSL and returns its text output.
fn openssl(authority: &CertificateAuthority, leaf: &[u8], purpose: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let (ca, certificate) = (directory.path().join("ca.crt"), directory.path().join("leaf.crt"));
    fs::write(&ca, authority.certificate().to_pem()).unwrap();
    fs::write(&certificate, crate::pem::encode_certificates([leaf])).unwrap();
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{complaint}");
        String::from_utf8(output.stdout).unwrap()
    };
    let at = NOW.unix_timestamp().to_string();
    run(Command::new("openssl")
        .args(["verify", "-x509_strict", "-check_ss_sig", "-attime", &at, "-purpose", purpose])
        .arg("-CAfile")
        .args([&ca, &certificate]));
    run(Command::new("openssl").args(["x509", "-noout", "-text", "-in"]).arg(&certificate))
}

#[test]
fn openssl_verifies_and_reads_a_serving_certificate() {
    let (authority, key) = (authority("ca"), PrivateKey::generate().unwrap());
    let leaf = server(&key, &names());
    let text = openssl(&authority, &issue(&authority, &leaf).unwrap(), "sslserver");
    for expected in [
        "Version: 3",
        "Issuer: CN = ca",
        "Subject: CN = kube-apiserver",
        "Signature Algorithm: ecdsa-with-SHA256",
        "Not Before: Jun  1 12:00:00 2026 GMT",
        "Not After : Jun  1 12:00:00 2027 GMT",
        "X509v3 Basic Constraints: critical\n                CA:FALSE",
        "X509v3 Key Usage: critical\n                Digital Signature\n",
        "X509v3 Extended Key Usage: \n                TLS Web Server Authentication\n",
        "X509v3 Subject Key Identifier:",
        "X509v3 Authority Key Identifier:",
        "DNS:localhost, DNS:*.example.com, IP Address:10.96.0.1, IP Address:0:0:0:0:0:0:0:1, \
         URI:spiffe://example.com/ns/a/sa/b",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
}

#[test]
fn openssl_reads_every_group_of_a_client() {
    let (authority, key) = (authority("ca"), PrivateKey::generate().unwrap());
    let leaf = client(&key, &["system:nodes", "team:alpha", "team:beta"]);
    let text = openssl(&authority, &issue(&authority, &leaf).unwrap(), "sslclient");
    let subject = "Subject: O = system:nodes, O = team:alpha, O = team:beta, CN = jane";
    assert!(text.contains(subject), "{text}");
    assert!(text.contains("TLS Web Client Authentication"), "{text}");
    assert!(!text.contains("Subject Alternative Name"), "{text}");
}

#[test]
fn openssl_reads_an_authority() {
    let authority = authority("ca");
    let text = openssl(&authority, authority.certificate().der(), "any");
    for expected in [
        "X509v3 Basic Constraints: critical\n                CA:TRUE\n",
        "X509v3 Key Usage: critical\n                Digital Signature, Certificate Sign, CRL Sign",
        "X509v3 Subject Key Identifier:",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
}

#[test]
fn webpki_verifies_for_the_purpose_only() {
    let (authority, key) = (authority("ca"), PrivateKey::generate().unwrap());
    let serving = issue(&authority, &server(&key, &names())).unwrap();
    webpki(&authority, &serving, Eku::server_auth()).unwrap();
    assert!(webpki(&authority, &serving, Eku::client_auth()).is_err());
    let client = issue(&authority, &client(&key, &["a"])).unwrap();
    webpki(&authority, &client, Eku::client_auth()).unwrap();
    assert!(webpki(&authority, &client, Eku::server_auth()).is_err());

    let serving = CertificateDer::from(serving);
    let serving = EndEntityCert::try_from(&serving).unwrap();
    for name in ["localhost", "a.example.com", "10.96.0.1", "::1"] {
        serving.verify_is_valid_for_subject_name(&ServerName::try_from(name).unwrap()).unwrap();
    }
    let other = ServerName::try_from("example.com").unwrap();
    assert!(serving.verify_is_valid_for_subject_name(&other).is_err());

    // A CA with the same name but another key.
    let impostor = self::authority("ca");
    let forged = issue(&impostor, &server(&key, &names())).unwrap();
    assert!(webpki(&authority, &forged, Eku::server_auth()).is_err());
    let forged = Certificate::from_der(&forged).unwrap();
    assert!(impostor.has_issued(&forged) && !authority.has_issued(&forged));
}

#[test]
fn openssl_and_webpki_take_other_kinds_of_authority() {
    for arguments in [
        "genrsa 2048",
        "genpkey -algorithm ed25519",
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384",
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-521",
    ] {
        let output = Command::new("openssl").args(arguments.split(' ')).output().unwrap();
        let key = PrivateKey::from_pem(&output.stdout).unwrap();
        let rsa = arguments.contains("rsa");
        let leaf_key = PrivateKey::from_pem(&output.stdout).unwrap();
        let subject = Subject::new("ca", &["example"]).unwrap();
        let authority = CertificateAuthority::self_signed(&subject, days(10), key, serial()).unwrap();
        let leaf = issue(&authority, &server(&leaf_key, &names())).unwrap();
        let text = openssl(&authority, &leaf, "sslserver");
        assert_eq!(text.contains("Digital Signature, Key Encipherment"), rsa, "{text}");
        webpki(&authority, &leaf, Eku::server_auth()).unwrap();
        assert!(authority.has_issued(&Certificate::from_der(&leaf).unwrap()));
    }
}

#[test]
fn issued_certificates_can_be_read_back() {
    let (authority, key) = (authority("ca"), PrivateKey::generate().unwrap());
    let groups = ["system:masters", "équipe"];
    let mut leaf = client(&key, &groups);
    leaf.alt_names = names();
    let certificate = Certificate::from_der(&issue(&authority, &leaf).unwrap()).unwrap();
    assert_eq!(certificate.common_name(), Some("jane"));
    assert_eq!(certificate.organizations(), groups);
    assert_eq!(certificate.alt_names(), names());
    assert_eq!(certificate.purposes(), Some(&[KeyPurpose::ClientAuth][..]));
    assert!(certificate.allows(&KeyPurpose::ClientAuth) && !certificate.allows(&KeyPurpose::ServerAuth));
    assert_eq!(certificate.validity(), leaf.validity);
    assert_eq!(certificate.serial(), leaf.serial.as_bytes());
    assert_eq!(certificate.public_key(), key.public_key());
    assert!(certificate.has_issuer_name_of(authority.certificate()));
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate.der());
    assert_eq!(&certificate.fingerprint()[..], hash.as_ref());
    assert!(certificate.check_authority().is_err());
}

#[test]
fn never_outlives_the_authority() {
    let (authority, key) = (authority("ca"), PrivateKey::generate().unwrap());
    let mut leaf = server(&key, &names());
    leaf.validity = Validity::lasting(NOW - Duration::days(1), Duration::days(36500)).unwrap();
    let certificate = Certificate::from_der(&issue(&authority, &leaf).unwrap()).unwrap();
    assert_eq!(certificate.validity(), authority.certificate().validity());
    leaf.validity = Validity::lasting(NOW + Duration::days(4000), Duration::days(1)).unwrap();
    assert!(matches!(issue(&authority, &leaf), Err(Error::EmptyValidity(_))));
}

#[test]
fn refuses_names_that_cannot_be_certified() {
    let (authority, key) = (authority("ca"), PrivateKey::generate().unwrap());
    let long = "a".repeat(254);
    for bad in ["", "a b", "a\0b", "ü.example", &long] {
        let leaf = server(&key, &[AltName::Dns(bad.into())]);
        assert!(matches!(issue(&authority, &leaf), Err(Error::InvalidName { .. })), "{bad:?}");
    }
    let mut nobody = server(&key, &[]);
    nobody.subject = Subject::new("", &[]).unwrap();
    assert!(matches!(issue(&authority, &nobody), Err(Error::InvalidName { .. })));
    nobody.alt_names = names();
    let text = openssl(&authority, &issue(&authority, &nobody).unwrap(), "sslserver");
    assert!(text.contains("X509v3 Subject Alternative Name: critical"), "{text}");
}

#[test]
fn loads_only_a_matching_pair_of_an_authority() {
    let (one, two) = (authority("ca"), authority("ca"));
    let pem = |authority: &CertificateAuthority| {
        (authority.certificate().to_pem(), authority.key().to_pem().unwrap())
    };
    let ((certificate, key), (other, other_key)) = (pem(&one), pem(&two));
    let load =
        |certificate: &str, key: &str| CertificateAuthority::from_pem(certificate.as_bytes(), key.as_bytes());
    let loaded = load(&certificate, &key).unwrap();
    assert_eq!(loaded.certificate().der(), one.certificate().der());
    assert_eq!(load(&certificate, &other_key).unwrap_err(), Error::KeyMismatch);
    assert_eq!(load(&other, &key).unwrap_err(), Error::KeyMismatch);
    let both = format!("{certificate}{other}");
    assert!(matches!(load(&both, &key).unwrap_err(), Error::Pem(_)));
    assert!(matches!(load(&key, &certificate).unwrap_err(), Error::Pem(_)));

    let leaf_key = PrivateKey::generate().unwrap();
    let leaf = issue(&one, &server(&leaf_key, &names())).unwrap();
    let leaf = crate::pem::encode_certificates([leaf.as_slice()]);
    let refused = load(&leaf, &leaf_key.to_pem().unwrap()).unwrap_err();
    assert!(matches!(refused, Error::NotAuthority(_)), "{refused}");
}

#[test]
fn survives_every_mutation_of_a_certificate() {
    let (authority, key) = (authority("ca"), PrivateKey::generate().unwrap());
    let leaf = issue(&authority, &server(&key, &names())).unwrap();
    for position in 0..leaf.len() {
        for byte in [0, 1, 0x30, 0x31, 0x7f, 0x80, 0x82, 0x84, 0xff] {
            let mut mutant = leaf.clone();
            if let Some(place) = mutant.get_mut(position) {
                *place = byte;
            }
            let _ = Certificate::from_der(&mutant);
        }
        assert!(Certificate::from_der(leaf.get(..position).unwrap()).is_err());
    }
    let mut longer = leaf.clone();
    longer.push(0);
    assert!(Certificate::from_der(&longer).is_err());
}

#[test]
fn deep_and_wide_der_is_refused_quickly() {
    let mut deep = Vec::new();
    for _ in 0..10_000 {
        deep.extend_from_slice(&[0x30, 0x80]);
    }
    assert!(Certificate::from_der(&deep).is_err());
    assert!(Certificate::from_der(&vec![0x30; MAX_CERTIFICATE]).is_err());
    assert!(matches!(Certificate::from_der(&vec![0; MAX_CERTIFICATE + 1]), Err(Error::TooLarge { .. })));
}

const MAX_CERTIFICATE: usize = crate::limits::MAX_CERTIFICATE_BYTES;

#[test]
fn accepts_exactly_one_certificate_and_key() {
    let authority = authority("ca");
    let (certificate, key) = (authority.certificate().to_pem(), authority.key().to_pem().unwrap());
    let twice = format!("{certificate}{certificate}");
    let several = |what| Error::from(crate::pem::PemError::Several(what));
    let missing = |what| Error::from(crate::pem::PemError::Missing(what));
    let read = |certificate: &str, key: &str| {
        CertificateAuthority::from_pem(certificate.as_bytes(), key.as_bytes()).map(|_| ())
    };
    assert_eq!(read(&certificate, &key), Ok(()));
    assert_eq!(read(&format!("text\n{certificate}{}", *key), &key), Ok(()));
    assert_eq!(read(&twice, &key), Err(several("certificate")));
    assert_eq!(read(&key, &key), Err(missing("certificate")));
    assert_eq!(read(&certificate, &certificate), Err(missing("private key")));
    assert_eq!(read(&certificate, &format!("{}{}", *key, *key)), Err(several("private key")));
    // A truncated second certificate must fail, not be ignored.
    let half = format!("{certificate}{}", &certificate[..certificate.len() / 2]);
    assert!(read(&half, &key).is_err());
}

#[test]
fn reads_the_issuers_of_an_authority() {
    let root = authority("root");
    let next = |parent: &CertificateAuthority, name: &str| {
        let subject = Subject::new(name, &[]).unwrap();
        parent.intermediate(&subject, days(30), PrivateKey::generate().unwrap(), serial()).unwrap()
    };
    let middle = next(&root, "middle");
    let last = next(&middle, "last");
    let key = last.key().to_pem().unwrap();
    let read = |chain: &[&CertificateAuthority]| {
        let pem = chain.iter().map(|authority| authority.certificate().to_pem());
        CertificateAuthority::from_chain_pem(pem.collect::<String>().as_bytes(), key.as_bytes())
    };
    for (chain, length) in [(&[&last][..], 0), (&[&last, &middle], 1), (&[&last, &middle, &root], 2)] {
        let (authority, vouching) = read(chain).unwrap();
        assert_eq!(authority.certificate().der(), last.certificate().der());
        assert_eq!(vouching.len(), length);
    }
    assert_eq!(read(&[&last, &root]).unwrap_err(), Error::BrokenChain);
    assert_eq!(read(&[&last, &middle, &last]).unwrap_err(), Error::BrokenChain);
    // Correct issuer name, but signed by another key.
    assert_eq!(read(&[&last, &next(&root, "middle")]).unwrap_err(), Error::BrokenChain);
    assert_eq!(read(&[&middle, &root]).unwrap_err(), Error::KeyMismatch);
}

#[test]
fn intermediates_stay_below_the_path_length_of_their_issuer() {
    let root = authority("root");
    let below = |parent: &CertificateAuthority, max_path_length| {
        let subject = Subject::new("below", &[]).unwrap();
        let template = IntermediateTemplate {
            subject: &subject,
            validity: days(30),
            serial: serial(),
            max_path_length,
            crl_distribution_points: &[],
        };
        parent.issue_intermediate(&template, PrivateKey::generate().unwrap())
    };
    let two = below(&root, Some(2)).unwrap();
    for (requested, granted) in [(None, 1), (Some(0), 0), (Some(1), 1), (Some(2), 1), (Some(255), 1)] {
        let next = below(&two, requested).unwrap();
        assert_eq!(next.certificate().max_path_length(), Some(granted), "{requested:?}");
    }
    assert_eq!(below(&root, None).unwrap().certificate().max_path_length(), None);
    let last = below(&root, Some(0)).unwrap();
    assert!(matches!(below(&last, None), Err(Error::NotAuthority(_))));
    let key = PrivateKey::generate().unwrap();
    let leaf = issue(&last, &server(&key, &names())).unwrap();
    assert!(last.has_issued(&Certificate::from_der(&leaf).unwrap()));
}

#[test]
fn the_id_of_an_authority_is_its_key_identifier() {
    let authority = authority("ca");
    let id = authority.certificate().authority_id();
    let computed = authority.key().public_key().identifier().unwrap();
    assert_eq!(id, computed.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    assert_eq!(id.len(), 40);
    // Certificates as Kubernetes issues them have no subject key identifier.
    let key = PrivateKey::generate().unwrap();
    let certificate = |extensions| {
        let contents = CertificateContents {
            serial: serial(),
            issuer: authority.certificate().subject_der(),
            subject: authority.certificate().subject_der(),
            validity: days(1),
            public_key: key.public_key(),
            extensions,
        };
        Certificate::from_der(&contents.sign(&authority.key).unwrap()).unwrap()
    };
    let fallback = certificate(Vec::new()).authority_id();
    assert_eq!(fallback.len(), 40);
    for unusable in [vec![], vec![1; 65]] {
        let extension = subject_key_identifier(&unusable).unwrap();
        assert_eq!(certificate(vec![extension]).authority_id(), fallback);
    }
    let extension = subject_key_identifier(&[0xab; 3]).unwrap();
    assert_eq!(certificate(vec![extension]).authority_id(), "ababab");
}
