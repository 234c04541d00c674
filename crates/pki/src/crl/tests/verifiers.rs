//! What other implementations make of the lists: OpenSSL and rustls.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};

use super::*;
use crate::{AltName, DistributionPoint, IntermediateTemplate};

fn leaf(authority: &CertificateAuthority, serial: Serial) -> Vec<u8> {
    let key = PrivateKey::generate().unwrap();
    let template = LeafTemplate {
        subject: Subject::new("web", &[]).unwrap(),
        alt_names: vec![AltName::Dns("web.example.com".into())],
        purposes: vec![KeyPurpose::ServerAuth, KeyPurpose::ClientAuth],
        validity: Validity::lasting(NOW, Duration::DAY).unwrap(),
        public_key: key.public_key(),
        serial,
    };
    issue(authority, &template).unwrap()
}

fn openssl(directory: &Path, arguments: &[&str]) -> Output {
    Command::new("openssl").args(arguments).current_dir(directory).output().unwrap()
}

#[test]
fn openssl_reads_and_verifies_the_list() {
    for key_type in [KeyType::EcdsaP256, KeyType::EcdsaP384, KeyType::Rsa2048, KeyType::Ed25519] {
        let authority = authority_with("ca", PrivateKey::generate_type(key_type).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let write = |name, contents: &[u8]| fs::write(directory.path().join(name), contents).unwrap();
        let entries = [
            revoked(&[0x9f, 0x41], RevocationReason::KeyCompromise),
            revoked(&[0x41; 16], RevocationReason::Unspecified),
        ];
        let list = authority.sign_crl(&template(&entries)).unwrap();
        write("ca.crt", authority.certificate().to_pem().as_bytes());
        write("list.crl", list.der());
        write("list.pem", list.to_pem().as_bytes());
        for (file, form) in [("list.crl", "DER"), ("list.pem", "PEM")] {
            let output = openssl(
                directory.path(),
                &["crl", "-verify", "-CAfile", "ca.crt", "-inform", form, "-in", file, "-text", "-noout"],
            );
            let text = String::from_utf8(output.stdout).unwrap();
            let report = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success() && report.contains("verify OK"), "{key_type}: {report}");
            for expected in [
                "Version 2",
                "X509v3 CRL Number: \n                7\n",
                "X509v3 Authority Key Identifier:",
                "Last Update: Jun  1 12:00:00 2026 GMT",
                "Next Update: Jun  2 12:00:00 2026 GMT",
                "Serial Number: 9F41",
                "Revocation Date: Jun  1 11:00:00 2026 GMT",
                "X509v3 CRL Reason Code: \n                Key Compromise",
            ] {
                assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
            }
        }
    }
}

#[test]
fn openssl_rejects_a_revoked_certificate() {
    let authority = authority();
    let (good, bad) = (Serial::from_bytes([2; 16]), Serial::from_bytes([3; 16]));
    let directory = tempfile::tempdir().unwrap();
    let write = |name, contents: &[u8]| fs::write(directory.path().join(name), contents).unwrap();
    let entries = [revoked(bad.as_bytes(), RevocationReason::KeyCompromise)];
    write("ca.crt", authority.certificate().to_pem().as_bytes());
    write("list.pem", authority.sign_crl(&template(&entries)).unwrap().to_pem().as_bytes());
    write("good.crt", crate::pem::encode_certificates([leaf(&authority, good).as_slice()]).as_bytes());
    write("bad.crt", crate::pem::encode_certificates([leaf(&authority, bad).as_slice()]).as_bytes());
    let at = NOW.unix_timestamp().to_string();
    let verify = |file| {
        let options = ["verify", "-x509_strict", "-crl_check", "-attime", &at];
        let files = ["-CAfile", "ca.crt", "-CRLfile", "list.pem", file];
        openssl(directory.path(), &[options.as_slice(), &files].concat())
    };
    let accepted = verify("good.crt");
    assert!(accepted.status.success(), "{}", String::from_utf8_lossy(&accepted.stderr));
    let rejected = verify("bad.crt");
    let report = String::from_utf8_lossy(&rejected.stderr);
    assert!(!rejected.status.success() && report.contains("certificate revoked"), "{report}");
}

#[test]
fn openssl_reads_the_limits_of_an_intermediate() {
    let root = authority();
    let points = [DistributionPoint::parse("http://pki.example.com/root.crl").unwrap()];
    let template = IntermediateTemplate {
        subject: &Subject::new("intermediate", &[]).unwrap(),
        validity: Validity::lasting(NOW, Duration::days(30)).unwrap(),
        serial: Serial::from_bytes([4; 16]),
        max_path_length: Some(0),
        crl_distribution_points: &points,
    };
    let key = PrivateKey::generate().unwrap();
    let intermediate = root.issue_intermediate(&template, key).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let write = |name, contents: &str| fs::write(directory.path().join(name), contents).unwrap();
    write("ca.crt", &root.certificate().to_pem());
    write("intermediate.crt", &intermediate.certificate().to_pem());
    let below = leaf(&intermediate, Serial::from_bytes([5; 16]));
    write("leaf.crt", &crate::pem::encode_certificates([below.as_slice()]));
    let lists = [&root, &intermediate].map(|ca| ca.sign_crl(&super::template(&[])).unwrap().to_pem());
    write("lists.pem", &lists.concat());
    let at = NOW.unix_timestamp().to_string();
    let options = ["verify", "-x509_strict", "-crl_check_all", "-attime", &at, "-CAfile", "ca.crt"];
    let files = ["-untrusted", "intermediate.crt", "-CRLfile", "lists.pem", "leaf.crt"];
    let verified = openssl(directory.path(), &[options.as_slice(), &files].concat());
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let text = openssl(directory.path(), &["x509", "-noout", "-text", "-in", "intermediate.crt"]).stdout;
    let text = String::from_utf8(text).unwrap();
    for expected in ["CA:TRUE, pathlen:0", "URI:http://pki.example.com/root.crl"] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
}

#[test]
fn rustls_rejects_a_revoked_certificate() {
    let authority = authority();
    let (good, bad) = (Serial::from_bytes([2; 16]), Serial::from_bytes([3; 16]));
    let entries = [revoked(bad.as_bytes(), RevocationReason::KeyCompromise)];
    let list = authority.sign_crl(&template(&entries)).unwrap();
    let lists = || [CertificateRevocationListDer::from(list.der().to_vec())];
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().der().clone()).unwrap();
    let (roots, provider) = (Arc::new(roots), Arc::new(default_provider()));
    let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
    let clients = clients.with_crls(lists()).enforce_revocation_expiration().build().unwrap();
    let servers = WebPkiServerVerifier::builder_with_provider(roots, provider);
    let servers = servers.with_crls(lists()).enforce_revocation_expiration().build().unwrap();
    let name = ServerName::try_from("web.example.com").unwrap();
    let at = |time: OffsetDateTime| {
        let seconds = u64::try_from(time.unix_timestamp()).unwrap();
        UnixTime::since_unix_epoch(StdDuration::from_secs(seconds))
    };
    let verify = |serial, time| {
        let leaf = CertificateDer::from(leaf(&authority, serial));
        let client = clients.verify_client_cert(&leaf, &[], at(time)).map(|_| ());
        let server = servers.verify_server_cert(&leaf, &[], &name, &[], at(time)).map(|_| ());
        [client, server]
    };
    for accepted in verify(good, NOW) {
        accepted.unwrap();
    }
    let reports = |verdicts: [Result<(), rustls::Error>; 2], reason: &str| {
        for verdict in verdicts {
            let error = format!("{:?}", verdict.unwrap_err());
            assert!(error.contains(reason), "{error}");
        }
    };
    reports(verify(bad, NOW), "Revoked");
    reports(verify(good, NOW + Duration::DAY), "ExpiredRevocationList");
}
