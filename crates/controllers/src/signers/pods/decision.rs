//! Decides on one request, without I/O.

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;
use time::OffsetDateTime;
use windlass_ledger::{IssuanceRecord, ObjectUid, PodReference, RequestKind, RequestReference};
use windlass_pki::limits::{MAX_ALT_NAMES, MAX_CHAIN_BYTES};
use windlass_pki::{
    AltNames, Certificate, CertificateTemplate, Error, IssuedSubject, KeyType, Serial, SubjectKey,
    SystemRandom, Validity, pem,
};

use super::lifetime::{CertificateTimes, LifetimeLimits, ValidityError};
use super::names::{build_spiffe_id, service_names};
use super::request::{PendingPodRequest, PodRequest, UnsignablePodRequest, VerifiedPodRequest, signer_name};
use crate::ca::SigningCa;
use crate::ledger::{PreparedCertificate, RecordedIssuance};
use crate::signers::config::pods::PodProfile;
use crate::signers::config::resolve_points;

/// Answer of a signer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum PodRequestDecision {
    /// Nothing is to be done: the request is already answered.
    Nothing,
    /// The signer issues a certificate, once it is recorded.
    Issue {
        /// The certificate to record and sign.
        prepared: Box<PreparedCertificate>,
        /// Validity and refresh time of the certificate.
        times: CertificateTimes,
    },
    /// The request violates the signer's policy. This is final.
    Denied(RefusalReason),
    /// The request can never be signed. This is final.
    Failed(RefusalReason),
    /// The request cannot be signed yet; retry later.
    Delayed(RefusalReason),
}

/// Reason for which a request has no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalReason {
    /// Reason of the condition or event, in CamelCase.
    pub reason: &'static str,
    /// Message for users, which names the cause.
    pub message: String,
}

/// Objects of the API that a decision depends on.
#[derive(Debug, Default)]
pub struct PodContext {
    /// Pod with the name in the request; `None` if it does not exist.
    pub pod: Option<Pod>,
    /// Services of the namespace; empty if certificates have no service names.
    pub services: Vec<Service>,
    /// When a certificate ends at the latest, because its CA is about to retire; `None` if only signer and CA limit it.
    pub leaf_limit: Option<OffsetDateTime>,
}

impl From<UnsignablePodRequest> for PodRequestDecision {
    fn from(reason: UnsignablePodRequest) -> PodRequestDecision {
        match reason {
            UnsignablePodRequest::NotPending => PodRequestDecision::Nothing,
            UnsignablePodRequest::Unreadable(message) => failed("RequestUnreadable", message),
            UnsignablePodRequest::KeyUnproven(message) => failed("KeyUnproven", message),
            UnsignablePodRequest::PodNotFound(message) => delayed("PodNotFound", message),
            UnsignablePodRequest::NotPermitted(message) => denied("NotPermitted", message),
        }
    }
}

/// Decides what the signer answers now.
pub fn decide(
    request: &PodRequest,
    profile: &PodProfile,
    context: &PodContext,
    ca: &SigningCa,
    now: OffsetDateTime,
) -> PodRequestDecision {
    let prepared = || {
        let pending = PendingPodRequest::parse(request)?;
        check_permitted(profile, &pending)?;
        let verified = pending.verify(context.pod.as_ref())?;
        let (template, times) = build_template(&verified, profile, context, ca, now)?;
        let signer = signer_name(request);
        let mut prepared = PreparedCertificate::new(signer, ca, template, now).map_err(from_pki_error)?;
        check_chain_size(&prepared, ca)?;
        describe_request(request, &verified, &mut prepared.record);
        Ok(PodRequestDecision::Issue { prepared: Box::new(prepared), times })
    };
    prepared().unwrap_or_else(|refusal: PodRequestDecision| refusal)
}

/// Checks that the signer signs for the service account, and that there are no annotations, which it would ignore.
fn check_permitted(profile: &PodProfile, request: &PendingPodRequest) -> Result<(), PodRequestDecision> {
    let (namespace, account) = (request.namespace(), &request.spec().service_account_name);
    if !profile.allowed.contains(namespace, account) {
        let message = format!("this signer does not sign for service account {namespace}/{account}");
        return Err(denied("NotPermitted", message));
    }
    match request.spec().annotations().next() {
        None => Ok(()),
        Some(key) => {
            let message = format!("{key:?} is not supported: this signer accepts no annotations");
            Err(denied("InvalidUnverifiedUserAnnotations", message))
        }
    }
}

/// Adds requester, request and holder to the record of a certificate. Only the agent of its node requests for a pod.
fn describe_request(request: &PodRequest, verified: &VerifiedPodRequest<'_>, record: &mut IssuanceRecord) {
    let spec = verified.spec();
    if !spec.node_name.is_empty() {
        record.requester = format!("system:node:{}", spec.node_name);
        record.node = Some(spec.node_name.clone());
    }
    record.request = RequestReference {
        kind: RequestKind::PodCertificateRequest,
        namespace: verified.namespace().to_owned(),
        name: request.name_any(),
        uid: ObjectUid::from(request.metadata.uid.as_deref().unwrap_or_default()),
    };
    record.pod = Some(PodReference {
        name: spec.pod_name.clone(),
        uid: ObjectUid::from(spec.pod_uid.as_str()),
        service_account: spec.service_account_name.clone(),
    });
}

fn build_template<'a>(
    request: &'a VerifiedPodRequest<'_>,
    profile: &PodProfile,
    context: &PodContext,
    ca: &SigningCa,
    now: OffsetDateTime,
) -> Result<(CertificateTemplate<'a>, CertificateTimes), PodRequestDecision> {
    let key_type = check_key_type(profile, request.key())?;
    let limits = LifetimeLimits {
        max_duration: profile.max_duration,
        asked: request.spec().max_lifetime(),
        refresh_after: profile.refresh_after,
    };
    let validity = ca.validity();
    let end = context.leaf_limit.map_or(validity.not_after(), |limit| limit.min(validity.not_after()));
    let validity = Validity::new(validity.not_before(), end).map_err(from_pki_error)?;
    let times = limits.compute(now, &validity).map_err(from_validity_error)?;
    let template = CertificateTemplate {
        // A server that maps client certificates to users would take a name in the subject for a user.
        subject: IssuedSubject::new("", &[]),
        alt_names: build_alt_names(profile, request, &context.services)?,
        usages: profile.usages(key_type),
        validity: times.validity,
        public_key: request.key(),
        serial: Serial::random(&SystemRandom::new()).map_err(from_pki_error)?,
        crl_distribution_points: resolve_points(
            &profile.distribution_points,
            &ca.certificate().authority_id(),
        ),
    };
    Ok((template, times))
}

fn check_key_type(profile: &PodProfile, key: &SubjectKey) -> Result<KeyType, PodRequestDecision> {
    let message = match key.pod_key_type() {
        Ok(kind) if profile.allows_key(kind) => return Ok(kind),
        Ok(kind) => format!("this signer does not sign keys of type {}", kind),
        Err(_) => "the key has a type that the API does not support".to_owned(),
    };
    let message = format!("{message}; it signs {}", KeyType::names(&profile.key_types).join(", "));
    Err(denied("UnsupportedKeyType", message))
}

fn build_alt_names(
    profile: &PodProfile,
    request: &VerifiedPodRequest<'_>,
    services: &[Service],
) -> Result<AltNames, PodRequestDecision> {
    let (namespace, account) = (request.namespace(), &request.spec().service_account_name);
    let id = profile.trust_domain.as_ref().map(|domain| build_spiffe_id(domain, namespace, account));
    let dns_names = profile
        .service_names
        .as_ref()
        .map(|domain| service_names(services, request.pod().labels(), namespace, domain));
    let dns_names = dns_names.unwrap_or_default();
    if dns_names.len() >= MAX_ALT_NAMES {
        let message =
            format!("services give the pod {} DNS names; the limit is {MAX_ALT_NAMES}", dns_names.len());
        return Err(delayed("TooManyNames", message));
    }
    let names = AltNames { dns_names, uris: id.into_iter().collect(), ..AltNames::default() };
    if names.is_empty() {
        let message = format!("no service in {namespace} selects pod {}", request.spec().pod_name);
        return Err(delayed("NoNames", message));
    }
    Ok(names)
}

/// Rejects a chain that is too long whatever the size of the signature, before a record is written for each attempt.
fn check_chain_size(prepared: &PreparedCertificate, ca: &SigningCa) -> Result<(), PodRequestDecision> {
    // PEM has four characters for three bytes.
    let encoded = |der: usize| der.div_ceil(3) * 4;
    let chain = ca.intermediates().map(|each| encoded(each.der().len())).sum::<usize>();
    check_length(chain + encoded(prepared.min_size))
}

fn check_length(length: usize) -> Result<(), PodRequestDecision> {
    if length <= MAX_CHAIN_BYTES {
        return Ok(());
    }
    let message = format!("the chain has {length} bytes; the limit is {MAX_CHAIN_BYTES}");
    Err(delayed("ChainTooLong", message))
}

/// Signs a recorded certificate; returns it with its chain as PEM, without the root.
pub fn sign_chain(
    prepared: &PreparedCertificate,
    ca: &SigningCa,
    recorded: &RecordedIssuance,
) -> Result<String, PodRequestDecision> {
    let issued = prepared.sign(ca, recorded).map_err(from_pki_error)?;
    let rest = ca.intermediates().map(Certificate::der);
    let all = std::iter::once(issued.der()).chain(rest);
    let chain = pem::encode_certificates(all.map(AsRef::as_ref));
    check_length(chain.len())?;
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

/// Permanent errors are final; the others are retried.
fn from_pki_error(error: Error) -> PodRequestDecision {
    if error.is_permanent() { failed("SigningFailed", error) } else { delayed("SigningFailed", error) }
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
