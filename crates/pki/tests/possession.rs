//! Requests and proofs of possession for every pod key type, and for some other keys.
#![allow(clippy::unwrap_used)]

use windlass_pki::{CertificateRequest, EllipticCurve, KeyType, PodKeyError, SignatureError, SubjectKey};

const POD_UID: &[u8] = include_bytes!("possession/pod-uid.txt");

macro_rules! fixture {
    ($name:literal) => {
        (
            include_bytes!(concat!("possession/pcr-", $name, ".spki")).as_slice(),
            include_bytes!(concat!("possession/pcr-", $name, ".pop")).as_slice(),
        )
    };
}

#[test]
fn verifies_the_proof_of_every_kind_of_key() {
    let table = [
        (fixture!("ed25519"), Ok(KeyType::Ed25519)),
        (fixture!("p256"), Ok(KeyType::EcdsaP256)),
        (fixture!("p384"), Ok(KeyType::EcdsaP384)),
        (fixture!("p521"), Ok(KeyType::EcdsaP521)),
        (fixture!("rsa3072"), Ok(KeyType::Rsa3072)),
        (fixture!("rsa2048"), Err(PodKeyError::Modulus { bits: 2048 })),
        (fixture!("p224"), Err(PodKeyError::Curve(EllipticCurve::P224))),
    ];
    for ((spki, proof), kind) in table {
        let key = SubjectKey::from_der(spki).unwrap();
        assert_eq!(key.pod_key_type(), kind);
        if kind == Err(PodKeyError::Curve(EllipticCurve::P224)) {
            let verdict = key.verify_possession(POD_UID, proof);
            assert_eq!(verdict, Err(SignatureError::Unsupported));
            continue;
        }
        assert_eq!(key.verify_possession(POD_UID, proof), Ok(()), "{key:?}");
        assert!(key.verify_possession(b"another-uid", proof).is_err(), "{key:?}");
        assert!(key.verify_possession(POD_UID, &[]).is_err(), "{key:?}");
        let mut broken = proof.to_vec();
        *broken.last_mut().unwrap() ^= 1;
        assert!(key.verify_possession(POD_UID, &broken).is_err(), "{key:?}");
        assert_eq!(key.to_public_key().unwrap().as_der(), spki);
    }
}

#[test]
fn reads_the_requests_that_kubelets_send() {
    for (der, kind) in [
        (&include_bytes!("possession/pcr-ed25519.stub.der")[..], Ok(KeyType::Ed25519)),
        (&include_bytes!("possession/pcr-p256.stub.der")[..], Ok(KeyType::EcdsaP256)),
        (&include_bytes!("possession/pcr-p384.stub.der")[..], Ok(KeyType::EcdsaP384)),
        (&include_bytes!("possession/pcr-p521.stub.der")[..], Ok(KeyType::EcdsaP521)),
        (&include_bytes!("possession/pcr-rsa3072.stub.der")[..], Ok(KeyType::Rsa3072)),
        (&include_bytes!("possession/pcr-rsa2048.stub.der")[..], Err(PodKeyError::Modulus { bits: 2048 })),
    ] {
        let request = CertificateRequest::from_der(der).unwrap();
        assert_eq!(request.public_key().pod_key_type(), kind);
        assert_eq!(request.verify_signature(), Ok(()), "{request:?}");
        assert_eq!(request.subject().common_name(), "");
    }
}

#[test]
fn knows_its_own_key_and_no_other() {
    let stub = include_bytes!("possession/pcr-p256.stub.der");
    let request = CertificateRequest::from_der(stub).unwrap();
    let key = SubjectKey::from_der(fixture!("p256").0).unwrap();
    let other = SubjectKey::from_der(fixture!("p384").0).unwrap();
    assert_ne!(*request.public_key(), other);
    assert_eq!(key, SubjectKey::from_der(key.as_der()).unwrap());
}
