//! The one signature algorithm that each kind of key uses for certificates, requests and CRLs.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, VerificationAlgorithm,
};
use der::asn1::{AnyRef, ObjectIdentifier};
use x509_cert::spki::AlgorithmIdentifierRef;

use crate::{EllipticCurve, Error, KeyAlgorithm, PublicKey, SubjectKey};

/// Signature algorithm of a CA key: padding or curve, and the hash that fits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureScheme {
    /// RSA PKCS#1 v1.5 over SHA-256, for a modulus of 2048 to 8192 bits.
    RsaPkcs1Sha256,
    /// ECDSA on P-256 over SHA-256; signatures are an `ECDSA-Sig-Value`.
    EcdsaP256Sha256,
    /// ECDSA on P-384 over SHA-384; signatures are an `ECDSA-Sig-Value`.
    EcdsaP384Sha384,
    /// ECDSA on P-521 over SHA-512; signatures are an `ECDSA-Sig-Value`.
    EcdsaP521Sha512,
    /// Pure Ed25519 (RFC 8032), which has no separate hash.
    Ed25519,
}

const ECDSA_WITH_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const ECDSA_WITH_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");
const ECDSA_WITH_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4");
const SHA256_WITH_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const PURE_ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

impl SignatureScheme {
    /// Returns the scheme that a CA with this public key signs with.
    pub fn for_key(key: &PublicKey) -> Result<Self, Error> {
        match SubjectKey::from_der(key.as_der())?.algorithm() {
            KeyAlgorithm::Rsa { .. } => Ok(Self::RsaPkcs1Sha256),
            KeyAlgorithm::Ecdsa(EllipticCurve::P256) => Ok(Self::EcdsaP256Sha256),
            KeyAlgorithm::Ecdsa(EllipticCurve::P384) => Ok(Self::EcdsaP384Sha384),
            KeyAlgorithm::Ecdsa(EllipticCurve::P521) => Ok(Self::EcdsaP521Sha512),
            KeyAlgorithm::Ed25519 => Ok(Self::Ed25519),
            _ => Err(Error::UnsupportedKey("not RSA, ECDSA (P-256, P-384, P-521) or Ed25519")),
        }
    }

    pub(crate) fn identifier(self) -> AlgorithmIdentifierRef<'static> {
        let (oid, parameters) = match self {
            Self::EcdsaP256Sha256 => (ECDSA_WITH_SHA256, None),
            Self::EcdsaP384Sha384 => (ECDSA_WITH_SHA384, None),
            Self::EcdsaP521Sha512 => (ECDSA_WITH_SHA512, None),
            // RFC 4055 §5 requires NULL for RSA; RFC 5758 and 8410 require absent parameters for
            // the others.
            Self::RsaPkcs1Sha256 => (SHA256_WITH_RSA, Some(AnyRef::NULL)),
            Self::Ed25519 => (PURE_ED25519, None),
        };
        AlgorithmIdentifierRef { oid, parameters }
    }

    /// Returns true if the private key of `key` created the signature of this message.
    pub(crate) fn verifies(self, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self {
            Self::EcdsaP256Sha256 => &ECDSA_P256_SHA256_ASN1,
            Self::EcdsaP384Sha384 => &ECDSA_P384_SHA384_ASN1,
            Self::EcdsaP521Sha512 => &ECDSA_P521_SHA512_ASN1,
            Self::RsaPkcs1Sha256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Ed25519 => &ED25519,
        };
        ParsedPublicKey::new(algorithm, key.as_der())
            .is_ok_and(|key| key.verify_sig(message, signature).is_ok())
    }
}
