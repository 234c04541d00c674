//! OpenSSL and webpki verify certificates of every CA key type for every key type.

use std::fs;
use std::process::Command;
use std::sync::LazyLock;

use rustls_pki_types::UnixTime;
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage as Eku, anchor_from_trusted_cert};

use super::*;
use crate::KeyType;

const KINDS: [KeyType; 6] = [
    KeyType::EcdsaP256,
    KeyType::EcdsaP384,
    KeyType::EcdsaP521,
    KeyType::Rsa3072,
    KeyType::Rsa4096,
    KeyType::Ed25519,
];

/// RSA keys take long to generate.
static KEYS: LazyLock<[PrivateKey; 6]> =
    LazyLock::new(|| KINDS.map(|kind| PrivateKey::generate_type(kind).unwrap()));

fn copy(key: &PrivateKey) -> PrivateKey {
    PrivateKey::from_pem(key.to_pem().unwrap().as_bytes()).unwrap()
}

#[test]
fn openssl_and_webpki_verify_every_kind() {
    for (kind, key) in KINDS.iter().zip(&*KEYS) {
        let authority = authority_with(copy(key));
        for key in &*KEYS {
            let request = CraftedRequest::named("alice", &["b", "a"]).signed(key);
            let usages = ["client auth", "digital signature"];
            let issued = issue_certificate(&authority, &template(&request, &usages)).unwrap();
            let anchors = [anchor_from_trusted_cert(authority.certificate().der()).unwrap()];
            let seconds = u64::try_from(NOW.unix_timestamp()).unwrap();
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
            let leaf = EndEntityCert::try_from(issued.der()).unwrap();
            leaf.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &[], now, Eku::client_auth(), None, None)
                .unwrap();
            openssl(&authority, &issued, &format!("{kind:?} for {key:?}"));
        }
    }
}

fn openssl(authority: &CertificateAuthority, issued: &IssuedCertificate, what: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (ca, leaf) = (directory.path().join("ca.crt"), directory.path().join("leaf.crt"));
    fs::write(&ca, authority.certificate().to_pem()).unwrap();
    fs::write(&leaf, issued.to_pem()).unwrap();
    let at = NOW.unix_timestamp().to_string();
    let output = Command::new("openssl")
        .args(["verify", "-x509_strict", "-purpose", "sslclient", "-attime", &at, "-CAfile"])
        .args([&ca, &leaf])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
}

#[test]
fn keys_of_every_kind_survive_their_pem() {
    for (kind, key) in KINDS.iter().zip(&*KEYS) {
        assert_eq!(copy(key).public_key(), key.public_key(), "{kind:?}");
        // OpenSSL must parse them too.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        fs::write(&path, key.to_pem().unwrap().as_bytes()).unwrap();
        let read = Command::new("openssl").args(["pkey", "-pubout", "-in"]).arg(&path).output();
        let text = String::from_utf8(read.unwrap().stdout).unwrap();
        assert_eq!(text, key.public_key().to_pem(), "{kind:?}");
    }
}

#[test]
fn keys_of_openssl_become_authorities() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key.pem");
    for arguments in [
        &["ecparam", "-genkey", "-name", "prime256v1"][..],
        &["ecparam", "-genkey", "-name", "secp384r1"],
        &["ecparam", "-genkey", "-name", "secp521r1"],
        &["genpkey", "-algorithm", "ed25519"],
        &["genrsa", "-traditional", "2048"],
    ] {
        let mut command = Command::new("openssl");
        let made = command.arg(arguments[0]).arg("-out").arg(&path).args(&arguments[1..]).status();
        assert!(made.unwrap().success(), "{arguments:?}");
        let key = fs::read(&path).unwrap();
        let certificate = authority_with(PrivateKey::from_pem(&key).unwrap());
        let certificate = certificate.certificate().to_pem();
        let authority = CertificateAuthority::from_pem(certificate.as_bytes(), &key).unwrap();
        // Both in one file, as is common.
        let both = [certificate.as_bytes(), &key].concat();
        CertificateAuthority::from_pem(&both, &both).unwrap();
        let request = CraftedRequest::named("alice", &[]).signed(&KEYS[0]);
        issue_certificate(&authority, &template(&request, &[])).unwrap();
    }
}
