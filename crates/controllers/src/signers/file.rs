//! The signers file: reloaded on change, with the last good content in use meanwhile.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use tokio::sync::watch;
use windlass_runtime::config::MAX_CONFIG_BYTES;
use windlass_runtime::file_watch::{
    FileReadError, FileWatchTiming, ReloadOutcome, ReloadableFile, read_limited, reload_on_change,
};
use windlass_runtime::metrics::MetricsRegistry;

use super::SIGNER_NAMESPACE;
use super::config::{ConfigErrors, SignersConfig};
use crate::pkcs11::TokenModule;

/// Where custom signers come from, besides Signer objects.
#[derive(Clone, Debug)]
pub struct SignerSettings {
    /// Path of the signers file, which is reloaded on change; `None` if there is none.
    pub file: Option<PathBuf>,
    /// Whether a file that does not exist is as good as an empty one.
    pub is_file_optional: bool,
    /// Namespace of the Secrets with the CAs of signers; created if a CA is generated.
    pub namespace: String,
    /// Library for CA keys in PKCS#11 tokens; `None` if there is none.
    pub tokens: Option<Arc<TokenModule>>,
}

impl Default for SignerSettings {
    fn default() -> SignerSettings {
        let namespace = SIGNER_NAMESPACE.to_owned();
        SignerSettings { file: None, is_file_optional: false, namespace, tokens: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FileLabels {
    file: String,
}

/// The signers file with its last good content.
pub(crate) struct SignersFile {
    path: PathBuf,
    is_optional: bool,
    content: ReloadableFile<SignersConfig>,
}

impl SignersFile {
    /// Reads the file of the settings. `known` is used until the file is valid. Blocks on disk reads.
    pub(crate) fn open(settings: &SignerSettings, known: SignersConfig) -> Option<Arc<SignersFile>> {
        let path = settings.file.as_ref()?;
        // Objects name the file, also for processes with another working directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let is_optional = settings.is_file_optional;
        let file = SignersFile { path, is_optional, content: ReloadableFile::new(known) };
        file.reload();
        Some(Arc::new(file))
    }

    /// Returns the absolute path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a receiver of the last good content.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<SignersConfig>> {
        self.content.subscribe()
    }

    /// Exposes whether the present content is rejected.
    pub(crate) fn register_metric(self: &Arc<Self>, registry: &MetricsRegistry) {
        let file = Arc::downgrade(self);
        let samples = move || {
            let file = file.upgrade();
            let sample = |file: Arc<SignersFile>| {
                let labels = FileLabels { file: file.path.display().to_string() };
                (labels, i64::from(file.content.error().is_some()))
            };
            file.map(sample).into_iter().collect()
        };
        let help = "Whether the signers file is rejected and its previous content is in use";
        registry.register_scraped_gauge("windlass_signers_file_degraded", help, samples);
    }

    /// Reloads the file when it changes.
    pub(crate) async fn watch(self: Arc<Self>) -> Infallible {
        let path = self.path.clone();
        reload_on_change([path], FileWatchTiming::default(), move || self.reload()).await
    }

    fn reload(&self) {
        let file = self.path.display();
        match self.content.update(self.load()) {
            ReloadOutcome::Changed => tracing::info!(%file, "read signers file"),
            ReloadOutcome::Recovered => tracing::info!(%file, "signers file is valid again"),
            ReloadOutcome::Rejected(error) => {
                tracing::error!(%file, error, "signers file rejected; still using the previous content");
            }
            ReloadOutcome::Unchanged => {}
        }
    }

    fn load(&self) -> Result<SignersConfig, ConfigErrors> {
        match read_limited(&self.path, MAX_CONFIG_BYTES) {
            Ok(text) => SignersConfig::parse_bytes(&self.path, &text),
            Err(FileReadError::Io { source, .. })
                if self.is_optional && source.kind() == ErrorKind::NotFound =>
            {
                Ok(SignersConfig::default())
            }
            Err(error) => Err(error.into()),
        }
    }
}
