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
//! all. Whoever is killed before leaves the old set, whoever is killed after leaves the new one.
//! A reader that opens two files while the rename happens may get one of each: to be sure, it
//! resolves `..data` first and opens both in there.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use uuid::Uuid;
use windlass_pki::{ForeignCertificate, parse_certificate_blocks};
use zeroize::Zeroizing;

use super::note::Note;
use crate::datadir::durable::{self, NewFile};

/// The link to the current set.
const DATA: &str = "..data";
/// The link to the next one, until it is the current one.
const NEXT: &str = "..data.new";
/// What the directories of sets begin with.
const SETS: &str = "..issued-";
const FILES: [&str; 4] = ["ca.crt", "tls.crt", "tls.key", "issue.json"];
/// Everybody may look; the key is its owner's alone.
const DIRECTORY: u32 = 0o755;

/// A directory for one certificate, held until dropped.
#[derive(Debug)]
pub struct Place {
    root: PathBuf,
    /// Where the new set goes. It is made at the start, so that nobody is asked for a certificate
    /// that could not be kept.
    set: PathBuf,
    /// Whether the directory is there because of us.
    made: bool,
    written: bool,
    _lock: File,
}

/// Files that belong together.
pub struct Set {
    /// The private key, as PEM.
    pub key: Zeroizing<String>,
    /// The certificate, and those between it and the anchors.
    pub chain: String,
    /// What it is verified with, if that is known.
    pub anchors: Option<String>,
    /// What was asked for.
    pub note: String,
}

/// A certificate that can be asked for again.
#[derive(Debug)]
pub struct Renewable {
    /// The certificate.
    pub certificate: ForeignCertificate,
    /// What else was asked for, if that was written down.
    pub note: Option<Note>,
    /// What it is verified with, if that is known.
    pub anchors: Option<String>,
}

impl Place {
    /// Makes the directory if need be, and keeps others of our kind out of it.
    pub fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot use the directory {}", path.display());
        let root = std::path::absolute(path).with_context(cannot)?;
        let made = !root.exists();
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY).create(&root).with_context(cannot)?;
        let lock = File::open(&root).with_context(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another windlass issue is at work in {}", path.display())
            }
            // Not every file system has locks, and one at a time is the usual case.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        clean(&root).with_context(cannot)?;
        let set = root.join(format!("{SETS}{}", Uuid::new_v4()));
        builder.recursive(false).create(&set).with_context(cannot)?;
        Ok(Self { root, set, made, written: false, _lock: lock })
    }

    /// Where a file of the set is for those who use it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// That nothing here would be overwritten.
    pub fn must_be_free(&self) -> Result<()> {
        let current = self.is_there(DATA)?;
        for name in FILES {
            // Links to nothing are what a run left that was killed before it had a set.
            if self.is_there(name)? && (current || !self.is_ours(name)) {
                let file = self.file(name);
                bail!(
                    "{} exists already: replace the certificate with --renew, or choose another --out",
                    file.display()
                );
            }
        }
        Ok(())
    }

    /// The certificate that is here.
    pub fn renewable(&self) -> Result<Renewable> {
        for name in FILES {
            if self.is_there(name)? && !self.is_ours(name) {
                let file = self.file(name);
                bail!("{} was not written by windlass issue: choose another --out", file.display());
            }
        }
        if !self.is_there(DATA)? {
            let root = self.root.display();
            bail!("there is no certificate in {root} to renew: leave out --renew");
        }
        let file = self.file("tls.crt");
        let cannot = || format!("cannot read {}", file.display());
        let text = fs::read(&file).with_context(cannot)?;
        let chain = parse_certificate_blocks(&text).with_context(cannot)?;
        let certificate = chain.into_iter().next().with_context(cannot)?;
        let note =
            match self.read("issue.json")? {
                Some(text) => Some(Note::read(text.as_bytes()).with_context(|| {
                    format!("cannot read {}", self.file("issue.json").display())
                })?),
                None => None,
            };
        Ok(Renewable { certificate, note, anchors: self.read("ca.crt")? })
    }

    /// A file that need not be there.
    fn read(&self, name: &str) -> Result<Option<String>> {
        let file = self.file(name);
        match fs::read_to_string(&file) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    /// Puts a set in the place of the one that is here, if any.
    pub fn write(mut self, set: Set) -> Result<()> {
        let has_anchors = set.anchors.is_some();
        let at = |name: &str| self.set.join(name);
        let mut files = vec![
            NewFile::private(at("tls.key"), set.key),
            NewFile::public(at("tls.crt"), set.chain),
            NewFile::public(at("issue.json"), set.note),
        ];
        files.extend(set.anchors.map(|anchors| NewFile::public(at("ca.crt"), anchors)));
        durable::write_all(&files)?;
        let cannot = || format!("cannot write to {}", self.root.display());
        let before = fs::read_link(self.root.join(DATA)).ok();
        self.link(has_anchors).with_context(cannot)?;
        self.swap().with_context(cannot)?;
        self.written = true;
        // From here on the new set is there, whatever happens. What is left over goes next time.
        if !has_anchors {
            let _ = fs::remove_file(self.file("ca.crt"));
        }
        if let Some(before) = before.filter(|before| is_set(before)) {
            let _ = fs::remove_dir_all(self.root.join(before));
        }
        Ok(())
    }

    /// Makes the links that are missing. Without a set, or in an old one, they may lead nowhere.
    fn link(&self, has_anchors: bool) -> io::Result<()> {
        for name in FILES.into_iter().filter(|name| has_anchors || *name != "ca.crt") {
            match symlink(Path::new(DATA).join(name), self.root.join(name)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        Ok(())
    }

    /// Makes the new set the current one.
    fn swap(&self) -> io::Result<()> {
        let next = self.root.join(NEXT);
        symlink(self.set.file_name().unwrap_or_default(), &next)?;
        // The links and the new directory first: a crash must not keep the rename and lose them.
        let root = File::open(&self.root)?;
        root.sync_all()?;
        fs::rename(&next, self.root.join(DATA))?;
        root.sync_all()
    }

    fn is_there(&self, name: &str) -> Result<bool> {
        let file = self.file(name);
        match fs::symlink_metadata(&file) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot look at {}", file.display())),
        }
    }

    fn is_ours(&self, name: &str) -> bool {
        fs::read_link(self.file(name)).is_ok_and(|to| to == Path::new(DATA).join(name))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.written {
            let _ = fs::remove_dir_all(&self.set);
            if self.made {
                // Only if nothing is in it.
                let _ = fs::remove_dir(&self.root);
            }
        }
    }
}

/// Removes what killed runs left: sets that are not the current one, with their keys.
fn clean(root: &Path) -> io::Result<()> {
    let current = fs::read_link(root.join(DATA)).ok();
    match fs::remove_file(root.join(NEXT)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for entry in fs::read_dir(root)? {
        let name = PathBuf::from(entry?.file_name());
        if is_set(&name) && current.as_ref() != Some(&name) {
            fs::remove_dir_all(root.join(name))?;
        }
    }
    Ok(())
}

/// Whether this is the name of a directory that we made.
fn is_set(name: &Path) -> bool {
    let id = name.to_str().and_then(|name| name.strip_prefix(SETS));
    id.is_some_and(|id| Uuid::try_parse(id).is_ok())
}

#[cfg(test)]
pub mod tests;
