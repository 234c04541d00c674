//! What is read from files, at the start and again when they change.

use std::path::Path;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use windlass_pki::{CertificateDer, PrivateKey};
use windlass_server::chain::authn::client_cert::ClientCas;
use windlass_server::chain::authn::{Authenticator, token_file::TokenFile};

use super::{ServiceAccountKeys, Settings, TlsFiles};

/// The TLS configuration of a certificate and key.
pub fn tls(files: &TlsFiles) -> Result<rustls::ServerConfig> {
    let certificate = read(&files.certificate)?;
    let key = read(&files.key)?;
    let config = windlass_server::tls::config(&certificate, &key);
    config.with_context(|| format!("{} with {}", files.certificate.display(), files.key.display()))
}

/// Who may call.
pub fn authenticator(settings: &Settings) -> Result<Authenticator> {
    let tokens = match &settings.token_auth_file {
        Some(path) => tokens(path)?,
        None => TokenFile::default(),
    };
    Ok(Authenticator {
        client_cas: ArcSwap::from_pointee(client_cas(&settings.client_ca)?),
        tokens: ArcSwap::from_pointee(tokens),
        anonymous: settings.access.anonymous_auth,
        ..Authenticator::default()
    })
}

/// The CAs that may vouch for clients.
pub fn client_cas(path: &Path) -> Result<ClientCas> {
    let pem = read(path)?;
    let cas: Vec<CertificateDer<'static>> =
        windlass_pki::pem::certificates(&pem).with_context(|| path.display().to_string())?;
    ClientCas::new(&cas).with_context(|| path.display().to_string())
}

/// The users of a token file.
pub fn tokens(path: &Path) -> Result<TokenFile> {
    let text = String::from_utf8(read(path)?).with_context(|| path.display().to_string())?;
    TokenFile::parse(&text).with_context(|| path.display().to_string())
}

/// The key that signs service-account tokens. Keys that only verify must be readable too.
pub fn signing_key(keys: &ServiceAccountKeys) -> Result<PrivateKey> {
    for path in &keys.verifying {
        read(path)?;
    }
    PrivateKey::from_pem(&read(&keys.signing)?).with_context(|| keys.signing.display().to_string())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
