//! A kubeconfig that refers to the issued files by path, so that renewals take effect without a
//! rewrite.

use std::path::Path;

use anyhow::Result;
use kube::Config;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::commands::{api_client, print};
use crate::datadir;

/// Writes a kubeconfig for the same server that authenticates with this certificate.
pub fn write(file: &Path, config: &Config, user: &str, certificate: &Path, key: &Path) -> Result<()> {
    let text = print::yaml(&contents(config, user, certificate, key))?;
    datadir::write_new(file, Zeroizing::new(text))
}

fn contents(config: &Config, user: &str, certificate: &Path, key: &Path) -> Value {
    let user = if user.is_empty() { "user" } else { user };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": api_client::cluster(config)}],
        "users": [{
            "name": user,
            "user": {"client-certificate": certificate, "client-key": key},
        }],
        "contexts": [{"name": user, "context": {"cluster": "cluster", "user": user}}],
        "current-context": user,
    })
}
