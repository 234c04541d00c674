//! Inputs that the validity of a credential depends on, to detect changes.

use std::sync::Arc;

use http::HeaderMap;

use super::client_cert::ClientCas;
use super::token_file::TokenFile;
use super::{Authenticator, bearer, bootstrap, service_account};
use crate::cache::KindCache;
use crate::server::Server;
use crate::tokens::KeySet;

/// Everything read while authenticating a request, apart from the clock. Holds references to the
/// files, so that a reloaded one cannot reuse the address of its predecessor.
pub struct CredentialDependencies {
    client_cas: Arc<ClientCas>,
    proxy_cas: Option<Arc<ClientCas>>,
    tokens: Arc<TokenFile>,
    keys: Option<Arc<KeySet>>,
    objects: Vec<ObjectVersion>,
}

struct ObjectVersion {
    cache: Arc<KindCache>,
    key: String,
    /// `None` if the object did not exist.
    revision: Option<u64>,
}

impl Authenticator {
    /// Returns the current dependencies of a request with these headers.
    pub fn credential_dependencies(&self, server: &Server, headers: &HeaderMap) -> CredentialDependencies {
        let mut objects = Vec::new();
        if let Some(token) = bearer(headers) {
            if let Some(verifier) = &self.service_accounts {
                objects.extend(service_account::dependencies(verifier, &token));
            }
            objects.extend(bootstrap::secret_key(&token).map(|key| ("secrets", key)));
        }
        let version = |(plural, key): (&str, String)| {
            let cache = server.core(plural).ok()?.clone();
            let revision = revision(&cache, &key);
            Some(ObjectVersion { cache, key, revision })
        };
        CredentialDependencies {
            client_cas: self.client_cas.load_full(),
            proxy_cas: self.front_proxy.as_ref().map(|proxy| proxy.cas.load_full()),
            tokens: self.tokens.load_full(),
            keys: self.service_accounts.as_ref().map(|verifier| verifier.current_keys()),
            objects: objects.into_iter().filter_map(version).collect(),
        }
    }

    /// Returns true if nothing in `basis` has changed.
    pub fn is_current(&self, basis: &CredentialDependencies) -> bool {
        // Front proxy and verifier are never added or removed while the server runs.
        let same_proxy = match (&self.front_proxy, &basis.proxy_cas) {
            (Some(proxy), Some(cas)) => Arc::ptr_eq(&proxy.cas.load(), cas),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let same_keys = match (&self.service_accounts, &basis.keys) {
            (Some(verifier), Some(keys)) => verifier.is_current(keys),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        same_proxy
            && same_keys
            && Arc::ptr_eq(&self.client_cas.load(), &basis.client_cas)
            && Arc::ptr_eq(&self.tokens.load(), &basis.tokens)
            && basis.objects.iter().all(|o| revision(&o.cache, &o.key) == o.revision)
    }
}

fn revision(cache: &KindCache, key: &str) -> Option<u64> {
    cache.get(key).map(|object| object.revision)
}
