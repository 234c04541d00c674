//! Issuance of intermediate CAs.

use super::{CertificateContents, authority_extensions, authority_key_identifier, encode_extension};
use crate::certificate::CRL_DISTRIBUTION_POINTS;
use crate::limits::MAX_DISTRIBUTION_POINTS;
use crate::{
    CaKey, Certificate, CertificateAuthority, DistributionPoint, Error, Serial, Subject, Validity,
    distribution_point,
};

/// An intermediate CA to be issued.
#[derive(Debug, Clone, Copy)]
pub struct IntermediateTemplate<'a> {
    /// Subject of the intermediate, which differs from that of its issuer.
    pub subject: &'a Subject,
    /// Requested validity; clipped to the validity of the issuer.
    pub validity: Validity,
    /// Serial number, which must be unique for each certificate of the issuer.
    pub serial: Serial,
    /// How many intermediates may follow this one in a chain; `None` sets no limit of its own. The
    /// issuer's limit applies in any case.
    pub max_path_length: Option<u8>,
    /// Where relying parties find the CRL of the issuer; the extension is absent if empty.
    pub crl_distribution_points: &'a [DistributionPoint],
}

impl CertificateAuthority {
    /// Creates an intermediate CA issued by this CA. Fails if the path length constraint of this CA
    /// does not allow any intermediate.
    pub fn issue_intermediate(
        &self,
        template: &IntermediateTemplate<'_>,
        key: impl Into<CaKey>,
    ) -> Result<Self, Error> {
        let key = key.into();
        let points = template.crl_distribution_points;
        if points.len() > MAX_DISTRIBUTION_POINTS {
            return Err(Error::TooLarge { what: "CRL distribution points", limit: MAX_DISTRIBUTION_POINTS });
        }
        let max_path_length = self.path_length_below(template.max_path_length)?;
        let mut extensions = authority_extensions(key.public_key(), max_path_length)?;
        if let Some(identifier) = self.certificate.key_identifier() {
            extensions.push(authority_key_identifier(identifier)?);
        }
        if !points.is_empty() {
            let value = distribution_point::to_der(points);
            extensions.push(encode_extension(CRL_DISTRIBUTION_POINTS, false, value)?);
        }
        let certificate = CertificateContents {
            serial: template.serial,
            issuer: self.certificate.subject_der(),
            subject: template.subject.as_der(),
            validity: template.validity.clipped_to(&self.certificate.validity())?,
            public_key: key.public_key(),
            extensions,
        }
        .sign(&self.key)?;
        Self::new(Certificate::from_der(&certificate)?, key)
    }

    /// Returns the constraint of an intermediate: what is requested, but less than that of this CA.
    fn path_length_below(&self, requested: Option<u8>) -> Result<Option<u8>, Error> {
        let Some(own) = self.certificate.max_path_length() else { return Ok(requested) };
        let largest = own.checked_sub(1);
        let largest =
            largest.ok_or(Error::NotAuthority("its path length constraint allows no intermediate"))?;
        Ok(Some(requested.map_or(largest, |requested| requested.min(largest))))
    }
}
