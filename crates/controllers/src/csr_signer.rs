//! Signs approved CertificateSigningRequests, for the built-in signers of Kubernetes and for custom ones.
//!
//! A request is answered by one write of the object that the watch delivered, which the server rejects if the object has
//! changed since. So a request never gets two certificates, and none without an approval that was there before. Signing
//! takes an `ApprovedCsr`, which proves the approval, and a `RecordedIssuance`, which proves that the certificate is in
//! the ledger: decide and prepare, record, sign, write.

mod approved_csr;
mod decision;
mod metrics;
mod policy;
mod terms;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::ByteString;
use kube::api::PostParams;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::signer_name::SignerName;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::csr::{FAILED, condition, true_condition, with_condition, without_condition};
use windlass_runtime::events::{CONTROLLER_EVENT_LIMIT, EventRecorder, EventReporter, NewEvent};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use crate::ca::{CaSource, SigningCa};
use crate::csr::{self, Csr, PendingCsr, PendingCsrs, is_conflict, write_outcome};
use crate::ledger::{Ledger, PreparedCertificate};
use crate::metrics::{MetricFamilies, SIGNING};
use crate::options::Clock;
use crate::pending_requests;
use crate::signers::config::{SignerConfig, SignerLimits};
use crate::signers::quota::{LimitDelay, RequesterQuota};
use crate::signers::rollout::{CaRollout, RolloutHold};
use crate::signers::{CustomSigner, SignerList, restart_on_change};

use approved_csr::{ApprovedCsr, awaits_signer};
use decision::{CsrDecision, SigningDelay};
use terms::SigningTerms;

pub(crate) use metrics::{SignerCounters, SignerMetrics};
pub use policy::KubernetesSigner;

/// Requests that are processed concurrently. Each waits until its certificate is recorded, and those that wait together
/// are recorded with one write.
const WORKERS: usize = 64;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(300));

/// Condition with the reason for which an approved request has no certificate yet. It is removed when the certificate is
/// issued.
pub const DELAYED: &str = "windlass.dev/SigningDelayed";

/// Reason of the condition on requests whose certificate cannot be recorded.
pub(crate) const LEDGER_UNAVAILABLE: &str = "LedgerUnavailable";

/// A built-in signer and its CA.
#[derive(Clone)]
pub struct BuiltInSigner {
    /// Built-in signer that uses this CA.
    pub signer: KubernetesSigner,
    /// Certificate and key of the CA, which are reloaded elsewhere.
    pub ca: Arc<CaSource>,
}

/// A built-in signer and the files of its CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerFiles {
    /// Built-in signer that the files belong to.
    pub signer: KubernetesSigner,
    /// Path of the CA certificate, as PEM.
    pub certificate: PathBuf,
    /// Path of the CA's private key, as PEM.
    pub key: PathBuf,
}

/// Reads the CAs of the signers. A signer whose files are invalid is degraded until they are valid; the others work.
/// Signers with the same files share one CA. Blocks on disk reads.
pub fn open(files: &[SignerFiles], clock: &Clock) -> Vec<BuiltInSigner> {
    let mut opened: Vec<(&SignerFiles, Arc<CaSource>)> = Vec::new();
    for each in files {
        let same = opened
            .iter()
            .find(|(other, _)| (&other.certificate, &other.key) == (&each.certificate, &each.key));
        let ca = match same {
            Some((_, ca)) => ca.clone(),
            None => CaSource::from_files(each.certificate.clone(), each.key.clone(), clock.clone()),
        };
        opened.push((each, ca));
    }
    opened.into_iter().map(|(each, ca)| BuiltInSigner { signer: each.signer, ca }).collect()
}

/// Lists the CAs of the signers, each once.
pub fn ca_sources(signers: &[BuiltInSigner]) -> Vec<Arc<CaSource>> {
    let mut sources: Vec<Arc<CaSource>> = Vec::new();
    for BuiltInSigner { ca, .. } in signers {
        if !sources.iter().any(|source| Arc::ptr_eq(source, ca)) {
            sources.push(ca.clone());
        }
    }
    sources
}

/// Returns a signer that publishes the CA of kubelet serving certificates. No other published bundle lets clients verify
/// kubelets.
pub fn kubelet_serving_anchors(signers: &[BuiltInSigner]) -> Option<CustomSigner> {
    let BuiltInSigner { signer, ca } =
        signers.iter().find(|each| each.signer == KubernetesSigner::KubeletServing)?;
    let name = SignerName::parse(&FieldPath::new("name"), signer.name(), &mut FieldErrors::new())?;
    let certificate = ca.certificate_file().unwrap_or(Path::new("")).to_owned();
    let custom = SignerConfig::publish_only(name, certificate);
    Some(CustomSigner::new(custom, ca.clone()))
}

/// Logs which built-in signers are disabled.
pub fn log_missing_signers(signers: &[BuiltInSigner]) {
    for signer in KubernetesSigner::ALL {
        if !signers.iter().any(|each| each.signer == signer) {
            tracing::info!(signer = signer.name(), "built-in signer has no CA; its requests stay pending");
        }
    }
}

/// Runs these signers; does not return. `max_duration` limits the lifetime of certificates of built-in signers.
pub async fn run(
    client: Client,
    built_in: Vec<BuiltInSigner>,
    max_duration: Duration,
    custom: Vec<CustomSigner>,
    ledger: Ledger,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    let (_, custom) = watch::channel(Arc::new(custom));
    run_set(client, built_in, max_duration, custom, ledger, clock, metrics).await
}

/// As [`run`], with custom signers that change. Requests in progress are not interrupted by a change.
pub(crate) async fn run_set(
    client: Client,
    built_in: Vec<BuiltInSigner>,
    max_duration: Duration,
    custom: watch::Receiver<SignerList>,
    ledger: Ledger,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    let own = built_in.into_iter().map(|BuiltInSigner { signer, ca }| {
        let terms = SigningTerms::BuiltIn { signer, max_duration };
        Arc::new(CsrIssuer::new(signer.name(), ca, terms, &metrics))
    });
    let own: Vec<_> = own.collect();
    let queue = Arc::new(WorkQueue::new(metrics.queue(SIGNING), BACKOFF));
    let signing = CsrSigner::new(&client, ledger, clock);
    let counter = Arc::downgrade(&signing);
    metrics.statistics.set_pending_source("csr", move |signer| {
        counter.upgrade().map_or(0, |signing| signing.requests.count_for_signer(signer))
    });
    let watch = restart_on_change(custom, |list| {
        let custom = list.iter().filter_map(|signer| CsrIssuer::from_custom(signer, &metrics));
        signing.set_issuers(own.iter().cloned().chain(custom.map(Arc::new)).collect());
        signing.clone().watch(client.clone(), queue.clone())
    });
    let reconcile = |name: String| signing.clone().reconcile(name);
    tokio::join!(watch, run_workers(queue.clone(), WORKERS, reconcile)).0
}

struct CsrIssuer {
    name: String,
    ca: Arc<CaSource>,
    /// Decides which CA signs during a rollout; `None` if a new CA signs immediately.
    rollout: Option<Arc<CaRollout>>,
    terms: SigningTerms,
    limits: SignerLimits,
    quota: Arc<RequesterQuota>,
    counters: SignerCounters,
}

impl CsrIssuer {
    /// Creates the issuer of a custom signer; `None` if it signs no CertificateSigningRequests.
    fn from_custom(signer: &CustomSigner, metrics: &MetricFamilies) -> Option<CsrIssuer> {
        let CustomSigner { custom, ca, rollout, quota } = signer.clone();
        let terms = SigningTerms::Custom(Box::new(custom.requests?));
        let issuer = CsrIssuer::new(custom.name.as_str(), ca, terms, metrics);
        Some(CsrIssuer { rollout: Some(rollout), limits: custom.limits, quota, ..issuer })
    }

    fn new(name: &str, ca: Arc<CaSource>, terms: SigningTerms, metrics: &MetricFamilies) -> CsrIssuer {
        metrics.authorities.add_source(name, &ca);
        let counters = metrics.signers.signer(name);
        let (limits, quota) = (SignerLimits::default(), Arc::default());
        CsrIssuer { name: name.to_owned(), ca, rollout: None, terms, limits, quota, counters }
    }

    /// Decides on a request; returns the CA that signs as well.
    fn decide(&self, csr: &Csr, now: OffsetDateTime) -> (CsrDecision, Option<Arc<SigningCa>>) {
        let request = match ApprovedCsr::verify(csr, &self.name) {
            Ok(request) => request,
            Err(reason) => return (reason.into(), None),
        };
        match self.select_ca(now) {
            Ok(ca) => {
                let limit = self.rollout.as_ref().and_then(|rollout| rollout.leaf_limit(&ca));
                (decision::decide(&request, &self.terms, &ca, limit, now), Some(ca))
            }
            Err(delay) => (CsrDecision::Delayed(delay), None),
        }
    }

    fn select_ca(&self, now: OffsetDateTime) -> Result<Arc<SigningCa>, SigningDelay> {
        match &self.rollout {
            None => self.ca.current().ok_or_else(|| SigningDelay::unavailable(&self.ca)),
            Some(rollout) => rollout
                .select_ca(now)
                .map_err(|RolloutHold { reason, message }| SigningDelay { reason, message }),
        }
    }

    /// Whether the CA that was selected for a certificate still signs after the certificate is recorded.
    fn still_signs(&self, ca: &SigningCa, now: OffsetDateTime) -> bool {
        self.rollout.as_ref().is_none_or(|rollout| rollout.is_selected(ca, now))
    }

    /// Returns the reservation of a certificate that is not issued to the quota of its requester.
    fn release_quota(&self, request: &Csr) {
        if self.limits.certificates_per_requester_per_hour.is_some() {
            self.quota.release(request.spec.username.as_deref().unwrap_or_default());
        }
    }

    /// Returns receivers that change when another CA may sign.
    fn changes(&self) -> impl Iterator<Item = watch::Receiver<u64>> {
        let of_rollout = self.rollout.as_ref().map(|rollout| rollout.changes());
        std::iter::once(self.ca.changes()).chain(of_rollout)
    }
}

struct CsrSigner {
    requests: PendingCsrs,
    api: Api<Csr>,
    events: EventRecorder,
    issuers: RwLock<Vec<Arc<CsrIssuer>>>,
    ledger: Ledger,
    clock: Clock,
}

impl CsrSigner {
    fn new(client: &Client, ledger: Ledger, clock: Clock) -> Arc<CsrSigner> {
        let reporter = EventReporter::controller("csrsigning");
        Arc::new(CsrSigner {
            requests: PendingCsrs::default(),
            api: Api::all(client.clone()),
            events: EventRecorder::new(client.clone(), reporter, CONTROLLER_EVENT_LIMIT),
            issuers: RwLock::default(),
            ledger,
            clock,
        })
    }

    fn set_issuers(&self, issuers: Vec<Arc<CsrIssuer>>) {
        *self.issuers.write().unwrap_or_else(PoisonError::into_inner) = issuers;
    }

    fn issuers(&self) -> Vec<Arc<CsrIssuer>> {
        self.issuers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn issuer(&self, request: &Csr) -> Option<Arc<CsrIssuer>> {
        let issuers = self.issuers.read().unwrap_or_else(PoisonError::into_inner);
        issuers.iter().find(|each| each.name == request.spec.signer_name).cloned()
    }

    /// Watches requests to the present issuers, and their CAs.
    async fn watch(self: Arc<Self>, client: Client, queue: Arc<WorkQueue<String>>) -> Infallible {
        let issuers = self.issuers();
        if issuers.is_empty() {
            return std::future::pending().await;
        }
        let wanted = |request: &Csr| awaits_signer(request) && self.issuer(request).is_some();
        let watch = csr::watch_csrs(client, &self.requests, &queue, wanted);
        let wakers = issuers.iter().flat_map(|each| {
            let wake =
                |changes| pending_requests::requeue_on_ca_change(&self.requests, &each.name, changes, &queue);
            each.changes().map(wake)
        });
        tokio::join!(watch, join_all(wakers)).0
    }

    /// Decides on a request within the limits of its signer; returns the CA that signs as well. Reserves the certificate
    /// in the quota of the requester if it is to be issued.
    fn decide(
        &self,
        issuer: &CsrIssuer,
        request: &Csr,
        now: OffsetDateTime,
    ) -> (CsrDecision, Option<Arc<SigningCa>>) {
        let requester = request.spec.username.as_deref().unwrap_or_default();
        if let Err(LimitDelay { reason, message }) = self.check_limits(issuer, request, requester, now) {
            issuer.counters.count_limited(reason);
            return (CsrDecision::Delayed(SigningDelay { reason, message }), None);
        }
        let (decision, ca) = issuer.decide(request, now);
        if !matches!(decision, CsrDecision::Issue(_)) {
            issuer.release_quota(request);
        }
        (decision, ca)
    }

    fn check_limits(
        &self,
        issuer: &CsrIssuer,
        request: &Csr,
        requester: &str,
        now: OffsetDateTime,
    ) -> Result<(), LimitDelay> {
        if let Some(limit) = issuer.limits.pending_requests
            && !self.requests.is_within(&request.name_any(), limit)
        {
            return Err(LimitDelay::pending(limit));
        }
        match issuer.limits.certificates_per_requester_per_hour {
            Some(limit) => issuer.quota.reserve(requester, limit, now),
            None => Ok(()),
        }
    }

    async fn reconcile(self: Arc<Self>, name: String) -> anyhow::Result<Requeue> {
        let Some(PendingCsr { request, since }) = csr::get_pending(&self.requests, &self.api, &name).await?
        else {
            return Ok(Requeue::Done);
        };
        match self.process(&request, since).await {
            // The object has changed since the watch delivered it.
            Err(error) if is_conflict(&error) => {}
            answered => return write_outcome(answered),
        }
        match self.api.get_opt(&name).await? {
            Some(request) => write_outcome(self.process(&request, since).await),
            None => Ok(Requeue::Done),
        }
    }

    async fn process(&self, request: &Csr, since: Instant) -> Result<Requeue, kube::Error> {
        let Some(issuer) = self.issuer(request) else { return Ok(Requeue::Done) };
        let (answer, ca) = self.decide(&issuer, request, (self.clock)());
        if answer != CsrDecision::Nothing {
            issuer.counters.requests.inc();
        }
        match (answer, ca) {
            (CsrDecision::Issue(prepared), Some(ca)) => {
                let issued = self.issue(request, &issuer, &ca, &prepared, since).await;
                if !matches!(issued, Ok(Requeue::Done)) {
                    issuer.release_quota(request);
                }
                issued
            }
            (answer, _) => self.refuse(request, &issuer, answer).await,
        }
    }

    /// Records a certificate, signs it and writes it to its request.
    async fn issue(
        &self,
        request: &Csr,
        issuer: &CsrIssuer,
        ca: &SigningCa,
        prepared: &PreparedCertificate,
        since: Instant,
    ) -> Result<Requeue, kube::Error> {
        let recorded = match self.ledger.record(prepared.record.clone()).await {
            Ok(recorded) => recorded,
            Err(error) => {
                let delay = SigningDelay { reason: LEDGER_UNAVAILABLE, message: error.to_string() };
                return self.refuse(request, issuer, CsrDecision::Delayed(delay)).await;
            }
        };
        if !issuer.still_signs(ca, (self.clock)()) {
            self.ledger.abandon(recorded);
            return Ok(Requeue::WithBackoff("another CA signs now".into()));
        }
        let text = match ca.run_signing(|| decision::sign(prepared, &issuer.terms, ca, &recorded)) {
            Ok(text) => text,
            Err(decision) => {
                self.ledger.abandon(recorded);
                return self.refuse(request, issuer, decision).await;
            }
        };
        let mut answered = without_condition(request, DELAYED);
        let status = answered.status.get_or_insert_default();
        status.certificate = Some(ByteString(text.into_bytes()));
        match self.write_status(&answered).await {
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
        request: &Csr,
        issuer: &CsrIssuer,
        decision: CsrDecision,
    ) -> Result<Requeue, kube::Error> {
        let counters = &issuer.counters;
        match decision {
            CsrDecision::Nothing | CsrDecision::Issue(_) => {}
            CsrDecision::Refused(message) => {
                let failed = true_condition(FAILED, "SignerValidationFailure", &message, (self.clock)());
                self.write_status(&with_condition(request, failed, DELAYED)).await?;
                counters.failed.inc();
            }
            CsrDecision::Delayed(delay) => {
                counters.delayed.inc();
                self.report_delay(request, &delay).await?;
                return Ok(Requeue::WithBackoff(delay.message));
            }
        }
        Ok(Requeue::Done)
    }

    /// Reports the reason of a delay in a condition and an event, once per reason.
    async fn report_delay(&self, request: &Csr, delay: &SigningDelay) -> Result<(), kube::Error> {
        let SigningDelay { reason, message } = delay;
        let is_reported = condition(request, DELAYED).is_some_and(|known| {
            known.reason.as_deref() == Some(*reason) && known.message.as_ref() == Some(message)
        });
        if is_reported {
            return Ok(());
        }
        let now = (self.clock)();
        let delayed = true_condition(DELAYED, reason, message, now);
        self.write_status(&with_condition(request, delayed, DELAYED)).await?;
        let event = NewEvent::warning("Signing", *reason, message.as_str());
        self.events.warn(request.object_ref(&()), event, now).await;
        Ok(())
    }

    async fn write_status(&self, request: &Csr) -> Result<(), kube::Error> {
        let name = request.name_any();
        self.api.replace_status(&name, &PostParams::default(), request).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
