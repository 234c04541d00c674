//! Algorithm identifiers, and which signature algorithm one stands for.

use super::der_reader::{DerElement, DerReader, tag};
use super::oid::Oid;

/// `AlgorithmIdentifier` as defined by RFC 5280 §4.1.1.2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AlgorithmIdentifier<'a> {
    pub oid: Oid<'a>,
    pub parameters: Option<DerElement<'a>>,
}

impl<'a> AlgorithmIdentifier<'a> {
    /// Reads the contents. What follows the parameters is passed over, as by Go.
    pub(crate) fn read(contents: DerReader<'a>) -> Option<Self> {
        Self::with(contents, DerReader::next_element)
    }

    /// Reads the contents in a request, where the parameters may be of any type.
    pub(crate) fn in_request(contents: DerReader<'a>) -> Option<Self> {
        Self::with(contents, DerReader::next_wide_element)
    }

    fn with(
        mut contents: DerReader<'a>,
        next: fn(&mut DerReader<'a>) -> Option<DerElement<'a>>,
    ) -> Option<Self> {
        let oid = contents.oid()?;
        let parameters = if contents.is_empty() { None } else { Some(next(&mut contents)?) };
        Some(Self { oid, parameters })
    }

    /// Whether there are no parameters, or none that say anything.
    fn has_no_parameters(&self) -> bool {
        self.parameters.is_none_or(|parameters| parameters.whole == [tag::NULL, 0])
    }
}

/// How something is signed. What is not known is [`Self::Unknown`], and verifies nothing.
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
    /// DSA, which nobody verifies any more.
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
            // The same as SHA-1 with RSA, under a number of ISO's.
            [0x2b, 0x0e, 0x03, 0x02, 0x1d] => Self::Rsa(HashAlgorithm::Sha1),
            [0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x03] => Self::Dsa(HashAlgorithm::Sha1),
            [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x02] => {
                Self::Dsa(HashAlgorithm::Sha256)
            }
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

/// The hash of RSA-PSS, if it is one of the three usual combinations: the same SHA-2 for message
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
    if !hash.has_no_parameters()
        || !is_mgf1
        || mask_hash.oid != hash.oid
        || !mask_hash.has_no_parameters()
    {
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
