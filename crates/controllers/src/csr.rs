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

use crate::metrics::ControllerCounters;
use crate::pending_requests::{self, PendingObject, PendingRequests, RequestWatch};
use crate::work_queue::WorkQueue;
use crate::workers::ReconcileOutcome;

/// A request for a certificate.
pub type Csr = CertificateSigningRequest;
/// One thing that is said about it.
pub type CsrCondition = CertificateSigningRequestCondition;

/// Condition type of an approved request.
pub const APPROVED: &str = "Approved";
/// Condition type of a denied request.
pub const DENIED: &str = "Denied";
/// Condition type of a request that its signer rejected for good.
pub const FAILED: &str = "Failed";

/// The requests that wait, by name.
pub type PendingCsrs = PendingRequests<String, Csr>;

/// A request and since when it is known to wait.
pub struct PendingCsr {
    /// The request as the watch or the API server returned it.
    pub request: Arc<Csr>,
    /// When it was first seen waiting.
    pub since: Instant,
}

/// The request of this name, if it waits.
pub async fn get_pending(
    requests: &PendingCsrs,
    api: &Api<Csr>,
    name: &str,
) -> Result<Option<PendingCsr>, kube::Error> {
    let Some(PendingObject { object, since }) = requests.get(&name.to_owned()) else {
        return Ok(None);
    };
    let request = match object {
        Some(request) => Some(request),
        None => api.get_opt(name).await?.map(Arc::new),
    };
    Ok(request.map(|request| PendingCsr { request, since }))
}

/// Watches all requests, keeps those that are wanted, and puts their names into the queue. Does
/// not end.
pub async fn watch_csrs(
    client: Client,
    counters: &'static ControllerCounters,
    requests: &PendingCsrs,
    queue: &WorkQueue<String>,
    wanted: impl Fn(&Csr) -> bool,
) {
    let (api, plural) = (Api::all(client), "certificatesigningrequests");
    let watched = RequestWatch { api, plural, fields: None, counters };
    let signer = |request: &Csr| wanted(request).then(|| request.spec.signer_name.clone());
    pending_requests::watch_requests(watched, requests, queue, Csr::name_any, signer).await;
}

/// What is left to do after an answer was written: what is gone needs none; what changed twice meanwhile is looked at later.
pub fn write_outcome(
    answered: Result<ReconcileOutcome, kube::Error>,
) -> anyhow::Result<ReconcileOutcome> {
    match answered {
        Err(error) if is_not_found(&error) => Ok(ReconcileOutcome::Done),
        Err(error) if is_conflict(&error) => {
            Ok(ReconcileOutcome::Requeue("it was changed meanwhile".into()))
        }
        answered => Ok(answered?),
    }
}

/// The conditions of a request.
pub fn conditions(request: &Csr) -> &[CsrCondition] {
    request.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// The condition of this type, whatever its status.
pub fn condition<'a>(request: &'a Csr, kind: &str) -> Option<&'a CsrCondition> {
    conditions(request).iter().find(|condition| condition.type_ == kind)
}

/// Whether there is a certificate.
pub fn has_certificate(request: &Csr) -> bool {
    let status = request.status.as_ref();
    status.and_then(|status| status.certificate.as_ref()).is_some_and(|text| !text.0.is_empty())
}

/// The request with this condition in place of those of its type and of `instead`.
pub fn with_condition(request: &Csr, condition: CsrCondition, instead: &str) -> Csr {
    let mut request = without_condition(request, instead);
    let conditions = request.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.retain(|old| old.type_ != condition.type_);
    conditions.push(condition);
    request
}

/// The request without the conditions of a type.
pub fn without_condition(request: &Csr, kind: &str) -> Csr {
    let mut request = request.clone();
    if let Some(conditions) = request.status.as_mut().and_then(|s| s.conditions.as_mut()) {
        conditions.retain(|condition| condition.type_ != kind);
    }
    request
}

/// A condition that is true as of now.
pub fn true_condition(
    kind: &str,
    reason: &str,
    message: &str,
    now: OffsetDateTime,
) -> CsrCondition {
    CsrCondition {
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
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}
