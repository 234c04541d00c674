//! Public keys in certificates and requests.

use std::fmt;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, EcdsaVerificationAlgorithm,
    ParsedPublicKey,
};

use super::algorithm::AlgorithmIdentifier;
use super::der_reader::{BitString, DerElement, DerReader, tag};
use super::p224;
use crate::der_syntax::encode_tlv;
use crate::limits::MAX_SUBJECT_KEY_BYTES;
use crate::{Error, KeyType, PublicKey};

/// A public key: the DER of a `SubjectPublicKeyInfo`, and its parsed contents.
///
/// Two values are equal if they are the same key, regardless of encoding.
#[derive(Clone)]
pub struct SubjectKey {
    der: Vec<u8>,
    pub(super) material: KeyMaterial,
}

/// The parsed numbers of a key.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum KeyMaterial {
    Rsa { modulus: Vec<u8>, exponent: u64 },
    Ecdsa { curve: EllipticCurve, point: Vec<u8> },
    Ed25519(Vec<u8>),
    X25519(Vec<u8>),
    Dsa(Vec<u8>),
    Unknown,
}

/// Algorithm of a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// RSA with a modulus of any size.
    Rsa {
        /// Length of the modulus in bits.
        modulus_bits: usize,
    },
    /// ECDSA on one of the NIST curves.
    Ecdsa(EllipticCurve),
    /// Ed25519 (RFC 8032), for signatures only.
    Ed25519,
    /// X25519, for key agreement only; such a key cannot sign.
    X25519,
    /// DSA, whose signatures are never verified.
    Dsa,
    /// An unknown algorithm. The key is passed on, never used.
    Unknown,
}

/// An elliptic curve standardized by NIST (FIPS 186-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EllipticCurve {
    /// P-224. Keys are parsed; their signatures are not verified.
    P224,
    /// P-256, also known as `prime256v1` and `secp256r1`.
    P256,
    /// P-384, also known as `secp384r1`.
    P384,
    /// P-521, also known as `secp521r1`.
    P521,
}

/// Why a key is not one of [`KeyType::POD_CERTIFICATE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodKeyError {
    /// RSA with a modulus of another size.
    Modulus {
        /// Modulus length in bits, rounded up to whole bytes.
        bits: usize,
    },
    /// ECDSA on a curve that pods may not use.
    Curve(EllipticCurve),
    /// An algorithm that pods may not use, such as DSA.
    Algorithm,
}

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const DSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01];
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const X25519: &[u8] = &[0x2b, 0x65, 0x6e];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const NULL: [u8; 2] = [tag::NULL, 0];
const WHAT: &str = "public key";

impl SubjectKey {
    /// Parses a `SubjectPublicKeyInfo`; trailing data is an error. The algorithm must be known.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        if der.len() > MAX_SUBJECT_KEY_BYTES {
            return Err(Error::TooLarge { what: WHAT, limit: MAX_SUBJECT_KEY_BYTES });
        }
        let refuse = |reason: &str| Error::Malformed { what: WHAT, reason: reason.to_owned() };
        let mut reader = DerReader::new(der);
        let info = reader.sequence().filter(|_| reader.is_empty());
        let info = info.ok_or_else(|| refuse("not a SubjectPublicKeyInfo"))?;
        let (algorithm, bits) = parts(info, AlgorithmIdentifier::in_request).map_err(refuse)?;
        let material = match algorithm.oid.0 {
            X25519 => Some(parse_x25519(&algorithm, &bits).map_err(refuse)?),
            _ => parse_material(&algorithm, &bits).map_err(refuse)?,
        };
        let material = material.ok_or_else(|| refuse("unknown algorithm"))?;
        Ok(Self { der: der.to_vec(), material })
    }

    /// Parses the key of a certificate or request, whose algorithm may be unknown.
    pub(super) fn embedded<'a>(
        key: DerElement<'a>,
        algorithm: AlgorithmReader<'a>,
    ) -> Result<Self, &'static str> {
        let (algorithm, bits) = parts(DerReader::new(key.value), algorithm)?;
        let material = parse_material(&algorithm, &bits)?.unwrap_or(KeyMaterial::Unknown);
        Ok(Self { der: key.whole.to_vec(), material })
    }

    /// Returns the DER of the `SubjectPublicKeyInfo`, byte for byte as presented.
    pub fn as_der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the algorithm of the key.
    pub fn algorithm(&self) -> KeyAlgorithm {
        match &self.material {
            KeyMaterial::Rsa { modulus, .. } => KeyAlgorithm::Rsa { modulus_bits: bits(modulus) },
            KeyMaterial::Ecdsa { curve, .. } => KeyAlgorithm::Ecdsa(*curve),
            KeyMaterial::Ed25519(_) => KeyAlgorithm::Ed25519,
            KeyMaterial::X25519(_) => KeyAlgorithm::X25519,
            KeyMaterial::Dsa(_) => KeyAlgorithm::Dsa,
            KeyMaterial::Unknown => KeyAlgorithm::Unknown,
        }
    }

    /// The type of the key; `None` if no [`KeyType`] is as large, or has this curve or algorithm.
    pub fn key_type(&self) -> Option<KeyType> {
        KeyType::from_algorithm(self.algorithm())
    }

    /// The type of the key if pods may have it. As in Kubernetes, the size of an RSA key is that of
    /// its modulus in whole bytes, so it may differ from [`Self::key_type`].
    pub fn pod_key_type(&self) -> Result<KeyType, PodKeyError> {
        let found = match &self.material {
            KeyMaterial::Rsa { modulus, .. } => {
                let bits = modulus.len().saturating_mul(8);
                let sizes = [(3072, KeyType::Rsa3072), (4096, KeyType::Rsa4096)];
                let size = sizes.iter().find(|(size, _)| *size == bits);
                return size.map(|(_, found)| *found).ok_or(PodKeyError::Modulus { bits });
            }
            KeyMaterial::Ecdsa { curve, .. } => self.key_type().ok_or(PodKeyError::Curve(*curve)),
            _ => self.key_type().ok_or(PodKeyError::Algorithm),
        }?;
        let allowed = KeyType::POD_CERTIFICATE.contains(&found);
        allowed.then_some(found).ok_or(PodKeyError::Algorithm)
    }

    /// Returns the DER that Go would write for the key. Encodes only the parsed key; additional
    /// data in the presented DER is dropped.
    pub fn to_canonical_der(&self) -> Result<Vec<u8>, Error> {
        let (algorithm, parameters, bits) = match &self.material {
            KeyMaterial::Rsa { modulus, exponent } => {
                let exponent = exponent.to_be_bytes();
                let zeros = exponent.iter().take_while(|byte| **byte == 0).count();
                let exponent = exponent.get(zeros..).unwrap_or_default();
                let numbers = [unsigned(modulus), unsigned(exponent)].concat();
                (RSA, NULL.to_vec(), encode_tlv(tag::SEQUENCE, &numbers))
            }
            KeyMaterial::Ecdsa { curve, point } => (ECDSA, encode_tlv(tag::OID, curve.oid()), point.clone()),
            KeyMaterial::Ed25519(key) => (ED25519, Vec::new(), key.clone()),
            KeyMaterial::X25519(key) => (X25519, Vec::new(), key.clone()),
            KeyMaterial::Dsa(_) | KeyMaterial::Unknown => {
                return Err(Error::UnsupportedKey("not RSA, ECDSA or Ed25519"));
            }
        };
        let algorithm = encode_tlv(tag::SEQUENCE, &[encode_tlv(tag::OID, algorithm), parameters].concat());
        let bits = encode_tlv(tag::BIT_STRING, &[&[0], bits.as_slice()].concat());
        Ok(encode_tlv(tag::SEQUENCE, &[algorithm, bits].concat()))
    }

    /// Converts to the key that is certified. Fails for input that is not strict DER.
    pub fn to_public_key(&self) -> Result<PublicKey, Error> {
        PublicKey::from_der(&self.der)
    }
}

impl PartialEq for SubjectKey {
    fn eq(&self, other: &Self) -> bool {
        match (&self.material, &other.material) {
            (KeyMaterial::Unknown, KeyMaterial::Unknown) => self.der == other.der,
            (ours, theirs) => ours == theirs,
        }
    }
}

impl Eq for SubjectKey {}

impl fmt::Debug for SubjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SubjectKey").field(&self.algorithm()).finish()
    }
}

impl KeyAlgorithm {
    /// Describes the algorithm and size for people, for example `ECDSA P-256`.
    pub fn description(self) -> String {
        match self {
            Self::Rsa { modulus_bits } => format!("RSA {modulus_bits}"),
            Self::Ecdsa(curve) => format!("ECDSA {}", curve.name()),
            Self::Ed25519 => "Ed25519".into(),
            Self::X25519 => "X25519".into(),
            Self::Dsa => "DSA".into(),
            Self::Unknown => "unknown algorithm".into(),
        }
    }

    /// The name in the form of [`KeyType::name`], also for keys that have no [`KeyType`].
    pub fn type_name(self) -> String {
        match self {
            Self::Unknown => "unknown".to_owned(),
            known => known.description().to_uppercase().replace([' ', '-'], ""),
        }
    }
}

impl EllipticCurve {
    /// Returns Go's name of the curve.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P224 => "P-224",
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
        }
    }

    fn from_oid(oid: &[u8]) -> Option<Self> {
        [Self::P224, Self::P256, Self::P384, Self::P521].into_iter().find(|curve| curve.oid() == oid)
    }

    const fn oid(self) -> &'static [u8] {
        match self {
            Self::P224 => &[0x2b, 0x81, 0x04, 0x00, 0x21],
            Self::P256 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
            Self::P384 => &[0x2b, 0x81, 0x04, 0x00, 0x22],
            Self::P521 => &[0x2b, 0x81, 0x04, 0x00, 0x23],
        }
    }

    /// Returns true for an uncompressed point (4, x, y) on the curve.
    fn is_valid_point(self, encoded: &[u8]) -> bool {
        let (algorithm, length): (&'static EcdsaVerificationAlgorithm, usize) = match self {
            Self::P224 => return p224::is_point(encoded),
            Self::P256 => (&ECDSA_P256_SHA256_ASN1, 65),
            Self::P384 => (&ECDSA_P384_SHA384_ASN1, 97),
            Self::P521 => (&ECDSA_P521_SHA512_ASN1, 133),
        };
        encoded.len() == length
            && encoded.first() == Some(&4)
            && ParsedPublicKey::new(algorithm, encoded).is_ok()
    }
}

/// Parser of algorithm identifiers, which differs between certificates and requests.
pub(super) type AlgorithmReader<'a> = fn(DerReader<'a>) -> Option<AlgorithmIdentifier<'a>>;

fn parts<'a>(
    mut info: DerReader<'a>,
    algorithm: AlgorithmReader<'a>,
) -> Result<(AlgorithmIdentifier<'a>, BitString<'a>), &'static str> {
    let algorithm = info.sequence().and_then(algorithm);
    let algorithm = algorithm.ok_or("malformed algorithm of a public key")?;
    let bits = info.bit_string().ok_or("malformed bits of a public key")?;
    Ok((algorithm, bits))
}

/// Parses the key if certificates use its algorithm; `None` if the algorithm is unknown.
fn parse_material(
    algorithm: &AlgorithmIdentifier<'_>,
    bits: &BitString<'_>,
) -> Result<Option<KeyMaterial>, &'static str> {
    match algorithm.oid.0 {
        RSA => parse_rsa(algorithm, bits).map(Some),
        ECDSA => parse_ecdsa(algorithm, bits).map(Some),
        ED25519 => {
            let key = bits.right_aligned();
            if algorithm.parameters.is_some() || key.len() != 32 {
                return Err("invalid Ed25519 public key");
            }
            Ok(Some(KeyMaterial::Ed25519(key)))
        }
        DSA => parse_dsa(algorithm, bits).map(Some),
        _ => Ok(None),
    }
}

fn parse_rsa(algorithm: &AlgorithmIdentifier<'_>, bits: &BitString<'_>) -> Result<KeyMaterial, &'static str> {
    // RFC 3279 §2.3.1 requires the NULL.
    if algorithm.parameters.is_none_or(|parameters| parameters.whole != NULL) {
        return Err("RSA key without NULL parameters");
    }
    let key = bits.right_aligned();
    let mut numbers = DerReader::new(&key).sequence().ok_or("invalid RSA public key")?;
    let modulus = numbers.integer().ok_or("invalid RSA modulus")?;
    let modulus = positive(modulus).ok_or("RSA modulus is not positive")?;
    let exponent = numbers.int64().ok_or("invalid RSA public exponent")?;
    let exponent = u64::try_from(exponent).ok().filter(|exponent| *exponent > 0);
    let exponent = exponent.ok_or("RSA public exponent is not positive")?;
    Ok(KeyMaterial::Rsa { modulus: modulus.to_vec(), exponent })
}

fn parse_ecdsa(
    algorithm: &AlgorithmIdentifier<'_>,
    bits: &BitString<'_>,
) -> Result<KeyMaterial, &'static str> {
    let parameters = algorithm.parameters.map_or(&[][..], |parameters| parameters.whole);
    let curve = DerReader::new(parameters).oid().ok_or("invalid ECDSA parameters")?;
    let curve = EllipticCurve::from_oid(curve.0).ok_or("unsupported elliptic curve")?;
    let point = bits.right_aligned();
    if !curve.is_valid_point(&point) {
        return Err("not a point on the elliptic curve");
    }
    Ok(KeyMaterial::Ecdsa { curve, point })
}

fn parse_x25519(
    algorithm: &AlgorithmIdentifier<'_>,
    bits: &BitString<'_>,
) -> Result<KeyMaterial, &'static str> {
    let key = bits.right_aligned();
    if algorithm.parameters.is_some() || key.len() != 32 {
        return Err("invalid X25519 public key");
    }
    Ok(KeyMaterial::X25519(key))
}

fn parse_dsa(algorithm: &AlgorithmIdentifier<'_>, bits: &BitString<'_>) -> Result<KeyMaterial, &'static str> {
    let invalid = "invalid DSA public key";
    let key = bits.right_aligned();
    let y = DerReader::new(&key).integer().and_then(positive).ok_or(invalid)?;
    let parameters = algorithm.parameters.map_or(&[][..], |parameters| parameters.whole);
    let mut numbers = DerReader::new(parameters).sequence().ok_or(invalid)?;
    for _ in ["p", "q", "g"] {
        numbers.integer().and_then(positive).ok_or(invalid)?;
    }
    Ok(KeyMaterial::Dsa([parameters, y].concat()))
}

/// Returns the magnitude of a two's complement number above zero.
fn positive(number: &[u8]) -> Option<&[u8]> {
    match number {
        [0] => None,
        [0, magnitude @ ..] => Some(magnitude),
        [first, ..] if first & 0x80 == 0 => Some(number),
        _ => None,
    }
}

/// Encodes a positive number without leading zero octets as an INTEGER.
fn unsigned(magnitude: &[u8]) -> Vec<u8> {
    let negative = magnitude.first().is_none_or(|first| first & 0x80 != 0);
    let sign: &[u8] = if negative { &[0] } else { &[] };
    encode_tlv(tag::INTEGER, &[sign, magnitude].concat())
}

/// Returns the bit length of a number without leading zero octets.
pub(super) fn bits(magnitude: &[u8]) -> usize {
    let unused = magnitude.first().map_or(0, |first| first.leading_zeros());
    let unused = usize::try_from(unused).unwrap_or_default();
    magnitude.len().saturating_mul(8).saturating_sub(unused)
}

#[cfg(test)]
mod tests;
