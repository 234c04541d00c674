//! Signs PodCertificateRequests: certificates name the service account of the pod, its services, or both.
//!
//! A request is answered by one write of the object that the watch delivered, which the server rejects if the object has
//! changed since or is already answered. So a request never gets two certificates. Signing takes a
//! [`request::VerifiedPodRequest`]. The API has no condition for a request that is delayed, so an event reports it.

mod decision;
mod lifetime;
mod names;
mod request;

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{ListParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use tokio::time::Instant;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::events::{CONTROLLER_EVENT_LIMIT, EventRecorder, EventReporter, NewEvent};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use super::CustomSigner;
use super::config::PodProfile;
use super::rollout::{CaRollout, RolloutHold};
use crate::ca::CaSource;
use crate::csr::{is_conflict, write_outcome};
use crate::csr_signer::SignerCounters;
use crate::metrics::{MetricFamilies, POD_SIGNING};
use crate::namespaced_name::NamespacedName;
use crate::options::Clock;
use crate::pending_requests::{self, PendingObject, PendingRequests, RequestWatch};

use decision::{PodContext, PodRequestDecision, RefusalReason, decide};
use request::{PodRequest, PodRequestSpec, is_pending, signer_name, with_certificate, with_refusal};

/// Requests that are processed concurrently.
const WORKERS: usize = 16;
/// Requests are deleted after 15 minutes, so the longest delay is well below that.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));

/// Runs those of these signers that sign for pods, with the version of the API that `resource` names.
pub async fn run(
    client: Client,
    resource: ApiResource,
    signers: Vec<CustomSigner>,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    let issuer = |signer| PodCertificateIssuer::from_signer(signer, &metrics);
    let issuers = signers.into_iter().filter_map(issuer).collect();
    let queue = WorkQueue::new(metrics.queue(POD_SIGNING), BACKOFF);
    sign(client, resource, issuers, clock, queue).await
}

async fn sign(
    client: Client,
    resource: ApiResource,
    issuers: Vec<PodCertificateIssuer>,
    clock: Clock,
    queue: WorkQueue<NamespacedName>,
) -> Infallible {
    if issuers.is_empty() {
        return std::future::pending().await;
    }
    let queue = Arc::new(queue);
    // A field selector accepts one value per field.
    let fields = match issuers.as_slice() {
        [only] => Some(format!("spec.signerName={}", only.name)),
        _ => None,
    };
    let api = Api::all_with(client.clone(), &resource);
    let signing = Arc::new(PodCertificateSigner {
        pending: PendingRequests::default(),
        events: EventRecorder::new(
            client.clone(),
            EventReporter::controller("podcertificatesigning"),
            CONTROLLER_EVENT_LIMIT,
        ),
        client,
        resource,
        issuers,
        clock,
    });
    let watched = RequestWatch { api, plural: "podcertificaterequests", fields: fields.as_deref() };
    let signer = |request: &PodRequest| {
        let issuer = signing.issuer(request).filter(|_| is_pending(request));
        issuer.map(|issuer| issuer.name.clone())
    };
    let watch = pending_requests::watch_requests(
        watched,
        &signing.pending,
        &queue,
        NamespacedName::from_object,
        signer,
    );
    let wakers = signing.issuers.iter().flat_map(|each| {
        let wake =
            |changes| pending_requests::requeue_on_ca_change(&signing.pending, &each.name, changes, &queue);
        [each.ca.changes(), each.rollout.changes()].map(wake)
    });
    let reconcile = |key: NamespacedName| signing.clone().reconcile(key);
    tokio::join!(watch, join_all(wakers), run_workers(queue.clone(), WORKERS, reconcile)).0
}

struct PodCertificateIssuer {
    name: String,
    profile: PodProfile,
    ca: Arc<CaSource>,
    rollout: Arc<CaRollout>,
    counters: SignerCounters,
}

impl PodCertificateIssuer {
    fn from_signer(signer: CustomSigner, metrics: &MetricFamilies) -> Option<PodCertificateIssuer> {
        let CustomSigner { custom, ca, rollout } = signer;
        let (name, profile) = (custom.name.to_string(), custom.pods?);
        metrics.authorities.add_source(&name, &ca);
        let counters = metrics.signers.signer(&name);
        Some(PodCertificateIssuer { name, profile, ca, rollout, counters })
    }
}

struct PodCertificateSigner {
    pending: PendingRequests<NamespacedName, PodRequest>,
    events: EventRecorder,
    client: Client,
    resource: ApiResource,
    issuers: Vec<PodCertificateIssuer>,
    clock: Clock,
}

impl PodCertificateSigner {
    fn issuer(&self, request: &PodRequest) -> Option<&PodCertificateIssuer> {
        let name = signer_name(request);
        self.issuers.iter().find(|each| each.name == name)
    }

    async fn reconcile(self: Arc<Self>, key: NamespacedName) -> anyhow::Result<Requeue> {
        let Some(PendingObject { object, since }) = self.pending.get(&key) else {
            return Ok(Requeue::Done);
        };
        let request = match object {
            Some(request) => request,
            None => match self.api_for(&self.resource, &key).get_opt(&key.name).await? {
                Some(request) => Arc::new(request),
                None => return Ok(Requeue::Done),
            },
        };
        match self.process(&key, &request, since).await {
            // The object has changed since the watch delivered it.
            Err(error) if is_conflict(&error) => {}
            answered => return write_outcome(answered),
        }
        match self.api_for(&self.resource, &key).get_opt(&key.name).await? {
            Some(request) => write_outcome(self.process(&key, &request, since).await),
            None => Ok(Requeue::Done),
        }
    }

    async fn process(
        &self,
        key: &NamespacedName,
        request: &PodRequest,
        since: Instant,
    ) -> Result<Requeue, kube::Error> {
        let Some(issuer) = self.issuer(request) else { return Ok(Requeue::Done) };
        let (counters, now) = (&issuer.counters, (self.clock)());
        let answer = self.decide(key, request, issuer).await?;
        if answer != PodRequestDecision::Nothing {
            counters.requests.inc();
        }
        let (write, refusal) = match &answer {
            PodRequestDecision::Nothing => return Ok(Requeue::Done),
            PodRequestDecision::Issued { chain, times } => {
                (with_certificate(request, chain, times, now), false)
            }
            PodRequestDecision::Denied(why) => (with_refusal(request, "Denied", why, now), true),
            PodRequestDecision::Failed(why) => (with_refusal(request, "Failed", why, now), true),
            PodRequestDecision::Delayed(why) => {
                return Ok(self.report_delay(key, request, issuer, why).await);
            }
        };
        match self.write_status(key, &write).await {
            Ok(()) if refusal => {
                counters.failed.inc();
                Ok(Requeue::Done)
            }
            Ok(()) => {
                counters.count_issued(since.elapsed());
                Ok(Requeue::Done)
            }
            // The clocks differ, or the controller lacks permission to sign.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                let why = RefusalReason { reason: "AnswerRefused", message: status.message.clone() };
                Ok(self.report_delay(key, request, issuer, &why).await)
            }
            Err(error) => Err(error),
        }
    }

    async fn decide(
        &self,
        key: &NamespacedName,
        request: &PodRequest,
        issuer: &PodCertificateIssuer,
    ) -> Result<PodRequestDecision, kube::Error> {
        if !is_pending(request) {
            return Ok(PodRequestDecision::Nothing);
        }
        let whole = self.with_key(key, request).await?;
        let world = match self.load_context(key, request, &issuer.profile).await {
            Ok(world) => world,
            Err(kube::Error::Api(status)) => {
                let why = RefusalReason { reason: "PodUnreadable", message: status.message.clone() };
                return Ok(PodRequestDecision::Delayed(why));
            }
            Err(error) => return Err(error),
        };
        let now = (self.clock)();
        Ok(match issuer.rollout.select_ca(now) {
            Ok(ca) => decide(&whole, &issuer.profile, &world, &ca, now),
            Err(RolloutHold { reason, message }) => {
                PodRequestDecision::Delayed(RefusalReason { reason, message })
            }
        })
    }

    /// Returns the request with its key. v1 does not show the older form of proof; v1beta1 does.
    async fn with_key<'a>(
        &self,
        key: &NamespacedName,
        request: &'a PodRequest,
    ) -> Result<Cow<'a, PodRequest>, kube::Error> {
        let has_key = PodRequestSpec::from_request(request).map_or(true, |spec| spec.has_key());
        if has_key || self.resource.version != "v1" {
            return Ok(Cow::Borrowed(request));
        }
        let mut older = self.resource.clone();
        older.version = "v1beta1".into();
        older.api_version = format!("{}/{}", older.group, older.version);
        let found = self.api_for(&older, key).get_opt(&key.name).await?;
        let same = found.filter(|found| found.metadata.uid == request.metadata.uid);
        Ok(same.map_or(Cow::Borrowed(request), Cow::Owned))
    }

    /// Reads the pod of a request and, if certificates have their names, the services of its namespace.
    async fn load_context(
        &self,
        key: &NamespacedName,
        request: &PodRequest,
        profile: &PodProfile,
    ) -> Result<PodContext, kube::Error> {
        let Ok(PodRequestSpec { pod_name, .. }) = PodRequestSpec::from_request(request) else {
            return Ok(PodContext::default());
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let pod = pods.get_opt(&pod_name).await?;
        if profile.service_names.is_none() || pod.is_none() {
            return Ok(PodContext { pod, services: Vec::new() });
        }
        let services: Api<Service> = Api::namespaced(self.client.clone(), &key.namespace);
        let services = services.list(&ListParams::default()).await?.items;
        Ok(PodContext { pod, services })
    }

    /// Reports the reason of a delay in the log and an event, once per reason.
    async fn report_delay(
        &self,
        key: &NamespacedName,
        request: &PodRequest,
        issuer: &PodCertificateIssuer,
        why: &RefusalReason,
    ) -> Requeue {
        issuer.counters.delayed.inc();
        let RefusalReason { reason, message } = why;
        if self.pending.record_message(key, &format!("{reason}: {message}")) {
            tracing::warn!(request = %key, reason, message, "request cannot be signed yet; retrying");
            let event = NewEvent::warning("Signing", *reason, message.as_str());
            self.events.record(request.object_ref(&self.resource), event, (self.clock)()).await;
        }
        Requeue::WithBackoff(message.clone())
    }

    async fn write_status(&self, key: &NamespacedName, request: &PodRequest) -> Result<(), kube::Error> {
        let (api, params) = (self.api_for(&self.resource, key), PostParams::default());
        api.replace_status(&request.name_any(), &params, request).await.map(drop)
    }

    fn api_for(&self, resource: &ApiResource, key: &NamespacedName) -> Api<PodRequest> {
        Api::namespaced_with(self.client.clone(), &key.namespace, resource)
    }
}

#[cfg(test)]
mod tests;
