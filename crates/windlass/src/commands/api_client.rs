//! A client for the server of a kubeconfig.

use std::path::Path;
use std::time::Duration;

use anyhow::{Error, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use windlass_pki::pem;

use super::print;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a connection may take to be established. Shorter than a request, so that the error names the server.
const CONNECT: Duration = Duration::from_secs(10);

/// A client for the server of `kubeconfig`, or of the one that kubectl would use.
pub async fn from_kubeconfig(kubeconfig: Option<&Path>) -> Result<kube::Client> {
    from_config(config(kubeconfig).await?)
}

/// A client for a server. Its connection errors name the server's URL.
pub fn from_config(config: kube::Config) -> Result<kube::Client> {
    windlass_client_error::connect(config).map_err(explain)
}

/// How to reach the server of `kubeconfig`, or of the one that kubectl would use.
pub async fn config(kubeconfig: Option<&Path>) -> Result<kube::Config> {
    let mut config = match kubeconfig {
        Some(path) => {
            let cannot = |error| anyhow!("cannot use {}: {}", path.display(), error_summary(error));
            let file = Kubeconfig::read_from(path).map_err(cannot)?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(file, &options).await.map_err(cannot)?
        }
        None => kube::Config::infer().await.map_err(|error| {
            let error = error_summary(error);
            anyhow!("no kubeconfig: name one with --kubeconfig or in KUBECONFIG ({error})")
        })?,
    };
    config.connect_timeout = Some(CONNECT);
    Ok(config)
}

/// How to reach the same server, as a kubeconfig says it of a cluster.
pub fn cluster(config: &kube::Config) -> Value {
    let mut cluster = json!({ "server": config.cluster_url.to_string().trim_end_matches('/') });
    if let Some(file) = &config.root_cert_file {
        cluster["certificate-authority"] = json!(file);
    } else if let Some(certificates) = &config.root_cert {
        let text = pem::encode_certificates(certificates.iter().map(Vec::as_slice));
        cluster["certificate-authority-data"] = json!(STANDARD.encode(text));
    }
    if config.accept_invalid_certs {
        cluster["insecure-skip-tls-verify"] = json!(true);
    }
    if let Some(name) = &config.tls_server_name {
        cluster["tls-server-name"] = json!(name);
    }
    if let Some(url) = &config.proxy_url {
        cluster["proxy-url"] = json!(url.to_string());
    }
    cluster
}

/// The first line of what it comes down to.
fn error_summary(error: impl Into<Error>) -> String {
    let error = error.into();
    let cause = error.root_cause().to_string();
    print::plain(cause.lines().next().unwrap_or_default())
}

/// Why a request failed, on one line. Every command formats client errors here.
pub fn explain(error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            anyhow!("the server does not know who you are: check the user of the kubeconfig")
        }
        error => anyhow!("{}", print::plain(&windlass_client_error::describe(&error))),
    }
}

/// What a server answers, if it does. Watches go on for longer, so this is not the client's affair.
pub async fn with_timeout<T>(request: impl Future<Output = T>) -> Result<T> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => Ok(answer),
        Err(_) => bail!("the server of the kubeconfig did not answer for {PATIENCE:?}"),
    }
}

/// Runs what needs a client to its end.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}
