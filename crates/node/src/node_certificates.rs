//! Obtains and rotates one certificate of the node.
//!
//! [`state_machine`] decides; this module performs. All users of the certificate get it from
//! [`NodeCertificateManager::current`].

pub mod report;
pub mod state_machine;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::{broadcast, mpsc, watch};
use windlass_pki::{PrivateKey, PublicKey, parse_certificate_blocks};

use crate::cert_store::{CertStore, CertStoreError, LoadedKeyPair};
use crate::clock::{self, Clock};
use crate::credential_monitor::RejectionReceiver;
use crate::csr::{self, CsrOutcome, CsrSubmitError, PATIENCE};
use crate::key_pair::{CertificateKeyPair, KeyPairError};
use crate::sources::bundles::BundleView;
use crate::template::{CertificatePurpose, CertificateTemplate};
use crate::volume::tainted_authority::{TaintedAuthorities, renewal_of};
use windlass_runtime::durable::DiskError;

use state_machine::{RotationAction, RotationEvent, RotationKey, RotationStateMachine};

pub use crate::renewal::RetryPolicy;
pub use report::{
    CertificateFailure, CurrentCertificateReport, FailureCause, ManagerActivity, NodeCertificateReport,
    RotationNotice,
};
pub use state_machine::RequesterCredential;

/// Creates a client for a credential, or returns why it cannot, for operators.
pub type ClientFactory =
    Arc<dyn Fn(RequesterCredential) -> BoxFuture<'static, Result<Client, String>> + Send + Sync>;

/// Returns random numbers from 0 to 1.
pub type RandomSource = Arc<dyn Fn() -> f64 + Send + Sync>;

/// Configuration and dependencies of a certificate manager.
#[derive(Clone)]
pub struct NodeCertificateConfig {
    /// What the certificate is for: client or serving.
    pub purpose: CertificatePurpose,
    /// The certificate store that holds the certificate and its pending key.
    pub store: CertStore,
    /// Required content; nothing is requested while this is `None`.
    pub templates: watch::Receiver<Option<CertificateTemplate>>,
    /// Creates API clients for the node's or the bootstrap credential.
    pub clients: ClientFactory,
    /// Whether the server rejects the client certificate; not used for serving certificates.
    pub rejections: RejectionReceiver,
    /// ClusterTrustBundles, which say which authorities of the signer are tainted.
    pub bundles: watch::Receiver<Arc<BundleView>>,
    /// Source of wall-clock time for rotation and monotonic time for retries.
    pub clock: Clock,
    /// Random numbers that spread the requests of nodes started together.
    pub random: RandomSource,
    /// Retry delays and request limits.
    pub pace: RetryPolicy,
}

/// Obtains and rotates one certificate while `run` is running.
pub struct NodeCertificateManager {
    setup: NodeCertificateConfig,
    /// Taken by the first call of `run`.
    machine: Mutex<Option<RotationStateMachine>>,
    current: watch::Sender<Option<Arc<CertificateKeyPair>>>,
    report: watch::Sender<NodeCertificateReport>,
    notices: broadcast::Sender<RotationNotice>,
}

/// Remedy for a rejected bootstrap credential.
const NEW_TOKEN: &str = "; the bootstrap token has expired or was deleted: create one with \
                         windlass token create and put it into the bootstrap kubeconfig";

/// Capacity of the notice channel for slow receivers.
const NOTICES: usize = 64;

impl NodeCertificateManager {
    /// Starts from the loaded certificate. Nothing is requested before `run`.
    pub fn new(setup: NodeCertificateConfig, loaded: LoadedKeyPair) -> Self {
        let found = loaded.identity.map(Arc::new);
        let random = (setup.random)();
        let (purpose, pace) = (setup.purpose, setup.pace);
        let machine = RotationStateMachine::new(purpose, pace, found.clone(), loaded.warnings, random);
        Self {
            report: watch::Sender::new(machine.report()),
            current: watch::Sender::new(found),
            notices: broadcast::Sender::new(NOTICES),
            machine: Mutex::new(Some(machine)),
            setup,
        }
    }

    /// Returns the certificate to use, updated on rotation. It may have expired: the verifier's
    /// clock decides.
    pub fn current(&self) -> watch::Receiver<Option<Arc<CertificateKeyPair>>> {
        self.current.subscribe()
    }

    /// Returns the current certificate, activity and last failure.
    pub fn report(&self) -> NodeCertificateReport {
        self.report.borrow().clone()
    }

    /// Returns the report, updated on every change.
    pub fn reports(&self) -> watch::Receiver<NodeCertificateReport> {
        self.report.subscribe()
    }

    /// Subscribes to the notices that are reported as events.
    pub fn notices(&self) -> broadcast::Receiver<RotationNotice> {
        self.notices.subscribe()
    }

    /// Waits until there is an unexpired certificate. On timeout, returns the report with the
    /// reason.
    pub async fn ready(&self, patience: Duration) -> Result<Arc<CertificateKeyPair>, NodeCertificateReport> {
        let mut current = self.current();
        let good = |held: &Option<Arc<CertificateKeyPair>>| {
            held.as_ref().is_some_and(|held| held.is_valid_at((self.setup.clock)().wall))
        };
        let found = tokio::time::timeout(patience, current.wait_for(good)).await;
        let found = found.ok().and_then(Result::ok).and_then(|held| held.clone());
        found.ok_or_else(|| self.report())
    }

    /// Performs the actions until shutdown. Runs once: a second call returns at once.
    pub async fn run(&self, mut shutdown: watch::Receiver<bool>) {
        let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(machine) = machine else { return };
        let (progress, job_events) = mpsc::unbounded_channel();
        let judged = None;
        let mut driver =
            NodeCertificateDriver { manager: self, machine, job: None, progress, job_events, judged };
        tokio::select! {
            () = driver.drive() => {}
            _ = shutdown.wait_for(|down| *down) => {}
        }
    }

    fn publish(&self, identity: Arc<CertificateKeyPair>) {
        self.current.send_replace(Some(identity));
    }
}

struct NodeCertificateDriver<'a> {
    manager: &'a NodeCertificateManager,
    machine: RotationStateMachine,
    job: Option<BoxFuture<'static, RotationEvent>>,
    /// Receives the progress of the job.
    progress: mpsc::UnboundedSender<RotationEvent>,
    job_events: mpsc::UnboundedReceiver<RotationEvent>,
    /// The certificate and the tainted authorities that were checked last.
    judged: Option<(Arc<CertificateKeyPair>, TaintedAuthorities)>,
}

impl NodeCertificateDriver<'_> {
    async fn drive(&mut self) {
        let mut templates = self.manager.setup.templates.clone();
        let first = templates.borrow_and_update().clone();
        self.step(RotationEvent::Template(first));
        self.step(RotationEvent::Tick);
        let mut rejections = self.manager.setup.rejections.clone();
        let mut bundles = self.manager.setup.bundles.clone();
        let mut has_bundles = true;
        let mut has_templates = true;
        let mut has_rejections = self.manager.setup.purpose == CertificatePurpose::Client;
        loop {
            self.check_authority();
            let pause = self.machine.idle_for((self.manager.setup.clock)());
            let event = tokio::select! {
                // Progress of a job is handled before its result.
                biased;
                Some(event) = self.job_events.recv() => event,
                event = await_job(&mut self.job) => {
                    self.job = None;
                    event
                }
                changed = templates.changed(), if has_templates => {
                    has_templates = changed.is_ok();
                    RotationEvent::Template(templates.borrow_and_update().clone())
                }
                changed = rejections.changed(), if has_rejections => {
                    has_rejections = changed.is_ok();
                    RotationEvent::Rejection(rejections.borrow_and_update().clone())
                }
                changed = bundles.changed(), if has_bundles => {
                    has_bundles = changed.is_ok();
                    RotationEvent::Tick
                }
                () = tokio::time::sleep(pause) => RotationEvent::Tick,
            };
            self.step(event);
        }
    }

    /// Checks whether the authority of the certificate is tainted, once for each certificate and set of authorities.
    fn check_authority(&mut self) {
        let Some(current) = self.manager.current.borrow().clone() else { return };
        let setup = &self.manager.setup;
        let taints = setup.bundles.borrow().taints(setup.purpose.signer());
        if let Some((certificate, tainted)) = &self.judged
            && Arc::ptr_eq(certificate, &current)
            && *tainted == taints
        {
            return;
        }
        let renewal = renewal_of(current.leaf(), &taints);
        if let Some(at) = renewal.map(clock::text) {
            let certificate = setup.purpose.prefix();
            tracing::info!(certificate, at, "certificate was issued by a tainted authority; renewing it");
        }
        self.judged = Some((current, taints));
        self.step(RotationEvent::Tainted(renewal));
    }

    fn step(&mut self, event: RotationEvent) {
        let setup = &self.manager.setup;
        let actions = self.machine.step(event, (setup.clock)(), (setup.random)());
        for action in actions {
            self.perform(action);
        }
        let report = self.machine.report();
        self.manager.report.send_if_modified(|before| {
            let changed = *before != report;
            *before = report;
            changed
        });
    }

    fn perform(&mut self, action: RotationAction) {
        let setup = self.manager.setup.clone();
        match action {
            RotationAction::Obtain { key, credential, template } => {
                let holds = self.manager.current.borrow().clone();
                let request = RotationRequest { setup, holds, progress: self.progress.clone() };
                self.job = Some(request.obtain(key, credential, template).boxed());
            }
            RotationAction::Cancel => {
                self.job = None;
                while self.job_events.try_recv().is_ok() {}
            }
            RotationAction::Store(identity) => self.job = Some(store(setup, identity).boxed()),
            RotationAction::Publish(identity) => self.manager.publish(identity),
            RotationAction::Notify(notice) => {
                log(setup.purpose, &notice);
                // There may be no receiver.
                let _ = self.manager.notices.send(notice);
            }
        }
    }
}

/// Waits for the result of the job; pending if there is none.
async fn await_job(job: &mut Option<BoxFuture<'static, RotationEvent>>) -> RotationEvent {
    match job {
        Some(job) => Pin::new(job).await,
        None => std::future::pending().await,
    }
}

fn log(purpose: CertificatePurpose, notice: &RotationNotice) {
    let certificate = purpose.prefix();
    match notice {
        RotationNotice::Stored { expires, .. } => {
            let expires = clock::text(*expires);
            tracing::info!(certificate, expires, "stored a new certificate");
        }
        RotationNotice::Replaced { serial } => {
            tracing::warn!(certificate, serial, "replaced the certificate that the server rejected");
        }
        RotationNotice::Failed(trouble) => {
            let reason = trouble.cause.reason();
            tracing::warn!(certificate, reason, "{}", trouble.message);
        }
    }
}

async fn store(setup: NodeCertificateConfig, identity: Arc<CertificateKeyPair>) -> RotationEvent {
    let now = (setup.clock)().wall;
    match off_thread(move || setup.store.save(&identity, now)).await {
        Ok(()) => RotationEvent::Stored,
        Err(trouble) => RotationEvent::Failed(trouble),
    }
}

struct RotationRequest {
    setup: NodeCertificateConfig,
    holds: Option<Arc<CertificateKeyPair>>,
    progress: mpsc::UnboundedSender<RotationEvent>,
}

impl RotationRequest {
    async fn obtain(
        self,
        key: RotationKey,
        credential: RequesterCredential,
        template: CertificateTemplate,
    ) -> RotationEvent {
        match self.try_to_obtain(key, credential, &template).await {
            Ok(identity) => RotationEvent::Issued(Arc::new(identity)),
            Err(mut trouble) => {
                if (trouble.cause, credential) == (FailureCause::Unauthorized, RequesterCredential::Bootstrap)
                {
                    trouble.message.push_str(NEW_TOKEN);
                }
                RotationEvent::Failed(trouble)
            }
        }
    }

    async fn try_to_obtain(
        &self,
        key: RotationKey,
        credential: RequesterCredential,
        template: &CertificateTemplate,
    ) -> Result<CertificateKeyPair, CertificateFailure> {
        let (purpose, now) = (self.setup.purpose, (self.setup.clock)().wall);
        let key = self.load_key(key).await?;
        let client = tokio::time::timeout(PATIENCE, (self.setup.clients)(credential)).await;
        let client = client.unwrap_or_else(|_| Err(format!("no credential after {PATIENCE:?}")));
        let client = client.map_err(|why| trouble(FailureCause::NoCredential, why))?;
        let asked = csr::submit(&client, purpose, template, &key, now).await?;
        let _ = self.progress.send(RotationEvent::Asked(asked.name.clone()));
        tracing::debug!(certificate = purpose.prefix(), request = asked.name, "submitted request");
        let stage = |stage| drop(self.progress.send(RotationEvent::Stage(stage)));
        let outcome = csr::wait_for_completion(&client, &asked, self.setup.pace.patience, stage).await;
        key_pair_from_outcome(outcome, &asked.name, key)
    }

    async fn load_key(&self, key: RotationKey) -> Result<PrivateKey, CertificateFailure> {
        let (store, now) = (self.setup.store.clone(), (self.setup.clock)().wall);
        let holds: Option<PublicKey> = self.holds.as_ref().map(|held| held.key().public_key().clone());
        off_thread(move || match key {
            RotationKey::Kept => store.load_or_create_key(holds.as_ref(), now),
            RotationKey::Fresh => store.new_key(),
        })
        .await
    }
}

/// Converts the outcome of a request to a key pair.
fn key_pair_from_outcome(
    outcome: CsrOutcome,
    name: &str,
    key: PrivateKey,
) -> Result<CertificateKeyPair, CertificateFailure> {
    let (cause, message) = match outcome {
        CsrOutcome::Issued(text) => {
            let chain = parse_certificate_blocks(&text).map_err(KeyPairError::from);
            let identity = chain.and_then(|chain| CertificateKeyPair::new(chain, key));
            let bad = |error| format!("the certificate issued for {name} is unusable: {error}");
            return identity.map_err(|error| trouble(FailureCause::BadCertificate, bad(error)));
        }
        CsrOutcome::Denied(why) => (FailureCause::RequestDenied, format!("{name} was denied: {why}")),
        CsrOutcome::Failed(why) => {
            (FailureCause::RequestFailed, format!("the signer rejected {name}: {why}"))
        }
        CsrOutcome::Gone(why) => (FailureCause::RequestGone, format!("{name} is gone: {why}")),
        CsrOutcome::Unauthorized(why) => (FailureCause::Unauthorized, why),
        CsrOutcome::TimedOut(stage) => {
            (FailureCause::NotDecided, format!("{name} is still waiting {}", stage.text()))
        }
    };
    Err(trouble(cause, message))
}

/// Runs blocking disk access on another thread.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CertStoreError> + Send + 'static,
) -> Result<T, CertificateFailure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(trouble(FailureCause::DiskFailed, "the write to the disk panicked".into())),
    }
}

fn trouble(cause: FailureCause, message: String) -> CertificateFailure {
    CertificateFailure { cause, message }
}

impl From<CertStoreError> for CertificateFailure {
    fn from(error: CertStoreError) -> Self {
        let cause = match &error {
            CertStoreError::Disk(disk) if DiskError::is_full(disk) => FailureCause::DiskFull,
            CertStoreError::Disk(_) | CertStoreError::Key(_) => FailureCause::DiskFailed,
        };
        trouble(cause, error.to_string())
    }
}

impl From<CsrSubmitError> for CertificateFailure {
    fn from(error: CsrSubmitError) -> Self {
        let cause = match &error {
            CsrSubmitError::Incompatible { .. } => FailureCause::RequestTaken,
            CsrSubmitError::Unwritable(_) => FailureCause::Unwritable,
            CsrSubmitError::Silence => FailureCause::Unreachable,
            CsrSubmitError::Api(kube::Error::Api(status)) => match status.code {
                401 => FailureCause::Unauthorized,
                403 => FailureCause::Forbidden,
                404 => FailureCause::NotServed,
                // A retry would be rejected as well.
                400 | 422 => FailureCause::Unwritable,
                _ => FailureCause::ServerError,
            },
            CsrSubmitError::Api(_) => FailureCause::Unreachable,
        };
        trouble(cause, error.to_string())
    }
}

#[cfg(test)]
mod tests;
