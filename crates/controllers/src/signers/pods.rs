//! Signs PodCertificateRequests: certificates name the service account of the pod, its services, or both.
//!
//! A request is answered by one write of the object that the watch delivered, which the server rejects if the object has
//! changed since or is already answered. So a request never gets two certificates. Signing takes a
//! `request::VerifiedPodRequest`. The API has no condition for a request that is delayed, so an event reports it.

mod decision;
mod lifetime;
mod names;
mod request;

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{ListParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::events::{CONTROLLER_EVENT_LIMIT, EventRecorder, EventReporter, NewEvent};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use super::config::{PodProfile, SignerLimits};
use super::quota::{LimitDelay, RequesterQuota};
use super::rollout::{CaRollout, RolloutHold};
use super::{CustomSigner, SignerList, restart_on_change};
use crate::ca::{CaSource, SigningCa};
use crate::csr::{is_conflict, write_outcome};
use crate::csr_signer::{LEDGER_UNAVAILABLE, SignerCounters};
use crate::ledger::{Ledger, PreparedCertificate};
use crate::metrics::{MetricFamilies, POD_SIGNING};
use crate::namespaced_name::NamespacedName;
use crate::options::Clock;
use crate::pending_requests::{self, PendingObject, PendingRequests, RequestWatch};

use decision::{PodContext, PodRequestDecision, RefusalReason, decide, sign_chain};
use lifetime::CertificateTimes;
use request::{PodRequest, PodRequestSpec, is_pending, signer_name, with_certificate, with_refusal};

/// Requests that are processed concurrently; those that wait for their record share one write.
const WORKERS: usize = 64;
/// Requests are deleted after 15 minutes, so the longest delay is well below that.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));

/// Runs those of these signers that sign for pods, with the version of the API that `resource` names.
pub async fn run(
    client: Client,
    resource: ApiResource,
    signers: Vec<CustomSigner>,
    ledger: Ledger,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    let (_, signers) = watch::channel(Arc::new(signers));
    run_set(client, resource, signers, ledger, clock, metrics).await
}

/// As [`run`], with signers that change. Requests in progress are not interrupted by a change.
pub(crate) async fn run_set(
    client: Client,
    resource: ApiResource,
    signers: watch::Receiver<SignerList>,
    ledger: Ledger,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    let queue = Arc::new(WorkQueue::new(metrics.queue(POD_SIGNING), BACKOFF));
    let signing = PodCertificateSigner::new(client, resource, ledger, clock);
    let counter = Arc::downgrade(&signing);
    metrics.statistics.set_pending_source("pod", move |signer| {
        counter.upgrade().map_or(0, |signing| signing.pending.count_for_signer(signer))
    });
    let watch = restart_on_change(signers, |list| {
        let issuers = list.iter().filter_map(|signer| PodCertificateIssuer::from_signer(signer, &metrics));
        signing.set_issuers(issuers.map(Arc::new).collect());
        signing.clone().watch(queue.clone())
    });
    let reconcile = |key: NamespacedName| signing.clone().reconcile(key);
    tokio::join!(watch, run_workers(queue.clone(), WORKERS, reconcile)).0
}

struct PodCertificateIssuer {
    name: String,
    profile: PodProfile,
    ca: Arc<CaSource>,
    rollout: Arc<CaRollout>,
    limits: SignerLimits,
    quota: Arc<RequesterQuota>,
    counters: SignerCounters,
}

impl PodCertificateIssuer {
    fn from_signer(signer: &CustomSigner, metrics: &MetricFamilies) -> Option<PodCertificateIssuer> {
        let CustomSigner { custom, ca, rollout, quota } = signer.clone();
        let (name, profile, limits) = (custom.name.to_string(), custom.pods?, custom.limits);
        metrics.authorities.add_source(&name, &ca);
        let counters = metrics.signers.signer(&name);
        Some(PodCertificateIssuer { name, profile, ca, rollout, limits, quota, counters })
    }

    /// Returns the reservation of a certificate that is not issued to the quota of its requester.
    fn release_quota(&self, request: &PodRequest) {
        if self.limits.certificates_per_requester_per_hour.is_some() {
            self.quota.release(&requester(request));
        }
    }
}

/// Returns the user that counts as the requester: the node of the pod.
fn requester(request: &PodRequest) -> String {
    let node = request.data.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    format!("system:node:{node}")
}

struct PodCertificateSigner {
    pending: PendingRequests<NamespacedName, PodRequest>,
    events: EventRecorder,
    client: Client,
    resource: ApiResource,
    issuers: RwLock<Vec<Arc<PodCertificateIssuer>>>,
    ledger: Ledger,
    clock: Clock,
}

impl PodCertificateSigner {
    fn new(client: Client, resource: ApiResource, ledger: Ledger, clock: Clock) -> Arc<PodCertificateSigner> {
        let reporter = EventReporter::controller("podcertificatesigning");
        Arc::new(PodCertificateSigner {
            pending: PendingRequests::default(),
            events: EventRecorder::new(client.clone(), reporter, CONTROLLER_EVENT_LIMIT),
            client,
            resource,
            issuers: RwLock::default(),
            ledger,
            clock,
        })
    }

    fn set_issuers(&self, issuers: Vec<Arc<PodCertificateIssuer>>) {
        *self.issuers.write().unwrap_or_else(PoisonError::into_inner) = issuers;
    }

    fn issuers(&self) -> Vec<Arc<PodCertificateIssuer>> {
        self.issuers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn issuer(&self, request: &PodRequest) -> Option<Arc<PodCertificateIssuer>> {
        let name = signer_name(request);
        let issuers = self.issuers.read().unwrap_or_else(PoisonError::into_inner);
        issuers.iter().find(|each| each.name == name).cloned()
    }

    /// Watches requests to the present issuers, and their CAs.
    async fn watch(self: Arc<Self>, queue: Arc<WorkQueue<NamespacedName>>) -> Infallible {
        let issuers = self.issuers();
        // A field selector accepts one value per field.
        let fields = match issuers.as_slice() {
            [] => return std::future::pending().await,
            [only] => Some(format!("spec.signerName={}", only.name)),
            _ => None,
        };
        let api = Api::all_with(self.client.clone(), &self.resource);
        let watched = RequestWatch { api, plural: "podcertificaterequests", fields: fields.as_deref() };
        let signer = |request: &PodRequest| {
            let issuer = self.issuer(request).filter(|_| is_pending(request));
            issuer.map(|issuer| issuer.name.clone())
        };
        let key = NamespacedName::from_object;
        let watch = pending_requests::watch_requests(watched, &self.pending, &queue, key, signer);
        let wakers = issuers.iter().flat_map(|each| {
            let wake =
                |changes| pending_requests::requeue_on_ca_change(&self.pending, &each.name, changes, &queue);
            [each.ca.changes(), each.rollout.changes()].map(wake)
        });
        tokio::join!(watch, join_all(wakers)).0
    }

    /// Decides on a request within the limits of its signer; returns the CA that signs as well. Reserves the certificate
    /// in the quota of the requester if it is to be issued.
    async fn decide_within_limits(
        &self,
        key: &NamespacedName,
        request: &PodRequest,
        issuer: &PodCertificateIssuer,
    ) -> Result<(PodRequestDecision, Option<Arc<SigningCa>>), kube::Error> {
        let SignerLimits { pending_requests, certificates_per_requester_per_hour } = issuer.limits;
        let checked = match (pending_requests, certificates_per_requester_per_hour) {
            (Some(limit), _) if !self.pending.is_within(key, limit) => Err(LimitDelay::pending(limit)),
            (_, Some(limit)) => issuer.quota.reserve(&requester(request), limit, (self.clock)()),
            _ => Ok(()),
        };
        if let Err(LimitDelay { reason, message }) = checked {
            issuer.counters.count_limited(reason);
            return Ok((PodRequestDecision::Delayed(RefusalReason { reason, message }), None));
        }
        let decision = self.decide(key, request, issuer).await;
        if !matches!(decision, Ok((PodRequestDecision::Issue { .. }, _))) {
            issuer.release_quota(request);
        }
        decision
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
        let (answer, ca) = self.decide_within_limits(key, request, &issuer).await?;
        if answer != PodRequestDecision::Nothing {
            issuer.counters.requests.inc();
        }
        let written = match (answer, ca) {
            (PodRequestDecision::Issue { prepared, times }, Some(ca)) => {
                let issued = self.issue(key, request, &issuer, &ca, (&prepared, &times), since).await;
                if !matches!(issued, Ok(Requeue::Done)) {
                    issuer.release_quota(request);
                }
                issued
            }
            (answer, _) => self.refuse(key, request, &issuer, &answer).await,
        };
        match written {
            // The clocks differ, or the controller lacks permission to sign.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                let why = RefusalReason { reason: "AnswerRefused", message: status.message.clone() };
                Ok(self.report_delay(key, request, &issuer, &why).await)
            }
            written => written,
        }
    }

    /// Records a certificate, signs it and writes it to its request.
    async fn issue(
        &self,
        key: &NamespacedName,
        request: &PodRequest,
        issuer: &PodCertificateIssuer,
        ca: &SigningCa,
        (prepared, times): (&PreparedCertificate, &CertificateTimes),
        since: Instant,
    ) -> Result<Requeue, kube::Error> {
        let recorded = match self.ledger.record(prepared.record.clone()).await {
            Ok(recorded) => recorded,
            Err(error) => {
                let why = RefusalReason { reason: LEDGER_UNAVAILABLE, message: error.to_string() };
                return Ok(self.report_delay(key, request, issuer, &why).await);
            }
        };
        if !issuer.rollout.is_selected(ca, (self.clock)()) {
            self.ledger.abandon(recorded);
            return Ok(Requeue::WithBackoff("another CA signs now".into()));
        }
        let chain = match ca.run_signing(|| sign_chain(prepared, ca, &recorded)) {
            Ok(chain) => chain,
            Err(decision) => {
                self.ledger.abandon(recorded);
                return self.refuse(key, request, issuer, &decision).await;
            }
        };
        let answered = with_certificate(request, &chain, times, (self.clock)());
        match self.write_status(key, &answered).await {
            Ok(()) => {
                self.ledger.confirm(recorded);
                issuer.counters.count_issued(since.elapsed());
                Ok(Requeue::Done)
            }
            Err(error) => {
                self.ledger.settle_failed_write(recorded, &error);
                Err(error)
            }
        }
    }

    /// Reports why a request gets no certificate, or none yet.
    async fn refuse(
        &self,
        key: &NamespacedName,
        request: &PodRequest,
        issuer: &PodCertificateIssuer,
        decision: &PodRequestDecision,
    ) -> Result<Requeue, kube::Error> {
        let now = (self.clock)();
        let refused = match decision {
            PodRequestDecision::Nothing | PodRequestDecision::Issue { .. } => return Ok(Requeue::Done),
            PodRequestDecision::Denied(why) => with_refusal(request, "Denied", why, now),
            PodRequestDecision::Failed(why) => with_refusal(request, "Failed", why, now),
            PodRequestDecision::Delayed(why) => {
                return Ok(self.report_delay(key, request, issuer, why).await);
            }
        };
        self.write_status(key, &refused).await?;
        issuer.counters.failed.inc();
        Ok(Requeue::Done)
    }

    async fn decide(
        &self,
        key: &NamespacedName,
        request: &PodRequest,
        issuer: &PodCertificateIssuer,
    ) -> Result<(PodRequestDecision, Option<Arc<SigningCa>>), kube::Error> {
        if !is_pending(request) {
            return Ok((PodRequestDecision::Nothing, None));
        }
        let whole = self.with_key(key, request).await?;
        let world = match self.load_context(key, request, &issuer.profile).await {
            Ok(world) => world,
            Err(kube::Error::Api(status)) => {
                let why = RefusalReason { reason: "PodUnreadable", message: status.message.clone() };
                return Ok((PodRequestDecision::Delayed(why), None));
            }
            Err(error) => return Err(error),
        };
        let now = (self.clock)();
        Ok(match issuer.rollout.select_ca(now) {
            Ok(ca) => {
                let world = PodContext { leaf_limit: issuer.rollout.leaf_limit(&ca), ..world };
                (decide(&whole, &issuer.profile, &world, &ca, now), Some(ca))
            }
            Err(RolloutHold { reason, message }) => {
                (PodRequestDecision::Delayed(RefusalReason { reason, message }), None)
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
            return Ok(PodContext { pod, ..PodContext::default() });
        }
        let services: Api<Service> = Api::namespaced(self.client.clone(), &key.namespace);
        let services = services.list(&ListParams::default()).await?.items;
        Ok(PodContext { pod, services, leaf_limit: None })
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
