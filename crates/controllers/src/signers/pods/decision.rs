//! What to answer to one request: no I/O, so that everything can be tried in a table.

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;
use time::OffsetDateTime;
use windlass_pki::limits::{MAX_ALT_NAMES, MAX_CHAIN_BYTES};
use windlass_pki::{
    AltNames, Certificate, CertificateTemplate, Error, IssuedSubject, KeyType, Serial, SubjectKey,
    SystemRandom, issue_certificate, pem,
};

use super::lifetime::{CertificateTimes, LifetimeLimits, ValidityError};
use super::names::{build_spiffe_id, service_names};
use super::request::{PodRequest, PodRequestSpec, is_pending};
use crate::ca::SigningCa;
use crate::signers::config::pods::PodProfile;

/// What a signer says to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum PodRequestDecision {
    /// Nothing: it is answered already.
    Nothing,
    /// The signer issues a certificate.
    Issued {
        /// The certificate and those that vouch for its issuer, as PEM.
        chain: String,
        /// Validity and refresh time of the certificate.
        times: CertificateTimes,
    },
    /// Never, because the signer does not sign such things.
    Denied(RefusalReason),
    /// Never, because it cannot be done.
    Failed(RefusalReason),
    /// The request cannot be signed yet; retry later.
    Delayed(RefusalReason),
}

/// Why a request gets no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalReason {
    /// Reason of the condition or event, in CamelCase.
    pub reason: &'static str,
    /// Message for users, which names the cause.
    pub message: String,
}

/// What there is beside the request.
#[derive(Debug, Default)]
pub struct PodContext {
    /// The pod that it is for, if there is one of that name.
    pub pod: Option<Pod>,
    /// The services of its namespace, if the signer names pods by them.
    pub services: Vec<Service>,
}

/// What the signer answers now.
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
            // A name in there would be taken for a user's by whoever knows users by certificates.
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

/// Whether the signer signs for this account, and understands all that it is told.
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
            let message = format!("{key:?} is not understood: this signer takes no annotations");
            Err(denied("InvalidUnverifiedUserAnnotations", message))
        }
    }
}

fn check_key_type(profile: &PodProfile, key: &SubjectKey) -> Result<KeyType, PodRequestDecision> {
    let message = match key.pod_key_type() {
        Ok(kind) if profile.allows_key(kind) => return Ok(kind),
        Ok(kind) => format!("this signer does not sign keys of type {kind}"),
        Err(_) => "the key is of no type that pods may have".to_owned(),
    };
    let allowed = KeyType::names(&profile.key_types).join(", ");
    let message = format!("{message}; it signs {allowed}");
    Err(denied("UnsupportedKeyType", message))
}

/// The pod that the request is for, which runs as who the request says.
fn find_pod<'a>(
    world: &'a PodContext,
    namespace: &str,
    spec: &PodRequestSpec,
) -> Result<&'a Pod, PodRequestDecision> {
    let PodRequestSpec { pod_name, pod_uid, service_account_name, .. } = spec;
    // It is gone, or its successor is there: the request goes too, in its time.
    let is_meant = |pod: &&Pod| pod.metadata.uid.as_ref() == Some(pod_uid);
    let pod = world.pod.as_ref().filter(is_meant).ok_or_else(|| {
        delayed("PodNotFound", format!("there is no pod {namespace}/{pod_name} with uid {pod_uid}"))
    })?;
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    if account.unwrap_or("default") == service_account_name {
        return Ok(pod);
    }
    let message = format!("pod {namespace}/{pod_name} does not run as {service_account_name}");
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
        let message = format!("services give the pod {} names, too many", dns_names.len());
        return Err(delayed("TooManyNames", message));
    }
    let names = AltNames { dns_names, uris: id.into_iter().collect(), ..AltNames::default() };
    if names.is_empty() {
        let message = format!("no service in {namespace} selects pod {}", spec.pod_name);
        return Err(delayed("NoNames", message));
    }
    Ok(names)
}

/// The certificate and those that are sent along with it, as PEM.
fn issue(ca: &SigningCa, wanted: &CertificateTemplate<'_>) -> Result<String, PodRequestDecision> {
    let issued = issue_certificate(ca.authority(), wanted).map_err(from_pki_error)?;
    let rest = ca.intermediates().map(Certificate::der);
    let all = std::iter::once(issued.der()).chain(rest);
    let chain = pem::encode_certificates(all.map(AsRef::as_ref));
    if chain.len() > MAX_CHAIN_BYTES {
        let message = format!("the chain has {} bytes, too many", chain.len());
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

/// What cannot become better has failed; the rest is tried again.
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
