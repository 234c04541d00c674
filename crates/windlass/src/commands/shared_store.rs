//! Opening a store that several servers share.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use windlass_store::{Error, EtcdOptions, EtcdStore, Store};

/// How long etcd may take to answer at the start. Machines that start together wait for one another; a service
/// manager starts us again after that.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait between two attempts.
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

/// Whoever shows no certificate to an etcd that wants one often learns only that the connection was closed.
fn tls_hint(options: &EtcdOptions) -> &'static str {
    let shown = options.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
    if !shown && options.endpoints.iter().any(|url| url.starts_with("https:")) {
        " (it may require a client certificate: --etcd-certfile, --etcd-keyfile)"
    } else {
        ""
    }
}

/// That a file is missing is said at once, and by which flag it is named.
fn readable(flag: &str, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let opened = std::fs::File::open(path);
    opened.map(drop).with_context(|| format!("{flag}: cannot read {}", path.display()))
}
