//! Whom to be on which server.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures::FutureExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::agent::Options;
use crate::manager::{Clients, Credential};
use crate::present::Current;
use crate::request::explain;

/// The kubeconfigs, read whenever they are needed.
pub struct Access {
    kubeconfig: PathBuf,
    bootstrap: Option<PathBuf>,
    current: OnceLock<Current>,
}

impl Access {
    /// Where to look.
    pub fn new(options: &Options) -> Self {
        Self {
            kubeconfig: options.kubeconfig.clone(),
            bootstrap: options.bootstrap_kubeconfig.clone(),
            current: OnceLock::new(),
        }
    }

    /// Whose certificate to show.
    pub fn follow(&self, current: Current) {
        let _ = self.current.set(current);
    }

    /// Clients for managers.
    pub fn clients(self: &Arc<Self>) -> Clients {
        let this = self.clone();
        Arc::new(move |credential| {
            let this = this.clone();
            async move { this.client(credential).await }.boxed()
        })
    }

    async fn client(&self, credential: Credential) -> Result<Client, String> {
        match (credential, &self.bootstrap) {
            (Credential::Own, _) => {
                let config = self.own().await?;
                let current = self.current.get().cloned().ok_or("there is no certificate")?;
                crate::client::connect(&config, current).map_err(|error| explain(&error))
            }
            (Credential::Bootstrap, Some(path)) => {
                Client::try_from(read(path).await?).map_err(|error| explain(&error))
            }
            (Credential::Bootstrap, None) => Err("there is no bootstrap kubeconfig".into()),
        }
    }

    /// How to reach the server.
    pub async fn own(&self) -> Result<Config, String> {
        match (read(&self.kubeconfig).await, &self.bootstrap) {
            (Err(_), Some(path)) => read(path).await,
            (found, _) => found,
        }
    }
}

async fn read(path: &Path) -> Result<Config, String> {
    let cannot = |error: &dyn std::fmt::Display| format!("cannot use {}: {error}", path.display());
    let file = Kubeconfig::read_from(path).map_err(|error| cannot(&error))?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(file, &options).await.map_err(|error| cannot(&error))
}
