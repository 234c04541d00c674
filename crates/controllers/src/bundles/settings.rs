//! Settings of the Bundle controller, which correspond to the flags of trust-manager.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use windlass_pki::limits::MAX_PEM_BYTES;
use windlass_runtime::file_watch::{
    FileWatchTiming, ReloadOutcome, ReloadableFile, read_limited, reload_on_change,
};

use super::certificate_set::CertificateFilter;
use super::package::CaPackage;

/// Settings of the Bundle controller.
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
    /// Namespaces to which targets are restricted; empty means all namespaces.
    pub target_namespaces: BTreeSet<String>,
}

impl Default for BundleSettings {
    /// Defaults of trust-manager when it is started without flags.
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

/// Default namespace of sources, as in trust-manager.
pub const TRUST_NAMESPACE: &str = "cert-manager";

/// File with a CA package, reloaded when it changes.
pub struct PackageFile {
    path: PathBuf,
    held: ReloadableFile<CaPackage>,
}

impl PackageFile {
    /// Reads a package; fails if it is invalid.
    pub fn open(path: PathBuf) -> Result<Arc<PackageFile>> {
        let held = ReloadableFile::new(load(&path)?);
        Ok(Arc::new(PackageFile { path, held }))
    }

    /// Returns the last valid package.
    pub fn current(&self) -> Arc<CaPackage> {
        self.held.current()
    }

    /// Returns a receiver that is notified when the package changes.
    pub fn changes(&self) -> watch::Receiver<Arc<CaPackage>> {
        self.held.subscribe()
    }

    /// Reads the file and uses it if it is valid. Reads from disk: do not call it in async code.
    pub fn reload(&self) {
        match self.held.update(load(&self.path)) {
            ReloadOutcome::Unchanged => {}
            ReloadOutcome::Changed => {
                tracing::info!(package = self.current().id(), "default CA package changed");
            }
            ReloadOutcome::Recovered => {
                tracing::info!(package = self.current().id(), "default CA package is valid again");
            }
            ReloadOutcome::Rejected(error) => {
                tracing::error!(error, "default CA package rejected; still using the previous one");
            }
        }
    }

    /// Reloads the file when it changes.
    pub async fn watch(self: Arc<Self>) -> Infallible {
        let path = self.path.clone();
        reload_on_change([path], FileWatchTiming::default(), move || self.reload()).await
    }
}

fn load(path: &Path) -> Result<CaPackage> {
    CaPackage::check_path(path)?;
    let json = read_limited(path, MAX_PEM_BYTES)?;
    CaPackage::parse(&json).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles::fixtures::{ED25519, P256};

    #[test]
    fn a_package_is_reloaded_and_an_invalid_one_is_not_used() {
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
