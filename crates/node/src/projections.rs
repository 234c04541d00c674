//! Volumes of the host, defined by a file with the same sources as the volumes of a pod.
//!
//! - `parser`: reads the file, and reports all errors at once, each with the path of its field.
//! - `file_watch`: reads it again when it changes.
//! - [`keystores`], [`secret`]: PKCS#12 and JKS files made from the PEM files of a volume, and their passwords.
//! - [`notification`], `notifier`: how applications are notified of changed files, and the tasks that do it.

mod file_watch;
pub mod keystores;
pub mod notification;
mod notifier;
mod parser;
pub mod secret;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_pki::AltNames;

use crate::volume::definition::VolumeDefinition;
use crate::volume::payload::VolumePayload;
use crate::volume::plan::{BlockedReason, VolumeReaders};
use crate::volume_certificates::CertificateSubject;
use windlass_runtime::durable::{DiskError, FileSystem};

pub use file_watch::watch_file;
pub use keystores::KeystoreFile;
pub use notification::Notification;
pub use notifier::{FailedNotification, Notifier};

/// Nobody writes so much by hand.
const MAX_FILE: usize = 1 << 20;

/// A volume of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct HostProjection {
    /// Unique name of the projection, a DNS label.
    pub name: String,
    /// Where its files are to be.
    pub directory: PathBuf,
    /// Where its ConfigMaps and Secrets are.
    pub namespace: String,
    /// The sources of the volume; those that need a pod are rejected.
    pub definition: VolumeDefinition,
    /// User and group that the files belong to.
    pub readers: VolumeReaders,
    /// `CN` of its certificates; none is the node's name.
    pub common_name: Option<String>,
    /// What its certificates speak for.
    pub names: AltNames,
    /// Files of other formats, made from those that it holds.
    pub stores: Vec<KeystoreFile>,
    /// Who is told when its files are new.
    pub notify: Vec<Notification>,
}

/// What is wrong with a file of projections.
#[derive(Debug, thiserror::Error)]
pub enum ProjectionsError {
    /// The file could not be read from disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No projections file exists at this path.
    #[error("{}: there is no such file", .0.display())]
    Missing(PathBuf),
    /// It says what cannot be done.
    #[error("{}{}", .path.display(), listed(.problems))]
    Wrong {
        /// The projections file that was rejected.
        path: PathBuf,
        /// Everything that is wrong with it.
        problems: Vec<String>,
    },
}

/// All host projections of one file, shared as a snapshot.
pub type HostProjections = Arc<Vec<Arc<HostProjection>>>;

/// Reads a file of projections, and the files of passwords that it names. A password that is not
/// there is no error here: only the volume that needs it has to wait.
pub fn read(path: &Path, files: &FileSystem) -> Result<HostProjections, ProjectionsError> {
    let Some(bytes) = files.read(path, MAX_FILE + 1)? else {
        return Err(ProjectionsError::Missing(path.to_owned()));
    };
    let parsed = if bytes.len() > MAX_FILE {
        Err(vec![format!("it is longer than {MAX_FILE} bytes")])
    } else {
        parser::parse(&bytes, files)
    };
    match parsed {
        Ok(projections) => Ok(Arc::new(projections.into_iter().map(Arc::new).collect())),
        Err(problems) => Err(ProjectionsError::Wrong { path: path.to_owned(), problems }),
    }
}

impl HostProjection {
    /// The files of the volume, with those of other formats that are made from them. Nobody but the
    /// owner and the group gets to read a key that was made here.
    pub fn finish(&self, payload: VolumePayload) -> Result<VolumePayload, BlockedReason> {
        keystores::finish(self, payload)
    }

    /// For whom its certificates are.
    pub fn certificate_subject(&self) -> CertificateSubject {
        CertificateSubject::Host {
            common_name: self.common_name.clone(),
            names: self.names.clone(),
        }
    }
}

/// One problem on the line of the file's name, several on a line each.
fn listed(problems: &[String]) -> String {
    match problems {
        [one] => format!(": {one}"),
        several => several.iter().map(|problem| format!("\n  {problem}")).collect(),
    }
}

#[cfg(test)]
mod tests;
