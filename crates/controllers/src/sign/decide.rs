//! What to answer to one request: no I/O, so that everything can be tried in a table.

use time::OffsetDateTime;
use windlass_pki::{
    Certificate, CertificateRequest, Error, Issuance, Serial, SystemRandom, Usages, Validity,
    Warning, issue_certificate, lifetime,
};

use super::terms::Terms;
use crate::ca::{Ca, CaSource, UNAVAILABLE};
use crate::requests::{Request, has_certificate, has_failed, is_approved};
use crate::signers::config::Requester;

/// What a signer says to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: it is not for this signer, not approved, or answered already.
    Nothing,
    /// This certificate, perhaps with others that vouch for it, as PEM.
    Certificate(String),
    /// Never, because the signer does not sign such things.
    Refused(String),
    /// Not now.
    Delayed(Delay),
}

/// Why a request that is in order gets no certificate now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delay {
    /// In one word.
    pub reason: &'static str,
    /// In many.
    pub message: String,
}

impl Delay {
    /// The signer has no CA to sign with.
    pub fn unavailable(ca: &CaSource) -> Delay {
        Delay { reason: UNAVAILABLE, message: ca.unavailable() }
    }
}

/// Whether this is a request that a signer has to answer.
pub fn is_waiting(request: &Request) -> bool {
    !has_certificate(request) && is_approved(request) && !has_failed(request)
}

/// What the signer of this name, with these terms and this CA, answers now.
pub fn decide(
    request: &Request,
    signer: &str,
    terms: &Terms,
    ca: &Ca,
    now: OffsetDateTime,
) -> Answer {
    if !is_waiting(request) || request.spec.signer_name != signer {
        return Answer::Nothing;
    }
    let asked = match CertificateRequest::from_pem(&request.spec.request.0) {
        Ok(asked) => asked,
        Err(error) => return delayed("RequestUnreadable", error),
    };
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    let requester = Requester::new(request.spec.username.as_deref().unwrap_or_default());
    if let Err(offence) = terms.check(&requester, &asked, usages) {
        return Answer::Refused(offence);
    }
    let requested = request.spec.expiration_seconds.map(i64::from).map(time::Duration::seconds);
    match issue(&asked, usages, requested, terms, ca, now) {
        Ok(certificates) => Answer::Certificate(certificates),
        Err(answer) => answer,
    }
}

fn issue(
    asked: &CertificateRequest,
    usages: &[String],
    requested: Option<time::Duration>,
    terms: &Terms,
    ca: &Ca,
    now: OffsetDateTime,
) -> Result<String, Answer> {
    let usages = Usages::from_names(usages).map_err(|error| delayed("UsagesUnknown", error))?;
    let (requested, longest) = terms.time(requested);
    let validity = lifetime(requested, longest, ca.certificate(), now)
        .map_err(|error| delayed("SignerExpired", error))?;
    let until = validity.not_after().min(ca.validity().not_after());
    let validity = Validity::new(validity.not_before(), until)
        .map_err(|error| delayed("SignerExpired", error))?;
    let serial = Serial::random(&SystemRandom::new()).map_err(cannot)?;
    let wanted = Issuance::of_request(asked, usages, validity, serial).map_err(cannot)?;
    let issued = issue_certificate(ca.authority(), &wanted).map_err(cannot)?;
    for warning in issued.warnings() {
        match warning {
            // So is every one in the first minutes of a CA.
            Warning::BeginsEarly => {}
            warning => tracing::warn!(%warning, "issuing an odd certificate, as Kubernetes would"),
        }
    }
    let mut text = issued.to_pem();
    if terms.sends_chain() {
        text.extend(ca.intermediates().map(Certificate::to_pem));
    }
    Ok(text)
}

/// What cannot become better is refused; the rest is tried again.
fn cannot(error: Error) -> Answer {
    match error {
        // Kubernetes leaves it at that, so nobody expects it to fail.
        Error::Unproven(_) => delayed("RequestUnproven", error),
        error if error.is_final() => Answer::Refused(error.to_string()),
        error => delayed("SigningFailed", error),
    }
}

fn delayed(reason: &'static str, error: impl std::fmt::Display) -> Answer {
    Answer::Delayed(Delay { reason, message: error.to_string() })
}

#[cfg(test)]
mod tests;
