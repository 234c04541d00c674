//! The directory with a key, its certificate and the signer's anchors, which change together.
//!
//! The layout is the one in which Kubernetes mounts secrets into pods:
//!
//! ```text
//! DIR/tls.key -> ..data/tls.key      and so tls.crt, ca.crt and issue.json
//! DIR/..data -> ..issued-UUID        the one link that is ever replaced
//! DIR/..issued-UUID/tls.key          the files
//! ```
//!
//! A new set is written and synced beside the old one; then one rename of `..data` replaces them
//! all. A process that is killed before the rename leaves the old set, one that is killed later the new one.
//! A reader that opens two files during the rename may get one of each; to avoid that, it
//! resolves `..data` first and opens both files below it.
//!
//! The directory may belong to another user. It is opened once without following symlinks of that user, and all
//! operations are relative to the open directory.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use uuid::Uuid;
use windlass_pki::limits::MAX_PEM_BYTES;
use windlass_pki::{ForeignCertificate, parse_certificate_blocks};
use windlass_runtime::durable::{DirectoryEntry, FileAccess, FileSystem, OpenDirectory};
use windlass_runtime::file_lock::{DirectoryLock, LockError};
use zeroize::Zeroizing;

use super::issue_record::IssueRecord;

/// Symlink to the current set.
const DATA: &str = "..data";
/// Temporary name of the symlink to the new set, before the rename.
const NEXT: &str = "..data.new";
/// Name prefix of the directories of sets.
const SETS: &str = "..issued-";
const FILES: [&str; 4] = ["ca.crt", "tls.crt", "tls.key", "issue.json"];
/// Mode of directories: readable by everyone. The key file is readable by its owner only.
const DIRECTORY: u32 = 0o755;
const KEY: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// A directory for one certificate, locked until dropped.
pub struct CertificateDir {
    root: PathBuf,
    folder: OpenDirectory,
    /// Directory of the new set. Created first, so that no certificate is requested that cannot be stored.
    set: OpenDirectory,
    set_name: String,
    /// Whether this process created the directory.
    made: bool,
    written: bool,
    _lock: DirectoryLock,
}

/// Files of one certificate; they replace the previous set atomically.
pub struct CertificateFiles {
    /// The private key in PEM.
    pub key: Zeroizing<String>,
    /// The leaf certificate and its intermediates in PEM.
    pub chain: String,
    /// Trust anchors of the signer in PEM, if known.
    pub anchors: Option<String>,
    /// Contents of `issue.json`, for a later renewal.
    pub note: String,
}

/// An installed certificate that can be renewed.
#[derive(Debug)]
pub struct RenewableCertificate {
    /// The leaf certificate that is installed now.
    pub certificate: ForeignCertificate,
    /// Parameters of the last request, if recorded.
    pub note: Option<IssueRecord>,
    /// Trust anchors of the signer in PEM, if known.
    pub anchors: Option<String>,
}

impl CertificateDir {
    /// Creates the directory if it is missing, and locks it.
    pub fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot use the directory {}", path.display());
        let root = std::path::absolute(path).with_context(cannot)?;
        let made = windlass_safe_path::open_directory_path(&root).is_err();
        let directory = windlass_safe_path::create_directory(&root, DIRECTORY);
        let lock = match DirectoryLock::lock(directory.with_context(cannot)?, &root) {
            Ok(lock) => lock,
            Err(LockError::Held { .. }) => {
                bail!("another windlass issue is using {}", path.display())
            }
            Err(LockError::Io { source, .. }) => return Err(source).with_context(cannot),
        };
        let directory = lock.directory().try_clone().with_context(cannot)?;
        let folder = FileSystem::default().wrap_directory(directory, &root);
        clean(&folder).with_context(cannot)?;
        let set_name = format!("{SETS}{}", Uuid::new_v4());
        let set = folder.create_directory(OsStr::new(&set_name), &access(DIRECTORY));
        let set = set.with_context(cannot)?;
        Ok(Self { root, folder, set, set_name, made, written: false, _lock: lock })
    }

    /// Returns the path of a file of the set, as users of the certificate open it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Fails if a file would be overwritten.
    pub fn must_be_free(&self) -> Result<()> {
        let current = self.exists(DATA)?;
        for name in FILES {
            // Dangling links were left by a run that was killed before it installed a set.
            if self.exists(name)? && (current || !self.is_managed_link(name)) {
                let file = self.file(name);
                bail!(
                    "{} already exists; renew the certificate with --renew, or choose another --out",
                    file.display()
                );
            }
        }
        Ok(())
    }

    /// Reads the installed certificate; fails if there is none.
    pub fn renewable(&self) -> Result<RenewableCertificate> {
        for name in FILES {
            if self.exists(name)? && !self.is_managed_link(name) {
                let file = self.file(name);
                bail!("{} was not written by windlass issue; choose another --out", file.display());
            }
        }
        if !self.exists(DATA)? {
            let root = self.root.display();
            bail!("{root} has no certificate to renew; omit --renew");
        }
        let file = self.file("tls.crt");
        let cannot = || format!("cannot read {}", file.display());
        let text = self.read("tls.crt")?.with_context(cannot)?;
        let chain = parse_certificate_blocks(text.as_bytes()).with_context(cannot)?;
        let certificate = chain.into_iter().next().with_context(cannot)?;
        let note = match self.read("issue.json")? {
            Some(text) => Some(
                IssueRecord::read(text.as_bytes())
                    .with_context(|| format!("cannot read {}", self.file("issue.json").display()))?,
            ),
            None => None,
        };
        Ok(RenewableCertificate { certificate, note, anchors: self.read("ca.crt")? })
    }

    /// Reads a file; `None` if it is missing.
    fn read(&self, name: &str) -> Result<Option<String>> {
        let cannot = || format!("cannot read {}", self.file(name).display());
        let DirectoryEntry::Symlink(current) = self.folder.entry(OsStr::new(DATA)).with_context(cannot)?
        else {
            return Ok(None);
        };
        let current = self.folder.open_directory(current.as_os_str()).with_context(cannot)?;
        let Some(current) = current else { return Ok(None) };
        let read = current.read(OsStr::new(name), MAX_PEM_BYTES).with_context(cannot)?;
        let text = read.map(|contents| String::from_utf8(contents.bytes.to_vec()));
        text.transpose().with_context(cannot)
    }

    /// Installs a set, replacing the current one if there is one.
    pub fn write(mut self, set: CertificateFiles) -> Result<()> {
        let has_anchors = set.anchors.is_some();
        let cannot = || format!("cannot write to {}", self.root.display());
        let mut files = vec![
            ("tls.key", set.key, KEY),
            ("tls.crt", Zeroizing::new(set.chain), PUBLIC),
            ("issue.json", Zeroizing::new(set.note), PUBLIC),
        ];
        files.extend(set.anchors.map(|anchors| ("ca.crt", Zeroizing::new(anchors), PUBLIC)));
        for (name, contents, mode) in &files {
            let written = self.set.write(OsStr::new(name), contents.as_bytes(), &access(*mode));
            written.with_context(cannot)?;
        }
        self.set.sync().with_context(cannot)?;
        let before = self.folder.entry(OsStr::new(DATA)).with_context(cannot)?;
        self.link(has_anchors).with_context(cannot)?;
        self.swap().with_context(cannot)?;
        self.written = true;
        // The new set is installed from here on, even if a later step fails. The next run removes
        // leftovers.
        if !has_anchors {
            let _ = self.folder.remove(OsStr::new("ca.crt"));
        }
        if let DirectoryEntry::Symlink(before) = before
            && is_set_name(&before)
        {
            let _ = self.folder.remove_all(before.as_os_str());
        }
        Ok(())
    }

    /// Creates the missing links. They dangle while there is no set, or if the current one lacks
    /// the file.
    fn link(&self, has_anchors: bool) -> Result<()> {
        for name in FILES.into_iter().filter(|name| has_anchors || *name != "ca.crt") {
            match self.folder.symlink(OsStr::new(name), &Path::new(DATA).join(name)) {
                Err(error) if error.source.kind() == ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        Ok(())
    }

    /// Makes the new set current with one rename.
    fn swap(&self) -> Result<()> {
        self.folder.symlink(OsStr::new(NEXT), Path::new(&self.set_name))?;
        // Sync the links and the new directory first: a crash must not keep the rename and lose
        // them.
        self.folder.sync()?;
        self.folder.rename(OsStr::new(NEXT), OsStr::new(DATA))?;
        Ok(self.folder.sync()?)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.folder.entry(OsStr::new(name))? != DirectoryEntry::Nothing)
    }

    fn is_managed_link(&self, name: &str) -> bool {
        let found = self.folder.entry(OsStr::new(name));
        found.is_ok_and(|found| found == DirectoryEntry::Symlink(Path::new(DATA).join(name)))
    }
}

impl Drop for CertificateDir {
    fn drop(&mut self) {
        if !self.written {
            let _ = self.folder.remove_all(OsStr::new(&self.set_name));
            if self.made
                && let Ok((above, name)) = windlass_safe_path::open_parent(&self.root)
            {
                // Removes the directory only if it is empty.
                let _ = rustix::fs::unlinkat(above, name, rustix::fs::AtFlags::REMOVEDIR);
            }
        }
    }
}

fn access(mode: u32) -> FileAccess {
    FileAccess { mode, owner: None, group: None }
}

/// Removes leftovers of killed runs: sets that are not current, with their keys.
fn clean(folder: &OpenDirectory) -> Result<()> {
    let current = folder.entry(OsStr::new(DATA))?;
    folder.remove(OsStr::new(NEXT))?;
    for name in folder.list_names()? {
        if is_set_name(Path::new(&name)) && current != DirectoryEntry::Symlink(PathBuf::from(&name)) {
            folder.remove_all(&name)?;
        }
    }
    Ok(())
}

/// Returns whether this is the name of a set directory.
fn is_set_name(name: &Path) -> bool {
    let id = name.to_str().and_then(|name| name.strip_prefix(SETS));
    id.is_some_and(|id| Uuid::try_parse(id).is_ok())
}

#[cfg(test)]
pub mod tests;
