//! Decides on one approved request, without I/O.

use time::OffsetDateTime;
use windlass_pki::{
    Certificate, CertificateUsages, Error, LintWarning, Serial, SystemRandom, Validity, lifetime,
};

use super::approved_csr::{ApprovedCsr, UnsignableCsr};
use super::terms::SigningTerms;
use crate::ca::{CaSource, SigningCa, UNAVAILABLE};
use crate::ledger::{PreparedCertificate, RecordedIssuance};

/// Answer of a signer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum CsrDecision {
    /// Nothing is to be done: another signer's, not approved, or already answered.
    Nothing,
    /// The signer issues this certificate, once it is recorded.
    Issue(Box<PreparedCertificate>),
    /// The request violates the signer's policy. This is final.
    Refused(String),
    /// The request is valid but cannot be signed yet; retry later.
    Delayed(SigningDelay),
}

/// Reason for which a valid request has no certificate yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningDelay {
    /// Reason of the condition and event, in CamelCase.
    pub reason: &'static str,
    /// Message for users, which names the cause.
    pub message: String,
}

impl SigningDelay {
    /// Creates the delay of a signer without a usable CA.
    pub fn unavailable(ca: &CaSource) -> SigningDelay {
        SigningDelay { reason: UNAVAILABLE, message: ca.unavailable_message() }
    }
}

impl From<UnsignableCsr> for CsrDecision {
    fn from(reason: UnsignableCsr) -> CsrDecision {
        match reason {
            UnsignableCsr::NotPending => CsrDecision::Nothing,
            UnsignableCsr::Unreadable(error) => delayed("RequestUnreadable", error),
            // Kubernetes leaves such a request pending, so clients do not expect it to fail.
            UnsignableCsr::Unproven(error) => delayed("RequestUnproven", error),
        }
    }
}

/// Decides what a signer with these terms and this CA answers now. `limit` is when a leaf ends at the latest.
pub fn decide(
    request: &ApprovedCsr<'_>,
    terms: &SigningTerms,
    ca: &SigningCa,
    limit: Option<OffsetDateTime>,
    now: OffsetDateTime,
) -> CsrDecision {
    if let Err(violation) = terms.check(request) {
        return CsrDecision::Refused(violation);
    }
    match prepare(request, terms, ca, limit, now) {
        Ok(prepared) => CsrDecision::Issue(Box::new(prepared)),
        Err(decision) => decision,
    }
}

fn prepare(
    request: &ApprovedCsr<'_>,
    terms: &SigningTerms,
    ca: &SigningCa,
    limit: Option<OffsetDateTime>,
    now: OffsetDateTime,
) -> Result<PreparedCertificate, CsrDecision> {
    let usages =
        CertificateUsages::from_names(request.usages()).map_err(|error| delayed("UsagesUnknown", error))?;
    let (requested, max_duration) = terms.requested_and_max_lifetime(request.lifetime());
    let validity = lifetime(requested, max_duration, ca.certificate(), now)
        .map_err(|error| delayed("SignerExpired", error))?;
    let until = validity.not_after().min(ca.validity().not_after());
    let until = limit.map_or(until, |limit| until.min(limit));
    let validity =
        Validity::new(validity.not_before(), until).map_err(|error| delayed("SignerExpired", error))?;
    let serial = Serial::random(&SystemRandom::new()).map_err(from_pki_error)?;
    let mut template = request.template(usages, validity, serial);
    template.crl_distribution_points = terms.distribution_points(ca.certificate());
    let mut prepared =
        PreparedCertificate::new(request.signer(), ca, template, now).map_err(from_pki_error)?;
    request.describe(&mut prepared.record);
    Ok(prepared)
}

/// Signs a recorded certificate; returns it as PEM, with its chain if the signer includes it.
pub fn sign(
    prepared: &PreparedCertificate,
    terms: &SigningTerms,
    ca: &SigningCa,
    recorded: &RecordedIssuance,
) -> Result<String, CsrDecision> {
    let issued = prepared.sign(ca, recorded).map_err(from_pki_error)?;
    for warning in issued.warnings() {
        match warning {
            // True of every certificate in the first minutes of a CA.
            LintWarning::BeginsEarly => {}
            warning => {
                tracing::warn!(%warning, "issuing a certificate with a lint warning, as Kubernetes would")
            }
        }
    }
    let mut text = issued.to_pem();
    if terms.includes_chain() {
        text.extend(ca.intermediates().map(Certificate::to_pem));
    }
    Ok(text)
}

/// Permanent errors are final; the others are retried.
fn from_pki_error(error: Error) -> CsrDecision {
    if error.is_permanent() {
        CsrDecision::Refused(error.to_string())
    } else {
        delayed("SigningFailed", error)
    }
}

fn delayed(reason: &'static str, error: impl std::fmt::Display) -> CsrDecision {
    CsrDecision::Delayed(SigningDelay { reason, message: error.to_string() })
}

#[cfg(test)]
mod tests;
