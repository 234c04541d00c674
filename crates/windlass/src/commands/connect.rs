//! A client for the server of a kubeconfig.

use std::path::Path;

use anyhow::{Context, Error, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::print;

/// A client for the server of `kubeconfig`, or of the one that kubectl would use.
pub async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client> {
    Ok(kube::Client::try_from(config(kubeconfig).await?)?)
}

/// How to reach the server of `kubeconfig`, or of the one that kubectl would use.
pub async fn config(kubeconfig: Option<&Path>) -> Result<kube::Config> {
    Ok(match kubeconfig {
        Some(path) => {
            let named = || path.display().to_string();
            let file = Kubeconfig::read_from(path).with_context(named)?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(file, &options).await.with_context(named)?
        }
        None => kube::Config::infer()
            .await
            .context("no kubeconfig: name one with --kubeconfig or in KUBECONFIG")?,
    })
}

/// Why a server was of no help, on one line and without the names of our libraries.
pub fn explain(error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            anyhow!("the server does not know who you are: check the user of the kubeconfig")
        }
        kube::Error::Api(status) => anyhow!("{}", print::plain(&status.message)),
        error => {
            let error = Error::new(error);
            anyhow!("cannot reach the server of the kubeconfig: {}", error.root_cause())
        }
    }
}

/// Runs what needs a client to its end.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    // Before anything of rustls: libraries would otherwise choose for themselves.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}
