//! Volumes of the host, defined by a file with the same sources as the volumes of a pod.
//!
//! - `parser`: reads the file, and reports all errors with their positions.
//! - `file_watch`: reloads it when it changes.
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
use windlass_runtime::config::{ConfigErrors, MAX_CONFIG_BYTES};

use crate::volume::definition::VolumeDefinition;
use crate::volume::payload::VolumePayload;
use crate::volume::plan::{BlockedReason, VolumeReaders};
use crate::volume_certificates::CertificateSubject;
use windlass_runtime::durable::{DiskError, FileSystem};

pub use file_watch::watch_file;
pub use keystores::KeystoreFile;
pub use notification::Notification;
pub use notifier::{FailedNotification, Notifier};

/// A host projection: a directory of the machine that is managed like a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct HostProjection {
    /// Unique name of the projection, a DNS label.
    pub name: String,
    /// Absolute path of the directory with its files.
    pub directory: PathBuf,
    /// Namespace of its ConfigMaps and Secrets.
    pub namespace: String,
    /// The sources of the volume; those that need a pod are rejected.
    pub definition: VolumeDefinition,
    /// User and group that own the files.
    pub readers: VolumeReaders,
    /// Common name of its certificates; `None` is the name of the node.
    pub common_name: Option<String>,
    /// Subject alternative names of its certificates.
    pub names: AltNames,
    /// Files of other formats, built from the files of the volume.
    pub stores: Vec<KeystoreFile>,
    /// Notifications that are sent after its files have changed.
    pub notify: Vec<Notification>,
}

/// Reason for which a projections file is not used.
#[derive(Debug, thiserror::Error)]
pub enum ProjectionsError {
    /// The file could not be read from disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No projections file exists at this path.
    #[error("{}: file not found", .0.display())]
    Missing(PathBuf),
    /// The content of the file is invalid.
    #[error(transparent)]
    Invalid(#[from] ConfigErrors),
}

/// All host projections of one file.
pub type HostProjections = Vec<Arc<HostProjection>>;

/// Reads a projections file, and the password files that it names. A missing password file is no error here: only the
/// volume that needs it waits.
pub fn read(path: &Path, files: &FileSystem) -> Result<HostProjections, ProjectionsError> {
    let Some(bytes) = files.read(path, MAX_CONFIG_BYTES + 1)? else {
        return Err(ProjectionsError::Missing(path.to_owned()));
    };
    Ok(parser::parse(path, &bytes, files)?.into_iter().map(Arc::new).collect())
}

impl HostProjection {
    /// Adds the keystores to the files of the volume, and restricts generated keys to their owner and group.
    pub fn finish(&self, payload: VolumePayload) -> Result<VolumePayload, BlockedReason> {
        keystores::finish(self, payload)
    }

    /// Returns the subject of its certificates.
    pub fn certificate_subject(&self) -> CertificateSubject {
        CertificateSubject::Host { common_name: self.common_name.clone(), names: self.names.clone() }
    }
}

#[cfg(test)]
mod tests;
