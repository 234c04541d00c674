//! Requests for certificates, and what is said of them.

use std::sync::Arc;

use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt as _};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::metrics::Counters;
use crate::pool::Next;
use crate::queue::Queue;
use crate::waiting::{self, Found, Waiting, Watched};

/// A request for a certificate.
pub type Request = CertificateSigningRequest;
/// One thing that is said about it.
pub type Condition = CertificateSigningRequestCondition;

/// Somebody allowed it.
pub const APPROVED: &str = "Approved";
/// Somebody forbade it.
pub const DENIED: &str = "Denied";
/// A signer refused it.
pub const FAILED: &str = "Failed";

/// The requests that wait, by name.
pub type Requests = Waiting<String, Request>;

/// A request and since when it is known to wait.
pub struct Pending {
    /// The request.
    pub request: Arc<Request>,
    /// When it was first seen waiting.
    pub since: Instant,
}

/// The request of this name, if it waits.
pub async fn read(
    requests: &Requests,
    api: &Api<Request>,
    name: &str,
) -> Result<Option<Pending>, kube::Error> {
    let Some(Found { object, since }) = requests.get(&name.to_owned()) else { return Ok(None) };
    let request = match object {
        Some(request) => Some(request),
        None => api.get_opt(name).await?.map(Arc::new),
    };
    Ok(request.map(|request| Pending { request, since }))
}

/// Watches all requests, keeps those that are wanted, and puts their names into the queue. Does
/// not end.
pub async fn follow(
    client: Client,
    counters: &'static Counters,
    requests: &Requests,
    queue: &Queue<String>,
    wanted: impl Fn(&Request) -> bool,
) {
    let (api, plural) = (Api::all(client), "certificatesigningrequests");
    let watched = Watched { api, plural, fields: None, counters };
    let signer = |request: &Request| wanted(request).then(|| request.spec.signer_name.clone());
    waiting::follow(watched, requests, queue, Request::name_any, signer).await;
}

/// What is left to do after an answer was written: what is gone needs none; what changed twice meanwhile is looked at later.
pub fn settled(answered: Result<Next, kube::Error>) -> anyhow::Result<Next> {
    match answered {
        Err(error) if is_gone(&error) => Ok(Next::Done),
        Err(error) if is_conflict(&error) => Ok(Next::Wait("it was changed meanwhile".into())),
        answered => Ok(answered?),
    }
}

/// The conditions of a request.
pub fn conditions(request: &Request) -> &[Condition] {
    request.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// The condition of this type, whatever its status.
pub fn condition<'a>(request: &'a Request, kind: &str) -> Option<&'a Condition> {
    conditions(request).iter().find(|condition| condition.type_ == kind)
}

/// Whether there is a certificate.
pub fn has_certificate(request: &Request) -> bool {
    let status = request.status.as_ref();
    status.and_then(|status| status.certificate.as_ref()).is_some_and(|text| !text.0.is_empty())
}

/// Whether it was allowed and not forbidden. As for Kubernetes, conditions count by being there.
pub fn is_approved(request: &Request) -> bool {
    condition(request, APPROVED).is_some() && condition(request, DENIED).is_none()
}

/// Whether a signer refused it.
pub fn has_failed(request: &Request) -> bool {
    conditions(request)
        .iter()
        .any(|c| c.type_ == FAILED && (c.status == "True" || c.status.is_empty()))
}

/// The request with this condition in place of those of its type and of `instead`.
pub fn with_condition(request: &Request, condition: Condition, instead: &str) -> Request {
    let mut request = without_condition(request, instead);
    let conditions = request.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.retain(|old| old.type_ != condition.type_);
    conditions.push(condition);
    request
}

/// The request without the conditions of a type.
pub fn without_condition(request: &Request, kind: &str) -> Request {
    let mut request = request.clone();
    if let Some(conditions) = request.status.as_mut().and_then(|s| s.conditions.as_mut()) {
        conditions.retain(|condition| condition.type_ != kind);
    }
    request
}

/// A condition that is true as of now.
pub fn is_true(kind: &str, reason: &str, message: &str, now: OffsetDateTime) -> Condition {
    Condition {
        type_: kind.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: Timestamp::from_second(now.unix_timestamp()).ok().map(Time),
        last_transition_time: None,
    }
}

/// What the API says when an object is no longer what was seen.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

/// What the API says when an object is gone.
pub fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}
