//! Stage: who calls? A client certificate, a token, or nobody.

pub mod client_cert;
pub mod token_file;

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use time::OffsetDateTime;

use client_cert::ClientCas;
use token_file::TokenFile;

use crate::error::Error;
use crate::faults::Check;
use crate::peer::Peer;
use crate::server::Server;
use crate::user::User;

/// Finds out who calls.
pub struct Authenticator {
    /// The CAs that client certificates may come from, swapped when their file changes.
    pub client_cas: ArcSwap<ClientCas>,
    /// Static tokens.
    pub tokens: ArcSwap<TokenFile>,
    /// Whether callers without a credential are somebody ([`User::anonymous`]), or refused.
    pub anonymous: bool,
}

impl Default for Authenticator {
    fn default() -> Authenticator {
        Authenticator {
            client_cas: ArcSwap::default(),
            tokens: ArcSwap::default(),
            anonymous: true,
        }
    }
}

impl Authenticator {
    /// The caller. A credential that does not hold is a 401, never "nobody".
    pub fn authenticate(
        &self,
        server: &Server,
        peer: &Peer,
        headers: &HeaderMap,
        now: OffsetDateTime,
    ) -> Result<Arc<User>, Error> {
        if let Some(local) = peer.local_user() {
            return Ok(local);
        }
        let mut refused = !self.anonymous;
        server.faults.at(Check::ClientCertificate)?;
        match peer.certificate_user(&self.client_cas.load_full(), now) {
            Ok(Some(user)) => return Ok(user),
            Ok(None) => {}
            Err(why) => {
                tracing::debug!(%why, "client certificate refused");
                refused = true;
            }
        }
        if let Some(token) = bearer(headers) {
            server.faults.at(Check::TokenFile)?;
            match self.tokens.load().lookup(token) {
                Some(user) => return Ok(user),
                None => refused = true,
            }
        }
        if refused { Err(Error::Unauthorized) } else { Ok(Arc::new(User::anonymous())) }
    }
}

/// The bearer token of a request; an empty one counts as none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = text.split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_bearer_is_no_token() {
        let mut headers = HeaderMap::new();
        for (value, want) in [("Bearer ", None), ("Bearer x", Some("x")), ("Basic x", None)] {
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            assert_eq!(bearer(&headers), want);
        }
    }
}
