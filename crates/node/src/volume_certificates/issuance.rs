//! Obtains one certificate: generates a key, submits a request and waits for the result.

use std::sync::Arc;

use aws_lc_rs::rand;
use time::OffsetDateTime;
use tokio::sync::mpsc::UnboundedSender;
use windlass_pki::{KeyType, PrivateKey};

use super::dispatcher::RequestId;
use super::host_request::{self, HostCertificateRequest};
use super::managed_certificate::{CertificateRequester, ManagedCertificate, PodRequester};
use super::state_file::{CertificateState, IssuedCertificate, PendingRequest};
use super::state_machine::{NOT_YET, RefusalKind, RenewalEvent, RenewalKey, RequestRefusal};
use super::{CertificateSubject, MISSING, VolumeCertificateManager};
use crate::csr::{CsrStage, CsrSubmitError};
use windlass_runtime::discovery::KindPresence;

/// One attempt to obtain a certificate.
pub struct CertificateIssuance {
    /// The manager whose client, limits and configuration are used.
    pub certificates: Arc<VolumeCertificateManager>,
    /// The certificate to obtain, with its subject and state file.
    pub source: Arc<ManagedCertificate>,
    /// The stored state at the start, including a pending request if any.
    pub kept: CertificateState,
    /// Whether to reuse the key of the pending request or generate one.
    pub key: RenewalKey,
    /// Channel that receives the progress of the attempt.
    pub progress: UnboundedSender<IssuanceProgress>,
}

/// Progress of an attempt to obtain a certificate.
pub enum IssuanceProgress {
    /// A request was prepared and saved to disk.
    Begun(Arc<PendingRequest>),
    /// An input for the `RenewalStateMachine` of this certificate.
    Event(RenewalEvent),
}

/// How one attempt to obtain a certificate ended.
pub enum IssuanceOutcome {
    /// The signer issued a certificate that matches the key.
    Issued {
        /// The new key and certificate chain, ready to serve.
        current: Arc<IssuedCertificate>,
        /// Whether the certificate was saved to disk.
        saved: bool,
    },
    /// The attempt failed; the event says how, and the request may be retried.
    Failed(RenewalEvent),
    /// Another object has the name of the request.
    Taken(RenewalEvent),
}

/// The final result of a PodCertificateRequest or CertificateSigningRequest.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestOutcome {
    /// The signer issued a certificate; it has not been validated yet.
    Issued {
        /// The certificate and its intermediates as PEM, leaf first.
        chain: String,
        /// When the signer wants it renewed; `None` if it does not say.
        begin: Option<OffsetDateTime>,
    },
    /// The request was denied or marked as failed.
    Refused {
        /// Whether an approver denied it or the signer failed it.
        by: RefusalKind,
        /// Reason and message of the condition, on one line.
        why: String,
    },
    /// The request no longer exists, for this reason.
    Gone(&'static str),
    /// The state of the request cannot be read from the server.
    Failed(String),
}

/// Why a request could not be submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct IssuanceError {
    /// The error message, without secrets, for events and logs.
    pub message: String,
    /// Whether a retry cannot help.
    pub lasting: bool,
    /// Whether another object has the name.
    pub taken: bool,
}

impl IssuanceError {
    /// Converts a submission error; `when` describes the failed step.
    pub fn from_submit_error(error: CsrSubmitError, when: &str) -> Self {
        let failure = Self::from(error);
        Self { message: format!("{when}: {}", failure.message), ..failure }
    }
}

impl From<CsrSubmitError> for IssuanceError {
    fn from(error: CsrSubmitError) -> Self {
        let lasting = match &error {
            CsrSubmitError::Api(kube::Error::Api(status)) => matches!(status.code, 400 | 422),
            CsrSubmitError::Unwritable(_) => true,
            CsrSubmitError::Incompatible { .. } | CsrSubmitError::Api(_) | CsrSubmitError::Silence => false,
        };
        Self { message: error.to_string(), lasting, taken: false }
    }
}

impl CertificateIssuance {
    /// Requests a certificate and waits for the result.
    pub async fn run(self) -> IssuanceOutcome {
        let obtained = match self.source.requester() {
            CertificateRequester::Pod(pod) => self.for_pod(pod).await,
            CertificateRequester::Host => self.for_host().await,
        };
        obtained.unwrap_or_else(|failure| {
            let IssuanceError { message, lasting, taken } = failure;
            let event = RenewalEvent::Failed { message, lasting };
            if taken { IssuanceOutcome::Taken(event) } else { IssuanceOutcome::Failed(event) }
        })
    }

    async fn for_pod(&self, pod: PodRequester<'_>) -> Result<IssuanceOutcome, IssuanceError> {
        let all = &self.certificates;
        let resource = self.wait_until_served().await;
        let turn = all.turns.acquire().await;
        let begun = self.begin("req-").await?;
        let id = RequestId { namespace: pod.namespace.to_owned(), name: begun.name.clone() };
        let mut listener = all.hub.subscribe(id);
        let asked = all.requests.submit(&resource, pod, &self.source.wanted.source, &begun).await?;
        drop(turn);
        self.report_event(RenewalEvent::Asked);
        let ended = all.requests.wait(&resource, pod, &asked, &mut listener).await;
        let request = format!("{}/{}", pod.namespace, begun.name);
        Ok(self.validate_outcome(ended, &begun, &format!("PodCertificateRequest {request:?}")).await)
    }

    async fn for_host(&self) -> Result<IssuanceOutcome, IssuanceError> {
        let setup = &self.certificates.setup;
        let CertificateSubject::Host { common_name, names } = &self.source.wanted.subject else {
            let message = "a host projection cannot have a pod certificate".to_owned();
            return Err(IssuanceError { message, lasting: true, taken: false });
        };
        let common_name = common_name.as_deref().unwrap_or(&setup.node);
        let (source, kind) = (&self.source.wanted.source, self.kind()?);
        let turn = self.certificates.turns.acquire().await;
        let begun = self.begin("host-csr-").await?;
        let host = HostCertificateRequest { common_name, names, source, kind };
        let asked = host.submit(&setup.client, &begun).await?;
        drop(turn);
        self.report_event(RenewalEvent::Asked);
        let which = format!("CertificateSigningRequest {:?}", begun.name);
        let waits = |stage: CsrStage| format!("{NOT_YET}: {which} is waiting {}", stage.text());
        let on = |stage| self.report_event(RenewalEvent::Hindered(waits(stage)));
        let ended = host_request::wait(&setup.client, &asked, on).await;
        Ok(self.validate_outcome(ended, &begun, &which).await)
    }

    /// Waits until the server serves PodCertificateRequests.
    async fn wait_until_served(&self) -> kube::core::ApiResource {
        let mut presence = self.certificates.presence.subscribe();
        loop {
            match presence.borrow_and_update().clone() {
                KindPresence::Served(resource) => return resource,
                KindPresence::NotServed => self.report_event(RenewalEvent::Hindered(MISSING.to_owned())),
                KindPresence::Unknown => {}
            }
            if presence.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Returns the pending request, or a new one that is saved to disk before it is submitted.
    async fn begin(&self, prefix: &str) -> Result<Arc<PendingRequest>, IssuanceError> {
        if let (RenewalKey::Begun, Some(begun)) = (self.key, &self.kept.begun) {
            return Ok(begun.clone());
        }
        let (kind, name) = (self.kind()?, name(prefix)?);
        let key = off_thread(move || PrivateKey::generate_type(kind)).await?;
        let key = key.map_err(|error| trouble(error.to_string()))?;
        let begun = Arc::new(PendingRequest { name, key });
        let kept = CertificateState { begun: Some(begun.clone()), ..self.kept.clone() };
        save(&self.certificates, &self.source, kept).await?;
        let _ = self.progress.send(IssuanceProgress::Begun(begun.clone()));
        Ok(begun)
    }

    fn kind(&self) -> Result<KeyType, IssuanceError> {
        let key_type = self.source.wanted.source.key_type.as_str();
        let known = KeyType::from_name(key_type).filter(|known| KeyType::POD_CERTIFICATE.contains(known));
        known.ok_or_else(|| {
            let message = format!("unknown key type {key_type:?}");
            IssuanceError { message, lasting: true, taken: false }
        })
    }

    async fn validate_outcome(
        &self,
        ended: RequestOutcome,
        begun: &PendingRequest,
        request: &str,
    ) -> IssuanceOutcome {
        let refused =
            |by, message| IssuanceOutcome::Failed(RenewalEvent::Refused(RequestRefusal { by, message }));
        let (chain, begin) = match ended {
            RequestOutcome::Issued { chain, begin } => (chain, begin),
            RequestOutcome::Refused { by: by @ RefusalKind::Denied, why } => {
                return refused(by, format!("{request} was denied: {why}"));
            }
            RequestOutcome::Refused { by: by @ RefusalKind::Failed, why } => {
                return refused(by, format!("{request} failed: {why}"));
            }
            RequestOutcome::Gone(why) => {
                return IssuanceOutcome::Failed(RenewalEvent::Gone(format!("{request}: {why}")));
            }
            RequestOutcome::Failed(message) => {
                return IssuanceOutcome::Failed(RenewalEvent::Failed { message, lasting: false });
            }
        };
        let (subject, now) = (&self.source.wanted.subject, (self.certificates.setup.clock)().wall);
        let current = match IssuedCertificate::issued(&begun.key, &chain, subject, begin, now) {
            Ok(current) => Arc::new(current),
            Err(why) => {
                let why = format!("the certificate issued for {request} is unusable: {why}");
                return refused(RefusalKind::Failed, why);
            }
        };
        let kept = CertificateState { current: Some(current.clone()), begun: None };
        let saved = save(&self.certificates, &self.source, kept).await;
        if let Err(failure) = &saved {
            let volume = self.source.id.volume.to_string();
            tracing::warn!(volume, error = failure.message, "cannot save a certificate");
        }
        IssuanceOutcome::Issued { current, saved: saved.is_ok() }
    }

    fn report_event(&self, event: RenewalEvent) {
        let _ = self.progress.send(IssuanceProgress::Event(event));
    }
}

/// Saves the state on a blocking thread.
pub async fn save(
    all: &VolumeCertificateManager,
    source: &Arc<ManagedCertificate>,
    kept: CertificateState,
) -> Result<(), IssuanceError> {
    let (files, source) = (all.setup.files.clone(), source.clone());
    let saved = off_thread(move || source.save(&files, &kept)).await?;
    saved.map_err(|error| trouble(error.to_string()))
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, IssuanceError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| trouble("the write to the disk panicked".into()))
}

fn trouble(message: String) -> IssuanceError {
    IssuanceError { message, lasting: false, taken: false }
}

/// Generates a unique request name.
fn name(prefix: &str) -> Result<String, IssuanceError> {
    // The alphabet of Kubernetes' generated names, which cannot form words.
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = [0; 20];
    rand::fill(&mut random).map_err(|_| trouble("the random number generator failed".into()))?;
    let letters = random.iter().filter_map(|byte| LETTERS.get(usize::from(*byte) % LETTERS.len()));
    Ok(prefix.chars().chain(letters.map(|letter| char::from(*letter))).collect())
}
