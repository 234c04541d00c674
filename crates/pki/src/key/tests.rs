use std::process::Command;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED,
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
};

use super::*;
use crate::SubjectKey;

/// Generates a key with OpenSSL, to test against another implementation.
fn openssl(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn survives_pem() {
    let key = PrivateKey::generate().unwrap();
    let again = PrivateKey::from_pem(key.to_pem().unwrap().as_bytes()).unwrap();
    assert_eq!(key.public_key(), again.public_key());
    let signature = again.sign(b"message").unwrap();
    let public = ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.public_key().as_der()).unwrap();
    public.verify_sig(b"message", &signature).unwrap();
}

#[test]
fn reads_what_openssl_makes_and_signs_tokens_with_it() {
    let ec = |curve| ["genpkey", "-algorithm", "EC", "-pkeyopt", curve].map(str::to_owned).to_vec();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let table = [
        (ec("ec_paramgen_curve:P-256"), "PrivateKey(ECDSA P-256)", Some(JwsAlgorithm::Es256)),
        (ec("ec_paramgen_curve:P-384"), "PrivateKey(ECDSA P-384)", Some(JwsAlgorithm::Es384)),
        (ec("ec_paramgen_curve:P-521"), "PrivateKey(ECDSA P-521)", Some(JwsAlgorithm::Es512)),
        (words("ecparam -genkey -name prime256v1"), "PrivateKey(ECDSA P-256)", Some(JwsAlgorithm::Es256)),
        (words("genrsa 2048"), "PrivateKey(RSA)", Some(JwsAlgorithm::Rs256)),
        (words("genrsa -traditional 2048"), "PrivateKey(RSA)", Some(JwsAlgorithm::Rs256)),
        (words("genpkey -algorithm ed25519"), "PrivateKey(Ed25519)", None),
    ];
    for (arguments, name, algorithm) in table {
        let arguments = arguments.iter().map(String::as_str).collect::<Vec<_>>();
        let key = PrivateKey::from_pem(&openssl(&arguments)).unwrap();
        assert_eq!(format!("{key:?}"), name);
        assert_eq!(key.jws_algorithm(), algorithm);
        let again = PrivateKey::from_pem(key.to_pem().unwrap().as_bytes()).unwrap();
        assert_eq!(again.public_key(), key.public_key(), "{name}");
        let Some(algorithm) = algorithm else {
            assert!(key.sign_jws(b"message").is_err());
            assert!(crate::JwsKey::new(key.public_key()).is_err());
            continue;
        };
        let checker = crate::JwsKey::new(key.public_key()).unwrap();
        assert_eq!(checker.algorithm(), algorithm);
        assert!(checker.verifies(b"message", &key.sign_jws(b"message").unwrap()), "{name}");
        let der = key.public_key().as_der();
        let verifier = match algorithm {
            JwsAlgorithm::Es256 => ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, der),
            JwsAlgorithm::Es384 => ParsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, der),
            JwsAlgorithm::Es512 => ParsedPublicKey::new(&ECDSA_P521_SHA512_FIXED, der),
            JwsAlgorithm::Rs256 => ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der),
        };
        // Enough iterations that numbers with leading zeros occur.
        for _ in 0..if algorithm == JwsAlgorithm::Es256 { 600 } else { 1 } {
            let signature = key.sign_jws(b"message").unwrap();
            verifier.as_ref().unwrap().verify_sig(b"message", &signature).unwrap();
        }
    }
}

#[test]
fn refuses_keys_that_are_weak_or_none() {
    let weak = openssl(&["genrsa", "1024"]);
    assert!(matches!(PrivateKey::from_pem(&weak), Err(Error::UnsupportedKey(_))));
    let curve = openssl(&["ecparam", "-genkey", "-name", "secp256k1"]);
    assert!(matches!(PrivateKey::from_pem(&curve), Err(Error::UnsupportedKey(_))));
    for garbage in [&b"\x30\x00"[..], b"garbage", &[0x30; 200]] {
        for label in [pem::PRIVATE_KEY, pem::EC_PRIVATE_KEY, pem::RSA_PRIVATE_KEY] {
            let text = pem::encode(label, garbage);
            assert!(PrivateKey::from_pem(text.as_bytes()).is_err(), "{label}");
        }
    }
}

#[test]
fn survives_every_mutation_of_a_key() {
    let text = PrivateKey::generate().unwrap().to_pem().unwrap();
    let der = pem::private_key(text.as_bytes()).unwrap().contents;
    for position in 0..der.len() {
        for byte in [0, 0x30, 0x7f, 0x80, 0xff] {
            let mut mutant = der.to_vec();
            if let Some(place) = mutant.get_mut(position) {
                *place = byte;
            }
            let _ = PrivateKey::from_pem(pem::encode(pem::PRIVATE_KEY, &mutant).as_bytes());
        }
    }
}

#[test]
fn does_not_print_its_contents() {
    let key = PrivateKey::generate().unwrap();
    assert_eq!(format!("{key:?}"), "PrivateKey(ECDSA P-256)");
}

#[test]
fn a_proof_is_taken_for_one() {
    for kind in [KeyType::EcdsaP256, KeyType::EcdsaP521, KeyType::Rsa3072, KeyType::Ed25519] {
        let key = PrivateKey::generate_type(kind).unwrap();
        let proof = key.prove_possession(b"a pod's uid").unwrap();
        let public = SubjectKey::from_der(key.public_key().as_der()).unwrap();
        assert_eq!(public.verify_possession(b"a pod's uid", &proof), Ok(()), "{kind:?}");
        assert!(public.verify_possession(b"another's", &proof).is_err(), "{kind:?}");
    }
    let key = PrivateKey::generate_type(KeyType::EcdsaP384).unwrap();
    assert!(key.prove_possession(b"a pod's uid").is_err());
}
