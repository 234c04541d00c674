//! The certificates and keys of one purpose on disk, in the layout that kubelet uses.
//!
//! - `<prefix>-<time>.pem`: certificates, then their key. Never changed once it has its name.
//! - `<prefix>-current.pem`: a link to one of them. Replaced at once; there is no moment without it.
//! - `<prefix>.key.tmp`: the key that a certificate is being asked for, from before the request is
//!   made until its certificate is stored.
//!
//! What cannot be read is set aside under another name, and never ends anything.

mod layout;

use std::cmp::Reverse;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use time::OffsetDateTime;
use windlass_pki::limits::MAX_PEM_BYTES;
use windlass_pki::{PrivateKey, PublicKey};

use crate::key_pair::{CertificateKeyPair, matches_key};
use windlass_runtime::durable::{self, DiskError, FileSystem, PathEntry};

use layout::CertDirLayout;

pub(crate) use layout::aside;

/// Where the certificates of one purpose are kept.
#[derive(Clone)]
pub struct CertStore {
    layout: CertDirLayout,
    files: FileSystem,
}

/// What was found on disk.
#[derive(Debug, Default)]
pub struct LoadedKeyPair {
    /// What is current. It may have expired.
    pub identity: Option<CertificateKeyPair>,
    /// What was not as it should be, and what was done about it.
    pub warnings: Vec<String>,
}

/// Why nothing could be stored.
#[derive(Debug, thiserror::Error)]
pub enum CertStoreError {
    /// The disk did not do it.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The key could not be made or written as text.
    #[error(transparent)]
    Key(#[from] windlass_pki::Error),
}

impl CertStore {
    /// A place for certificates. Nothing is made or read yet.
    pub fn new(directory: &Path, prefix: &str, files: FileSystem) -> Self {
        Self { layout: CertDirLayout::new(directory, prefix), files }
    }

    /// Where the current certificate and its key can always be read.
    pub fn current_path(&self) -> PathBuf {
        self.layout.current()
    }

    /// Reads what is current, and tidies up after a process that was killed. What is broken is set
    /// aside; if there is another certificate that is still good, it becomes the current one.
    pub fn load(&self, now: OffsetDateTime) -> LoadedKeyPair {
        let mut warnings = Vec::new();
        let pending = self.pending_key(now, &mut warnings).ok().flatten();
        let identity = self
            .finish(pending.as_ref(), now, &mut warnings)
            .or_else(|| self.current(now, &mut warnings))
            .or_else(|| self.another(now, &mut warnings))
            .or_else(|| self.two_files(&mut warnings));
        if let Some(identity) = &identity {
            self.forget_key(identity, &mut warnings);
        }
        self.tidy(&mut warnings);
        for warning in &warnings {
            tracing::warn!(certificate = self.layout.prefix(), "{warning}");
        }
        LoadedKeyPair { identity, warnings }
    }

    /// What is current, without a change to anything, for who only wants to tell of it.
    pub fn peek(&self) -> Option<CertificateKeyPair> {
        let text = self.files.read(&self.layout.current(), MAX_PEM_BYTES).ok()??;
        CertificateKeyPair::from_pem(&text).ok()
    }

    /// The key that a certificate is being asked for: the one on disk, or else a new one, which is
    /// on disk when this returns. `holds` is the key of the certificate at hand, which has one.
    pub fn load_or_create_key(
        &self,
        holds: Option<&PublicKey>,
        now: OffsetDateTime,
    ) -> Result<PrivateKey, CertStoreError> {
        let mut warnings = Vec::new();
        let pending = self.pending_key(now, &mut warnings)?;
        for warning in warnings {
            tracing::warn!(certificate = self.layout.prefix(), "{warning}");
        }
        match pending.filter(|key| Some(key.public_key()) != holds) {
            Some(key) => Ok(key),
            None => self.new_key(),
        }
    }

    /// Makes a new key, in place of the one that a certificate was being asked for.
    pub fn new_key(&self) -> Result<PrivateKey, CertStoreError> {
        let key = PrivateKey::generate()?;
        self.files.create_directory(self.layout.directory())?;
        self.files.replace(&self.layout.key(), key.to_pem()?.as_bytes(), durable::PRIVATE_MODE)?;
        Ok(key)
    }

    /// Makes this the current certificate. After an error the one before still is.
    pub fn save(
        &self,
        identity: &CertificateKeyPair,
        now: OffsetDateTime,
    ) -> Result<(), CertStoreError> {
        self.files.create_directory(self.layout.directory())?;
        let text = identity.to_pem()?;
        let name = self.free_name(now)?;
        self.files.replace(&self.layout.file(&name), text.as_bytes(), durable::PRIVATE_MODE)?;
        let mut warnings = Vec::new();
        let before = self.adopt(now)?;
        self.files.replace_symlink(&self.layout.current(), Path::new(&name))?;
        // From here on it is stored, whatever happens. What is left over goes next time.
        self.forget_key(identity, &mut warnings);
        if let Err(error) = self.prune(&name, before.as_deref()) {
            warnings.push(error.to_string());
        }
        for warning in warnings {
            tracing::warn!(certificate = self.layout.prefix(), "{warning}");
        }
        Ok(())
    }

    /// Removes the key of a certificate that was stored.
    fn forget_key(&self, identity: &CertificateKeyPair, warnings: &mut Vec<String>) {
        let path = self.layout.key();
        let gone = self.files.read(&path, MAX_PEM_BYTES).and_then(|text| match text {
            Some(text) if contains_key_of(&text, identity) => self.files.remove(&path),
            _ => Ok(()),
        });
        warnings.extend(gone.err().map(|error| error.to_string()));
    }

    /// The key on disk that a certificate is being asked for. A broken one is set aside.
    fn pending_key(
        &self,
        now: OffsetDateTime,
        warnings: &mut Vec<String>,
    ) -> Result<Option<PrivateKey>, DiskError> {
        let path = self.layout.key();
        let Some(text) = self.files.read(&path, MAX_PEM_BYTES)? else { return Ok(None) };
        match PrivateKey::from_pem(&text) {
            Ok(key) => Ok(Some(key)),
            Err(error) => {
                warnings.push(self.set_aside(&path, &error, now));
                Ok(None)
            }
        }
    }

    /// Ends a [`Self::save`] that was killed: the certificate for the pending key is here already.
    fn finish(
        &self,
        pending: Option<&PrivateKey>,
        now: OffsetDateTime,
        warnings: &mut Vec<String>,
    ) -> Option<CertificateKeyPair> {
        let pending = pending?.public_key();
        let (name, identity) = self
            .good_files(now)
            .into_iter()
            .find(|(_, found)| matches_key(found.leaf(), pending))?;
        let done = match self.files.entry(&self.layout.current()) {
            Ok(PathEntry::Symlink(target)) => target.as_path() == Path::new(&name),
            _ => false,
        };
        if !done {
            self.set_current(&name, warnings);
        }
        Some(identity)
    }

    /// What is current. What is broken is set aside.
    fn current(
        &self,
        now: OffsetDateTime,
        warnings: &mut Vec<String>,
    ) -> Option<CertificateKeyPair> {
        let path = self.layout.current();
        let text = match self.files.read(&path, MAX_PEM_BYTES) {
            Ok(text) => text?,
            Err(error) => {
                warnings.push(error.to_string());
                return None;
            }
        };
        match CertificateKeyPair::from_pem(&text) {
            Ok(identity) => {
                warnings.extend(self.adopt(now).err().map(|error| error.to_string()));
                Some(identity)
            }
            Err(error) => {
                // The link stays: it leads nowhere until there is something else.
                let broken = match self.files.entry(&path) {
                    Ok(PathEntry::Symlink(target)) => self.layout.directory().join(target),
                    _ => path,
                };
                warnings.push(self.set_aside(&broken, &error, now));
                None
            }
        }
    }

    /// The newest of the other certificates that is still good, which becomes the current one.
    fn another(
        &self,
        now: OffsetDateTime,
        warnings: &mut Vec<String>,
    ) -> Option<CertificateKeyPair> {
        let linked = match self.files.entry(&self.layout.updated()) {
            Ok(PathEntry::Symlink(target)) => self.linked(&target, now),
            _ => None,
        };
        let (name, identity) = linked.or_else(|| self.good_files(now).into_iter().next())?;
        warnings.push(format!("no current certificate; using {name}"));
        self.set_current(&name, warnings);
        Some(identity)
    }

    /// What kubelet was about to make current when it was killed.
    fn linked(&self, target: &Path, now: OffsetDateTime) -> Option<(String, CertificateKeyPair)> {
        let name = target.file_name()?.to_str()?;
        self.good_files(now).into_iter().find(|(good, _)| good == name)
    }

    /// A certificate and a key in files of their own, as other tools leave them.
    fn two_files(&self, warnings: &mut Vec<String>) -> Option<CertificateKeyPair> {
        let [certificate, key] = self.layout.two_files();
        let read = |path: &Path| self.files.read(path, MAX_PEM_BYTES);
        let (text, key_text) = match (read(&certificate), read(&key)) {
            (Ok(text), Ok(key)) => (text?, key?),
            (Err(error), _) | (_, Err(error)) => {
                warnings.push(error.to_string());
                return None;
            }
        };
        let identity = CertificateKeyPair::from_cert_and_key(&text, &key_text);
        let error = |error| format!("cannot use {}: {error}", certificate.display());
        identity.map_err(|cause| warnings.push(error(cause))).ok()
    }

    /// Every certificate here that can be used now, the newest first.
    fn good_files(&self, now: OffsetDateTime) -> Vec<(String, CertificateKeyPair)> {
        let names = self.files.list_names(self.layout.directory()).unwrap_or_default();
        let ours = names.into_iter().filter(|name| self.layout.is_certificate_file(name));
        let good = ours.filter_map(|name| {
            let text = self.files.read(&self.layout.file(&name), MAX_PEM_BYTES).ok()??;
            let identity = CertificateKeyPair::from_pem(&text).ok()?;
            identity.is_valid_at(now).then_some((name, identity))
        });
        let mut good = good.collect::<Vec<_>>();
        good.sort_by_key(|(_, identity)| Reverse(identity.leaf().not_before()));
        good
    }

    fn set_current(&self, name: &str, warnings: &mut Vec<String>) {
        let linked = self.files.replace_symlink(&self.layout.current(), Path::new(name));
        warnings.extend(linked.err().map(|error| error.to_string()));
    }

    /// Gives a current file that is no link a name of its own, and returns the name of what is
    /// current.
    fn adopt(&self, now: OffsetDateTime) -> Result<Option<String>, DiskError> {
        let path = self.layout.current();
        match self.files.entry(&path)? {
            PathEntry::Nothing => Ok(None),
            PathEntry::Symlink(target) => {
                Ok(target.file_name().and_then(|name| name.to_str()).map(str::to_owned))
            }
            PathEntry::Other => {
                let name = self.free_name(now)?;
                self.files.hard_link(&path, &self.layout.file(&name))?;
                self.files.replace_symlink(&path, Path::new(&name))?;
                Ok(Some(name))
            }
        }
    }

    /// A name that nothing has yet.
    fn free_name(&self, now: OffsetDateTime) -> Result<String, DiskError> {
        let taken = self.files.list_names(self.layout.directory())?;
        Ok(self.layout.free_name(now, |name| taken.iter().any(|taken| taken == name)))
    }

    /// Moves what is broken out of the way. Somebody may want to look at it.
    fn set_aside(&self, path: &Path, why: &dyn Display, now: OffsetDateTime) -> String {
        let (file, aside) = (path.display(), aside(path, now));
        let to = aside.display();
        match self.files.rename(path, &aside) {
            Ok(()) => format!("{file} is invalid ({why}); renamed to {to}"),
            Err(error) => format!("{file} is invalid ({why}) and cannot be renamed: {error}"),
        }
    }

    /// Removes what a killed process was writing, and the link that kubelet leaves behind.
    fn tidy(&self, warnings: &mut Vec<String>) {
        let ours = |name: &String| {
            durable::is_staged(name)
                && name.trim_start_matches('.').starts_with(self.layout.prefix())
        };
        let names = self.files.list_names(self.layout.directory()).unwrap_or_default();
        let mut rest = names.iter().filter(|name| ours(name)).map(|n| self.layout.file(n));
        let mut gone = rest.try_for_each(|path| self.files.remove(&path));
        if let Ok(PathEntry::Symlink(_)) = self.files.entry(&self.layout.updated()) {
            gone = gone.and_then(|()| self.files.remove(&self.layout.updated()));
        }
        warnings.extend(gone.err().map(|error| error.to_string()));
    }

    /// Removes all but the current certificate and the one before.
    fn prune(&self, current: &str, before: Option<&str>) -> Result<(), DiskError> {
        let names = self.files.list_names(self.layout.directory())?;
        let kept = |name: &str| name == current || Some(name) == before;
        let mut old =
            names.iter().filter(|name| self.layout.is_certificate_file(name) && !kept(name));
        old.try_for_each(|name| self.files.remove(&self.layout.file(name)))
    }
}

fn contains_key_of(text: &[u8], identity: &CertificateKeyPair) -> bool {
    PrivateKey::from_pem(text).is_ok_and(|key| key.public_key() == identity.key().public_key())
}

#[cfg(test)]
mod tests;
