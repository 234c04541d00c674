//! Reads certificates, CAs and tokens again when their files change.
//!
//! The folders are watched, not the files: a mounted secret is replaced by swapping a link, which
//! the old file never hears of. A slow look at the contents catches what a watch misses. A file
//! that became unreadable or wrong is reported, and the last good one stays in use.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::Result;
use arc_swap::ArcSwap;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use windlass_server::Authenticator;
use windlass_server::ClientCas;
use windlass_server::FrontProxy;
use windlass_server::Server;

use super::{ServerSettings, ServiceAccountKeys, TlsFiles, files};

/// How often the files are looked at even if nobody said that they changed.
const LOOK: Duration = Duration::from_secs(20);
/// Writers often touch several files: wait until they are done.
const SETTLE: Duration = Duration::from_millis(200);

/// Keeps what was read from files up to date until the process ends.
pub fn watch_files(
    settings: &ServerSettings,
    server: Arc<Server>,
    tls: Arc<ArcSwap<rustls::ServerConfig>>,
) {
    let watched = WatchedFiles {
        tls: settings.tls.clone(),
        client_ca: settings.client_ca.clone(),
        tokens: settings.token_auth_file.clone(),
        proxy_ca: settings.access.requestheader_client_ca_file.clone(),
        account_keys: settings.service_account_keys.clone(),
    };
    std::thread::Builder::new()
        .name("reload".into())
        .spawn(move || watched.run(&server, &tls))
        .map_or_else(|error| tracing::error!(%error, "files will not be reloaded"), drop);
}

struct WatchedFiles {
    tls: TlsFiles,
    client_ca: PathBuf,
    tokens: Option<PathBuf>,
    proxy_ca: Option<PathBuf>,
    account_keys: ServiceAccountKeys,
}

impl WatchedFiles {
    fn run(&self, server: &Server, tls: &ArcSwap<rustls::ServerConfig>) {
        let (watcher, changes) = watch(self.files());
        let mut known = self.contents();
        while wait(&changes) {
            let now = self.contents();
            let changed = |path: &Path| now.get(path) != known.get(path);
            if changed(&self.tls.certificate) || changed(&self.tls.key) {
                log_reload(
                    "the serving certificate",
                    files::load_tls_config(&self.tls).map(|c| tls.store(Arc::new(c))),
                );
            }
            if changed(&self.client_ca) {
                log_reload("the client CAs", self.clients(&server.authenticator));
            }
            if let Some(path) = &self.tokens
                && changed(path)
            {
                let store = |tokens| server.authenticator.tokens.store(Arc::new(tokens));
                log_reload("the token file", files::tokens(path).map(store));
            }
            if let (Some(path), Some(proxy)) = (&self.proxy_ca, &server.authenticator.front_proxy)
                && changed(path)
            {
                let clients = server.authenticator.client_cas.load();
                log_reload("the proxies' CAs", proxies(path, proxy, &clients));
            }
            if let (Some(verifier), Some(signer)) =
                (&server.authenticator.service_accounts, &server.tokens)
                && self.account_keys.verifying.iter().any(|path| changed(path))
            {
                // The key that signs is the one from the start, whatever its file says by now.
                let read = files::verifying_keys(&self.account_keys, signer.public_key());
                let replace = |keys: Vec<_>| Ok(verifier.replace_keys(&keys)?);
                log_reload("the keys of service-account tokens", read.and_then(replace));
            }
            known = now;
        }
        drop(watcher);
    }

    fn clients(&self, authenticator: &Authenticator) -> Result<()> {
        let cas = files::client_cas(&self.client_ca)?;
        if let Some(proxy) = &authenticator.front_proxy {
            files::check_apart(&cas, &proxy.cas.load(), &proxy.allowed_names)?;
        }
        authenticator.client_cas.store(Arc::new(cas));
        Ok(())
    }

    fn files(&self) -> Vec<&Path> {
        let mut all: Vec<&Path> = vec![&self.tls.certificate, &self.tls.key, &self.client_ca];
        all.extend(self.tokens.as_deref());
        all.extend(self.proxy_ca.as_deref());
        all.extend(self.account_keys.verifying.iter().map(PathBuf::as_path));
        all
    }

    /// What the files hold; one that cannot be read holds nothing.
    fn contents(&self) -> HashMap<PathBuf, Vec<u8>> {
        let read = |path: &Path| (path.to_owned(), std::fs::read(path).unwrap_or_default());
        self.files().into_iter().map(read).collect()
    }
}

fn proxies(path: &Path, proxy: &FrontProxy, clients: &ClientCas) -> Result<()> {
    let cas = files::client_cas(path)?;
    files::check_apart(clients, &cas, &proxy.allowed_names)?;
    proxy.cas.store(Arc::new(cas));
    Ok(())
}

fn watch(files: Vec<&Path>) -> (Option<RecommendedWatcher>, Receiver<()>) {
    let (sender, changes) = channel();
    let watcher = notify::recommended_watcher(move |_| {
        let _ = sender.send(());
    });
    let watcher = watcher.and_then(|mut watcher| {
        let mut folders: Vec<&Path> = files.iter().filter_map(|f| f.parent()).collect();
        folders.sort();
        folders.dedup();
        for folder in folders {
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
        }
        Ok(watcher)
    });
    match watcher {
        Ok(watcher) => (Some(watcher), changes),
        Err(error) => {
            tracing::warn!(%error, "files are looked at every {LOOK:?} only");
            (None, changes)
        }
    }
}

/// Waits for a change or for the next look; false when nothing can come any more.
fn wait(changes: &Receiver<()>) -> bool {
    match changes.recv_timeout(LOOK) {
        Ok(()) => {
            std::thread::sleep(SETTLE);
            while changes.try_recv().is_ok() {}
            true
        }
        Err(RecvTimeoutError::Timeout) => true,
        Err(RecvTimeoutError::Disconnected) => {
            std::thread::sleep(LOOK);
            true
        }
    }
}

fn log_reload(what: &str, outcome: Result<()>) {
    match outcome {
        Ok(()) => tracing::info!("{what} changed and is in use"),
        Err(error) => {
            tracing::error!("{what} changed and cannot be used; the last good one stays: {error:#}")
        }
    }
}
