//! A kubeconfig that uses what was issued, by the names of its files: a renewal is seen by itself.

use std::path::Path;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use serde_json::{Value, json};
use windlass_pki::pem;
use zeroize::Zeroizing;

use crate::commands::print;
use crate::datadir;

/// Writes a file with which kubectl reaches the same server, with this certificate.
pub fn write(
    file: &Path,
    config: &Config,
    user: &str,
    certificate: &Path,
    key: &Path,
) -> Result<()> {
    let text = print::yaml(&contents(config, user, certificate, key))?;
    datadir::write_new(file, Zeroizing::new(text))
}

fn contents(config: &Config, user: &str, certificate: &Path, key: &Path) -> Value {
    let user = if user.is_empty() { "user" } else { user };
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
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{
            "name": user,
            "user": {"client-certificate": certificate, "client-key": key},
        }],
        "contexts": [{"name": user, "context": {"cluster": "cluster", "user": user}}],
        "current-context": user,
    })
}
