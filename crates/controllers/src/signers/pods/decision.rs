//! Answer to one PodCertificateRequest: a pure function, tested with tables of cases.

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;
use time::OffsetDateTime;
use windlass_pki::limits::{MAX_ALT_NAMES, MAX_CHAIN_BYTES};
use windlass_pki::{
    AltNames, Certificate, CertificateTemplate, Error, IssuedSubject, PodKeyType, Serial,
    SubjectKey, SystemRandom, issue_certificate, pem,
};

use super::lifetime::{CertificateTimes, LifetimeLimits, ValidityError};
use super::names::{build_spiffe_id, service_names};
use super::request::{PodRequest, PodRequestSpec, is_pending};
use crate::ca::SigningCa;
use crate::signers::config::pods::{KEY_TYPES, PodProfile};

/// Answer of a signer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum PodRequestDecision {
    /// No answer: the request is answered already.
    Nothing,
    /// The signer issues a certificate.
    Issued {
        /// Leaf and intermediates, as PEM.
        chain: String,
        /// Validity and refresh time of the certificate.
        times: CertificateTimes,
    },
    /// Permanent rejection: the profile does not permit the request.
    Denied(RefusalReason),
    /// Permanent failure: the request cannot be signed.
    Failed(RefusalReason),
    /// The request cannot be signed yet; retry later.
    Delayed(RefusalReason),
}

/// Reason for which a request gets no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalReason {
    /// Reason of the condition or event, in CamelCase.
    pub reason: &'static str,
    /// Message for users, which names the cause.
    pub message: String,
}

/// Objects that the decision needs besides the request.
#[derive(Debug, Default)]
pub struct PodContext {
    /// Pod of the request; `None` if there is none of that name.
    pub pod: Option<Pod>,
    /// Services of its namespace, if the profile uses their names.
    pub services: Vec<Service>,
}

/// Computes the answer of the signer.
pub fn decide(
    request: &PodRequest,
    profile: &PodProfile,
    world: &PodContext,
    ca: &SigningCa,
    now: OffsetDateTime,
) -> PodRequestDecision {
    if !is_pending(request) {
        return PodRequestDecision::Nothing;
    }
    let answer = || {
        let spec = PodRequestSpec::from_request(request)
            .map_err(|error| failed("RequestUnreadable", error))?;
        let namespace = request.namespace().unwrap_or_default();
        check_permitted(profile, &namespace, &spec)?;
        let key = spec.verified_key().map_err(|error| failed("KeyUnproven", error))?;
        let kind = check_key_type(profile, &key)?;
        let pod = find_pod(world, &namespace, &spec)?;
        let lasting = LifetimeLimits {
            longest: profile.max_duration,
            asked: spec.max_lifetime(),
            refresh_after: profile.refresh_after,
        };
        let times = lasting.compute(now, &ca.validity()).map_err(from_validity_error)?;
        let wanted = CertificateTemplate {
            // A common name would be taken for a user name by servers that authenticate users by certificates.
            subject: IssuedSubject::new("", &[]),
            alt_names: build_alt_names(profile, &namespace, &spec, pod, &world.services)?,
            usages: profile.usages(kind),
            validity: times.validity,
            public_key: &key,
            serial: Serial::random(&SystemRandom::new()).map_err(from_pki_error)?,
        };
        Ok(PodRequestDecision::Issued { chain: issue(ca, &wanted)?, times })
    };
    answer().unwrap_or_else(|no| no)
}

/// Checks whether the signer signs for this service account and understands all user config.
fn check_permitted(
    profile: &PodProfile,
    namespace: &str,
    spec: &PodRequestSpec,
) -> Result<(), PodRequestDecision> {
    let account = &spec.service_account_name;
    if !profile.allowed.contains(namespace, account) {
        let message =
            format!("this signer does not sign for service account {namespace}/{account}");
        return Err(denied("NotPermitted", message));
    }
    match spec.annotations().next() {
        None => Ok(()),
        Some(key) => {
            let message = format!("unknown key {key:?}: this signer accepts no user annotations");
            Err(denied("InvalidUnverifiedUserAnnotations", message))
        }
    }
}

fn check_key_type(
    profile: &PodProfile,
    key: &SubjectKey,
) -> Result<PodKeyType, PodRequestDecision> {
    let name = |kind| KEY_TYPES.iter().find(|(_, each)| *each == kind).map_or("", |(name, _)| name);
    let message = match key.pod_key_type() {
        Ok(kind) if profile.allows_key(kind) => return Ok(kind),
        Ok(kind) => format!("this signer does not sign keys of type {}", name(kind)),
        Err(_) => "the key type is not one that pods may use".to_owned(),
    };
    let allowed: Vec<&str> = profile.key_types.iter().map(|kind| name(*kind)).collect();
    let message = format!("{message}; it signs {}", allowed.join(", "));
    Err(denied("UnsupportedKeyType", message))
}

/// Finds the pod of the request and checks that it runs as the request says.
fn find_pod<'a>(
    world: &'a PodContext,
    namespace: &str,
    spec: &PodRequestSpec,
) -> Result<&'a Pod, PodRequestDecision> {
    let PodRequestSpec { pod_name, pod_uid, service_account_name, .. } = spec;
    // The pod is gone or was replaced; the request is deleted in due time.
    let is_meant = |pod: &&Pod| pod.metadata.uid.as_ref() == Some(pod_uid);
    let pod = world.pod.as_ref().filter(is_meant).ok_or_else(|| {
        delayed(
            "PodNotFound",
            format!("pod {namespace}/{pod_name} with uid {pod_uid} does not exist"),
        )
    })?;
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    if account.unwrap_or("default") == service_account_name {
        return Ok(pod);
    }
    let message = format!(
        "pod {namespace}/{pod_name} does not run as service account {service_account_name}"
    );
    Err(denied("NotPermitted", message))
}

fn build_alt_names(
    profile: &PodProfile,
    namespace: &str,
    spec: &PodRequestSpec,
    pod: &Pod,
    services: &[Service],
) -> Result<AltNames, PodRequestDecision> {
    let account = &spec.service_account_name;
    let id =
        profile.trust_domain.as_ref().map(|domain| build_spiffe_id(domain, namespace, account));
    let dns_names = profile
        .service_names
        .as_ref()
        .map(|domain| service_names(services, pod.labels(), namespace, domain));
    let dns_names = dns_names.unwrap_or_default();
    if dns_names.len() >= MAX_ALT_NAMES {
        let message = format!("the services of the pod have too many names: {}", dns_names.len());
        return Err(delayed("TooManyNames", message));
    }
    let names = AltNames { dns_names, uris: id.into_iter().collect(), ..AltNames::default() };
    if names.is_empty() {
        let message = format!("no service in {namespace} selects pod {}", spec.pod_name);
        return Err(delayed("NoNames", message));
    }
    Ok(names)
}

/// Encodes leaf and intermediates as PEM.
fn issue(ca: &SigningCa, wanted: &CertificateTemplate<'_>) -> Result<String, PodRequestDecision> {
    let issued = issue_certificate(ca.authority(), wanted).map_err(from_pki_error)?;
    let rest = ca.intermediates().map(Certificate::der);
    let all = std::iter::once(issued.der()).chain(rest);
    let chain = pem::encode_certificates(all.map(AsRef::as_ref));
    if chain.len() > MAX_CHAIN_BYTES {
        let message = format!("the certificate chain is too long: {} bytes", chain.len());
        return Err(delayed("ChainTooLong", message));
    }
    Ok(chain)
}

fn from_validity_error(error: ValidityError) -> PodRequestDecision {
    match error {
        ValidityError::TooShort(_) => failed("TooShort", error),
        ValidityError::TooEarly(_) | ValidityError::TooLate(_) | ValidityError::Impossible(_) => {
            delayed("SignerExpired", error)
        }
    }
}

/// Permanent errors fail the request; others are retried.
fn from_pki_error(error: Error) -> PodRequestDecision {
    if error.is_permanent() {
        failed("SigningFailed", error)
    } else {
        delayed("SigningFailed", error)
    }
}

fn denied(reason: &'static str, message: String) -> PodRequestDecision {
    PodRequestDecision::Denied(RefusalReason { reason, message })
}

fn failed(reason: &'static str, error: impl std::fmt::Display) -> PodRequestDecision {
    PodRequestDecision::Failed(RefusalReason { reason, message: error.to_string() })
}

fn delayed(reason: &'static str, error: impl std::fmt::Display) -> PodRequestDecision {
    PodRequestDecision::Delayed(RefusalReason { reason, message: error.to_string() })
}

#[cfg(test)]
mod tests;
