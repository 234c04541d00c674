//! Service account tokens: JWTs with subject, audiences and expiry.

pub(crate) mod claims;
pub(crate) mod openid;
mod verify;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use windlass_pki::{JwsAlgorithm, PrivateKey, PublicKey};

pub use verify::TokenVerifier;
pub(crate) use verify::{KeySet, TokenRejection};

/// Signs service account tokens (JWT) with one private key.
pub struct TokenSigner {
    key: PrivateKey,
    algorithm: JwsAlgorithm,
    key_id: String,
    issuer: String,
}

#[derive(Debug, thiserror::Error)]
#[error("service account key cannot sign tokens: {0}")]
pub struct SigningKeyError(String);

impl TokenSigner {
    /// Signs with `key` as `issuer`.
    pub fn new(key: PrivateKey, issuer: &str) -> Result<TokenSigner, SigningKeyError> {
        let algorithm = key
            .jws_algorithm()
            .ok_or_else(|| SigningKeyError("no JWT algorithm uses a key of this type".into()))?;
        let key_id = key_id(key.public_key());
        Ok(TokenSigner { key, algorithm, key_id, issuer: issuer.to_owned() })
    }

    /// Returns the issuer of the tokens; also the default audience.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns the public key that verifies the tokens.
    pub fn public_key(&self) -> &PublicKey {
        self.key.public_key()
    }

    /// Signs claims after adding the issuer.
    pub fn sign(&self, mut claims: Value) -> Result<String, SigningKeyError> {
        claims["iss"] = json!(self.issuer);
        let header = json!({"alg": self.algorithm.name(), "kid": self.key_id});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&header), part(&claims));
        let signature = self.key.sign_jws(message.as_bytes()).map_err(|e| SigningKeyError(e.to_string()))?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Returns the key ID for the token header: a hash, so that it is not mistaken for the key.
fn key_id(key: &PublicKey) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.as_der());
    URL_SAFE_NO_PAD.encode(digest.as_ref())
}
