//! CertificateSigningRequests that wait for an approver or a signer. [`windlass_runtime::csr`] computes their state.

use std::convert::Infallible;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::Instant;
use windlass_runtime::csr::condition;
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::Requeue;

use crate::pending_requests::{self, PendingObject, PendingRequests, RequestWatch};

/// Short name of the kind, as in `kubectl get csr`.
pub type Csr = CertificateSigningRequest;
pub type CsrCondition = CertificateSigningRequestCondition;

pub type PendingCsrs = PendingRequests<String, Csr>;

/// A request that waits for an answer.
pub struct PendingCsr {
    /// The request as the watch or the API server returned it.
    pub request: Arc<Csr>,
    /// When this process first saw it pending.
    pub since: Instant,
}

/// Returns a request if it is pending; reads it from the API if only its name is cached.
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

/// Watches all requests, keeps those that `wanted` accepts, and adds their names to the queue.
pub async fn watch_csrs(
    client: Client,
    requests: &PendingCsrs,
    queue: &WorkQueue<String>,
    wanted: impl Fn(&Csr) -> bool,
) -> Infallible {
    let (api, plural) = (Api::all(client), "certificatesigningrequests");
    let watch = RequestWatch { api, plural, fields: None };
    let signer = |request: &Csr| wanted(request).then(|| request.spec.signer_name.clone());
    pending_requests::watch_requests(watch, requests, queue, Csr::name_any, signer).await
}

/// Whether a condition with this reason and message was written before.
pub fn has_reported(request: &Csr, condition_type: &str, reason: &str, message: &str) -> bool {
    condition(request, condition_type).is_some_and(|reported| {
        reported.reason.as_deref() == Some(reason) && reported.message.as_deref() == Some(message)
    })
}

/// Decides what follows a write: an object that is gone needs nothing more, one that changed is retried.
pub fn write_outcome(written: Result<Requeue, kube::Error>) -> anyhow::Result<Requeue> {
    match written {
        Err(error) if is_not_found(&error) => Ok(Requeue::Done),
        Err(error) if is_conflict(&error) => Ok(requeue_changed()),
        written => Ok(written?),
    }
}

/// Retries an object that was modified since it was read.
pub fn requeue_changed() -> Requeue {
    Requeue::WithBackoff("the object was modified concurrently".into())
}

/// Whether the server rejected a write because the object changed since it was read.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

/// Whether the server reported that the object does not exist.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}
