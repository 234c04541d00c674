//! Private and public keys.
//!
//! Windlass generates ECDSA P-256 keys by default: they take microseconds to generate, and every
//! client supports them. It parses keys of other tools: RSA, the NIST curves and Ed25519, in
//! PKCS#8, SEC 1 or PKCS#1.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA256_ASN1_SIGNING,
    ECDSA_P521_SHA512_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
};
use der::asn1::{ObjectIdentifier, UintRef};
use der::{Decode, Sequence};
use x509_cert::spki::SubjectPublicKeyInfoRef;
use zeroize::Zeroizing;

use crate::limits::{MAX_PRIVATE_KEY_BYTES, MAX_PUBLIC_KEY_BYTES, MAX_RSA_BITS, MIN_RSA_BITS};
use crate::{Certificate, Error, KeyType, SignatureScheme, pem};

/// A private key. It can sign and be encoded as PEM; it cannot be copied or printed.
pub struct PrivateKey {
    pair: SigningKeyPair,
    public: PublicKey,
}

enum SigningKeyPair {
    Ecdsa(EcdsaCurve, EcdsaKeyPair),
    Rsa(RsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EcdsaCurve {
    P256,
    P384,
    P521,
}

/// Signature algorithm in a JWS header (RFC 7518 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JwsAlgorithm {
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// RSA PKCS#1 v1.5 with SHA-256.
    Rs256,
}

impl JwsAlgorithm {
    /// Returns the value of the `alg` header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Rs256 => "RS256",
        }
    }
}

impl PrivateKey {
    /// Generates an ECDSA P-256 key.
    pub fn generate() -> Result<Self, Error> {
        Self::generate_type(KeyType::EcdsaP256)
    }

    /// Generates a key of a type.
    pub fn generate_type(key_type: KeyType) -> Result<Self, Error> {
        let ecdsa = |curve: EcdsaCurve| {
            EcdsaKeyPair::generate(curve.signing_algorithm()).map(|pair| SigningKeyPair::Ecdsa(curve, pair))
        };
        let rsa = |size| RsaKeyPair::generate(size).map(SigningKeyPair::Rsa);
        let pair = match key_type {
            KeyType::EcdsaP256 => ecdsa(EcdsaCurve::P256),
            KeyType::EcdsaP384 => ecdsa(EcdsaCurve::P384),
            KeyType::EcdsaP521 => ecdsa(EcdsaCurve::P521),
            KeyType::Rsa2048 => rsa(KeySize::Rsa2048),
            KeyType::Rsa3072 => rsa(KeySize::Rsa3072),
            KeyType::Rsa4096 => rsa(KeySize::Rsa4096),
            KeyType::Ed25519 => Ed25519KeyPair::generate().map(SigningKeyPair::Ed25519),
        };
        Self::new(pair.map_err(|_| Error::Crypto("generating a key"))?)
    }

    /// Parses a key from PEM: PKCS#8, SEC 1 (`EC PRIVATE KEY`) or PKCS#1 (`RSA PRIVATE KEY`).
    pub fn from_pem(text: &[u8]) -> Result<Self, Error> {
        Self::from_block(&pem::private_key(text)?)
    }

    /// Parses the one key of a text that may contain other blocks.
    pub(crate) fn from_mixed_pem(text: &[u8]) -> Result<Self, Error> {
        Self::from_block(&pem::private_key_in_mixed_pem(text)?)
    }

    fn from_block(block: &pem::PemBlock) -> Result<Self, Error> {
        let der = block.contents.as_slice();
        if der.len() > MAX_PRIVATE_KEY_BYTES {
            return Err(Error::TooLarge { what: "private key", limit: MAX_PRIVATE_KEY_BYTES });
        }
        let pair = match block.label.as_str() {
            pem::EC_PRIVATE_KEY => parse_ecdsa(der),
            pem::RSA_PRIVATE_KEY => RsaKeyPair::from_der(der).ok().map(SigningKeyPair::Rsa),
            _ => parse_ecdsa(der)
                .or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(SigningKeyPair::Rsa))
                .or_else(|| {
                    Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(SigningKeyPair::Ed25519)
                }),
        };
        let unreadable = "malformed, or not RSA, ECDSA (P-256, P-384, P-521) or Ed25519";
        Self::new(pair.ok_or(Error::UnsupportedKey(unreadable))?)
    }

    fn new(pair: SigningKeyPair) -> Result<Self, Error> {
        if let SigningKeyPair::Rsa(pair) = &pair {
            let bits = pair.public_modulus_len().saturating_mul(8);
            if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits) {
                return Err(Error::UnsupportedKey("RSA keys must have between 2048 and 8192 bits"));
            }
        }
        let spki: Result<PublicKeyX509Der<'_>, _> = match &pair {
            SigningKeyPair::Ecdsa(_, pair) => pair.public_key().as_der(),
            SigningKeyPair::Rsa(pair) => pair.public_key().as_der(),
            SigningKeyPair::Ed25519(pair) => pair.public_key().as_der(),
        };
        let spki = spki.map_err(|_| Error::Crypto("encoding a public key"))?;
        let public = PublicKey(spki.as_ref().to_vec());
        Ok(Self { pair, public })
    }

    /// Encodes the key as PKCS#8 PEM.
    pub fn to_pem(&self) -> Result<Zeroizing<String>, Error> {
        Ok(pem::encode(pem::PRIVATE_KEY, &self.to_pkcs8()?))
    }

    /// Encodes the key as PKCS#8 DER.
    pub(crate) fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let failed = |_| Error::Crypto("encoding a private key");
        let der = match &self.pair {
            SigningKeyPair::Ecdsa(_, pair) => pair.to_pkcs8v1().map_err(failed)?.as_ref().to_vec(),
            SigningKeyPair::Rsa(pair) => {
                let der: Pkcs8V1Der<'_> = pair.as_der().map_err(failed)?;
                der.as_ref().to_vec()
            }
            SigningKeyPair::Ed25519(pair) => pair.to_pkcs8v1().map_err(failed)?.as_ref().to_vec(),
        };
        Ok(Zeroizing::new(der))
    }

    /// Returns the public key, which may be shown to anyone.
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a message as certificates and requests are signed: with the hash that fits the key.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let random = SystemRandom::new();
        let failed = |_| Error::Crypto("signing");
        match &self.pair {
            SigningKeyPair::Ecdsa(_, pair) => {
                Ok(pair.sign(&random, message).map_err(failed)?.as_ref().to_vec())
            }
            SigningKeyPair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            SigningKeyPair::Ed25519(pair) => Ok(pair.try_sign(message).map_err(failed)?.as_ref().to_vec()),
        }
    }

    /// Signs a message for [`SubjectKey::verify_possession`](crate::SubjectKey::verify_possession).
    /// P-384 keys are not supported: the signature would use SHA-256, which the library lacks for
    /// that curve.
    pub fn prove_possession(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        match &self.pair {
            SigningKeyPair::Ecdsa(EcdsaCurve::P256, _) | SigningKeyPair::Ed25519(_) => self.sign(message),
            SigningKeyPair::Ecdsa(EcdsaCurve::P384, _) => {
                Err(Error::UnsupportedKey("P-384 cannot sign over SHA-256"))
            }
            SigningKeyPair::Ecdsa(EcdsaCurve::P521, _) => {
                let der = self.to_pkcs8()?;
                let pair = EcdsaKeyPair::from_private_key_der(&ECDSA_P521_SHA256_ASN1_SIGNING, &der);
                let pair = pair.map_err(|_| Error::Crypto("reading a key"))?;
                let proof = pair.sign(&SystemRandom::new(), message);
                Ok(proof.map_err(|_| Error::Crypto("signing"))?.as_ref().to_vec())
            }
            SigningKeyPair::Rsa(pair) => {
                let mut proof = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PSS_SHA256, &SystemRandom::new(), message, &mut proof)
                    .map_err(|_| Error::Crypto("signing"))?;
                Ok(proof)
            }
        }
    }

    /// Signs the input of a JSON Web Signature. Keys that no Kubernetes verifier accepts for tokens
    /// have no [`JwsAlgorithm`] and are rejected.
    pub fn sign_jws(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        match &self.pair {
            SigningKeyPair::Ecdsa(curve, _) => fixed_signature(&self.sign(message)?, curve.scalar_bytes()),
            SigningKeyPair::Rsa(_) => self.sign(message),
            SigningKeyPair::Ed25519(_) => Err(Error::UnsupportedKey("Ed25519 cannot sign tokens")),
        }
    }

    /// Algorithm that [`Self::sign_jws`] uses; `None` if the key cannot sign JWS.
    pub fn jws_algorithm(&self) -> Option<JwsAlgorithm> {
        match &self.pair {
            SigningKeyPair::Ecdsa(EcdsaCurve::P256, _) => Some(JwsAlgorithm::Es256),
            SigningKeyPair::Ecdsa(EcdsaCurve::P384, _) => Some(JwsAlgorithm::Es384),
            SigningKeyPair::Ecdsa(EcdsaCurve::P521, _) => Some(JwsAlgorithm::Es512),
            SigningKeyPair::Rsa(_) => Some(JwsAlgorithm::Rs256),
            SigningKeyPair::Ed25519(_) => None,
        }
    }

    /// Returns the scheme of signatures by [`Self::sign`].
    pub fn signature_scheme(&self) -> SignatureScheme {
        match &self.pair {
            SigningKeyPair::Ecdsa(EcdsaCurve::P256, _) => SignatureScheme::EcdsaP256Sha256,
            SigningKeyPair::Ecdsa(EcdsaCurve::P384, _) => SignatureScheme::EcdsaP384Sha384,
            SigningKeyPair::Ecdsa(EcdsaCurve::P521, _) => SignatureScheme::EcdsaP521Sha512,
            SigningKeyPair::Rsa(_) => SignatureScheme::RsaPkcs1Sha256,
            SigningKeyPair::Ed25519(_) => SignatureScheme::Ed25519,
        }
    }
}

pub(crate) const RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match &self.pair {
            SigningKeyPair::Ecdsa(EcdsaCurve::P256, _) => "PrivateKey(ECDSA P-256)",
            SigningKeyPair::Ecdsa(EcdsaCurve::P384, _) => "PrivateKey(ECDSA P-384)",
            SigningKeyPair::Ecdsa(EcdsaCurve::P521, _) => "PrivateKey(ECDSA P-521)",
            SigningKeyPair::Rsa(_) => "PrivateKey(RSA)",
            SigningKeyPair::Ed25519(_) => "PrivateKey(Ed25519)",
        })
    }
}

impl EcdsaCurve {
    const ALL: [Self; 3] = [Self::P256, Self::P384, Self::P521];

    fn signing_algorithm(self) -> &'static EcdsaSigningAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_ASN1_SIGNING,
            Self::P384 => &ECDSA_P384_SHA384_ASN1_SIGNING,
            Self::P521 => &ECDSA_P521_SHA512_ASN1_SIGNING,
        }
    }

    const fn scalar_bytes(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }
}

/// Parses PKCS#8 or SEC 1. The library rejects keys of another curve than requested, so each curve
/// is tried.
fn parse_ecdsa(der: &[u8]) -> Option<SigningKeyPair> {
    EcdsaCurve::ALL.into_iter().find_map(|curve| {
        let pair = EcdsaKeyPair::from_private_key_der(curve.signing_algorithm(), der).ok()?;
        Some(SigningKeyPair::Ecdsa(curve, pair))
    })
}

/// `ECDSA-Sig-Value`, RFC 5480 appendix A.
#[derive(Sequence)]
struct EcdsaSignature<'a> {
    r: UintRef<'a>,
    s: UintRef<'a>,
}

/// Converts a DER signature, as in certificates, to two numbers of fixed length, as in tokens.
fn fixed_signature(der: &[u8], scalar_bytes: usize) -> Result<Vec<u8>, Error> {
    let signature = EcdsaSignature::from_der(der).map_err(Error::malformed("signature"))?;
    let mut fixed = Vec::with_capacity(scalar_bytes.saturating_mul(2));
    for number in [signature.r.as_bytes(), signature.s.as_bytes()] {
        let padding = scalar_bytes.checked_sub(number.len()).ok_or(Error::Crypto("signing"))?;
        fixed.extend(std::iter::repeat_n(0, padding));
        fixed.extend_from_slice(number);
    }
    Ok(fixed)
}

/// A public key of any algorithm: the DER of a `SubjectPublicKeyInfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// Parses the DER of a `SubjectPublicKeyInfo`.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        if der.len() > MAX_PUBLIC_KEY_BYTES {
            return Err(Error::TooLarge { what: "public key", limit: MAX_PUBLIC_KEY_BYTES });
        }
        SubjectPublicKeyInfoRef::from_der(der).map_err(Error::malformed("public key"))?;
        Ok(Self(der.to_vec()))
    }

    /// Parses one or more keys from PEM. Private keys and certificates yield their public key, as
    /// in the key files of kube-apiserver.
    pub fn list_from_pem(text: &[u8]) -> Result<Vec<Self>, Error> {
        let mut keys = Vec::new();
        for block in pem::blocks(text)? {
            let key = match block.label.as_str() {
                pem::PUBLIC_KEY => Self::from_der(&block.contents)?,
                pem::CERTIFICATE => Certificate::from_der(&block.contents)?.public_key().clone(),
                pem::EC_PARAMETERS => continue,
                pem::PRIVATE_KEY | pem::EC_PRIVATE_KEY | pem::RSA_PRIVATE_KEY => {
                    PrivateKey::from_block(&block)?.public
                }
                _ => {
                    let (found, expected) = (block.label, "a key or a certificate");
                    return Err(pem::PemError::UnexpectedLabel { found, expected }.into());
                }
            };
            keys.push(key);
        }
        if keys.is_empty() { Err(pem::PemError::Missing("key").into()) } else { Ok(keys) }
    }

    /// Returns the DER of the `SubjectPublicKeyInfo`.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }

    /// Encodes the key as PEM.
    pub fn to_pem(&self) -> String {
        pem::encode(pem::PUBLIC_KEY, &self.0).to_string()
    }

    /// Returns the key identifier of RFC 7093 §2 (1): the first 160 bits of the SHA-256 of the key.
    /// The usual SHA-1 would be safe, but triggers scanners that search for SHA-1.
    pub fn identifier(&self) -> Result<Vec<u8>, Error> {
        let info = self.info()?;
        let hash = digest(&SHA256, info.subject_public_key.raw_bytes());
        Ok(hash.as_ref().iter().take(20).copied().collect())
    }

    /// Returns true for RSA, whose keys may also encipher.
    pub(crate) fn is_rsa(&self) -> Result<bool, Error> {
        Ok(self.info()?.algorithm.oid == RSA_ENCRYPTION)
    }

    fn info(&self) -> Result<SubjectPublicKeyInfoRef<'_>, Error> {
        SubjectPublicKeyInfoRef::from_der(&self.0).map_err(Error::malformed("public key"))
    }
}

#[cfg(test)]
mod tests;
