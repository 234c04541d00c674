//! Signing with keys in SoftHSM. See [`SoftHsm`] for why each test names itself.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::{fs, thread};

use time::{Duration, OffsetDateTime};
use windlass_pki::{
    CaKey, CertificateAuthority, CrlTemplate, Error, ExternalKey, KeyPurpose, KeyType, PrivateKey, PublicKey,
    Subject, Validity, issue, pem,
};
use windlass_testkit::{PIN, SoftHsm, leaf_template, poll_until, random_serial};

use super::*;

fn load(hsm: &SoftHsm) -> Arc<TokenModule> {
    Arc::new(TokenModule::load(&hsm.module(), &hsm.pin_file()).unwrap())
}

/// Returns a key that may be in the token, with the public key of the one that is.
fn key_by(hsm: &SoftHsm, module: &Arc<TokenModule>, uri: &str) -> TokenKey {
    let public_key = PublicKey::from_der(&hsm.public_key("ca", "01")).unwrap();
    TokenKey::new(module.clone(), uri.parse().unwrap(), public_key).unwrap()
}

fn reason(result: Result<Vec<u8>, Error>) -> String {
    match result {
        Err(Error::KeyUnavailable(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn self_signed(key: Arc<TokenKey>) -> CertificateAuthority {
    let validity = Validity::lasting(OffsetDateTime::now_utc(), Duration::DAY).unwrap();
    let subject = Subject::new("token ca", &[]).unwrap();
    CertificateAuthority::self_signed(&subject, validity, CaKey::External(key), random_serial()).unwrap()
}

fn leaf(authority: &CertificateAuthority) -> Vec<u8> {
    let key = PrivateKey::generate().unwrap();
    let template = leaf_template("leaf", &[KeyPurpose::ClientAuth], authority.certificate().validity(), &key);
    issue(authority, &template).unwrap()
}

/// Verifies a certificate and an empty CRL of the authority with OpenSSL.
fn check_with_openssl(authority: &CertificateAuthority, directory: &Path) {
    let now = OffsetDateTime::now_utc();
    let list = CrlTemplate { number: 1, this_update: now, next_update: now + Duration::HOUR, revoked: &[] };
    let list = authority.sign_crl(&list).unwrap();
    let write = |name, text: String| fs::write(directory.join(name), text).unwrap();
    write("ca.crt", authority.certificate().to_pem());
    write("list.pem", list.to_pem());
    write("leaf.crt", pem::encode_certificates([leaf(authority).as_slice()]));
    let output = Command::new("openssl")
        .args(["verify", "-x509_strict", "-check_ss_sig", "-crl_check", "-CAfile", "ca.crt"])
        .args(["-CRLfile", "list.pem", "leaf.crt"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn keys_in_a_token_sign_what_openssl_verifies() {
    SoftHsm::run_test("pkcs11::tests::keys_in_a_token_sign_what_openssl_verifies", |hsm| {
        hsm.init_token("ca");
        let mut keys = Vec::new();
        for (kind, id) in [("rsa:3072", "01"), ("EC:prime256v1", "02")] {
            hsm.generate_key("ca", kind, "signer", id);
            keys.push((id, PublicKey::from_der(&hsm.public_key("ca", id)).unwrap()));
        }
        // pkcs11-tool of Debian 12 cannot read public keys on this curve.
        let imported = PrivateKey::generate_type(KeyType::EcdsaP384).unwrap();
        hsm.import_key("ca", &imported.to_pem().unwrap(), "signer", "03");
        keys.push(("03", imported.public_key().clone()));
        let module = load(hsm);
        for (id, public_key) in keys {
            let uri = format!("pkcs11:token=ca;object=signer;id=%{id};type=private").parse().unwrap();
            let key = TokenKey::new(module.clone(), uri, public_key).unwrap();
            let authority = self_signed(Arc::new(key));
            check_with_openssl(&authority, tempfile::tempdir().unwrap().path());
            assert!(authority.key().to_pem().is_err(), "{id}");
        }
    });
}

#[test]
fn a_generated_key_is_never_extractable() {
    SoftHsm::run_test("pkcs11::tests::a_generated_key_is_never_extractable", |hsm| {
        hsm.init_token("ca");
        for (kind, id) in [("rsa:3072", "01"), ("EC:prime256v1", "02")] {
            hsm.generate_key("ca", kind, "signer", id);
            let list = ["--list-objects", "--type", "privkey", "--id", id];
            let output = hsm.pkcs11_tool("ca", &list).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("sensitive, always sensitive, never extractable"), "{kind}: {text}");
        }
    });
}

#[test]
fn signing_recovers_when_a_removed_token_is_back() {
    SoftHsm::run_test("pkcs11::tests::signing_recovers_when_a_removed_token_is_back", |hsm| {
        hsm.init_token("ca");
        hsm.generate_key("ca", "EC:prime256v1", "signer", "01");
        let module = load(hsm);
        let key = Arc::new(key_by(hsm, &module, "pkcs11:token=ca;object=signer"));
        let authority = self_signed(key.clone());
        for _ in 0..2 {
            hsm.remove_tokens();
            // The library may sign with what it has in memory until it is initialized again.
            poll_until("the removed token to be noticed", || key.sign(b"message").is_err().then_some(()));
            assert!(reason(key.sign(b"message")).starts_with("pkcs11:token=ca;object=signer: "));
            hsm.insert_tokens();
            poll_until("the token to be found again", || key.sign(b"message").is_ok().then_some(()));
            check_with_openssl(&authority, tempfile::tempdir().unwrap().path());
        }
    });
}

#[test]
fn a_token_may_be_absent_at_first() {
    SoftHsm::run_test("pkcs11::tests::a_token_may_be_absent_at_first", |hsm| {
        hsm.init_token("ca");
        hsm.generate_key("ca", "EC:prime256v1", "signer", "01");
        let public_key = PublicKey::from_der(&hsm.public_key("ca", "01")).unwrap();
        hsm.remove_tokens();
        let uri = "pkcs11:token=ca;id=%01".parse().unwrap();
        let key = TokenKey::new(load(hsm), uri, public_key).unwrap();
        assert_eq!(reason(key.sign(b"message")), "pkcs11:token=ca;id=%01: no such token is present");
        hsm.insert_tokens();
        poll_until("the token to be found", || key.sign(b"message").is_ok().then_some(()));
    });
}

#[test]
fn a_rejected_pin_is_not_tried_again() {
    SoftHsm::run_test("pkcs11::tests::a_rejected_pin_is_not_tried_again", |hsm| {
        hsm.init_token("ca");
        hsm.generate_key("ca", "EC:prime256v1", "signer", "01");
        let module = load(hsm);
        let key = key_by(hsm, &module, "pkcs11:token=ca;object=signer");
        fs::write(hsm.pin_file(), "0000").unwrap();
        let first = reason(key.sign(b"message"));
        assert!(first.contains("C_Login: CKR_PIN_INCORRECT"), "{first}");
        let second = reason(key.sign(b"message"));
        assert!(second.contains("rejected the PIN; correct it in"), "{second}");
        assert!(!first.contains("0000") && !second.contains("0000"));
        fs::write(hsm.pin_file(), PIN).unwrap();
        key.sign(b"message").unwrap();
    });
}

#[test]
fn a_uri_names_one_key() {
    SoftHsm::run_test("pkcs11::tests::a_uri_names_one_key", |hsm| {
        hsm.init_token("ca");
        hsm.init_token("other");
        hsm.generate_key("ca", "EC:prime256v1", "signer", "01");
        hsm.generate_key("ca", "EC:prime256v1", "signer", "02");
        let module = load(hsm);
        for (uri, why) in [
            ("pkcs11:token=absent;object=signer", "no such token is present"),
            ("pkcs11:token=ca;serial=0;object=signer", "no such token is present"),
            ("pkcs11:token=ca;object=absent", "the token has no such private key"),
            ("pkcs11:token=ca;object=signer", "several private keys match"),
        ] {
            let reason = reason(key_by(hsm, &module, uri).sign(b"message"));
            assert!(reason.contains(why), "{uri}: {reason}");
        }
        key_by(hsm, &module, "pkcs11:token=ca;model=SoftHSM%20v2;id=%01").sign(b"message").unwrap();
        // A signature by a key of another certificate never leaves the CA.
        let wrong = Arc::new(key_by(hsm, &module, "pkcs11:token=ca;id=%02"));
        let error = CaKey::External(wrong).sign(b"message").unwrap_err();
        assert!(error.to_string().contains("does not match the public key"), "{error}");
    });
}

#[test]
fn several_threads_sign_at_once() {
    SoftHsm::run_test("pkcs11::tests::several_threads_sign_at_once", |hsm| {
        hsm.init_token("ca");
        hsm.generate_key("ca", "EC:prime256v1", "signer", "01");
        let module = load(hsm);
        let keys =
            [(); 2].map(|()| CaKey::External(Arc::new(key_by(hsm, &module, "pkcs11:token=ca;id=%01"))));
        thread::scope(|scope| {
            for key in keys.iter().chain(&keys) {
                scope.spawn(|| (0..50).for_each(|_| drop(key.sign(b"message").unwrap())));
            }
        });
    });
}

#[test]
fn tokens_sign_with_three_kinds_of_keys_only() {
    SoftHsm::run_test("pkcs11::tests::tokens_sign_with_three_kinds_of_keys_only", |hsm| {
        let module = load(hsm);
        let key = PrivateKey::generate_type(KeyType::Ed25519).unwrap();
        let uri = "pkcs11:token=ca;object=signer".parse().unwrap();
        let error = TokenKey::new(module, uri, key.public_key().clone()).unwrap_err();
        assert!(matches!(error, Error::UnsupportedKey(_)), "{error}");
    });
}
