//! Issuance of requested certificates, byte for byte as kube-controller-manager does it.
//!
//! A certificate gets the names and the key of the request; other requested extensions are dropped.
//! It is linted before signing ([`IssuanceLint`]), then parsed and verified after signing.

pub(crate) mod alt_names;
mod check;
mod lint;
mod subject;

use crate::authority::{
    CertificateContents, NOT_AN_AUTHORITY, authority_key_identifier, encode_extension, extension, sign_der,
};
use crate::certificate::{
    BASIC_CONSTRAINTS, CRL_DISTRIBUTION_POINTS, EXTENDED_KEY_USAGE, KEY_USAGE, SUBJECT_ALT_NAME,
};
use crate::limits::MAX_DISTRIBUTION_POINTS;
use crate::{
    AltNames, CertificateAuthority, CertificateDer, CertificateRequest, CertificateUsages, DistributionPoint,
    Error, PublicKey, Serial, SubjectKey, Validity, distribution_point, pem,
};

pub use lint::{IssuanceLint, LintWarning};
pub use subject::IssuedSubject;

/// A certificate to be issued.
#[derive(Debug, Clone)]
pub struct CertificateTemplate<'a> {
    /// Subject of the certificate; may be empty.
    pub subject: IssuedSubject,
    /// Subject alternative names: DNS names first, then e-mail addresses, IP addresses and URIs.
    pub alt_names: AltNames,
    /// Key usages and extended key usages.
    pub usages: CertificateUsages,
    /// When it is good. This is not clipped: see [`crate::lifetime()`].
    pub validity: Validity,
    /// Public key to certify. The requester must have proved possession.
    pub public_key: &'a SubjectKey,
    /// Serial number, which must be unique for each certificate of the CA.
    pub serial: Serial,
    /// Where relying parties find the CRL of the CA; the extension is absent if empty.
    pub crl_distribution_points: Vec<DistributionPoint>,
}

/// A certificate that was issued and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    der: CertificateDer<'static>,
    warnings: Vec<LintWarning>,
}

impl<'a> CertificateTemplate<'a> {
    /// Creates a template from a request. Fails if the requester does not prove possession of the
    /// key.
    pub fn from_request(
        request: &'a CertificateRequest,
        usages: CertificateUsages,
        validity: Validity,
        serial: Serial,
    ) -> Result<Self, Error> {
        request.verify_signature().map_err(Error::Unproven)?;
        Ok(Self {
            subject: IssuedSubject::from_name(request.subject()),
            alt_names: request.alt_names().clone(),
            usages,
            validity,
            public_key: request.public_key(),
            serial,
            crl_distribution_points: Vec::new(),
        })
    }
}

impl IssuedCertificate {
    /// Returns the DER encoding of the signed certificate.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Encodes the certificate as one PEM block, without the chain.
    pub fn to_pem(&self) -> String {
        pem::encode_certificates([self.der.as_ref()])
    }

    /// Returns lint warnings. Kubernetes issues such certificates, so they are issued.
    pub fn warnings(&self) -> &[LintWarning] {
        &self.warnings
    }
}

/// Issues a certificate as Kubernetes would; fails if an `IssuanceLint` rejects it.
pub fn issue_certificate(
    authority: &CertificateAuthority,
    wanted: &CertificateTemplate<'_>,
) -> Result<IssuedCertificate, Error> {
    let (body, names) = encode_linted(authority, wanted)?;
    let der = sign_der(&body, authority.key())?;
    check::check(&der, authority, wanted, &names)?;
    let warnings = lint::warnings(authority, wanted, &names);
    Ok(IssuedCertificate { der: CertificateDer::from(der), warnings })
}

/// Fails as [`issue_certificate`] would, without using the key of the CA. A certificate that passes can be recorded as
/// about to be signed. Returns the size of what is signed, which the DER of the certificate exceeds by the signature.
pub fn lint_certificate(
    authority: &CertificateAuthority,
    wanted: &CertificateTemplate<'_>,
) -> Result<usize, Error> {
    encode_linted(authority, wanted).map(|(body, _)| body.len())
}

/// Returns the contents to be signed and the alternative names in them.
fn encode_linted(
    authority: &CertificateAuthority,
    wanted: &CertificateTemplate<'_>,
) -> Result<(Vec<u8>, AltNames), Error> {
    lint::check_key(wanted.public_key)?;
    let public_key = PublicKey::from_der(&wanted.public_key.to_canonical_der()?)?;
    let names = alt_names::canonical(&wanted.alt_names)?;
    let body = CertificateContents {
        serial: wanted.serial,
        issuer: authority.certificate().subject_der(),
        subject: wanted.subject.as_der(),
        validity: wanted.validity,
        public_key: &public_key,
        extensions: extensions(authority, wanted, &names)?,
    }
    .encode(authority.key())?;
    lint::check(&body, authority)?;
    Ok((body, names))
}

/// Builds the extensions in Go's order.
fn extensions(
    authority: &CertificateAuthority,
    wanted: &CertificateTemplate<'_>,
    names: &AltNames,
) -> Result<Vec<x509_cert::ext::Extension>, Error> {
    let mut extensions = Vec::new();
    if !wanted.usages.key.is_empty() {
        extensions.push(encode_extension(KEY_USAGE, true, wanted.usages.key.to_der())?);
    }
    if !wanted.usages.extended.is_empty() {
        let oids = wanted.usages.extended.iter().map(|usage| usage.oid()).collect::<Vec<_>>();
        extensions.push(extension(EXTENDED_KEY_USAGE, false, &oids)?);
    }
    extensions.push(extension(BASIC_CONSTRAINTS, true, &NOT_AN_AUTHORITY)?);
    // Go treats a certificate whose subject equals its issuer as self-signed.
    let issuer = authority.certificate();
    if let Some(identifier) = issuer.key_identifier().filter(|identifier| !identifier.is_empty())
        && wanted.subject.as_der() != issuer.subject_der()
    {
        extensions.push(authority_key_identifier(identifier)?);
    }
    if !names.is_empty() {
        // RFC 5280 §4.2.1.6: critical if the subject is empty.
        let critical = wanted.subject.is_empty();
        extensions.push(encode_extension(SUBJECT_ALT_NAME, critical, alt_names::to_der(names))?);
    }
    let points = &wanted.crl_distribution_points;
    if points.len() > MAX_DISTRIBUTION_POINTS {
        return Err(Error::TooLarge { what: "CRL distribution points", limit: MAX_DISTRIBUTION_POINTS });
    }
    if !points.is_empty() {
        let value = distribution_point::to_der(points);
        extensions.push(encode_extension(CRL_DISTRIBUTION_POINTS, false, value)?);
    }
    Ok(extensions)
}

#[cfg(test)]
mod tests;
