//! One certificate that is wanted: for whom, where it is kept, and what is shown of it.

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

/// A certificate that is wanted.
pub struct ManagedCertificate {
    /// Identifies the volume source that this certificate belongs to.
    pub id: SourceId,
    /// What it is to be.
    pub wanted: CertificateSpec,
    /// The state file that holds its key and chain over restarts.
    pub place: StateFile,
    /// Whether it is over. Whoever writes holds it.
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
    /// Who refused it, if that is why.
    pub refuser: Option<RefusalKind>,
    /// Whether it is not asked for at all.
    pub off: bool,
}

/// Who is to have it.
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
    /// UID of the pod, which tells it from a namesake.
    pub uid: &'a str,
    /// Name of the service account that the pod runs as.
    pub service_account: &'a str,
}

impl ManagedCertificate {
    /// One of which this is shown at first.
    pub fn new(
        id: SourceId,
        wanted: CertificateSpec,
        place: StateFile,
        shown: PublishedCertificate,
    ) -> Self {
        let (over, task) = (Mutex::new(false), Mutex::new(None));
        Self { id, wanted, place, over, published: Mutex::new(shown), task }
    }

    /// Who is to have it.
    pub fn requester(&self) -> CertificateRequester<'_> {
        match (&self.wanted.subject, &self.id.volume.owner) {
            (
                CertificateSubject::Pod { service_account },
                VolumeOwner::Pod { namespace, name, uid },
            ) => CertificateRequester::Pod(PodRequester { namespace, name, uid, service_account }),
            (CertificateSubject::Pod { .. }, VolumeOwner::Host)
            | (CertificateSubject::Host { .. }, _) => CertificateRequester::Host,
        }
    }

    /// The certificate and its key.
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

    /// Shows this from now on, and says whether [`Self::get`] answers something else than before.
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

    /// The state that kubelet would count it under, if it would.
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

    /// Writes what is to outlive the process, unless it is over.
    pub fn save(&self, files: &FileSystem, kept: &CertificateState) -> Result<(), DiskError> {
        let over = lock(&self.over);
        if *over { Ok(()) } else { self.place.save(files, kept) }
    }

    /// This is what keeps it good, unless it is over.
    pub fn begin(&self, begin: impl FnOnce() -> AbortHandle) {
        let over = lock(&self.over);
        if !*over {
            *lock(&self.task) = Some(begin());
        }
    }

    /// It is not wanted any more: nothing is asked for or written from now on.
    pub fn end(&self) {
        *lock(&self.over) = true;
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }

    /// Forgets it, keys and all.
    pub fn forget(&self, files: &FileSystem) {
        self.end();
        if let Err(error) = self.place.remove(files) {
            tracing::warn!(volume = %self.id.volume, %error, "cannot remove the state of a certificate");
        }
    }
}

/// Whatever a thread that broke down has left is whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
