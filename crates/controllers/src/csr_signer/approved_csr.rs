//! Proof that a request may be signed.

use time::Duration;
use windlass_pki::{
    CertificateRequest, CertificateTemplate, CertificateUsages, Error, IssuedSubject, RequestError, Serial,
    Validity,
};
use windlass_runtime::csr::{self, CsrState};

use crate::csr::Csr;
use crate::signers::config::RequesterIdentity;

/// A request to one signer that is approved, neither denied nor failed, and has no certificate yet, and whose requester
/// holds the private key. Signing needs one, and [`ApprovedCsr::verify`] is the only way to get it.
pub struct ApprovedCsr<'a> {
    csr: &'a Csr,
    request: CertificateRequest,
}

/// Reason for which a request cannot be signed.
#[derive(Debug, PartialEq, Eq)]
pub enum UnsignableCsr {
    /// Addressed to another signer, not approved, or already answered: nothing is to be done.
    NotPending,
    /// The PKCS#10 request cannot be parsed.
    Unreadable(RequestError),
    /// The signature of the request does not prove possession of the key.
    Unproven(Error),
}

/// Whether a request waits for its signer: approved, neither denied nor failed, and without a certificate.
pub fn awaits_signer(csr: &Csr) -> bool {
    csr::state(csr) == CsrState::Approved && csr::certificate(csr).is_none()
}

impl<'a> ApprovedCsr<'a> {
    /// Verifies that the signer of this name may sign the request.
    pub fn verify(csr: &'a Csr, signer: &str) -> Result<ApprovedCsr<'a>, UnsignableCsr> {
        if csr.spec.signer_name != signer || !awaits_signer(csr) {
            return Err(UnsignableCsr::NotPending);
        }
        let request = CertificateRequest::from_pem(&csr.spec.request.0).map_err(UnsignableCsr::Unreadable)?;
        request.verify_signature().map_err(|error| UnsignableCsr::Unproven(Error::Unproven(error)))?;
        Ok(ApprovedCsr { csr, request })
    }

    /// Returns the parsed PKCS#10 request.
    pub fn request(&self) -> &CertificateRequest {
        &self.request
    }

    /// Returns the user who created the request.
    pub fn requester(&self) -> RequesterIdentity<'_> {
        RequesterIdentity::new(self.csr.spec.username.as_deref().unwrap_or_default())
    }

    /// Returns the names of the requested usages.
    pub fn usages(&self) -> &[String] {
        self.csr.spec.usages.as_deref().unwrap_or_default()
    }

    /// Returns the requested lifetime; `None` leaves it to the signer.
    pub fn lifetime(&self) -> Option<Duration> {
        self.csr.spec.expiration_seconds.map(i64::from).map(Duration::seconds)
    }

    /// Builds the certificate to issue: subject, names and key of the request, and nothing else of it.
    pub fn template(
        &self,
        usages: CertificateUsages,
        validity: Validity,
        serial: Serial,
    ) -> CertificateTemplate<'_> {
        CertificateTemplate {
            subject: IssuedSubject::from_name(self.request.subject()),
            alt_names: self.request.alt_names().clone(),
            usages,
            validity,
            public_key: self.request.public_key(),
            serial,
        }
    }
}

#[cfg(test)]
mod tests;
