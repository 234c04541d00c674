//! Verifying signatures: a request's own, and a pod's proof that it holds a key.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA1_ASN1, ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1,
    ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA1_ASN1,
    ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ED25519,
    EcdsaVerificationAlgorithm, ParsedPublicKey, RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_2048_8192_SHA384, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPssSaltLength, RsaPublicKeyComponents,
};

use super::algorithm::{HashAlgorithm, SignatureAlgorithm};
use super::key::{EllipticCurve, KeyMaterial, SubjectKey, bits};

/// Why a signature does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The algorithm, or its combination with the key, is not verified here.
    #[error("cannot verify signature: algorithm unimplemented")]
    Unsupported,
    /// The algorithm is too weak for its signatures to mean anything.
    #[error("cannot verify signature: insecure algorithm")]
    Insecure,
    /// The signature is of another algorithm than the key.
    #[error("signature algorithm does not match the public key")]
    Mismatch,
    /// The key cannot be used.
    #[error("cannot verify signature: {0}")]
    BadKey(&'static str),
    /// The signature is not this key's on this message.
    #[error("signature does not verify")]
    Invalid,
}

impl SubjectKey {
    /// Checks a signature of a request or a certificate. SHA-1 counts, as in Go's check of requests:
    /// somebody who can make two requests with the same hash holds the key to both.
    pub(crate) fn verify(
        &self,
        algorithm: SignatureAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        use SignatureAlgorithm::{Dsa, Ecdsa, Ed25519, Rsa, RsaPss, Unknown};
        match (algorithm, &self.material) {
            (Unknown | Rsa(HashAlgorithm::Md2), _) => Err(SignatureError::Unsupported),
            (Rsa(HashAlgorithm::Md5), _) => Err(SignatureError::Insecure),
            // Go reads DSA keys and verifies none of their signatures.
            (_, KeyMaterial::Dsa(_) | KeyMaterial::X25519(_) | KeyMaterial::Unknown) => {
                Err(SignatureError::Unsupported)
            }
            (Rsa(hash), KeyMaterial::Rsa { modulus, exponent }) => {
                let parameters = pkcs1_parameters(hash).ok_or(SignatureError::Unsupported)?;
                verify_rsa(parameters, modulus, *exponent, message, signature)
            }
            (RsaPss(hash), KeyMaterial::Rsa { modulus, exponent }) => {
                let parameters = pss_parameters(hash).ok_or(SignatureError::Unsupported)?;
                verify_rsa(parameters, modulus, *exponent, message, signature)
            }
            (Ecdsa(hash), KeyMaterial::Ecdsa { curve, point }) => {
                verify_ecdsa(*curve, hash, point, message, signature)
            }
            (Ed25519, KeyMaterial::Ed25519(key)) => verify_ed25519(key, message, signature),
            (Rsa(_) | RsaPss(_) | Ecdsa(_) | Ed25519 | Dsa(_), _) => Err(SignatureError::Mismatch),
        }
    }

    /// Checks the proof that somebody holds this key: a signature over `message` by Ed25519, by
    /// ECDSA over SHA-256 whatever the curve, or by RSA-PSS over SHA-256 with a salt of
    /// any usual length.
    pub fn verify_possession(&self, message: &[u8], proof: &[u8]) -> Result<(), SignatureError> {
        match &self.material {
            KeyMaterial::Ed25519(key) => verify_ed25519(key, message, proof),
            KeyMaterial::Ecdsa { curve, point } => {
                verify_ecdsa(*curve, HashAlgorithm::Sha256, point, message, proof)
            }
            KeyMaterial::Rsa { modulus, exponent } => {
                verify_pss_any_salt(modulus, *exponent, message, proof)
            }
            KeyMaterial::Dsa(_) | KeyMaterial::X25519(_) | KeyMaterial::Unknown => {
                Err(SignatureError::Unsupported)
            }
        }
    }
}

/// Go takes RSA keys from 1024 bits on. The library has no SHA-384 below 2048.
fn pkcs1_parameters(hash: HashAlgorithm) -> Option<&'static RsaParameters> {
    match hash {
        HashAlgorithm::Md2 | HashAlgorithm::Md5 => None,
        HashAlgorithm::Sha1 => Some(&RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY),
        HashAlgorithm::Sha256 => Some(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
        HashAlgorithm::Sha384 => Some(&RSA_PKCS1_2048_8192_SHA384),
        HashAlgorithm::Sha512 => Some(&RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
    }
}

fn pss_parameters(hash: HashAlgorithm) -> Option<&'static RsaParameters> {
    match hash {
        HashAlgorithm::Md2 | HashAlgorithm::Md5 | HashAlgorithm::Sha1 => None,
        HashAlgorithm::Sha256 => Some(&RSA_PSS_2048_8192_SHA256),
        HashAlgorithm::Sha384 => Some(&RSA_PSS_2048_8192_SHA384),
        HashAlgorithm::Sha512 => Some(&RSA_PSS_2048_8192_SHA512),
    }
}

fn verify_rsa(
    parameters: &RsaParameters,
    modulus: &[u8],
    exponent: u64,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    match bits(modulus) {
        ..1024 => return Err(SignatureError::BadKey("RSA key has less than 1024 bits")),
        8193.. => return Err(SignatureError::BadKey("RSA key has more than 8192 bits")),
        _ => {}
    }
    if modulus.last().is_none_or(|last| last & 1 == 0) {
        return Err(SignatureError::BadKey("RSA modulus is even"));
    }
    let exponent = u32::try_from(exponent).ok().filter(|exponent| *exponent <= 0x7fff_ffff);
    let exponent = exponent.ok_or(SignatureError::BadKey("RSA public exponent is too large"))?;
    if exponent < 2 || exponent & 1 == 0 {
        return Err(SignatureError::BadKey("RSA public exponent is even or too small"));
    }
    let exponent = exponent.to_be_bytes();
    let zeros = exponent.iter().take_while(|byte| **byte == 0).count();
    let key = RsaPublicKeyComponents { n: modulus, e: exponent.get(zeros..).unwrap_or_default() };
    key.verify(parameters, message, signature).map_err(|_| SignatureError::Invalid)
}

/// The salt lengths that are tried: that of the hash, all the room there is, as Go makes it, none,
/// and those of other hashes.
const SALTS: [RsaParameters; 6] = [
    RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256.with_pss_salt_length(RsaPssSaltLength::Max),
    RSA_PSS_2048_8192_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(0)),
    RSA_PSS_2048_8192_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(20)),
    RSA_PSS_2048_8192_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(48)),
    RSA_PSS_2048_8192_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(64)),
];

/// An RSA-PSS signature does not say how long its salt is. Go finds out; the library must be told.
/// Trying every length would let a false proof cost as much as five hundred.
fn verify_pss_any_salt(
    modulus: &[u8],
    exponent: u64,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    let mut verdict = Err(SignatureError::Invalid);
    for parameters in &SALTS {
        verdict = verify_rsa(parameters, modulus, exponent, message, signature);
        if verdict != Err(SignatureError::Invalid) {
            break;
        }
    }
    verdict
}

fn verify_ecdsa(
    curve: EllipticCurve,
    hash: HashAlgorithm,
    point: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    let algorithm = ecdsa_algorithm(curve, hash).ok_or(SignatureError::Unsupported)?;
    let key = ParsedPublicKey::new(algorithm, point);
    let key = key.map_err(|_| SignatureError::BadKey("not a point on the elliptic curve"))?;
    key.verify_sig(message, signature).map_err(|_| SignatureError::Invalid)
}

/// Every combination that the library has. It lacks P-224, and SHA-1 with P-384.
fn ecdsa_algorithm(
    curve: EllipticCurve,
    hash: HashAlgorithm,
) -> Option<&'static EcdsaVerificationAlgorithm> {
    use EllipticCurve::{P224, P256, P384, P521};
    match (curve, hash) {
        (P224, _) | (_, HashAlgorithm::Md2 | HashAlgorithm::Md5) | (P384, HashAlgorithm::Sha1) => {
            None
        }
        (P256, HashAlgorithm::Sha1) => Some(&ECDSA_P256_SHA1_ASN1),
        (P256, HashAlgorithm::Sha256) => Some(&ECDSA_P256_SHA256_ASN1),
        (P256, HashAlgorithm::Sha384) => Some(&ECDSA_P256_SHA384_ASN1),
        (P256, HashAlgorithm::Sha512) => Some(&ECDSA_P256_SHA512_ASN1),
        (P384, HashAlgorithm::Sha256) => Some(&ECDSA_P384_SHA256_ASN1),
        (P384, HashAlgorithm::Sha384) => Some(&ECDSA_P384_SHA384_ASN1),
        (P384, HashAlgorithm::Sha512) => Some(&ECDSA_P384_SHA512_ASN1),
        (P521, HashAlgorithm::Sha1) => Some(&ECDSA_P521_SHA1_ASN1),
        (P521, HashAlgorithm::Sha256) => Some(&ECDSA_P521_SHA256_ASN1),
        (P521, HashAlgorithm::Sha384) => Some(&ECDSA_P521_SHA384_ASN1),
        (P521, HashAlgorithm::Sha512) => Some(&ECDSA_P521_SHA512_ASN1),
    }
}

fn verify_ed25519(key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
    let key = ParsedPublicKey::new(&ED25519, key);
    let key = key.map_err(|_| SignatureError::BadKey("not an Ed25519 key"))?;
    key.verify_sig(message, signature).map_err(|_| SignatureError::Invalid)
}
