//! Loads files at start and again when they change.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use arc_swap::ArcSwap;
use windlass_pki::{CertificateDer, PrivateKey, PublicKey};
use windlass_server::{Authenticator, ClientCas, FrontProxy, TokenFile, TokenVerifier};

use super::{ServerSettings, ServiceAccountKeys, TlsFiles};
use crate::cli::AccessArgs;

/// Loads the TLS configuration from a certificate and key.
pub fn load_tls_config(files: &TlsFiles) -> Result<rustls::ServerConfig> {
    let certificate = read(&files.certificate)?;
    let key = read(&files.key)?;
    let config = windlass_server::tls_config(&certificate, &key);
    config.with_context(|| format!("{} with {}", files.certificate.display(), files.key.display()))
}

/// Builds the authenticator from client CAs, token files and proxy settings.
pub fn authenticator(settings: &ServerSettings) -> Result<Authenticator> {
    let access = &settings.options.access;
    let tokens = match &settings.options.token_auth_file {
        Some(path) => tokens(path)?,
        None => TokenFile::default(),
    };
    let keys = &settings.service_account_keys;
    let keys = verifying_keys(keys, signing_key(keys)?.public_key())?;
    let (issuers, audiences) = (access.service_account_issuer.clone(), access.api_audiences.clone());
    let verifier =
        TokenVerifier::new(issuers, audiences, &keys)?.with_jwks_uri(access.service_account_jwks_uri.clone());
    let (front_proxy, clients) = (front_proxy(access)?, client_cas(&settings.client_ca)?);
    if let Some(proxy) = &front_proxy {
        check_apart(&clients, &proxy.cas.load(), &proxy.allowed_names)?;
    }
    Ok(Authenticator {
        front_proxy,
        client_cas: ArcSwap::from_pointee(clients),
        tokens: ArcSwap::from_pointee(tokens),
        service_accounts: Some(Arc::new(verifier)),
        bootstrap_tokens: access.enable_bootstrap_token_auth,
        anonymous: access.anonymous_auth,
    })
}

fn front_proxy(access: &AccessArgs) -> Result<Option<FrontProxy>> {
    let Some(path) = &access.requestheader_client_ca_file else { return Ok(None) };
    Ok(Some(FrontProxy {
        cas: ArcSwap::from_pointee(client_cas(path)?),
        allowed_names: access.requestheader_allowed_names.clone(),
        username_headers: access.requestheader_username_headers.clone(),
        uid_headers: access.requestheader_uid_headers.clone(),
        group_headers: access.requestheader_group_headers.clone(),
        extra_prefixes: access.requestheader_extra_headers_prefix.clone(),
    }))
}

/// Fails if any client could authenticate as a front proxy: every certificate holder could then
/// impersonate any user.
pub fn check_apart(clients: &ClientCas, proxies: &ClientCas, names: &[String]) -> Result<()> {
    if names.is_empty() && clients.overlaps(proxies) {
        bail!(
            "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; \
             --requestheader-allowed-names must be specified to ensure regular client certificates \
             cannot set authenticating proxy headers for arbitrary users"
        );
    }
    Ok(())
}

/// Loads the CAs that verify client certificates.
pub fn client_cas(path: &Path) -> Result<ClientCas> {
    let pem = read(path)?;
    let cas: Vec<CertificateDer<'static>> =
        windlass_pki::pem::certificates(&pem).with_context(|| path.display().to_string())?;
    ClientCas::new(&cas).with_context(|| path.display().to_string())
}

/// Loads the users of a static token file.
pub fn tokens(path: &Path) -> Result<TokenFile> {
    let text = String::from_utf8(read(path)?).with_context(|| path.display().to_string())?;
    TokenFile::parse(&text).with_context(|| path.display().to_string())
}

/// Loads the key that signs service-account tokens.
pub fn signing_key(keys: &ServiceAccountKeys) -> Result<PrivateKey> {
    PrivateKey::from_pem(&read(&keys.signing)?).with_context(|| keys.signing.display().to_string())
}

/// Loads the keys that verify service-account tokens: the configured ones, and the signing key
/// `signing`.
pub fn verifying_keys(keys: &ServiceAccountKeys, signing: &PublicKey) -> Result<Vec<PublicKey>> {
    let mut all = vec![signing.clone()];
    for path in &keys.verifying {
        let found = PublicKey::list_from_pem(&read(path)?);
        for key in found.with_context(|| path.display().to_string())? {
            if !all.contains(&key) {
                all.push(key);
            }
        }
    }
    Ok(all)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> CertificateDer<'static> {
        windlass_testkit::self_signed_ca("ca").certificate().der().clone()
    }

    #[test]
    fn tokens_verify_after_key_files_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sa.key");
        let (used, newer) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
        std::fs::write(&path, newer.to_pem().unwrap().as_bytes()).unwrap();
        let files = ServiceAccountKeys { signing: path.clone(), verifying: vec![path] };
        let keys = verifying_keys(&files, used.public_key()).unwrap();
        assert!(keys == [used.public_key().clone(), newer.public_key().clone()]);
    }

    #[test]
    fn clients_and_proxies_need_distinct_cas_or_names() {
        let cas = |list: &[&CertificateDer<'static>]| {
            let list: Vec<_> = list.iter().map(|ca| (*ca).clone()).collect();
            ClientCas::new(&list).unwrap()
        };
        let (one, two) = (authority(), authority());
        let named = ["proxy".to_owned()];
        for (proxies, names, allowed) in [
            (cas(&[&two]), &[][..], true),
            (cas(&[&one]), &[], false),
            (cas(&[&two, &one]), &[], false),
            (cas(&[&one]), &named[..], true),
        ] {
            assert_eq!(check_apart(&cas(&[&one]), &proxies, names).is_ok(), allowed);
        }
    }
}
