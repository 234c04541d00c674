//! Answer to one request: a pure function, tested with tables of cases.

use time::OffsetDateTime;
use windlass_pki::{
    Certificate, CertificateRequest, CertificateTemplate, CertificateUsages, Error, LintWarning,
    Serial, SystemRandom, Validity, issue_certificate, lifetime,
};
use windlass_runtime::csr::{CsrState, state};

use super::terms::SigningTerms;
use crate::ca::{CaSource, SigningCa, UNAVAILABLE};
use crate::csr::Csr;
use crate::signers::config::RequesterIdentity;

/// Answer of a signer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum CsrDecision {
    /// No answer: the request is for another signer, not approved, or answered already.
    Nothing,
    /// This certificate, possibly followed by intermediates, as PEM.
    Certificate(String),
    /// Permanent rejection: the policy of the signer does not permit the request.
    Refused(String),
    /// The request is valid but cannot be signed yet; retry later.
    Delayed(SigningDelay),
}

/// Reason for which a valid request is not signed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningDelay {
    /// Reason of the event, in CamelCase.
    pub reason: &'static str,
    /// Message for users, which names the cause.
    pub message: String,
}

impl SigningDelay {
    /// The signer has no CA to sign with.
    pub fn unavailable(ca: &CaSource) -> SigningDelay {
        SigningDelay { reason: UNAVAILABLE, message: ca.unavailable_message() }
    }
}

/// Whether a signer has to answer the request.
pub fn needs_signing(request: &Csr) -> bool {
    state(request) == CsrState::Approved
}

/// Computes the answer of a signer with these terms and this CA.
pub fn decide(
    request: &Csr,
    signer: &str,
    terms: &SigningTerms,
    ca: &SigningCa,
    now: OffsetDateTime,
) -> CsrDecision {
    if !needs_signing(request) || request.spec.signer_name != signer {
        return CsrDecision::Nothing;
    }
    let asked = match CertificateRequest::from_pem(&request.spec.request.0) {
        Ok(asked) => asked,
        Err(error) => return delayed("RequestUnreadable", error),
    };
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    let requester = RequesterIdentity::new(request.spec.username.as_deref().unwrap_or_default());
    if let Err(offence) = terms.check(&requester, &asked, usages) {
        return CsrDecision::Refused(offence);
    }
    let requested = request.spec.expiration_seconds.map(i64::from).map(time::Duration::seconds);
    match issue(&asked, usages, requested, terms, ca, now) {
        Ok(certificates) => CsrDecision::Certificate(certificates),
        Err(answer) => answer,
    }
}

fn issue(
    asked: &CertificateRequest,
    usages: &[String],
    requested: Option<time::Duration>,
    terms: &SigningTerms,
    ca: &SigningCa,
    now: OffsetDateTime,
) -> Result<String, CsrDecision> {
    let usages =
        CertificateUsages::from_names(usages).map_err(|error| delayed("UsagesUnknown", error))?;
    let (requested, longest) = terms.requested_and_max_lifetime(requested);
    let validity = lifetime(requested, longest, ca.certificate(), now)
        .map_err(|error| delayed("SignerExpired", error))?;
    let until = validity.not_after().min(ca.validity().not_after());
    let validity = Validity::new(validity.not_before(), until)
        .map_err(|error| delayed("SignerExpired", error))?;
    let serial = Serial::random(&SystemRandom::new()).map_err(from_pki_error)?;
    let wanted = CertificateTemplate::from_request(asked, usages, validity, serial)
        .map_err(from_pki_error)?;
    let issued = issue_certificate(ca.authority(), &wanted).map_err(from_pki_error)?;
    for warning in issued.warnings() {
        match warning {
            // Every certificate triggers this in the first minutes of a CA.
            LintWarning::BeginsEarly => {}
            warning => {
                tracing::warn!(%warning, "issuing a certificate with a lint warning, as Kubernetes does")
            }
        }
    }
    let mut text = issued.to_pem();
    if terms.includes_chain() {
        text.extend(ca.intermediates().map(Certificate::to_pem));
    }
    Ok(text)
}

/// Permanent errors reject the request; others are retried.
fn from_pki_error(error: Error) -> CsrDecision {
    match error {
        // Kubernetes retries forever here, so no client expects the request to fail.
        Error::Unproven(_) => delayed("RequestUnproven", error),
        error if error.is_permanent() => CsrDecision::Refused(error.to_string()),
        error => delayed("SigningFailed", error),
    }
}

fn delayed(reason: &'static str, error: impl std::fmt::Display) -> CsrDecision {
    CsrDecision::Delayed(SigningDelay { reason, message: error.to_string() })
}

#[cfg(test)]
mod tests;
