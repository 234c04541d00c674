//! A signer's certificate and key: read from two files, followed as these change, never worse than
//! the last good pair.
//!
//! The files are replaced one after the other and sometimes badly, so what they hold is looked at
//! as a whole: one certificate that may sign, is valid now and belongs to the key, and behind it,
//! where that is allowed, those that vouch for it. Anything else is reported and leaves the pair in
//! use as it is.

mod gauges;
pub mod made;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, ensure};
use time::OffsetDateTime;
use tokio::sync::watch;
use windlass_pki::{Authority, Certificate};

use crate::followed::{self, read};
use crate::options::Clock;

pub use gauges::{metrics, report};

/// What a signer signs with: a certificate and its key, and who vouches for it.
#[derive(Debug)]
pub struct Ca {
    authority: Authority,
    issuers: Vec<Certificate>,
}

impl Ca {
    /// Who signs.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The certificate of who signs.
    pub fn certificate(&self) -> &Certificate {
        self.authority.certificate()
    }

    /// What is sent along with what it issues, in order: itself and those that vouch for it, but
    /// none that vouches for itself, as whoever verifies has that or does not trust it.
    pub fn intermediates(&self) -> impl Iterator<Item = &Certificate> {
        self.whole().filter(|certificate| !certificate.is_self_signed())
    }

    /// What others have to trust: who vouches for all, if that is known, or else itself.
    pub fn anchor(&self) -> &Certificate {
        let last = self.whole().last();
        last.filter(|last| last.is_self_signed()).unwrap_or_else(|| self.certificate())
    }

    fn whole(&self) -> impl Iterator<Item = &Certificate> {
        std::iter::once(self.certificate()).chain(&self.issuers)
    }

    fn is_same(&self, other: &Ca) -> bool {
        self.whole().map(Certificate::der).eq(other.whole().map(Certificate::der))
    }
}

impl From<Authority> for Ca {
    /// One that nobody is known to vouch for.
    fn from(authority: Authority) -> Ca {
        Ca { authority, issuers: Vec::new() }
    }
}

/// What the file of the certificate may hold.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// One certificate, as kube-controller-manager wants it.
    One,
    /// And those that vouch for it, each for the one before.
    Chain,
}

/// A certificate authority in two files.
pub struct CaSource {
    certificate: PathBuf,
    key: PathBuf,
    form: Form,
    clock: Clock,
    state: Mutex<State>,
    /// Held while the files are read, so that what was read first does not come in last.
    reading: Mutex<()>,
    accepted: watch::Sender<u64>,
}

struct State {
    current: Arc<Ca>,
    problem: Option<String>,
}

impl CaSource {
    /// Reads a pair that must be good, as there is no other yet. [`CaSource::watch`] follows it.
    pub fn files(certificate: PathBuf, key: PathBuf, clock: Clock) -> Result<Arc<CaSource>> {
        CaSource::open(certificate, key, Form::One, clock)
    }

    /// As [`CaSource::files`], where those that vouch for the certificate may follow it.
    pub fn chain(certificate: PathBuf, key: PathBuf, clock: Clock) -> Result<Arc<CaSource>> {
        CaSource::open(certificate, key, Form::Chain, clock)
    }

    fn open(certificate: PathBuf, key: PathBuf, form: Form, clock: Clock) -> Result<Arc<CaSource>> {
        let current = Arc::new(load(&certificate, &key, form, clock())?);
        let state = Mutex::new(State { current, problem: None });
        let (reading, accepted) = (Mutex::new(()), watch::Sender::new(1));
        Ok(Arc::new(CaSource { certificate, key, form, clock, state, reading, accepted }))
    }

    /// The last good pair. It may have expired since: whoever signs looks at the time.
    pub fn current(&self) -> Arc<Ca> {
        self.lock().current.clone()
    }

    /// Why the files as they are now are not used, or that the pair in use has expired.
    pub fn problem(&self) -> Option<String> {
        self.lock().problem.clone()
    }

    /// Counts the pairs that were accepted, the first included.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.accepted.subscribe()
    }

    /// How long the certificate in use is still valid, in seconds; negative when it is not.
    pub fn seconds_left(&self) -> i64 {
        let until = self.current().certificate().validity().not_after();
        (until - (self.clock)()).whole_seconds()
    }

    /// Reads the files once and uses them if they are good. Reads from disk: not for async code.
    pub fn reload(&self) {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        match load(&self.certificate, &self.key, self.form, (self.clock)()) {
            Ok(ca) => self.accept(ca),
            Err(error) => self.refuse(format!("{error:#}")),
        }
    }

    /// Follows the files; does not end.
    pub async fn watch(self: Arc<Self>) {
        let files = [self.certificate.clone(), self.key.clone()];
        followed::follow(&files, move || self.reload()).await;
    }

    fn accept(&self, ca: Ca) {
        let mut state = self.lock();
        let file = self.certificate.display();
        if state.problem.take().is_some() {
            tracing::info!(%file, "the CA's files are good again");
        }
        // The same certificate has the same key, however that is written.
        if state.current.is_same(&ca) {
            return;
        }
        let until = ca.certificate().validity().not_after();
        tracing::info!(%file, %until, "signing with a new CA");
        state.current = Arc::new(ca);
        drop(state);
        self.accepted.send_modify(|count| *count += 1);
    }

    fn refuse(&self, problem: String) {
        let mut state = self.lock();
        if state.problem.as_ref() != Some(&problem) {
            let file = self.certificate.display();
            tracing::error!(%file, problem, "the CA's files cannot be used; the last good ones are");
            state.problem = Some(problem);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the files hold, if it may be used now.
fn load(certificate: &Path, key: &Path, form: Form, now: OffsetDateTime) -> Result<Ca> {
    let (text, secret) = (read(certificate)?, read(key)?);
    let ca = match form {
        Form::One => Authority::from_pem(&text, &secret).map(Ca::from),
        Form::Chain => Authority::from_chain_pem(&text, &secret)
            .map(|(authority, issuers)| Ca { authority, issuers }),
    };
    let ca = ca.with_context(|| format!("{} with {}", certificate.display(), key.display()))?;
    for each in ca.whole() {
        let (from, until) = (each.validity().not_before(), each.validity().not_after());
        ensure!(from <= now, "{} is not valid before {from}", certificate.display());
        ensure!(each.validity().contains(now), "{} expired at {until}", certificate.display());
    }
    Ok(ca)
}

#[cfg(test)]
mod tests;
