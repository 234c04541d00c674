//! Certificates from elsewhere.

use std::fmt;

use time::OffsetDateTime;

use super::algorithm::AlgorithmIdentifier;
use super::alt_names::AltNames;
use super::der_reader::{DerElement, DerReader, tag};
use super::distinguished_name::{self, DistinguishedName};
use super::extensions::ForeignExtensions;
use super::key::SubjectKey;
use super::signature::SignatureAlgorithm;
use super::time::read as read_time;
use crate::Error;
use crate::limits::MAX_FOREIGN_BYTES;

/// A certificate parsed exactly as leniently as Go parses it.
///
/// For certificates that are stored and passed on. Authentication uses the stricter
/// [`crate::Certificate`].
#[derive(Clone)]
pub struct ForeignCertificate {
    der: Vec<u8>,
    subject_der: Vec<u8>,
    subject: DistinguishedName,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
    public_key: SubjectKey,
    signature_algorithm: SignatureAlgorithm,
    extensions: ForeignExtensions,
}

impl ForeignCertificate {
    /// Parses one certificate; trailing data is an error.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let mut reader = DerReader::new(der);
        let certificate = Self::next(&mut reader)?;
        if reader.is_empty() { Ok(certificate) } else { Err(malformed_certificate("trailing data")) }
    }

    /// Parses concatenated certificates with nothing between them.
    pub fn several_from_der(der: &[u8]) -> Result<Vec<Self>, Error> {
        let mut reader = DerReader::new(der);
        let mut certificates = Vec::new();
        while !reader.is_empty() {
            certificates.push(Self::next(&mut reader)?);
        }
        Ok(certificates)
    }

    fn next(reader: &mut DerReader<'_>) -> Result<Self, Error> {
        let certificate =
            reader.element(tag::SEQUENCE).ok_or_else(|| malformed_certificate("not a sequence"))?;
        if certificate.whole.len() > MAX_FOREIGN_BYTES {
            return Err(Error::TooLarge { what: WHAT, limit: MAX_FOREIGN_BYTES });
        }
        Self::read(certificate).map_err(malformed_certificate)
    }

    fn read(certificate: DerElement<'_>) -> Result<Self, &'static str> {
        let mut outer = DerReader::new(certificate.value);
        let mut tbs = outer.sequence().ok_or("malformed body")?;
        let version = version(&mut tbs)?;
        let serial = tbs.integer().ok_or("malformed serial number")?;
        if serial.first().is_some_and(|first| first & 0x80 != 0) {
            return Err("negative serial number");
        }
        let inner = tbs.value(tag::SEQUENCE).ok_or("malformed signature algorithm")?;
        if outer.value(tag::SEQUENCE).ok_or("malformed signature algorithm")? != inner {
            return Err("inner and outer signature algorithm differ");
        }
        let algorithm = AlgorithmIdentifier::read(DerReader::new(inner));
        let algorithm = algorithm.ok_or("malformed signature algorithm")?;
        distinguished_name::check(tbs.element(tag::SEQUENCE).ok_or("malformed issuer")?.whole)?;
        let mut validity = tbs.sequence().ok_or("malformed validity")?;
        let not_before = read_time(&mut validity).ok_or("malformed start of validity")?;
        let not_after = read_time(&mut validity).ok_or("malformed end of validity")?;
        let subject = tbs.element(tag::SEQUENCE).ok_or("malformed subject")?;
        let (subject_der, subject) = (subject.whole, DistinguishedName::from_certificate(subject.whole)?);
        let key = tbs.element(tag::SEQUENCE).ok_or("malformed public key")?;
        let public_key = SubjectKey::embedded(key, AlgorithmIdentifier::read)?;
        let extensions = extensions(version, &mut tbs)?;
        outer.bit_string().ok_or("malformed signature")?;
        Ok(Self {
            der: certificate.whole.to_vec(),
            subject_der: subject_der.to_vec(),
            subject,
            not_before,
            not_after,
            public_key,
            signature_algorithm: SignatureAlgorithm::from_identifier(&algorithm),
            extensions,
        })
    }

    /// Returns the DER encoding, exactly the bytes that were parsed.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the subject, decoded as Go decodes it.
    pub fn subject(&self) -> &DistinguishedName {
        &self.subject
    }

    /// Returns the issuer name. Its signature has not been verified.
    pub fn issuer(&self) -> DistinguishedName {
        let issuer = self.fields().and_then(|mut tbs| {
            for _ in ["serial number", "signature algorithm"] {
                tbs.next_element()?;
            }
            DistinguishedName::from_certificate(tbs.element(tag::SEQUENCE)?.whole).ok()
        });
        issuer.unwrap_or_default()
    }

    /// Serial number, big-endian without leading zeros.
    pub fn serial(&self) -> Vec<u8> {
        let serial = self.fields().and_then(|mut tbs| tbs.integer());
        serial.unwrap_or_default().iter().copied().skip_while(|octet| *octet == 0).collect()
    }

    /// Returns a reader at the serial number. Parsing succeeded before, so this is always `Some`.
    fn fields(&self) -> Option<DerReader<'_>> {
        let mut tbs = DerReader::new(&self.der).sequence()?.sequence()?;
        version(&mut tbs).ok()?;
        Some(tbs)
    }

    /// Returns the DER of the subject, byte for byte.
    pub(crate) fn subject_der(&self) -> &[u8] {
        &self.subject_der
    }

    /// Start of the validity period.
    pub fn not_before(&self) -> OffsetDateTime {
        self.not_before
    }

    /// End of the validity period; may be before [`Self::not_before`].
    pub fn not_after(&self) -> OffsetDateTime {
        self.not_after
    }

    /// Returns the certified public key, which may use an unknown algorithm.
    pub fn public_key(&self) -> &SubjectKey {
        &self.public_key
    }

    /// Returns the signature algorithm. The signature has not been verified.
    pub fn signature_algorithm(&self) -> SignatureAlgorithm {
        self.signature_algorithm
    }

    /// Returns true if the issuer name matches `issuer` and the signature verifies.
    pub(crate) fn is_issued_by(&self, issuer: &Self) -> bool {
        let named = self.fields().and_then(|mut tbs| {
            for _ in ["serial number", "signature algorithm"] {
                tbs.next_element()?;
            }
            Some(tbs.element(tag::SEQUENCE)?.whole)
        });
        named == Some(issuer.subject_der()) && self.is_signed_by(&issuer.public_key)
    }

    /// Returns true if `key` signed the certificate.
    pub(crate) fn is_signed_by(&self, key: &SubjectKey) -> bool {
        let parts = DerReader::new(&self.der).sequence().and_then(|mut outer| {
            let signed = outer.element(tag::SEQUENCE)?.whole;
            outer.element(tag::SEQUENCE)?;
            Some((signed, outer.bit_string()?.right_aligned()))
        });
        parts.is_some_and(|(signed, signature)| {
            key.verify(self.signature_algorithm, signed, &signature).is_ok()
        })
    }

    /// Returns the subject alternative names, empty if the extension is absent.
    pub fn alt_names(&self) -> &AltNames {
        &self.extensions.alt_names
    }

    /// Returns the URLs of the CRL distribution points in order, empty if the extension is absent.
    pub fn crl_distribution_points(&self) -> impl Iterator<Item = &str> {
        self.extensions.crl_distribution_points.iter().map(String::as_str)
    }

    /// Returns the key identifier of the issuer, as the certificate names it; `None` if it does not.
    pub fn authority_key_identifier(&self) -> Option<&[u8]> {
        self.extensions.authority_key.as_deref()
    }

    /// Returns true if the basic constraints mark a CA.
    pub fn is_authority(&self) -> bool {
        self.extensions.is_authority == Some(true)
    }
}

impl fmt::Debug for ForeignCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ForeignCertificate")
            .field("common_name", &self.subject.common_name())
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

const WHAT: &str = "certificate";

fn malformed_certificate(reason: &str) -> Error {
    Error::Malformed { what: WHAT, reason: reason.to_owned() }
}

/// Parses the version, counted from 1.
fn version(tbs: &mut DerReader<'_>) -> Result<u8, &'static str> {
    let Some(value) = tbs.optional(tag::constructed(0)).ok_or("malformed version")? else {
        return Ok(1);
    };
    let mut value = DerReader::new(value);
    match value.int64().filter(|_| value.is_empty()) {
        Some(0) => Ok(1),
        Some(1) => Ok(2),
        Some(2) => Ok(3),
        _ => Err("malformed version"),
    }
}

/// Parses what follows the key: unique identifiers from version 2 on, extensions in version 3. Go
/// ignores this data in older versions.
fn extensions(version: u8, tbs: &mut DerReader<'_>) -> Result<ForeignExtensions, &'static str> {
    if version < 2 {
        return Ok(ForeignExtensions::default());
    }
    for number in [1, 2] {
        tbs.optional(tag::context(number)).ok_or("malformed unique identifier")?;
    }
    if version < 3 {
        return Ok(ForeignExtensions::default());
    }
    match tbs.optional(tag::constructed(3)).ok_or("malformed extensions")? {
        None => Ok(ForeignExtensions::default()),
        Some(list) => ForeignExtensions::read(DerReader::new(list).sequence().ok_or("malformed extensions")?),
    }
}

#[cfg(test)]
mod tests;
