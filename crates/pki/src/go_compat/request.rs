//! Certificate signing requests (PKCS#10, RFC 2986).

use std::collections::HashSet;
use std::fmt;

use super::algorithm::AlgorithmIdentifier;
use super::alt_names::AltNames;
use super::der_reader::{DerReader, tag};
use super::distinguished_name::DistinguishedName;
use super::extensions::RawExtension;
use super::key::SubjectKey;
use super::oid::Oid;
use super::pem_scan;
use super::signature::SignatureAlgorithm;
use super::signature::SignatureError;
use crate::limits::MAX_FOREIGN_BYTES;

/// A request parsed as leniently as Go parses it. Its signature has not been verified: see
/// [`Self::verify_signature`].
#[derive(Clone)]
pub struct CertificateRequest {
    der: Vec<u8>,
    signed: Vec<u8>,
    subject: DistinguishedName,
    public_key: SubjectKey,
    extensions: Vec<RequestedExtension>,
    alt_names: AltNames,
    signature_algorithm: SignatureAlgorithm,
    signature: Vec<u8>,
}

/// An extension that the requester wants in the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedExtension {
    oid: Vec<u8>,
    critical: bool,
    value: Vec<u8>,
}

/// Error of parsing a certificate request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The first PEM block is missing or not a request.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Label,
    /// The request is larger than [`MAX_FOREIGN_BYTES`].
    #[error("certificate request exceeds {MAX_FOREIGN_BYTES} bytes")]
    TooLarge,
    /// The request is syntactically invalid.
    #[error("malformed certificate request: {0}")]
    Malformed(&'static str),
}

const LABEL: &str = "CERTIFICATE REQUEST";
/// OID of the `extensionRequest` attribute: `1.2.840.113549.1.9.14`.
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
const SUBJECT_ALT_NAME: u8 = 17;

impl CertificateRequest {
    /// Parses the request in the first PEM block. Ignores text before it, its headers and
    /// everything after it.
    pub fn from_pem(text: &[u8]) -> Result<Self, RequestError> {
        match pem_scan::blocks(text).next() {
            Some(block) if block.label == LABEL.as_bytes() => Self::from_der(&block.contents),
            _ => Err(RequestError::Label),
        }
    }

    /// Parses one request; trailing data is an error.
    pub fn from_der(der: &[u8]) -> Result<Self, RequestError> {
        if der.len() > MAX_FOREIGN_BYTES {
            return Err(RequestError::TooLarge);
        }
        Self::read(der).map_err(RequestError::Malformed)
    }

    fn read(der: &[u8]) -> Result<Self, &'static str> {
        let mut reader = DerReader::new(der);
        let mut outer = reader.sequence().ok_or("not a sequence")?;
        if !reader.is_empty() {
            return Err("trailing data");
        }
        let signed = outer.element(tag::SEQUENCE).ok_or("malformed body")?;
        let algorithm = outer.sequence().and_then(AlgorithmIdentifier::in_request);
        let algorithm = algorithm.ok_or("malformed signature algorithm")?;
        let signature = outer.bit_string().ok_or("malformed signature")?;

        let mut body = DerReader::new(signed.value);
        body.int64().ok_or("malformed version")?;
        let subject = body.next_wide_element().ok_or("malformed subject")?;
        let key = body.element(tag::SEQUENCE).ok_or("malformed public key")?;
        let attributes = body.nested(tag::constructed(0)).ok_or("malformed attributes")?;
        let public_key = SubjectKey::embedded(key, AlgorithmIdentifier::in_request)?;
        let subject = DistinguishedName::from_request(subject.whole)?;
        let extensions = requested_extensions(attributes)?;
        let alt_names = extensions.iter().find(|extension| extension.is_extension(SUBJECT_ALT_NAME));
        let alt_names = alt_names.map(|extension| AltNames::read(&extension.value));
        Ok(Self {
            der: der.to_vec(),
            signed: signed.whole.to_vec(),
            subject,
            public_key,
            extensions,
            alt_names: alt_names.transpose()?.unwrap_or_default(),
            signature_algorithm: SignatureAlgorithm::from_identifier(&algorithm),
            signature: signature.right_aligned(),
        })
    }

    /// Verifies the proof of possession: the requester holds the private key.
    pub fn verify_signature(&self) -> Result<(), SignatureError> {
        self.public_key.verify(self.signature_algorithm, &self.signed, &self.signature)
    }

    /// Returns the DER encoding, exactly the bytes that were parsed.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the requested subject, decoded as Go decodes it.
    pub fn subject(&self) -> &DistinguishedName {
        &self.subject
    }

    /// Returns the public key to be certified.
    pub fn public_key(&self) -> &SubjectKey {
        &self.public_key
    }

    /// Returns the requested extensions, each at most once.
    pub fn extensions(&self) -> &[RequestedExtension] {
        &self.extensions
    }

    /// Returns the requested subject alternative names.
    pub fn alt_names(&self) -> &AltNames {
        &self.alt_names
    }

    /// Returns the algorithm of the request's self-signature, which may be unknown.
    pub fn signature_algorithm(&self) -> SignatureAlgorithm {
        self.signature_algorithm
    }
}

impl fmt::Debug for CertificateRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CertificateRequest")
            .field("subject", &self.subject)
            .field("alt_names", &self.alt_names)
            .field("public_key", &self.public_key)
            .finish_non_exhaustive()
    }
}

impl RequestedExtension {
    /// Extension type in dotted decimal notation.
    pub fn oid(&self) -> String {
        Oid(&self.oid).to_string()
    }

    /// Returns true if requested as critical.
    pub fn is_critical(&self) -> bool {
        self.critical
    }

    /// Returns the extension's value. Only subject alternative names have been parsed.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    fn is_extension(&self, number: u8) -> bool {
        Oid(&self.oid).certificate_extension() == Some(number)
    }
}

/// Returns the extensions of all attributes. Skips unparsable attributes, as Go does.
fn requested_extensions(mut attributes: DerReader<'_>) -> Result<Vec<RequestedExtension>, &'static str> {
    let mut requested = Vec::new();
    let mut seen = HashSet::new();
    while !attributes.is_empty() {
        let attribute = attributes.next_wide_element().ok_or("malformed attribute")?;
        let Some(value) = extension_request(attribute.whole) else { continue };
        let mut extensions = DerReader::new(value).sequence().ok_or("malformed requested extensions")?;
        while !extensions.is_empty() {
            let extension = extensions.sequence().ok_or("malformed requested extension")?;
            let extension = RawExtension::read(extension)?;
            if !seen.insert(extension.oid) {
                return Err("duplicate requested extensions");
            }
            requested.push(RequestedExtension {
                oid: extension.oid.0.to_vec(),
                critical: extension.critical,
                value: extension.value.to_vec(),
            });
        }
    }
    Ok(requested)
}

/// Returns the first value of an attribute if it is an extension request.
fn extension_request(attribute: &[u8]) -> Option<&[u8]> {
    let mut attribute = DerReader::new(attribute).sequence()?;
    let oid = attribute.oid()?;
    let mut values = attribute.nested(tag::SET)?;
    let first = values.next_wide_element()?;
    while !values.is_empty() {
        values.next_wide_element()?;
    }
    (oid.0 == EXTENSION_REQUEST).then_some(first.whole)
}

#[cfg(test)]
mod tests;
