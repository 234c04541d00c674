//! PKCS#12 stores, read by OpenSSL.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use super::*;
use crate::{KeyType, parse_certificate_blocks};

/// Runs OpenSSL on a store, with legacy algorithms enabled.
fn openssl(store: &[u8], password: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    fs::write(&file, store).unwrap();
    let mut command = Command::new("openssl");
    command.args(["pkcs12", "-legacy", "-in"]).arg(file).args(arguments);
    command.args(["-passin", &format!("pass:{password}")]);
    command.output().unwrap()
}

fn read(store: &[u8], password: &str, arguments: &[&str]) -> String {
    let output = openssl(store, password, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // OpenSSL prints half of each character of a name, which is Latin-1 at best.
    output.stdout.into_iter().map(char::from).collect()
}

fn set(certificates: &[ForeignCertificate]) -> BTreeSet<&[u8]> {
    certificates.iter().map(ForeignCertificate::der).collect()
}

#[test]
fn reads_trust_stores() {
    let many = (0..150).map(|number| format!("anchor {number}")).collect::<Vec<_>>();
    let many = anchors(&many.iter().map(String::as_str).collect::<Vec<_>>());
    for anchors in [vec![anchor()], similar_certificates(), anchors(&["a", "b", "Zürich"]), many] {
        for secret in ["changeit", "x", "pässwörd 🔑"] {
            let password = password(secret);
            for (name, protection) in protections(&password) {
                let store = TrustStore::new(&anchors);
                let written = store.to_pkcs12(&protection).unwrap();
                let check = if name == "open" { "-nomacver" } else { "-nokeys" };
                let text = read(&written, secret, &["-nokeys", check]);
                let found = parse_certificate_blocks(text.as_bytes()).unwrap();
                assert_eq!(set(&found), set(&anchors), "{name} {secret}");
                assert_eq!(found.len(), anchors.len());
            }
        }
    }
}

#[test]
fn reads_names_and_marks_of_anchors() {
    let anchors = anchors(&["Z\u{fc}rich"]);
    let store = TrustStore::new(&anchors);
    let alias = store.aliases().next().unwrap().to_owned();
    let text = read(&store.to_pkcs12(&KeystoreProtection::Open).unwrap(), "", &["-nokeys", "-nomacver"]);
    assert!(text.contains(&format!("friendlyName: {alias}\n")), "{text}");
    assert!(text.contains("2.16.840.1.113894.746875.1.1: "), "{text}");
}

#[test]
fn reads_empty_trust_stores() {
    let password = password("changeit");
    for (name, protection) in protections(&password) {
        let store = TrustStore::new([]).to_pkcs12(&protection).unwrap();
        let check = if name == "open" { "-nomacver" } else { "-nokeys" };
        assert_eq!(read(&store, "changeit", &["-nokeys", check]), "", "{name}");
    }
}

#[test]
fn refuses_a_wrong_password() {
    let key = PrivateKey::generate().unwrap();
    let chain = chain(&key);
    let password = password("secret");
    for profile in Pkcs12Profile::ALL {
        let sealed = KeystoreProtection::Sealed { password: &password, profile };
        let trust = TrustStore::new(&chain).to_pkcs12(&sealed).unwrap();
        let keys = KeyStore::new("web", &key, &chain).unwrap().to_pkcs12(&password, profile);
        for store in [trust, keys.unwrap()] {
            for wrong in ["Secret", "secret ", ""] {
                let output = openssl(&store, wrong, &["-nodes"]);
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(!output.status.success() && error.contains("invalid password"), "{error}");
            }
            let mut damaged = store.clone();
            let middle = damaged.len() / 2;
            damaged[middle] ^= 1;
            assert!(!openssl(&damaged, "secret", &["-nodes"]).status.success());
            assert!(openssl(&store, "secret", &["-nodes"]).status.success());
        }
    }
}

#[test]
fn reports_how_stores_are_encrypted() {
    let key = PrivateKey::generate().unwrap();
    let chain = chain(&key);
    let password = password("secret");
    let table = [
        (
            Pkcs12Profile::LegacyRc2,
            "MAC: sha1, Iteration 2048",
            "pbeWithSHA1And40BitRC2-CBC, Iteration 2048",
            "pbeWithSHA1And3-KeyTripleDES-CBC, Iteration 2048",
        ),
        (
            Pkcs12Profile::LegacyDes,
            "MAC: sha1, Iteration 2048",
            "pbeWithSHA1And3-KeyTripleDES-CBC, Iteration 2048",
            "pbeWithSHA1And3-KeyTripleDES-CBC, Iteration 2048",
        ),
        (
            Pkcs12Profile::Modern2023,
            "MAC: sha256, Iteration 10000",
            "PBES2, PBKDF2, AES-256-CBC, Iteration 10000, PRF hmacWithSHA256",
            "PBES2, PBKDF2, AES-256-CBC, Iteration 10000, PRF hmacWithSHA256",
        ),
    ];
    for (profile, mac, certificates, keys) in table {
        let store = KeyStore::new("web", &key, &chain).unwrap().to_pkcs12(&password, profile);
        let output = openssl(&store.unwrap(), "secret", &["-info", "-noout"]);
        let text = String::from_utf8(output.stderr).unwrap();
        for line in [
            mac.to_owned(),
            format!("PKCS7 Encrypted data: {certificates}"),
            format!("Shrouded Keybag: {keys}"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}

#[test]
fn reads_keys_and_their_chains() {
    let password = password("pässwörd");
    for kind in [KeyType::EcdsaP256, KeyType::EcdsaP521, KeyType::Rsa3072, KeyType::Ed25519] {
        let key = PrivateKey::generate_type(kind).unwrap();
        let chain = chain(&key);
        for profile in Pkcs12Profile::ALL {
            let store = KeyStore::new("wéb", &key, &chain).unwrap().to_pkcs12(&password, profile);
            let text = read(&store.unwrap(), "pässwörd", &["-nodes"]);
            let found = PrivateKey::from_mixed_pem(text.as_bytes()).unwrap();
            assert_eq!(found.public_key(), key.public_key());
            // The key and its certificate have the same name and identifier, the issuer has none.
            assert_eq!(text.matches("friendlyName: wéb\n").count(), 2, "{text}");
            assert_eq!(text.matches("localKeyID: ").count(), 2, "{text}");
            let found = crate::pem::certificates_in_mixed_pem(text.as_bytes()).unwrap();
            let chain = chain.iter().map(ForeignCertificate::der).collect::<Vec<_>>();
            assert_eq!(found.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>(), chain);
        }
    }
}
