use std::sync::Mutex;

use time::Duration;
use time::macros::datetime;

use super::*;
use crate::{Certificate, CertificateAuthority, KeyType, Serial, Subject, Validity};

/// A device that fails while `fault` is set.
#[derive(Debug)]
struct TestDevice {
    key: PrivateKey,
    claimed: PublicKey,
    fault: Mutex<Option<Error>>,
}

impl ExternalKey for TestDevice {
    fn public_key(&self) -> &PublicKey {
        &self.claimed
    }

    fn signature_scheme(&self) -> SignatureScheme {
        SignatureScheme::for_key(&self.claimed).unwrap()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        match self.fault.lock().unwrap().clone() {
            Some(fault) => Err(fault),
            None => self.key.sign(message),
        }
    }
}

fn device(key: PrivateKey, claimed: PublicKey) -> Arc<TestDevice> {
    Arc::new(TestDevice { key, claimed, fault: Mutex::default() })
}

fn self_signed(key: Arc<TestDevice>) -> Result<CertificateAuthority, Error> {
    let validity = Validity::lasting(datetime!(2026-06-01 12:00 UTC), Duration::days(30)).unwrap();
    let subject = Subject::new("ca", &[]).unwrap();
    CertificateAuthority::self_signed(&subject, validity, CaKey::External(key), Serial::from_bytes([1; 16]))
}

#[test]
fn external_keys_of_every_type_sign_certificates() {
    for key_type in [KeyType::Rsa2048, KeyType::EcdsaP256, KeyType::EcdsaP384, KeyType::EcdsaP521] {
        let key = PrivateKey::generate_type(key_type).unwrap();
        let public = key.public_key().clone();
        assert_eq!(SignatureScheme::for_key(&public).unwrap(), key.signature_scheme());
        let authority = self_signed(device(key, public)).unwrap();
        assert!(authority.certificate().is_self_signed(), "{key_type}");
        assert!(authority.has_issued(authority.certificate()));
    }
}

#[test]
fn an_external_key_is_never_encoded() {
    let key = PrivateKey::generate().unwrap();
    let public = key.public_key().clone();
    let authority = self_signed(device(key, public)).unwrap();
    assert!(matches!(authority.key().to_pem(), Err(Error::UnsupportedKey(_))));
}

#[test]
fn an_absent_device_is_a_reason_to_retry() {
    let key = PrivateKey::generate().unwrap();
    let public = key.public_key().clone();
    let device = device(key, public);
    *device.fault.lock().unwrap() = Some(Error::KeyUnavailable("token removed".to_owned()));
    let error = self_signed(device.clone()).unwrap_err();
    assert_eq!(error.to_string(), "key unavailable: token removed");
    assert!(!error.is_permanent());
    *device.fault.lock().unwrap() = None;
    self_signed(device).unwrap();
}

#[test]
fn signatures_of_another_key_are_refused() {
    let other = PrivateKey::generate().unwrap().public_key().clone();
    let error = self_signed(device(PrivateKey::generate().unwrap(), other)).unwrap_err();
    assert!(matches!(error, Error::KeyUnavailable(_)), "{error}");
}

#[test]
fn a_certificate_of_another_external_key_is_refused() {
    let key = PrivateKey::generate().unwrap();
    let public = key.public_key().clone();
    let certificate = self_signed(device(key, public)).unwrap().certificate().clone();
    let other = PrivateKey::generate().unwrap();
    let public = other.public_key().clone();
    let mismatch = |certificate: Certificate| {
        CertificateAuthority::new(certificate, CaKey::External(device(other, public))).unwrap_err()
    };
    assert_eq!(mismatch(certificate), Error::KeyMismatch);
}
