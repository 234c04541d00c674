//! One managed certificate: its subject, its state file and its published state.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use time::OffsetDateTime;
use tokio::task::AbortHandle;

use super::state_file::{CertificateState, IssuedCertificate, StateFile};
use super::state_machine::RefusalKind;
use super::{CertificateSpec, CertificateSubject};
use crate::renewal::CertificateAge;
use crate::volume::id::{SourceId, VolumeOwner};
use crate::volume::plan::{CredentialBundle, CredentialState};
use windlass_runtime::durable::{DiskError, FileSystem};

/// A certificate that the manager obtains and renews.
pub struct ManagedCertificate {
    /// Identifies the volume source that this certificate belongs to.
    pub id: SourceId,
    /// Definition of the certificate to obtain.
    pub wanted: CertificateSpec,
    /// The state file that holds its key and chain over restarts.
    pub place: StateFile,
    /// Whether management has ended. Locked while the state file is written.
    over: Mutex<bool>,
    published: Mutex<PublishedCertificate>,
    task: Mutex<Option<AbortHandle>>,
}

/// What the manager publishes of a certificate for volumes, metrics and pods.
#[derive(Clone, Default)]
pub struct PublishedCertificate {
    /// The key and chain to serve; `None` until one is issued.
    pub current: Option<Arc<IssuedCertificate>>,
    /// Why no certificate is available; empty if there is one.
    pub reason: String,
    /// Who refused it, if that is the reason.
    pub refuser: Option<RefusalKind>,
    /// Whether requests are turned off by a feature gate.
    pub off: bool,
}

/// The requester of a certificate: a pod or the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CertificateRequester<'a> {
    /// A pod, through a PodCertificateRequest in its namespace.
    Pod(PodRequester<'a>),
    /// The host, through a CertificateSigningRequest.
    Host,
}

/// The pod fields that a PodCertificateRequest must name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PodRequester<'a> {
    /// Namespace of the pod and of its request.
    pub namespace: &'a str,
    /// Name of the pod, as in `metadata.name`.
    pub name: &'a str,
    /// UID of the pod, which distinguishes it from another pod of the same name.
    pub uid: &'a str,
    /// Name of the service account that the pod runs as.
    pub service_account: &'a str,
}

impl ManagedCertificate {
    /// Creates a managed certificate with this published state.
    pub fn new(id: SourceId, wanted: CertificateSpec, place: StateFile, shown: PublishedCertificate) -> Self {
        let (over, task) = (Mutex::new(false), Mutex::new(None));
        Self { id, wanted, place, over, published: Mutex::new(shown), task }
    }

    /// Returns the pod or host that requests the certificate.
    pub fn requester(&self) -> CertificateRequester<'_> {
        match (&self.wanted.subject, &self.id.volume.owner) {
            (CertificateSubject::Pod { service_account }, VolumeOwner::Pod { namespace, name, uid }) => {
                CertificateRequester::Pod(PodRequester { namespace, name, uid, service_account })
            }
            (CertificateSubject::Pod { .. }, VolumeOwner::Host) | (CertificateSubject::Host { .. }, _) => {
                CertificateRequester::Host
            }
        }
    }

    /// Returns the certificate and its key, or why there is none.
    pub fn get(&self) -> CredentialState<CredentialBundle> {
        let shown = lock(&self.published);
        match &shown.current {
            Some(current) if !shown.off => CredentialState::Available(CredentialBundle {
                key: current.key.clone(),
                chain: current.chain.clone(),
            }),
            _ => CredentialState::Unavailable(shown.reason.clone()),
        }
    }

    /// Publishes a new state. Returns whether the result of [`Self::get`] changed.
    pub fn publish(&self, shown: PublishedCertificate) -> bool {
        let mut before = lock(&self.published);
        let same = match (&before.current, &shown.current) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) => before.reason == shown.reason,
            (Some(_), None) | (None, Some(_)) => false,
        };
        *before = shown;
        !same
    }

    /// Returns the state that kubelet's metric would count it under, if any.
    pub fn state(&self, now: OffsetDateTime) -> Option<&'static str> {
        let shown = lock(&self.published);
        if shown.off {
            return None;
        }
        let age = shown.current.as_ref().map(|current| current.times.age(now));
        Some(match (age, shown.refuser) {
            (Some(CertificateAge::Fresh), _) => "fresh",
            (Some(CertificateAge::Overdue), _) => "overdue_for_refresh",
            (Some(CertificateAge::Expired), _) => "expired",
            (None, Some(RefusalKind::Denied)) => "denied",
            (None, Some(RefusalKind::Failed)) => "failed",
            (None, None) => "not_yet_issued",
        })
    }

    /// Saves the state that survives restarts, unless management has ended.
    pub fn save(&self, files: &FileSystem, kept: &CertificateState) -> Result<(), DiskError> {
        let over = lock(&self.over);
        if *over { Ok(()) } else { self.place.save(files, kept) }
    }

    /// Starts the task that keeps it valid, unless management has ended.
    pub fn begin(&self, begin: impl FnOnce() -> AbortHandle) {
        let over = lock(&self.over);
        if !*over {
            *lock(&self.task) = Some(begin());
        }
    }

    /// Ends management: nothing is requested or written from now on.
    pub fn end(&self) {
        *lock(&self.over) = true;
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }

    /// Ends management and removes the state file with its keys.
    pub fn forget(&self, files: &FileSystem) {
        self.end();
        if let Err(error) = self.place.remove(files) {
            tracing::warn!(volume = %self.id.volume, %error, "cannot remove the state of a certificate");
        }
    }
}

/// Locks a mutex. Data of a panicked thread is consistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
