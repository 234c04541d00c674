//! A client for the server of a kubeconfig.

use std::time::Duration;

use anyhow::{Error, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use windlass_pki::pem;

use super::print;
use crate::cli::ApiServerArgs;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout of connecting. Shorter than that of a request, so that the error names the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client for the server that the flags or kubectl's configuration select.
pub async fn connect(server: &ApiServerArgs) -> Result<kube::Client> {
    from_config(config(server).await?)
}

/// A client for a server. Its connection errors name the server's URL.
pub fn from_config(config: kube::Config) -> Result<kube::Client> {
    windlass_runtime::client_error::connect(config).map_err(explain)
}

/// Reads the client configuration from the kubeconfig and context of the flags, or from kubectl's defaults.
pub async fn config(server: &ApiServerArgs) -> Result<kube::Config> {
    let options = KubeConfigOptions { context: server.context.clone(), ..Default::default() };
    let mut config = match &server.kubeconfig {
        Some(path) => {
            let cannot = |error| anyhow!("cannot use {}: {}", path.display(), error_summary(error));
            let file = Kubeconfig::read_from(path).map_err(cannot)?;
            kube::Config::from_custom_kubeconfig(file, &options).await.map_err(cannot)?
        }
        // The configuration of a pod has no contexts.
        None if options.context.is_some() => {
            kube::Config::from_kubeconfig(&options).await.map_err(no_kubeconfig)?
        }
        None => kube::Config::infer().await.map_err(no_kubeconfig)?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Ok(config)
}

fn no_kubeconfig(error: impl Into<Error>) -> Error {
    anyhow!("no usable kubeconfig: set --kubeconfig or KUBECONFIG ({})", error_summary(error))
}

/// Formats the connection as the `cluster` of a kubeconfig.
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

/// Returns the first line of the root cause.
fn error_summary(error: impl Into<Error>) -> String {
    let error = error.into();
    let cause = error.root_cause().to_string();
    print::plain(cause.lines().next().unwrap_or_default())
}

/// Describes a failed request on one line. Every command formats client errors here.
pub fn explain(error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) if status.code == 401 => unauthorized(),
        error => anyhow!("{}", print::plain(&windlass_runtime::client_error::describe(&error))),
    }
}

/// The error for credentials that the server rejects.
pub fn unauthorized() -> Error {
    anyhow!("the server rejected the credentials (401 Unauthorized): check the user of the kubeconfig")
}

/// Applies the timeout of requests. Not a setting of the client, because watches last longer.
pub async fn with_timeout<T>(request: impl Future<Output = T>) -> Result<T> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => Ok(answer),
        Err(_) => bail!("the server did not respond within {REQUEST_TIMEOUT:?}"),
    }
}

/// Runs a future that uses a client to completion.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}
