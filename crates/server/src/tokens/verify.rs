//! Verifies signatures of service account tokens.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use windlass_pki::{JwsKey, PublicKey};

use super::claims::TokenClaims;
use super::key_id;
use crate::limits;

/// Verifies tokens of this server by issuer, keys and audiences.
pub struct TokenVerifier {
    issuers: Vec<String>,
    audiences: Vec<String>,
    pub(super) jwks_uri: Option<String>,
    pub(super) keys: ArcSwap<KeySet>,
}

/// Why a verifier cannot be configured.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum VerifierError {
    #[error("service account tokens need an issuer")]
    NoIssuer,
    #[error("service account tokens need a verification key")]
    NoKey,
    #[error("service account key cannot verify tokens: {0}")]
    BadKey(windlass_pki::Error),
}

/// Why a token is not accepted as one of this server.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TokenRejection {
    /// The issuer is another one; another authenticator may accept the token.
    #[error("not a token of this issuer")]
    NotOurs,
    #[error("invalid signature, no keys found")]
    NoKey,
    #[error("invalid signature")]
    Signature,
    #[error("claims cannot be parsed")]
    Claims,
}

impl TokenVerifier {
    /// Accepts tokens of `issuers` (the first signs new tokens) that are signed by `keys`. Without
    /// `audiences`, the issuers are the server's audiences.
    pub fn new(
        issuers: Vec<String>,
        audiences: Vec<String>,
        keys: &[PublicKey],
    ) -> Result<TokenVerifier, VerifierError> {
        if issuers.is_empty() || issuers.iter().any(String::is_empty) {
            return Err(VerifierError::NoIssuer);
        }
        let audiences = if audiences.is_empty() { issuers.clone() } else { audiences };
        let keys = ArcSwap::from_pointee(KeySet::new(keys)?);
        Ok(TokenVerifier { issuers, audiences, jwks_uri: None, keys })
    }

    /// Publishes another JWKS URL than the issuer's.
    #[must_use]
    pub fn with_jwks_uri(mut self, uri: Option<String>) -> TokenVerifier {
        self.jwks_uri = uri;
        self
    }

    /// Replaces the keys and clears the cache of verified tokens.
    pub fn replace_keys(&self, keys: &[PublicKey]) -> Result<(), VerifierError> {
        self.keys.store(Arc::new(KeySet::new(keys)?));
        Ok(())
    }

    /// Returns the current key set.
    pub fn current_keys(&self) -> Arc<KeySet> {
        self.keys.load_full()
    }

    /// Returns true if the keys have not been replaced since [`TokenVerifier::current_keys`]
    /// returned these.
    pub fn is_current(&self, keys: &Arc<KeySet>) -> bool {
        Arc::ptr_eq(&self.keys.load(), keys)
    }

    /// Returns the issuer of new tokens; tokens of further issuers may be accepted.
    pub fn issuer(&self) -> &str {
        self.issuers.first().map_or("", String::as_str)
    }

    /// Returns the audiences of this server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Returns the claims of a token signed by one of the issuers. Does not check their validity in
    /// time, which changes between requests while the signature does not.
    pub fn verify(&self, token: &str) -> Result<Arc<TokenClaims>, TokenRejection> {
        if token.len() > limits::TOKEN {
            return Err(TokenRejection::NotOurs);
        }
        let keys = self.keys.load();
        let digest = sha256(token);
        if let Some(known) = keys.cached_claims(&digest) {
            return Ok(known);
        }
        let claims = Arc::new(self.check_token(&keys, token)?);
        keys.cache_claims(digest, claims.clone());
        Ok(claims)
    }

    fn check_token(&self, keys: &KeySet, token: &str) -> Result<TokenClaims, TokenRejection> {
        let (message, signature) = token.rsplit_once('.').ok_or(TokenRejection::NotOurs)?;
        let (header, payload) = message.split_once('.').ok_or(TokenRejection::NotOurs)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenRejection::NotOurs)?;
        // A remaining dot in the payload is invalid base64, so there are exactly three parts.
        let claimed: UnverifiedClaims = part(payload).ok_or(TokenRejection::NotOurs)?;
        if !self.issuers.contains(&claimed.iss) {
            return Err(TokenRejection::NotOurs);
        }
        let header: JwsHeader = part(header).ok_or(TokenRejection::NotOurs)?;
        // RFC 7515 §4.1.11: critical extensions must be understood, and none are supported.
        if header.crit.is_some() {
            return Err(TokenRejection::NotOurs);
        }
        let id = header.kid.as_deref().filter(|id| !id.is_empty());
        let mut fitting = keys.keys.iter().filter(|key| id.is_none_or(|id| id == key.id)).peekable();
        if fitting.peek().is_none() {
            return Err(TokenRejection::NoKey);
        }
        let mut fitting = fitting.filter(|key| key.jws.algorithm().name() == header.alg);
        if !fitting.any(|key| key.jws.verifies(message.as_bytes(), &signature)) {
            return Err(TokenRejection::Signature);
        }
        part(payload).ok_or(TokenRejection::Claims)
    }
}

/// The header of a token. `jwk`, `jku` and `x5c` are ignored: a token does not choose the key to
/// trust.
#[derive(Deserialize)]
struct JwsHeader {
    alg: String,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

/// Claims before the signature is verified.
#[derive(Deserialize)]
struct UnverifiedClaims {
    iss: String,
}

fn part<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

/// A key set, and the tokens that it has verified.
pub struct KeySet {
    pub(super) keys: Vec<VerificationKey>,
    verified: Mutex<VerifiedTokenCache>,
}

pub(super) struct VerificationKey {
    pub id: String,
    pub jws: JwsKey,
}

/// Verified tokens by SHA-256; the oldest are evicted.
#[derive(Default)]
struct VerifiedTokenCache {
    claims: HashMap<[u8; 32], Arc<TokenClaims>>,
    order: VecDeque<[u8; 32]>,
}

impl KeySet {
    fn new(keys: &[PublicKey]) -> Result<KeySet, VerifierError> {
        let mut set = KeySet { keys: Vec::new(), verified: Mutex::default() };
        for key in keys {
            let id = key_id(key);
            if set.keys.iter().all(|known| known.id != id) {
                let jws = JwsKey::new(key).map_err(VerifierError::BadKey)?;
                set.keys.push(VerificationKey { id, jws });
            }
        }
        if set.keys.is_empty() { Err(VerifierError::NoKey) } else { Ok(set) }
    }

    fn cached_claims(&self, digest: &[u8; 32]) -> Option<Arc<TokenClaims>> {
        self.lock_verified().claims.get(digest).cloned()
    }

    fn cache_claims(&self, digest: [u8; 32], claims: Arc<TokenClaims>) {
        let mut verified = self.lock_verified();
        if verified.claims.insert(digest, claims).is_none() {
            verified.order.push_back(digest);
        }
        while verified.order.len() > limits::VERIFIED_TOKENS {
            let Some(oldest) = verified.order.pop_front() else { break };
            verified.claims.remove(&oldest);
        }
    }

    fn lock_verified(&self) -> std::sync::MutexGuard<'_, VerifiedTokenCache> {
        self.verified.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn sha256(token: &str) -> [u8; 32] {
    let mut out = [0; 32];
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    out.copy_from_slice(hash.as_ref());
    out
}

#[cfg(test)]
mod tests;
