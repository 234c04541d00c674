//! What the controller of Bundles is told, by trust-manager's flags.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::sync::watch;

use super::certificate_set::CertificateFilter;
use super::package::CaPackage;
use crate::file_watch::{self, ReloadOutcome, ReloadableFile};

/// What the controller is told.
#[derive(Clone)]
pub struct BundleSettings {
    /// Namespace of source ConfigMaps and Secrets.
    pub trust_namespace: String,
    /// Default CA package for `useDefaultCAs`; `None` if none is configured.
    pub package: Option<Arc<PackageFile>>,
    /// Whether Bundles may have Secret targets.
    pub secret_targets: bool,
    /// Certificates to leave out of every Bundle.
    pub filters: CertificateFilter,
    /// The only namespaces that are written to; none is all.
    pub target_namespaces: BTreeSet<String>,
}

impl Default for BundleSettings {
    /// The defaults of trust-manager when it is started without flags.
    fn default() -> BundleSettings {
        BundleSettings {
            trust_namespace: TRUST_NAMESPACE.to_owned(),
            package: None,
            secret_targets: false,
            filters: CertificateFilter::default(),
            target_namespaces: BTreeSet::new(),
        }
    }
}

/// Where sources are if nothing else is said.
pub const TRUST_NAMESPACE: &str = "cert-manager";

/// The file of a package, read again when it changes.
pub struct PackageFile {
    path: PathBuf,
    held: ReloadableFile<CaPackage>,
}

impl PackageFile {
    /// Reads a package, which must be good.
    pub fn open(path: PathBuf) -> Result<Arc<PackageFile>> {
        let held = ReloadableFile::new(load(&path)?);
        Ok(Arc::new(PackageFile { path, held }))
    }

    /// The package as it was when it was last good.
    pub fn current(&self) -> Arc<CaPackage> {
        self.held.current()
    }

    /// A receiver that is notified whenever the file's package changes.
    pub fn changes(&self) -> watch::Receiver<Arc<CaPackage>> {
        self.held.changes()
    }

    /// Reads the file once and uses it if it is good. Reads from disk: not for async code.
    pub fn reload(&self) {
        match self.held.update(load(&self.path)) {
            ReloadOutcome::Same => {}
            ReloadOutcome::Changed => {
                tracing::info!(package = self.current().id(), "the default package changed");
            }
            ReloadOutcome::Wrong(error) => {
                tracing::error!(
                    error,
                    "the default package cannot be used; the last good one stays"
                );
            }
        }
    }

    /// Follows the file; does not end.
    pub async fn watch(self: Arc<Self>) {
        let path = self.path.clone();
        file_watch::watch_files(&[path], move || self.reload()).await;
    }
}

fn load(path: &Path) -> Result<CaPackage> {
    CaPackage::check_path(path)?;
    CaPackage::parse(&file_watch::read_file(path)?).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles::fixtures::{ED25519, P256};

    #[test]
    fn a_package_is_read_again_and_a_bad_one_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("package.json");
        let package = |version: &str, text: &str| {
            let package = CaPackage::from_store("own", version, text.as_bytes()).unwrap();
            std::fs::write(&path, package.to_json().unwrap()).unwrap();
            package
        };
        assert!(PackageFile::open(path.clone()).is_err());
        let first = package("1", P256);
        let file = PackageFile::open(path.clone()).unwrap();
        assert_eq!(*file.current(), first);
        let changes = file.changes();
        file.reload();
        assert!(!changes.has_changed().unwrap());
        let second = package("2", ED25519);
        file.reload();
        assert!(changes.has_changed().unwrap());
        std::fs::write(&path, "{").unwrap();
        file.reload();
        assert_eq!(*file.current(), second);
    }
}
