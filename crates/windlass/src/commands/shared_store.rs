//! Opens a store that several servers share.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use windlass_store::{Error, EtcdOptions, EtcdStore, Store};

/// Timeout for etcd's first response at start. Machines that start together wait for each other;
/// after the timeout, the service manager restarts the process.
const PATIENCE: Duration = Duration::from_secs(30);
/// Delay between two connection attempts.
const PAUSE: Duration = Duration::from_millis(250);

/// Connects to etcd; blocks until it answers.
pub fn open(options: EtcdOptions) -> Result<Arc<dyn Store>> {
    if let Some(tls) = &options.tls {
        let identity = tls.identity.as_ref();
        readable("--etcd-cafile", tls.ca.as_deref())?;
        readable("--etcd-certfile", identity.map(|(certificate, _)| certificate.as_path()))?;
        readable("--etcd-keyfile", identity.map(|(_, key)| key.as_path()))?;
    }
    let begun = Instant::now();
    loop {
        match EtcdStore::open(options.clone()) {
            Ok(store) => return Ok(Arc::new(store)),
            Err(error @ Error::Unavailable { .. }) if begun.elapsed() < PATIENCE => {
                tracing::warn!(%error, "etcd is not reachable; retrying{}", tls_hint(&options));
                std::thread::sleep(PAUSE);
            }
            Err(error) => {
                return Err(error).with_context(|| format!("--etcd-servers{}", tls_hint(&options)));
            }
        }
    }
}

/// Returns a hint for missing client certificates: an etcd that requires one often just closes the
/// connection.
fn tls_hint(options: &EtcdOptions) -> &'static str {
    let shown = options.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
    if !shown && options.endpoints.iter().any(|url| url.starts_with("https:")) {
        " (it may require a client certificate: --etcd-certfile, --etcd-keyfile)"
    } else {
        ""
    }
}

/// Fails at once if a file is missing, and names the flag.
fn readable(flag: &str, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let opened = std::fs::File::open(path);
    opened.map(drop).with_context(|| format!("{flag}: cannot read {}", path.display()))
}
