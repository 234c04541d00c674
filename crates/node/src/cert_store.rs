//! Certificates and keys of one purpose on disk, in kubelet's layout.
//!
//! - `<prefix>-<time>.pem`: certificates, then their key. Never changed once it has its name.
//! - `<prefix>-current.pem`: a symlink to one of them. Replaced atomically; it always exists.
//! - `<prefix>.key.tmp`: the pending key, from before the request is submitted until its
//!   certificate is stored.
//!
//! An unreadable file is renamed and never a fatal error.

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

/// Stores the certificates of one purpose.
#[derive(Clone)]
pub struct CertStore {
    layout: CertDirLayout,
    files: FileSystem,
}

/// Content of the store at the start.
#[derive(Debug, Default)]
pub struct LoadedKeyPair {
    /// The current certificate, which may have expired.
    pub identity: Option<CertificateKeyPair>,
    /// Problems that were found, and what was done about them.
    pub warnings: Vec<String>,
}

/// Why the store could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CertStoreError {
    /// A disk operation failed, for this reason.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The key could not be generated or encoded.
    #[error(transparent)]
    Key(#[from] windlass_pki::Error),
}

impl CertStore {
    /// Creates a store without touching the disk.
    pub fn new(directory: &Path, prefix: &str, files: FileSystem) -> Self {
        Self { layout: CertDirLayout::new(directory, prefix), files }
    }

    /// Returns the path at which the current certificate and key can always be read.
    pub fn current_path(&self) -> PathBuf {
        self.layout.current()
    }

    /// Loads the current certificate, and cleans up after a killed process. A broken file is set
    /// aside; if there is another valid certificate, it becomes current.
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

    /// Reads the current certificate without changing anything, for reports.
    pub fn peek(&self) -> Option<CertificateKeyPair> {
        let text = self.files.read(&self.layout.current(), MAX_PEM_BYTES).ok()??;
        CertificateKeyPair::from_pem(&text).ok()
    }

    /// Returns the pending key: the one on disk, or a new one, which is on disk on return. `holds`
    /// is the key of the current certificate, which must not be reused.
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

    /// Generates a new pending key, replacing the previous one.
    pub fn new_key(&self) -> Result<PrivateKey, CertStoreError> {
        let key = PrivateKey::generate()?;
        self.files.create_directory(self.layout.directory())?;
        self.files.replace(&self.layout.key(), key.to_pem()?.as_bytes(), durable::PRIVATE_MODE)?;
        Ok(key)
    }

    /// Makes this the current certificate. On error the previous one stays.
    pub fn save(&self, identity: &CertificateKeyPair, now: OffsetDateTime) -> Result<(), CertStoreError> {
        self.files.create_directory(self.layout.directory())?;
        let text = identity.to_pem()?;
        let name = self.free_name(now)?;
        self.files.replace(&self.layout.file(&name), text.as_bytes(), durable::PRIVATE_MODE)?;
        let mut warnings = Vec::new();
        let before = self.adopt(now)?;
        self.files.replace_symlink(&self.layout.current(), Path::new(&name))?;
        // The certificate is stored from here on. The next save removes leftovers.
        self.forget_key(identity, &mut warnings);
        if let Err(error) = self.prune(&name, before.as_deref()) {
            warnings.push(error.to_string());
        }
        for warning in warnings {
            tracing::warn!(certificate = self.layout.prefix(), "{warning}");
        }
        Ok(())
    }

    /// Removes the pending key of a stored certificate.
    fn forget_key(&self, identity: &CertificateKeyPair, warnings: &mut Vec<String>) {
        let path = self.layout.key();
        let gone = self.files.read(&path, MAX_PEM_BYTES).and_then(|text| match text {
            Some(text) if contains_key_of(&text, identity) => self.files.remove(&path),
            _ => Ok(()),
        });
        warnings.extend(gone.err().map(|error| error.to_string()));
    }

    /// Reads the pending key. A broken one is set aside.
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

    /// Completes a [`Self::save`] that was killed: the certificate for the pending key is already
    /// on disk.
    fn finish(
        &self,
        pending: Option<&PrivateKey>,
        now: OffsetDateTime,
        warnings: &mut Vec<String>,
    ) -> Option<CertificateKeyPair> {
        let pending = pending?.public_key();
        let (name, identity) =
            self.good_files(now).into_iter().find(|(_, found)| matches_key(found.leaf(), pending))?;
        let done = match self.files.entry(&self.layout.current()) {
            Ok(PathEntry::Symlink(target)) => target.as_path() == Path::new(&name),
            _ => false,
        };
        if !done {
            self.set_current(&name, warnings);
        }
        Some(identity)
    }

    /// Reads the current certificate. A broken one is set aside.
    fn current(&self, now: OffsetDateTime, warnings: &mut Vec<String>) -> Option<CertificateKeyPair> {
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
                // A dangling symlink stays until it is replaced.
                let broken = match self.files.entry(&path) {
                    Ok(PathEntry::Symlink(target)) => self.layout.directory().join(target),
                    _ => path,
                };
                warnings.push(self.set_aside(&broken, &error, now));
                None
            }
        }
    }

    /// Makes the newest of the other valid certificates current.
    fn another(&self, now: OffsetDateTime, warnings: &mut Vec<String>) -> Option<CertificateKeyPair> {
        let linked = match self.files.entry(&self.layout.updated()) {
            Ok(PathEntry::Symlink(target)) => self.linked(&target, now),
            _ => None,
        };
        let (name, identity) = linked.or_else(|| self.good_files(now).into_iter().next())?;
        warnings.push(format!("no current certificate; using {name}"));
        self.set_current(&name, warnings);
        Some(identity)
    }

    /// Reads the certificate that kubelet was about to make current when it was killed.
    fn linked(&self, target: &Path, now: OffsetDateTime) -> Option<(String, CertificateKeyPair)> {
        let name = target.file_name()?.to_str()?;
        self.good_files(now).into_iter().find(|(good, _)| good == name)
    }

    /// Reads a certificate and a key in separate files, as other tools leave them.
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

    /// Returns all valid certificates in the directory, newest first.
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

    /// Renames a current file that is not a symlink, and returns the name of the current file.
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

    /// Returns a name that is not in use.
    fn free_name(&self, now: OffsetDateTime) -> Result<String, DiskError> {
        let taken = self.files.list_names(self.layout.directory())?;
        Ok(self.layout.free_name(now, |name| taken.iter().any(|taken| taken == name)))
    }

    /// Renames a broken file, so that an operator can inspect it.
    fn set_aside(&self, path: &Path, why: &dyn Display, now: OffsetDateTime) -> String {
        let (file, aside) = (path.display(), aside(path, now));
        let to = aside.display();
        match self.files.rename(path, &aside) {
            Ok(()) => format!("{file} is invalid ({why}); renamed to {to}"),
            Err(error) => format!("{file} is invalid ({why}) and cannot be renamed: {error}"),
        }
    }

    /// Removes temporary files of a killed process, and the symlink that kubelet leaves behind.
    fn tidy(&self, warnings: &mut Vec<String>) {
        let ours = |name: &String| {
            durable::is_staged(name) && name.trim_start_matches('.').starts_with(self.layout.prefix())
        };
        let names = self.files.list_names(self.layout.directory()).unwrap_or_default();
        let mut rest = names.iter().filter(|name| ours(name)).map(|n| self.layout.file(n));
        let mut gone = rest.try_for_each(|path| self.files.remove(&path));
        if let Ok(PathEntry::Symlink(_)) = self.files.entry(&self.layout.updated()) {
            gone = gone.and_then(|()| self.files.remove(&self.layout.updated()));
        }
        warnings.extend(gone.err().map(|error| error.to_string()));
    }

    /// Removes all but the current and the previous certificate.
    fn prune(&self, current: &str, before: Option<&str>) -> Result<(), DiskError> {
        let names = self.files.list_names(self.layout.directory())?;
        let kept = |name: &str| name == current || Some(name) == before;
        let mut old = names.iter().filter(|name| self.layout.is_certificate_file(name) && !kept(name));
        old.try_for_each(|name| self.files.remove(&self.layout.file(name)))
    }
}

fn contains_key_of(text: &[u8], identity: &CertificateKeyPair) -> bool {
    PrivateKey::from_pem(text).is_ok_and(|key| key.public_key() == identity.key().public_key())
}

#[cfg(test)]
mod tests;
