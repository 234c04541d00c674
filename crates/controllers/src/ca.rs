//! A signer's certificate and key: read from two files, followed as these change, never worse than
//! the last good pair.
//!
//! The files are replaced one after the other and sometimes badly, so what they hold is looked at
//! as a whole: one certificate that may sign, is valid now and belongs to the key, and behind it,
//! where that is allowed, those that vouch for it. Anything else is reported and leaves the pair in
//! use as it is. If there is none yet, the signer is degraded until the files are good: its requests
//! stay pending with the reason, and all other signers work.

mod metrics;
pub mod self_signed;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use time::OffsetDateTime;
use tokio::sync::watch;
use windlass_pki::limits::MAX_PEM_BYTES;
use windlass_pki::{Certificate, CertificateAuthority, Validity};
use windlass_runtime::file_watch::{FileReadError, FileWatchTiming, FileWatcher, read_limited};

use crate::options::Clock;

pub(crate) use metrics::CaMetrics;

/// The reason that requests give while their signer has no CA to sign with.
pub const UNAVAILABLE: &str = "SignerUnavailable";

/// Interval between checks of the validity: a CA expires, or becomes valid, without a change of its files.
const VALIDITY_CHECK: Duration = Duration::from_secs(10);

/// What a signer signs with: a certificate and its key, and who vouches for it.
#[derive(Debug)]
pub struct SigningCa {
    authority: CertificateAuthority,
    issuers: Vec<Certificate>,
}

impl SigningCa {
    /// The CA certificate and private key that sign.
    pub fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    /// The certificate of who signs.
    pub fn certificate(&self) -> &Certificate {
        self.authority.certificate()
    }

    /// What is sent along with what it issues, in order: itself and those that vouch for it, but
    /// none that vouches for itself, as whoever verifies has that or does not trust it.
    pub fn intermediates(&self) -> impl Iterator<Item = &Certificate> {
        self.full_chain().filter(|certificate| !certificate.is_self_signed())
    }

    /// What others have to trust: who vouches for all, if that is known, or else itself.
    pub fn anchor(&self) -> &Certificate {
        let last = self.full_chain().last();
        last.filter(|last| last.is_self_signed()).unwrap_or_else(|| self.certificate())
    }

    /// When it is valid, until it or one that vouches for it ends: nothing it issues lasts longer.
    pub fn validity(&self) -> Validity {
        let own = self.certificate().validity();
        let ends = self.full_chain().map(|each| each.validity().not_after()).min();
        Validity::new(own.not_before(), ends.unwrap_or(own.not_after())).unwrap_or(own)
    }

    fn full_chain(&self) -> impl Iterator<Item = &Certificate> {
        std::iter::once(self.certificate()).chain(&self.issuers)
    }

    fn is_same(&self, other: &SigningCa) -> bool {
        self.full_chain().map(Certificate::der).eq(other.full_chain().map(Certificate::der))
    }
}

impl From<CertificateAuthority> for SigningCa {
    /// One that nobody is known to vouch for.
    fn from(authority: CertificateAuthority) -> SigningCa {
        SigningCa { authority, issuers: Vec::new() }
    }
}

/// What the file of the certificate may hold.
#[derive(Clone, Copy, Debug)]
enum CertificateFileForm {
    /// One certificate, as kube-controller-manager wants it.
    One,
    /// And those that vouch for it, each for the one before.
    Chain,
}

/// A further condition on a CA, beside those that hold for all.
pub type CaCheck = Box<dyn Fn(&Certificate) -> Result<()> + Send + Sync>;

/// A certificate authority in two files.
pub struct CaSource {
    certificate: PathBuf,
    key: PathBuf,
    form: CertificateFileForm,
    check: Option<CaCheck>,
    clock: Clock,
    state: Mutex<CaState>,
    /// Held while the files are read, so that what was read first does not come in last.
    reading: Mutex<()>,
    accepted: watch::Sender<u64>,
}

struct CaState {
    /// Absent until the files were good for the first time.
    current: Option<Arc<SigningCa>>,
    problem: Option<CaError>,
}

/// Why the files of a CA cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CaError {
    /// For operators: with file names.
    detail: String,
    /// For requesters: without file names, which are the operator's business.
    cause: String,
}

impl CaSource {
    /// The CA in two files, which hold one certificate and its key. [`CaSource::watch`] follows
    /// them. Reads from disk: not for async code.
    pub fn from_files(certificate: PathBuf, key: PathBuf, clock: Clock) -> Arc<CaSource> {
        CaSource::open(certificate, key, CertificateFileForm::One, None, clock)
    }

    /// As [`CaSource::from_files`], for a CA that must also pass `check`.
    pub fn from_files_with_check(
        certificate: PathBuf,
        key: PathBuf,
        check: CaCheck,
        clock: Clock,
    ) -> Arc<CaSource> {
        CaSource::open(certificate, key, CertificateFileForm::One, Some(check), clock)
    }

    /// As [`CaSource::from_files`], where those that vouch for the certificate may follow it.
    pub fn from_chain_files(certificate: PathBuf, key: PathBuf, clock: Clock) -> Arc<CaSource> {
        CaSource::open(certificate, key, CertificateFileForm::Chain, None, clock)
    }

    fn open(
        certificate: PathBuf,
        key: PathBuf,
        form: CertificateFileForm,
        check: Option<CaCheck>,
        clock: Clock,
    ) -> Arc<CaSource> {
        let state = Mutex::new(CaState { current: None, problem: None });
        let (reading, accepted) = (Mutex::new(()), watch::Sender::new(0));
        let source = CaSource { certificate, key, form, check, clock, state, reading, accepted };
        source.reload();
        Arc::new(source)
    }

    /// The last good pair; `None` if the files were never good. It may have expired since: whoever
    /// signs looks at the time.
    pub fn current(&self) -> Option<Arc<SigningCa>> {
        self.lock().current.clone()
    }

    /// Why the files as they are now are not used, or that the pair in use has expired.
    pub fn error(&self) -> Option<String> {
        self.lock().problem.as_ref().map(|problem| problem.detail.clone())
    }

    /// What requesters are told while there is no pair to sign with.
    pub fn unavailable_message(&self) -> String {
        let state = self.lock();
        let cause = state.problem.as_ref().map_or("not read yet", |problem| &problem.cause);
        format!("the signer's CA cannot be used: {cause}")
    }

    /// The file of the certificate.
    pub fn certificate_file(&self) -> &Path {
        &self.certificate
    }

    /// Counts the pairs that were accepted, the first included.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.accepted.subscribe()
    }

    /// How long the certificate in use is still valid, in seconds; negative when it is not.
    pub fn seconds_until_expiry(&self) -> Option<i64> {
        let until = self.current()?.certificate().validity().not_after();
        Some((until - (self.clock)()).whole_seconds())
    }

    /// Reads the files once and uses them if they are good. Reads from disk: not for async code.
    pub fn reload(&self) {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        match self.load((self.clock)()) {
            Ok(ca) => self.accept(ca),
            Err(problem) => self.reject(problem),
        }
    }

    /// Reloads the files when they change, and checks from time to time whether the CA is still valid.
    pub async fn watch(self: Arc<Self>) -> Infallible {
        let files = [self.certificate.clone(), self.key.clone()];
        let mut watcher = FileWatcher::new(files, FileWatchTiming::default());
        loop {
            let source = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || source.reload()).await {
                tracing::error!(%error, file = %self.certificate.display(), "reload of the CA panicked");
            }
            // The result does not matter: both lead to a reload.
            let _ = tokio::time::timeout(VALIDITY_CHECK, watcher.changed()).await;
        }
    }

    /// What the files hold, if it may be used now.
    fn load(&self, now: OffsetDateTime) -> Result<SigningCa, CaError> {
        let (certificate, key) = (&self.certificate, &self.key);
        let unreadable = |error: FileReadError| CaError {
            detail: error.to_string(),
            cause: "its files cannot be read".to_owned(),
        };
        let read = |path: &Path| read_limited(path, MAX_PEM_BYTES).map_err(unreadable);
        let (text, secret) = (read(certificate)?, read(key)?);
        let ca = match self.form {
            CertificateFileForm::One => {
                CertificateAuthority::from_pem(&text, &secret).map(SigningCa::from)
            }
            CertificateFileForm::Chain => CertificateAuthority::from_chain_pem(&text, &secret)
                .map(|(authority, issuers)| SigningCa { authority, issuers }),
        };
        let ca = ca.map_err(|error| CaError {
            detail: format!("{} with {}: {error}", certificate.display(), key.display()),
            cause: error.to_string(),
        })?;
        let usable = ca.full_chain().try_for_each(|each| check_validity(each, now));
        let checked = || self.check.as_ref().map_or(Ok(()), |check| check(ca.certificate()));
        usable.and_then(|()| checked()).map_err(|error| CaError {
            detail: format!("{} {error:#}", certificate.display()),
            cause: format!("it {error:#}"),
        })?;
        Ok(ca)
    }

    fn accept(&self, ca: SigningCa) {
        let mut state = self.lock();
        let file = self.certificate.display();
        if state.problem.take().is_some() {
            tracing::info!(%file, "the CA's files are good again");
        }
        // The same certificate has the same key, however that is written.
        if state.current.as_ref().is_some_and(|current| current.is_same(&ca)) {
            return;
        }
        let until = ca.certificate().validity().not_after();
        if state.current.is_some() {
            tracing::info!(%file, %until, "accepted a new CA");
        }
        state.current = Some(Arc::new(ca));
        drop(state);
        self.accepted.send_modify(|count| *count += 1);
    }

    fn reject(&self, problem: CaError) {
        let mut state = self.lock();
        if state.problem.as_ref() == Some(&problem) {
            return;
        }
        let (file, detail) = (self.certificate.display(), &problem.detail);
        match state.current {
            Some(_) => {
                tracing::error!(%file, problem = detail, "CA files rejected; still signing with the previous CA");
            }
            None => {
                tracing::error!(%file, problem = detail, "CA files rejected; nothing is signed with them until they are replaced");
            }
        }
        state.problem = Some(problem);
    }

    fn lock(&self) -> MutexGuard<'_, CaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_validity(certificate: &Certificate, now: OffsetDateTime) -> Result<()> {
    let validity = certificate.validity();
    let (from, until) = (validity.not_before(), validity.not_after());
    ensure!(from <= now, "is not valid before {from}");
    ensure!(validity.contains(now), "expired at {until}");
    Ok(())
}

#[cfg(test)]
mod tests;
