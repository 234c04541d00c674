//! Signs approved CertificateSigningRequests, for the built-in signers of Kubernetes and for custom ones.
//!
//! A request is answered by one write of the object that the watch delivered, which the server rejects if the object has
//! changed since. So a request never gets two certificates, and none without an approval that was there before. Signing
//! takes an [`ApprovedCsr`], which proves the approval.

mod approved_csr;
mod decision;
mod metrics;
mod policy;
mod terms;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
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
use crate::metrics::{MetricFamilies, SIGNING};
use crate::options::Clock;
use crate::pending_requests;
use crate::signers::CustomSigner;
use crate::signers::config::SignerConfig;
use crate::signers::rollout::{CaRollout, RolloutHold};

use approved_csr::{ApprovedCsr, awaits_signer};
use decision::{CsrDecision, SigningDelay, decide};
use terms::SigningTerms;

pub(crate) use metrics::{SignerCounters, SignerMetrics};
pub use policy::KubernetesSigner;

/// Requests that are processed concurrently.
const WORKERS: usize = 16;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(300));

/// Condition with the reason for which an approved request has no certificate yet. It is removed when the certificate is
/// issued.
pub const DELAYED: &str = "windlass.dev/SigningDelayed";

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
    let custom = SignerConfig::publish_only(name, ca.certificate_file().to_owned());
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

/// Runs these signers; does not return. `longest` limits the lifetime of certificates of built-in signers.
pub async fn run(
    client: Client,
    built_in: Vec<BuiltInSigner>,
    longest: Duration,
    custom: Vec<CustomSigner>,
    clock: Clock,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    let own = built_in.into_iter().map(|BuiltInSigner { signer, ca }| {
        let terms = SigningTerms::BuiltIn { signer, longest };
        CsrIssuer::new(signer.name(), ca, terms, &metrics)
    });
    let custom = custom.into_iter().filter_map(|CustomSigner { custom, ca, rollout }| {
        let terms = SigningTerms::Custom(Box::new(custom.requests?));
        let issuer = CsrIssuer::new(custom.name.as_str(), ca, terms, &metrics);
        Some(CsrIssuer { rollout: Some(rollout), ..issuer })
    });
    let issuers = own.chain(custom).collect();
    sign(client, issuers, clock, WorkQueue::new(metrics.queue(SIGNING), BACKOFF)).await
}

struct CsrIssuer {
    name: String,
    ca: Arc<CaSource>,
    /// Decides which CA signs during a rollout; `None` if a new CA signs immediately.
    rollout: Option<Arc<CaRollout>>,
    terms: SigningTerms,
    counters: SignerCounters,
}

impl CsrIssuer {
    fn new(name: &str, ca: Arc<CaSource>, terms: SigningTerms, metrics: &MetricFamilies) -> CsrIssuer {
        metrics.authorities.add_source(name, &ca);
        let counters = metrics.signers.signer(name);
        CsrIssuer { name: name.to_owned(), ca, rollout: None, terms, counters }
    }

    fn decide(&self, csr: &Csr, now: OffsetDateTime) -> CsrDecision {
        let request = match ApprovedCsr::verify(csr, &self.name) {
            Ok(request) => request,
            Err(reason) => return reason.into(),
        };
        match self.select_ca(now) {
            Ok(ca) => decide(&request, &self.terms, &ca, now),
            Err(delay) => CsrDecision::Delayed(delay),
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

    /// Returns receivers that change when another CA may sign.
    fn changes(&self) -> impl Iterator<Item = watch::Receiver<u64>> {
        let of_rollout = self.rollout.as_ref().map(|rollout| rollout.changes());
        std::iter::once(self.ca.changes()).chain(of_rollout)
    }
}

async fn sign(client: Client, issuers: Vec<CsrIssuer>, clock: Clock, queue: WorkQueue<String>) -> Infallible {
    if issuers.is_empty() {
        return std::future::pending().await;
    }
    let queue = Arc::new(queue);
    let signing = Arc::new(CsrSigner {
        requests: PendingCsrs::default(),
        api: Api::all(client.clone()),
        events: EventRecorder::new(
            client.clone(),
            EventReporter::controller("csrsigning"),
            CONTROLLER_EVENT_LIMIT,
        ),
        issuers,
        clock,
    });
    let wanted = |request: &Csr| awaits_signer(request) && signing.issuer(request).is_some();
    let watch = csr::watch_csrs(client, &signing.requests, &queue, wanted);
    let wakers = signing.issuers.iter().flat_map(|each| {
        let wake =
            |changes| pending_requests::requeue_on_ca_change(&signing.requests, &each.name, changes, &queue);
        each.changes().map(wake)
    });
    let reconcile = |name: String| signing.clone().reconcile(name);
    tokio::join!(watch, join_all(wakers), run_workers(queue.clone(), WORKERS, reconcile)).0
}

struct CsrSigner {
    requests: PendingCsrs,
    api: Api<Csr>,
    events: EventRecorder,
    issuers: Vec<CsrIssuer>,
    clock: Clock,
}

impl CsrSigner {
    fn issuer(&self, request: &Csr) -> Option<&CsrIssuer> {
        self.issuers.iter().find(|each| each.name == request.spec.signer_name)
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
        let (counters, now) = (&issuer.counters, (self.clock)());
        let answer = issuer.decide(request, now);
        if answer != CsrDecision::Nothing {
            counters.requests.inc();
        }
        match answer {
            CsrDecision::Nothing => {}
            CsrDecision::Certificate(text) => {
                let mut answered = without_condition(request, DELAYED);
                let status = answered.status.get_or_insert_default();
                status.certificate = Some(ByteString(text.into_bytes()));
                self.write_status(&answered).await?;
                counters.count_issued(since.elapsed());
            }
            CsrDecision::Refused(message) => {
                let failed = true_condition(FAILED, "SignerValidationFailure", &message, now);
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
