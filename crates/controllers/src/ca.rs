//! CA certificate and key of a signer, which are reloaded when they change. The last valid pair stays in use.
//!
//! They are in two files, or in a Secret (`secret`), with the key in a Secret or a PKCS#11 token. Files are replaced one after
//! the other and may be invalid in between, so certificate and key are validated together: a CA certificate that is valid now and matches the key, followed by its issuers where a chain is allowed. Anything else
//! is reported and leaves the pair in use. If there is none yet, the signer is degraded: its requests stay pending with
//! the reason, and all other signers work.

mod metrics;
pub mod secret;
pub mod self_signed;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use time::OffsetDateTime;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::watch;
use windlass_pki::limits::MAX_PEM_BYTES;
use windlass_pki::{CaKey, Certificate, CertificateAuthority, Validity};
use windlass_runtime::file_watch::{FileReadError, FileWatchTiming, FileWatcher, read_limited};

use crate::options::Clock;

pub(crate) use metrics::CaMetrics;
pub use secret::{CaContext, SecretCa, SecretCaKind};

/// Reason of the condition on requests while their signer has no usable CA.
pub const UNAVAILABLE: &str = "SignerUnavailable";

/// Interval between checks of the validity: a CA expires, or becomes valid, without a change of its files.
const VALIDITY_CHECK: Duration = Duration::from_secs(10);

/// CA certificate and key of a signer, with the certificates of its issuers.
#[derive(Debug)]
pub struct SigningCa {
    authority: CertificateAuthority,
    issuers: Vec<Certificate>,
}

impl SigningCa {
    /// Returns certificate and private key of the CA.
    pub fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    /// Returns the certificate of the CA.
    pub fn certificate(&self) -> &Certificate {
        self.authority.certificate()
    }

    /// Runs a function that signs with the key of the CA. A key in a token may block for seconds, so other tasks of this
    /// thread move to another one meanwhile.
    pub fn run_signing<T>(&self, sign: impl FnOnce() -> T) -> T {
        let is_parallel =
            Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        match self.authority.key() {
            CaKey::External(_) if is_parallel => tokio::task::block_in_place(sign),
            _ => sign(),
        }
    }

    /// Lists the intermediates that follow an issued leaf, in order: the CA and its issuers, without self-signed
    /// certificates, which verifiers have or do not trust.
    pub fn intermediates(&self) -> impl Iterator<Item = &Certificate> {
        self.full_chain().filter(|certificate| !certificate.is_self_signed())
    }

    /// Returns the trust anchor: the root if it is part of the chain, and the CA itself otherwise.
    pub fn anchor(&self) -> &Certificate {
        let last = self.full_chain().last();
        last.filter(|last| last.is_self_signed()).unwrap_or_else(|| self.certificate())
    }

    /// Returns the time in which the whole chain is valid. No issued certificate lasts longer.
    pub fn validity(&self) -> Validity {
        let own = self.certificate().validity();
        let ends = self.full_chain().map(|each| each.validity().not_after()).min();
        Validity::new(own.not_before(), ends.unwrap_or(own.not_after())).unwrap_or(own)
    }

    fn full_chain(&self) -> impl Iterator<Item = &Certificate> {
        std::iter::once(self.certificate()).chain(&self.issuers)
    }

    /// Whether the other one has the same certificates.
    pub(crate) fn is_same(&self, other: &SigningCa) -> bool {
        self.full_chain().map(Certificate::der).eq(other.full_chain().map(Certificate::der))
    }
}

impl From<CertificateAuthority> for SigningCa {
    /// Creates a CA without issuers.
    fn from(authority: CertificateAuthority) -> SigningCa {
        SigningCa { authority, issuers: Vec::new() }
    }
}

/// Allowed content of the certificate file.
#[derive(Clone, Copy, Debug)]
enum CertificateFileForm {
    /// One certificate, as kube-controller-manager requires.
    One,
    /// A chain, in which each certificate is the issuer of the one before.
    Chain,
}

/// Additional check of a CA certificate.
pub type CaCheck = Box<dyn Fn(&Certificate) -> Result<()> + Send + Sync>;

/// Certificate and key files of a CA.
struct CaFilePair {
    certificate: PathBuf,
    key: PathBuf,
    form: CertificateFileForm,
    check: Option<CaCheck>,
}

/// Where a CA is loaded from.
enum CaLoader {
    /// Certificate and key files of this machine.
    Files(CaFilePair),
    /// A Secret of the API.
    Secret(SecretCa),
    /// Nowhere: the configuration names no CA that exists, for the reason of the source's error.
    Missing,
}

/// A CA and where it is loaded from, with the last valid pair of certificate and key.
pub struct CaSource {
    loader: CaLoader,
    clock: Clock,
    state: Mutex<CaState>,
    /// Held while the files are read, so that an older read does not replace a newer one.
    reading: Mutex<()>,
    accepted: watch::Sender<u64>,
    /// Whether a generated CA is to be replaced by a rotation.
    is_renewal_due: AtomicBool,
}

struct CaState {
    /// `None` until the pair was valid for the first time.
    current: Option<Arc<SigningCa>>,
    /// The CA that a rotation has replaced, until its key is destroyed.
    previous: Option<Arc<SigningCa>>,
    problem: Option<CaError>,
}

/// Reason for which a CA is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CaError {
    /// Text for operators, with the names of files and objects.
    pub(crate) detail: String,
    /// Text for requesters, without these names, which do not concern them.
    cause: String,
}

impl CaSource {
    /// Opens a CA certificate and its key. [`CaSource::watch`] reloads them. Reads from disk: do not call it in async
    /// code.
    pub fn from_files(certificate: PathBuf, key: PathBuf, clock: Clock) -> Arc<CaSource> {
        CaSource::open(CaFilePair { certificate, key, form: CertificateFileForm::One, check: None }, clock)
    }

    /// Like [`CaSource::from_files`], but the CA must also pass `check`.
    pub fn from_files_with_check(
        certificate: PathBuf,
        key: PathBuf,
        check: CaCheck,
        clock: Clock,
    ) -> Arc<CaSource> {
        CaSource::open(
            CaFilePair { certificate, key, form: CertificateFileForm::One, check: Some(check) },
            clock,
        )
    }

    /// As [`CaSource::from_files`], for a certificate file that may hold a chain.
    pub fn from_chain_files(certificate: PathBuf, key: PathBuf, clock: Clock) -> Arc<CaSource> {
        CaSource::open(CaFilePair { certificate, key, form: CertificateFileForm::Chain, check: None }, clock)
    }

    /// Creates the source of a CA in a Secret. It has no CA until [`CaSource::run`] has read the Secret.
    pub fn from_secret(secret: SecretCa, clock: Clock) -> Arc<CaSource> {
        Arc::new(CaSource::new(CaLoader::Secret(secret), clock))
    }

    /// Creates a source without a CA, for a configuration that names none that exists.
    pub fn missing(reason: &str, clock: Clock) -> Arc<CaSource> {
        let source = CaSource::new(CaLoader::Missing, clock);
        source.reject(CaError { detail: reason.to_owned(), cause: reason.to_owned() });
        Arc::new(source)
    }

    fn open(files: CaFilePair, clock: Clock) -> Arc<CaSource> {
        let source = CaSource::new(CaLoader::Files(files), clock);
        source.reload();
        Arc::new(source)
    }

    fn new(loader: CaLoader, clock: Clock) -> CaSource {
        let state = Mutex::new(CaState { current: None, previous: None, problem: None });
        let (reading, accepted) = (Mutex::new(()), watch::Sender::new(0));
        CaSource { loader, clock, state, reading, accepted, is_renewal_due: AtomicBool::new(false) }
    }

    /// Returns the Secret of the CA; `None` if it is not in one.
    pub(crate) fn secret(&self) -> Option<&SecretCa> {
        match &self.loader {
            CaLoader::Secret(secret) => Some(secret),
            CaLoader::Files(_) | CaLoader::Missing => None,
        }
    }

    /// Whether the controllers generate the CA and keep it in a Secret with slots.
    pub(crate) fn is_generated(&self) -> bool {
        self.secret().is_some_and(SecretCa::is_generated)
    }

    /// Whether a generated CA is to be replaced, which a rotation does.
    pub(crate) fn is_renewal_due(&self) -> bool {
        self.is_renewal_due.load(Ordering::Relaxed)
    }

    /// Sets whether a rotation is to replace the CA; notifies as a change of the CA does.
    fn set_renewal_due(&self, due: bool) {
        if self.is_renewal_due.swap(due, Ordering::Relaxed) != due {
            self.accepted.send_modify(|count| *count += 1);
        }
    }

    /// Returns the last valid pair; `None` if there never was one. It may have expired since: check the time before
    /// signing.
    pub fn current(&self) -> Option<Arc<SigningCa>> {
        self.lock().current.clone()
    }

    /// Returns the generated CA that a rotation has replaced, until its key is destroyed. It signs revocation lists only.
    pub(crate) fn previous(&self) -> Option<Arc<SigningCa>> {
        self.lock().previous.clone()
    }

    fn set_previous(&self, previous: Option<SigningCa>) {
        self.lock().previous = previous.map(Arc::new);
    }

    /// Returns why the present certificate and key are rejected, or that the pair in use has expired.
    pub fn error(&self) -> Option<String> {
        self.lock().problem.as_ref().map(|problem| problem.detail.clone())
    }

    /// Returns the message for requesters while there is no usable pair.
    pub fn unavailable_message(&self) -> String {
        let state = self.lock();
        let cause = state.problem.as_ref().map_or("not read yet", |problem| &problem.cause);
        format!("the signer's CA cannot be used: {cause}")
    }

    /// Returns the path of the certificate file; `None` if the CA is not in files.
    pub fn certificate_file(&self) -> Option<&Path> {
        match &self.loader {
            CaLoader::Files(files) => Some(&files.certificate),
            CaLoader::Secret(_) | CaLoader::Missing => None,
        }
    }

    /// Returns a receiver of the number of accepted pairs, including the first.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.accepted.subscribe()
    }

    /// Returns the seconds until the CA certificate expires; negative after that.
    pub fn seconds_until_expiry(&self) -> Option<i64> {
        let until = self.current()?.certificate().validity().not_after();
        Some((until - (self.clock)()).whole_seconds())
    }

    /// Returns the seconds from the beginning of the CA certificate's validity to its end.
    pub fn lifetime_seconds(&self) -> Option<i64> {
        let validity = self.current()?.certificate().validity();
        Some((validity.not_after() - validity.not_before()).whole_seconds())
    }

    /// Reads the files and uses them if they are valid. Reads from disk: do not call it in async code. Does nothing
    /// for a CA that is not in files.
    pub fn reload(&self) {
        let CaLoader::Files(files) = &self.loader else { return };
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        self.update(files.load((self.clock)()));
    }

    /// Keeps the CA current: reloads it when it changes, and generates or renews it if the source does that.
    pub async fn run(self: Arc<Self>, context: CaContext) -> Infallible {
        match &self.loader {
            CaLoader::Files(_) => self.clone().watch().await,
            CaLoader::Secret(secret) => secret::run(&self, secret, context).await,
            CaLoader::Missing => std::future::pending().await,
        }
    }

    /// Reloads the files when they change, and checks from time to time whether the CA is still valid. Waits forever
    /// for a CA that is not in files.
    pub async fn watch(self: Arc<Self>) -> Infallible {
        let CaLoader::Files(files) = &self.loader else { return std::future::pending().await };
        let paths = [files.certificate.clone(), files.key.clone()];
        let mut watcher = FileWatcher::new(paths, FileWatchTiming::default());
        loop {
            let source = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || source.reload()).await {
                tracing::error!(%error, file = %files.certificate.display(), "reload of the CA panicked");
            }
            // The result does not matter: both lead to a reload.
            let _ = tokio::time::timeout(VALIDITY_CHECK, watcher.changed()).await;
        }
    }

    fn update(&self, loaded: Result<SigningCa, CaError>) {
        match loaded {
            Ok(ca) => self.accept(ca),
            Err(problem) => self.reject(problem),
        }
    }

    fn accept(&self, ca: SigningCa) {
        let mut state = self.lock();
        let location = self.location();
        if state.problem.take().is_some() {
            tracing::info!(%location, "CA is valid again");
        }
        // The same certificate has the same key, however the key is encoded.
        if state.current.as_ref().is_some_and(|current| current.is_same(&ca)) {
            return;
        }
        let until = ca.certificate().validity().not_after();
        if state.current.is_some() {
            tracing::info!(%location, %until, "accepted a new CA");
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
        let (location, error) = (self.location(), &problem.detail);
        match state.current {
            Some(_) => {
                tracing::error!(%location, error, "CA rejected; still signing with the previous CA");
            }
            None => {
                tracing::error!(%location, error, "CA rejected; requests stay pending until it is valid");
            }
        }
        state.problem = Some(problem);
    }

    /// Names the place of the CA for the log.
    fn location(&self) -> String {
        match &self.loader {
            CaLoader::Files(files) => files.certificate.display().to_string(),
            CaLoader::Secret(secret) => secret.location(),
            CaLoader::Missing => "none".to_owned(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CaFilePair {
    /// Reads the files and checks that they are valid now.
    fn load(&self, now: OffsetDateTime) -> Result<SigningCa, CaError> {
        let (certificate, key) = (&self.certificate, &self.key);
        let unreadable = |error: FileReadError| CaError {
            detail: error.to_string(),
            cause: "its files cannot be read".to_owned(),
        };
        let read = |path: &Path| read_limited(path, MAX_PEM_BYTES).map_err(unreadable);
        let (text, secret) = (read(certificate)?, read(key)?);
        let ca = match self.form {
            CertificateFileForm::One => CertificateAuthority::from_pem(&text, &secret).map(SigningCa::from),
            CertificateFileForm::Chain => CertificateAuthority::from_chain_pem(&text, &secret)
                .map(|(authority, issuers)| SigningCa { authority, issuers }),
        };
        let ca = ca.map_err(|error| CaError {
            detail: format!("{} with {}: {error}", certificate.display(), key.display()),
            cause: error.to_string(),
        })?;
        let checked = || self.check.as_ref().map_or(Ok(()), |check| check(ca.certificate()));
        ca.check_time(now).and_then(|()| checked()).map_err(|error| CaError {
            detail: format!("{} {error:#}", certificate.display()),
            cause: format!("it {error:#}"),
        })?;
        Ok(ca)
    }
}

impl SigningCa {
    /// Checks that all certificates of the chain are valid at this time.
    fn check_time(&self, now: OffsetDateTime) -> Result<()> {
        self.full_chain().try_for_each(|each| check_validity(each, now))
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
