//! Proof that a request may be signed.

use time::Duration;
use windlass_ledger::{IssuanceRecord, ObjectUid, RequestKind, RequestReference};
use windlass_pki::{
    CertificateRequest, CertificateTemplate, CertificateUsages, DistinguishedName, Error, IssuedSubject,
    RequestError, Serial, Validity,
};
use windlass_runtime::csr::{self, APPROVED, CsrState, condition};

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

    /// Returns the name of the signer that the request is addressed to.
    pub fn signer(&self) -> &str {
        &self.csr.spec.signer_name
    }

    /// Adds requester, approver, request and holder to the record of a certificate.
    pub fn describe(&self, record: &mut IssuanceRecord) {
        let (csr, subject) = (self.csr, self.request.subject());
        record.subject = describe_subject(subject);
        record.requester = csr.spec.username.clone().unwrap_or_default();
        let approval = condition(csr, APPROVED).and_then(|approval| approval.reason.clone());
        record.approver = approval.filter(|reason| !reason.is_empty());
        record.request = RequestReference {
            kind: RequestKind::CertificateSigningRequest,
            namespace: String::new(),
            name: csr.metadata.name.clone().unwrap_or_default(),
            uid: ObjectUid::from(csr.metadata.uid.as_deref().unwrap_or_default()),
        };
        // Nodes request with a bootstrap token before they have a certificate.
        let users = [subject.common_name(), &record.requester];
        let node = users.into_iter().find_map(|user| user.strip_prefix("system:node:"));
        record.node = node.map(str::to_owned);
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
            crl_distribution_points: Vec::new(),
        }
    }
}

/// Describes common name and organizations of a subject, as in `CN=a,O=b,O=c`.
fn describe_subject(name: &DistinguishedName) -> String {
    let common_name = Some(name.common_name()).filter(|name| !name.is_empty());
    let organizations = name.organizations().into_iter().map(|each| format!("O={each}"));
    let parts = common_name.map(|name| format!("CN={name}")).into_iter().chain(organizations);
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
