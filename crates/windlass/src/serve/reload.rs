//! Reloads certificates, CAs, tokens and keys when their files change. Invalid contents are reported, and the previous
//! ones stay in use.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use arc_swap::ArcSwap;
use windlass_runtime::file_watch::{FileWatchTiming, FileWatcher};
use windlass_server::{Authenticator, ClientCas, FrontProxy, Server};

use super::{ServerSettings, ServiceAccountKeys, TlsFiles, files};

/// Watches the files of a server. Create it before the files are loaded, so that no change is missed.
pub struct FileReloader {
    watcher: FileWatcher,
    files: ServerFiles,
    known: FileContents,
}

/// Contents by path; a file that cannot be read is empty.
type FileContents = HashMap<PathBuf, Vec<u8>>;

#[derive(Clone)]
struct ServerFiles {
    tls: TlsFiles,
    client_ca: PathBuf,
    tokens: Option<PathBuf>,
    proxy_ca: Option<PathBuf>,
    account_keys: ServiceAccountKeys,
}

impl FileReloader {
    pub fn new(settings: &ServerSettings) -> Self {
        let files = ServerFiles {
            tls: settings.tls.clone(),
            client_ca: settings.client_ca.clone(),
            tokens: settings.options.token_auth_file.clone(),
            proxy_ca: settings.options.access.requestheader_client_ca_file.clone(),
            account_keys: settings.service_account_keys.clone(),
        };
        let watcher = FileWatcher::new(files.paths(), FileWatchTiming::default());
        let known = files.read();
        Self { watcher, files, known }
    }

    /// Reloads changed files until the runtime ends.
    pub async fn run(mut self, server: Arc<Server>, tls: Arc<ArcSwap<rustls::ServerConfig>>) {
        loop {
            let (files, known) = (self.files.clone(), self.known.clone());
            let (server, tls) = (server.clone(), tls.clone());
            let reload = tokio::task::spawn_blocking(move || {
                let current = files.read();
                files.reload(&|path| current.get(path) != known.get(path), &server, &tls);
                current
            });
            match reload.await {
                Ok(current) => self.known = current,
                Err(error) => {
                    tracing::error!(%error, "reload panicked; waiting for the next change")
                }
            }
            self.watcher.changed().await;
        }
    }
}

impl ServerFiles {
    fn reload(
        &self,
        is_changed: &dyn Fn(&Path) -> bool,
        server: &Server,
        tls: &ArcSwap<rustls::ServerConfig>,
    ) {
        let authenticator = &server.authenticator;
        if is_changed(&self.tls.certificate) || is_changed(&self.tls.key) {
            let config = files::load_tls_config(&self.tls);
            log_reload("serving certificate", config.map(|config| tls.store(Arc::new(config))));
        }
        if is_changed(&self.client_ca) {
            log_reload("client CAs", self.reload_client_cas(authenticator));
        }
        if let Some(path) = &self.tokens
            && is_changed(path)
        {
            let store = |tokens| authenticator.tokens.store(Arc::new(tokens));
            log_reload("token file", files::tokens(path).map(store));
        }
        if let (Some(path), Some(proxy)) = (&self.proxy_ca, &authenticator.front_proxy)
            && is_changed(path)
        {
            let clients = authenticator.client_cas.load();
            log_reload("front-proxy CAs", reload_proxy_cas(path, proxy, &clients));
        }
        if let (Some(verifier), Some(signer)) = (&authenticator.service_accounts, &server.tokens)
            && self.account_keys.verifying.iter().any(|path| is_changed(path))
        {
            // The server signs with the key from its start, even if the file has another one now.
            let read = files::verifying_keys(&self.account_keys, signer.public_key());
            let replace = |keys: Vec<_>| Ok(verifier.replace_keys(&keys)?);
            log_reload("service-account keys", read.and_then(replace));
        }
    }

    fn reload_client_cas(&self, authenticator: &Authenticator) -> Result<()> {
        let cas = files::client_cas(&self.client_ca)?;
        if let Some(proxy) = &authenticator.front_proxy {
            files::check_apart(&cas, &proxy.cas.load(), &proxy.allowed_names)?;
        }
        authenticator.client_cas.store(Arc::new(cas));
        Ok(())
    }

    fn paths(&self) -> Vec<PathBuf> {
        let mut all = vec![self.tls.certificate.clone(), self.tls.key.clone(), self.client_ca.clone()];
        all.extend(self.tokens.clone());
        all.extend(self.proxy_ca.clone());
        all.extend(self.account_keys.verifying.iter().cloned());
        all
    }

    fn read(&self) -> FileContents {
        let read = |path: PathBuf| {
            let contents = std::fs::read(&path).unwrap_or_default();
            (path, contents)
        };
        self.paths().into_iter().map(read).collect()
    }
}

fn reload_proxy_cas(path: &Path, proxy: &FrontProxy, clients: &ClientCas) -> Result<()> {
    let cas = files::client_cas(path)?;
    files::check_apart(clients, &cas, &proxy.allowed_names)?;
    proxy.cas.store(Arc::new(cas));
    Ok(())
}

fn log_reload(what: &str, outcome: Result<()>) {
    match outcome {
        Ok(()) => tracing::info!("{what} reloaded"),
        Err(error) => {
            let error = format!("{error:#}");
            tracing::error!(error, "{what} rejected; still using the previous contents");
        }
    }
}
