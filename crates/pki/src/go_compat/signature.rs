//! Signature algorithms, and verifying signatures: a request's own, and a pod's proof that it holds a
//! key.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA1_ASN1, ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1,
    ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA1_ASN1,
    ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ED25519,
    EcdsaVerificationAlgorithm, ParsedPublicKey, RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_2048_8192_SHA384, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPssSaltLength, RsaPublicKeyComponents,
};

use super::algorithm::AlgorithmIdentifier;
use super::der_reader::{DerReader, tag};
use super::key::{EllipticCurve, KeyMaterial, SubjectKey, bits};

/// A signature algorithm. [`Self::Unknown`] verifies no signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureAlgorithm {
    /// RSA with PKCS#1 v1.5 padding over this hash.
    Rsa(HashAlgorithm),
    /// RSA-PSS, with a salt as long as the hash.
    RsaPss(HashAlgorithm),
    /// ECDSA with any curve over this hash.
    Ecdsa(HashAlgorithm),
    /// Pure Ed25519 (RFC 8032), which has no separate hash.
    Ed25519,
    /// DSA, which Go no longer verifies.
    Dsa(HashAlgorithm),
    /// Anything else, or parameters that mean nothing.
    Unknown,
}

/// The hash that is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// MD2, which is broken; its signatures are never accepted.
    Md2,
    /// MD5, which is broken; its signatures are never accepted.
    Md5,
    /// SHA-1, deprecated because collisions are practical.
    Sha1,
    /// SHA-256 (FIPS 180-4), with a 32-byte digest.
    Sha256,
    /// SHA-384 (FIPS 180-4), with a 48-byte digest.
    Sha384,
    /// SHA-512 (FIPS 180-4), with a 64-byte digest.
    Sha512,
}

/// OID prefix of the PKCS#1 algorithms: `1.2.840.113549.1.1`.
const PKCS1: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
const MGF1: u8 = 8;
/// OID prefix of the NIST hash algorithms: `2.16.840.1.101.3.4.2`.
const NIST_HASHES: [u8; 8] = [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];

impl SignatureAlgorithm {
    pub(crate) fn from_identifier(identifier: &AlgorithmIdentifier<'_>) -> Self {
        if let Some((&last, arcs)) = identifier.oid.0.split_last()
            && arcs == PKCS1
        {
            return match last {
                2 => Self::Rsa(HashAlgorithm::Md2),
                4 => Self::Rsa(HashAlgorithm::Md5),
                5 => Self::Rsa(HashAlgorithm::Sha1),
                10 => pss_hash(identifier).map_or(Self::Unknown, Self::RsaPss),
                11 => Self::Rsa(HashAlgorithm::Sha256),
                12 => Self::Rsa(HashAlgorithm::Sha384),
                13 => Self::Rsa(HashAlgorithm::Sha512),
                _ => Self::Unknown,
            };
        }
        match identifier.oid.0 {
            // SHA-1 with RSA under its ISO OID.
            [0x2b, 0x0e, 0x03, 0x02, 0x1d] => Self::Rsa(HashAlgorithm::Sha1),
            [0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x03] => Self::Dsa(HashAlgorithm::Sha1),
            [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x02] => Self::Dsa(HashAlgorithm::Sha256),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01] => Self::Ecdsa(HashAlgorithm::Sha1),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02] => Self::Ecdsa(HashAlgorithm::Sha256),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03] => Self::Ecdsa(HashAlgorithm::Sha384),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04] => Self::Ecdsa(HashAlgorithm::Sha512),
            // RFC 8410 §3: the parameters must be absent.
            [0x2b, 0x65, 0x70] if identifier.parameters.is_none() => Self::Ed25519,
            _ => Self::Unknown,
        }
    }
}

/// Returns the hash of RSA-PSS for one of the three usual combinations: the same SHA-2 for message
/// and mask, and a salt as long as the hash.
fn pss_hash(identifier: &AlgorithmIdentifier<'_>) -> Option<HashAlgorithm> {
    let mut parameters = DerReader::new(identifier.parameters?.whole).sequence()?;
    parameters.enter(tag::constructed(0))?;
    let hash = AlgorithmIdentifier::read(parameters.sequence()?)?;
    parameters.enter(tag::constructed(1))?;
    let mask = AlgorithmIdentifier::read(parameters.sequence()?)?;
    parameters.enter(tag::constructed(2))?;
    let salt = parameters.int64()?;
    let mut trailer = 1;
    if parameters.peek(tag::constructed(3)) {
        parameters.enter(tag::constructed(3))?;
        trailer = parameters.int64()?;
    }
    let mask_hash = DerReader::new(mask.parameters?.whole).sequence();
    let mask_hash = AlgorithmIdentifier::read(mask_hash?)?;
    let is_mgf1 = mask.oid.0.split_last() == Some((&MGF1, &PKCS1[..]));
    if !hash.has_no_parameters() || !is_mgf1 || mask_hash.oid != hash.oid || !mask_hash.has_no_parameters() {
        return None;
    }
    let (&last, arcs) = hash.oid.0.split_last()?;
    match (last, salt) {
        _ if arcs != NIST_HASHES || trailer != 1 => None,
        (1, 32) => Some(HashAlgorithm::Sha256),
        (2, 48) => Some(HashAlgorithm::Sha384),
        (3, 64) => Some(HashAlgorithm::Sha512),
        _ => None,
    }
}

/// Error of verifying a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The algorithm, or its combination with the key, is not supported.
    #[error("cannot verify signature: algorithm unimplemented")]
    Unsupported,
    /// The algorithm is too weak to be trusted.
    #[error("cannot verify signature: insecure algorithm")]
    Insecure,
    /// The signature algorithm does not match the key.
    #[error("signature algorithm does not match the public key")]
    Mismatch,
    /// The key cannot be used for verification.
    #[error("cannot verify signature: {0}")]
    BadKey(&'static str),
    /// The signature does not match the key and message.
    #[error("signature does not verify")]
    Invalid,
}

impl SubjectKey {
    /// Verifies the signature of a request or certificate. SHA-1 is accepted, as in Go's check of
    /// requests: a requester who creates two requests with the same hash holds the key of both.
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
            // Go parses DSA keys but verifies none of their signatures.
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

    /// Verifies a proof of possession of this key: a signature over `message` with Ed25519, with
    /// ECDSA over SHA-256 on any curve, or with RSA-PSS over SHA-256 and a salt of any usual
    /// length.
    pub fn verify_possession(&self, message: &[u8], proof: &[u8]) -> Result<(), SignatureError> {
        match &self.material {
            KeyMaterial::Ed25519(key) => verify_ed25519(key, message, proof),
            KeyMaterial::Ecdsa { curve, point } => {
                verify_ecdsa(*curve, HashAlgorithm::Sha256, point, message, proof)
            }
            KeyMaterial::Rsa { modulus, exponent } => verify_pss_any_salt(modulus, *exponent, message, proof),
            KeyMaterial::Dsa(_) | KeyMaterial::X25519(_) | KeyMaterial::Unknown => {
                Err(SignatureError::Unsupported)
            }
        }
    }
}

/// Go accepts RSA keys from 1024 bits on. The library has no SHA-384 below 2048 bits.
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

/// Salt lengths to try: that of the hash, the maximum (Go's default for signing), none, and those
/// of other hashes.
const SALTS: [RsaParameters; 6] = [
    RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256.with_pss_salt_length(RsaPssSaltLength::Max),
    RSA_PSS_2048_8192_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(0)),
    RSA_PSS_2048_8192_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(20)),
    RSA_PSS_2048_8192_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(48)),
    RSA_PSS_2048_8192_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(64)),
];

/// An RSA-PSS signature does not state its salt length. Go detects it; the library must be given
/// one. Trying every length would make a forged proof as expensive as five hundred verifications.
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

/// Maps to every combination that the library supports. It lacks P-224, and SHA-1 with P-384.
fn ecdsa_algorithm(curve: EllipticCurve, hash: HashAlgorithm) -> Option<&'static EcdsaVerificationAlgorithm> {
    use EllipticCurve::{P224, P256, P384, P521};
    match (curve, hash) {
        (P224, _) | (_, HashAlgorithm::Md2 | HashAlgorithm::Md5) | (P384, HashAlgorithm::Sha1) => None,
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
