//! OpenID Connect discovery, with which others verify service account tokens.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use windlass_pki::JwkParameters;

use super::verify::{TokenVerifier, VerificationKey};

/// Path of the JSON Web Key Set that verifies service account tokens.
pub(crate) const KEYS_PATH: &str = "/openid/v1/jwks";
/// Path of the OpenID provider configuration, which names issuer and key set.
pub(crate) const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";

impl TokenVerifier {
    /// Returns the provider configuration; `None` if the issuer is not a URL that OpenID Connect
    /// allows.
    pub fn configuration(&self) -> Option<Value> {
        let uri = self.published_at()?;
        let keys = self.keys.load();
        let algorithms: BTreeSet<&str> = keys.keys.iter().map(|key| key.jws.algorithm().name()).collect();
        Some(json!({
            "issuer": self.issuer(),
            "jwks_uri": uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        }))
    }

    /// Returns the keys that may sign tokens.
    pub fn key_set(&self) -> Option<Value> {
        self.published_at()?;
        let keys: Vec<Value> = self.keys.load().keys.iter().map(web_key).collect();
        Some(json!({"keys": keys}))
    }

    fn published_at(&self) -> Option<String> {
        let issuer = self.issuer();
        let plain = is_https(issuer) && !issuer.contains(['?', '#']);
        let uri = match &self.jwks_uri {
            Some(uri) => uri.clone(),
            None => format!("{}{KEYS_PATH}", issuer.trim_end_matches('/')),
        };
        (plain && is_https(&uri)).then_some(uri)
    }
}

fn is_https(address: &str) -> bool {
    let host = address.strip_prefix("https://").unwrap_or_default();
    !host.is_empty() && !host.starts_with('/') && !host.contains(char::is_whitespace)
}

fn web_key(key: &VerificationKey) -> Value {
    let mut out = json!({
        "use": "sig",
        "kid": key.id,
        "alg": key.jws.algorithm().name(),
    });
    let number = |bytes: &[u8]| json!(URL_SAFE_NO_PAD.encode(bytes));
    match key.jws.parameters() {
        JwkParameters::Ec { curve, x, y } => {
            out["kty"] = json!("EC");
            out["crv"] = json!(curve);
            out["x"] = number(x);
            out["y"] = number(y);
        }
        JwkParameters::Rsa { n, e } => {
            out["kty"] = json!("RSA");
            out["n"] = number(n);
            out["e"] = number(e);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_pki::PrivateKey;

    fn verifier(issuer: &str) -> TokenVerifier {
        let key = PrivateKey::generate().unwrap();
        TokenVerifier::new(vec![issuer.into()], Vec::new(), &[key.public_key().clone()]).unwrap()
    }

    #[test]
    fn only_an_https_issuer_is_described() {
        for (issuer, uri, want) in [
            ("https://a.example", None, Some("https://a.example/openid/v1/jwks")),
            ("https://a.example/x/", None, Some("https://a.example/x/openid/v1/jwks")),
            ("https://a.example", Some("https://b.example/k"), Some("https://b.example/k")),
            ("https://a.example", Some("http://b.example/k"), None),
            ("http://a.example", None, None),
            ("https://a.example?q", None, None),
            ("https://a.example#f", None, None),
            ("https://", None, None),
            ("kubernetes/serviceaccount", None, None),
        ] {
            let verifier = verifier(issuer).with_jwks_uri(uri.map(str::to_owned));
            let said = verifier.configuration();
            assert_eq!(said.as_ref().map(|c| c["jwks_uri"].as_str().unwrap()), want, "{issuer}");
            assert_eq!(verifier.key_set().is_some(), want.is_some());
        }
    }
}
