//! Chooses the initial credential: the certificate on disk, the kubeconfig's, or the bootstrap
//! kubeconfig's. Writes the kubeconfig with which other programs authenticate as this node.

mod kubeconfig;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use time::OffsetDateTime;

use crate::cert_store::{self, CertStore, CertStoreError, LoadedKeyPair};
use crate::clock;
use windlass_runtime::client_error;
use windlass_runtime::durable::{self, DiskError, FileSystem, PathEntry};

use kubeconfig::{KubeconfigUser, ParsedKubeconfig};

/// Paths of the kubeconfig, the bootstrap kubeconfig and the certificate store.
#[derive(Clone)]
pub struct BootstrapCredentials {
    kubeconfig: PathBuf,
    bootstrap: Option<PathBuf>,
    store: CertStore,
    files: FileSystem,
}

/// The credential that a node starts with.
#[derive(Debug, PartialEq, Eq)]
pub enum InitialCredential {
    /// The client certificate in the certificate directory, which is still valid.
    Managed,
    /// The kubeconfig's certificate, which was copied to the certificate directory.
    Kubeconfig,
    /// A bootstrap credential that may request a certificate.
    Bootstrap,
    /// No credential, with what an operator must do; the agent then continues by itself.
    Nothing(String),
}

/// Result of the search for credentials at the start.
pub struct BootstrapOutcome {
    /// The initial credential, or why a certificate could not be copied.
    pub source: Result<InitialCredential, CertStoreError>,
    /// The certificate on disk, for the manager of the client certificate.
    pub loaded: LoadedKeyPair,
}

/// Why the kubeconfig was not written.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The server's address is not known.
    #[error("{0}")]
    NoServer(String),
    /// A disk operation failed, for this reason.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The kubeconfig cannot be serialized as text.
    #[error("cannot write {}: {reason}", .path.display())]
    Unwritable {
        /// The kubeconfig that was to be written.
        path: PathBuf,
        /// Why serialization failed, on one line.
        reason: String,
    },
}

impl BootstrapCredentials {
    /// Creates it from these paths. `store` is that of the client certificate.
    pub fn new(kubeconfig: &Path, bootstrap: Option<&Path>, store: CertStore, files: FileSystem) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (kubeconfig, bootstrap) = (absolute(kubeconfig), bootstrap.map(absolute));
        Self { kubeconfig, bootstrap, store, files }
    }

    /// Finds the initial credential. A certificate in the kubeconfig is copied to the certificate
    /// directory.
    pub fn prepare(&self, now: OffsetDateTime) -> BootstrapOutcome {
        let mut loaded = self.store.load(now);
        if loaded.identity.as_ref().is_some_and(|held| held.is_valid_at(now)) {
            return BootstrapOutcome { source: Ok(InitialCredential::Managed), loaded };
        }
        if let Ok(KubeconfigUser::Certificate(identity)) = self.user(&self.kubeconfig, now) {
            let saved = self.store.save(&identity, now);
            if saved.is_ok() {
                loaded.identity = Some(*identity);
            }
            return BootstrapOutcome { source: saved.map(|()| InitialCredential::Kubeconfig), loaded };
        }
        let source = match self.bootstrap_kubeconfig(now) {
            Ok(bootstrap) => {
                self.adopt_bootstrap_server(&bootstrap, now);
                InitialCredential::Bootstrap
            }
            Err(advice) => InitialCredential::Nothing(advice),
        };
        BootstrapOutcome { source: Ok(source), loaded }
    }

    /// A node that bootstraps again may do so at another server.
    fn adopt_bootstrap_server(&self, bootstrap: &ParsedKubeconfig, now: OffsetDateTime) {
        let moved = self.read(&self.kubeconfig).is_ok_and(|own| own.server() != bootstrap.server());
        if moved && let Err(error) = self.replace_kubeconfig(bootstrap, now) {
            tracing::warn!("{error}");
        }
    }

    /// Returns the configuration of the server, without credentials.
    pub async fn cluster(&self) -> Result<Config, String> {
        config(self.server()?.without_user()).await
    }

    /// Returns a client that requests a certificate when the node has no usable one: as the user of
    /// the bootstrap kubeconfig, or of the kubeconfig if that does not use a certificate.
    pub async fn bootstrap_client(&self, now: OffsetDateTime) -> Result<Client, String> {
        let config = config(self.bootstrap_kubeconfig(now)?.kubeconfig).await?;
        client_error::connect(config).map_err(|error| client_error::describe(&error))
    }

    /// Writes the kubeconfig, unless a usable one exists. Returns whether it did.
    pub fn write_kubeconfig(&self, now: OffsetDateTime) -> Result<bool, BootstrapError> {
        let current = self.store.current_path();
        let path = &self.kubeconfig;
        let there = self.read(path);
        if let Ok(there) = &there
            && (there.uses(&current) || self.validate_user(there, now).is_ok())
        {
            return Ok(false);
        }
        self.replace_kubeconfig(&self.server().map_err(BootstrapError::NoServer)?, now)?;
        Ok(true)
    }

    fn replace_kubeconfig(
        &self,
        server: &ParsedKubeconfig,
        now: OffsetDateTime,
    ) -> Result<(), BootstrapError> {
        let (path, current) = (&self.kubeconfig, self.store.current_path());
        let unwritable = |reason| BootstrapError::Unwritable { path: path.clone(), reason };
        let text = kubeconfig::render(server, &current).map_err(unwritable)?;
        let mode = match std::fs::metadata(path) {
            Ok(metadata) => metadata.permissions().mode() & 0o777,
            Err(_) => durable::PRIVATE_MODE,
        };
        if self.read(path).is_err() && self.files.entry(path)? != PathEntry::Nothing {
            let aside = cert_store::aside(path, now);
            tracing::warn!(file = %path.display(), renamed = %aside.display(), "kubeconfig is invalid; renamed it");
            self.files.rename(path, &aside)?;
        }
        if let Some(directory) = path.parent() {
            self.files.create_directory(directory)?;
        }
        Ok(self.files.replace(path, text.as_bytes(), mode)?)
    }

    /// Returns a kubeconfig with the server's address: the node's own, or the bootstrap one.
    fn server(&self) -> Result<ParsedKubeconfig, String> {
        let own = self.read(&self.kubeconfig);
        match (own, &self.bootstrap) {
            (Ok(own), _) => Ok(own),
            (Err(own), Some(bootstrap)) => self.read(bootstrap).map_err(|error| {
                format!(
                    "server URL unknown: {} {own}, and {} {error}",
                    self.kubeconfig.display(),
                    bootstrap.display()
                )
            }),
            (Err(own), None) => Err(format!(
                "server URL unknown: {} {own}, and there is no bootstrap kubeconfig",
                self.kubeconfig.display()
            )),
        }
    }

    /// Returns the kubeconfig to request a certificate with, or what an operator must do.
    fn bootstrap_kubeconfig(&self, now: OffsetDateTime) -> Result<ParsedKubeconfig, String> {
        let read = |path: &Path| {
            let parsed = self.read(path)?;
            self.validate_user(&parsed, now).map(|user| (parsed, user))
        };
        let bootstrap = match self.bootstrap.as_deref().map(read) {
            Some(Ok((parsed, _))) => return Ok(parsed),
            Some(Err(why)) => Some(why),
            None => None,
        };
        let own = match read(&self.kubeconfig) {
            Ok((parsed, KubeconfigUser::Other)) => return Ok(parsed),
            Ok((_, KubeconfigUser::Certificate(_))) => "is the node's own".to_owned(),
            Err(why) => why,
        };
        Err(self.advice(&own, bootstrap.as_deref(), now))
    }

    /// Formats what is wrong with each credential, and the remedy.
    fn advice(&self, own: &str, bootstrap: Option<&str>, now: OffsetDateTime) -> String {
        let (current, kubeconfig) = (self.store.current_path(), self.kubeconfig.display());
        let managed = match self.store.peek() {
            Some(held) if held.is_valid_at(now) => "is not accepted by the server".to_owned(),
            Some(held) => format!("expired at {}", clock::text(held.expires())),
            None => "does not exist".to_owned(),
        };
        let managed = format!("the certificate {} {managed}", current.display());
        let (bootstrap, remedy) = match (&self.bootstrap, bootstrap) {
            (Some(path), Some(why)) => (
                format!("the bootstrap kubeconfig {} {why}", path.display()),
                format!("put a kubeconfig with a new bootstrap token at {}", path.display()),
            ),
            _ => (
                "no bootstrap kubeconfig is given".to_owned(),
                "start with --bootstrap-kubeconfig and a file with a bootstrap token".to_owned(),
            ),
        };
        format!(
            "this node has no credential: {managed}, the kubeconfig {kubeconfig} {own}, and \
             {bootstrap}; {remedy} (create one with windlass token create); retrying until a credential appears"
        )
    }

    fn user(&self, path: &Path, now: OffsetDateTime) -> Result<KubeconfigUser, String> {
        self.validate_user(&self.read(path)?, now)
    }

    fn read(&self, path: &Path) -> Result<ParsedKubeconfig, String> {
        ParsedKubeconfig::read(path, &self.files)
    }

    fn validate_user(
        &self,
        parsed: &ParsedKubeconfig,
        now: OffsetDateTime,
    ) -> Result<KubeconfigUser, String> {
        parsed.user(&self.files, now)
    }
}

async fn config(kubeconfig: Kubeconfig) -> Result<Config, String> {
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| first_line(&error))
}

fn first_line(error: &dyn std::error::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
