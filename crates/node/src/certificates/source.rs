//! One certificate that is wanted: for whom, where it is kept, and what is shown of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use time::OffsetDateTime;
use tokio::task::AbortHandle;

use super::machine::Refuser;
use super::state::{Current, Kept, Place};
use super::times::Age;
use super::{Subject, Wanted};
use crate::files::{DiskError, Files};
use crate::volume::id::{Owner, SourceId};
use crate::volume::plan::{Credential, Obtained};

/// A certificate that is wanted.
pub struct Source {
    /// Which.
    pub id: SourceId,
    /// What it is to be.
    pub wanted: Wanted,
    /// Where it is kept.
    pub place: Place,
    /// Whether it is over. Whoever writes holds it.
    over: Mutex<bool>,
    shown: Mutex<Shown>,
    task: Mutex<Option<AbortHandle>>,
}

/// What others see.
#[derive(Clone, Default)]
pub struct Shown {
    /// What is served.
    pub current: Option<Arc<Current>>,
    /// Why there is nothing.
    pub why: String,
    /// Who refused it, if that is why.
    pub refuser: Option<Refuser>,
    /// Whether it is not asked for at all.
    pub off: bool,
}

/// Who is to have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Asker<'a> {
    /// A pod.
    Pod(Pod<'a>),
    /// The machine.
    Host,
}

/// A pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pod<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// As whom it runs.
    pub service_account: &'a str,
}

impl Source {
    /// One of which this is shown at first.
    pub fn new(id: SourceId, wanted: Wanted, place: Place, shown: Shown) -> Self {
        let (over, task) = (Mutex::new(false), Mutex::new(None));
        Self { id, wanted, place, over, shown: Mutex::new(shown), task }
    }

    /// Who is to have it.
    pub fn asker(&self) -> Asker<'_> {
        match (&self.wanted.subject, &self.id.volume.owner) {
            (Subject::Pod { service_account }, Owner::Pod { namespace, name, uid }) => {
                Asker::Pod(Pod { namespace, name, uid, service_account })
            }
            (Subject::Pod { .. }, Owner::Host) | (Subject::Host { .. }, _) => Asker::Host,
        }
    }

    /// The certificate and its key.
    pub fn get(&self) -> Obtained<Credential> {
        let shown = lock(&self.shown);
        match &shown.current {
            Some(current) if !shown.off => {
                Obtained::Is(Credential { key: current.key.clone(), chain: current.chain.clone() })
            }
            _ => Obtained::Not(shown.why.clone()),
        }
    }

    /// Shows this from now on, and says whether [`Self::get`] answers something else than before.
    pub fn show(&self, shown: Shown) -> bool {
        let mut before = lock(&self.shown);
        let same = match (&before.current, &shown.current) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) => before.why == shown.why,
            (Some(_), None) | (None, Some(_)) => false,
        };
        *before = shown;
        !same
    }

    /// The state that kubelet would count it under, if it would.
    pub fn state(&self, now: OffsetDateTime) -> Option<&'static str> {
        let shown = lock(&self.shown);
        if shown.off {
            return None;
        }
        let age = shown.current.as_ref().map(|current| current.times.age(now));
        Some(match (age, shown.refuser) {
            (Some(Age::Fresh), _) => "fresh",
            (Some(Age::Overdue), _) => "overdue_for_refresh",
            (Some(Age::Expired), _) => "expired",
            (None, Some(Refuser::Denied)) => "denied",
            (None, Some(Refuser::Failed)) => "failed",
            (None, None) => "not_yet_issued",
        })
    }

    /// Writes what is to outlive the process, unless it is over.
    pub fn save(&self, files: &Files, kept: &Kept) -> Result<(), DiskError> {
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
    pub fn forget(&self, files: &Files) {
        self.end();
        if let Err(error) = self.place.remove(files) {
            tracing::warn!(volume = %self.id.volume, %error, "cannot forget a certificate");
        }
    }
}

/// Whatever a thread that broke down has left is whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
