//! Checks of a signed certificate, as relying parties will parse it.

use super::{CertificateTemplate, IssuanceLint};
use crate::authority::is_signed_by;
use crate::{AltNames, CertificateAuthority, DistributionPoint, Error, ForeignCertificate};

/// Parses a certificate as its holder will, and verifies it.
pub(super) fn check(
    der: &[u8],
    authority: &CertificateAuthority,
    wanted: &CertificateTemplate<'_>,
    names: &AltNames,
) -> Result<(), Error> {
    let certificate = ForeignCertificate::from_der(der)
        .map_err(|_| IssuanceLint::Readable.fails("the certificate cannot be read"))?;
    let differs = |reason| Err(IssuanceLint::SameContents.fails(reason));
    if certificate.subject_der() != wanted.subject.as_der() {
        return differs("the subject is another one");
    }
    if certificate.alt_names() != names {
        return differs("the alternative names are other ones");
    }
    if certificate.public_key() != wanted.public_key {
        return differs("the key is another one");
    }
    if certificate.not_before() != wanted.validity.not_before()
        || certificate.not_after() != wanted.validity.not_after()
    {
        return differs("the validity is another one");
    }
    let points = wanted.crl_distribution_points.iter().map(DistributionPoint::as_str);
    if !points.eq(certificate.crl_distribution_points()) {
        return differs("the CRL distribution points are other ones");
    }
    if certificate.is_authority() {
        return Err(IssuanceLint::NotAnAuthority.fails("the certificate says otherwise"));
    }
    if is_signed_by(der, authority.key()) {
        Ok(())
    } else {
        Err(IssuanceLint::Signature.fails("it does not verify"))
    }
}
