//! Stage: who calls? A proxy's word, a client certificate, a token, or nobody.
//!
//! The authenticators are asked in Kubernetes' order, and the first that knows the caller decides. If
//! none does, a credential that was shown and does not hold is a 401, never "nobody"; and a
//! check that cannot be made ends the request.

// Every case is decided: one that nobody thought of must not slip through (CVE-2026-30836).
#![deny(clippy::wildcard_enum_match_arm)]

pub(crate) mod bootstrap;
pub(crate) mod client_cert;
mod credential_dependencies;
pub(crate) mod front_proxy;
pub(crate) mod service_account;
pub(crate) mod token_file;

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use time::OffsetDateTime;

use client_cert::ClientCas;
pub(crate) use credential_dependencies::CredentialDependencies;
use front_proxy::FrontProxy;
use token_file::TokenFile;

use crate::error::Error;
use crate::fault_injection::AccessCheck;
use crate::peer::Peer;
use crate::server::Server;
use crate::tokens::TokenVerifier;
use crate::user::User;

/// Authenticates requests by front proxy headers, client certificate or bearer token.
pub struct Authenticator {
    /// A proxy that may say who calls.
    pub front_proxy: Option<FrontProxy>,
    /// The CAs that client certificates may come from, swapped when their file changes.
    pub client_cas: ArcSwap<ClientCas>,
    /// Static tokens of `--token-auth-file`; replaced when the file is reloaded.
    pub tokens: ArcSwap<TokenFile>,
    /// Checks the tokens of service accounts; without it they are nobody's.
    pub service_accounts: Option<Arc<TokenVerifier>>,
    /// Whether the tokens in secrets of `kube-system` are somebody's.
    pub bootstrap_tokens: bool,
    /// Whether callers without a credential are somebody ([`User::anonymous`]), or refused.
    pub anonymous: bool,
}

impl Default for Authenticator {
    fn default() -> Authenticator {
        Authenticator {
            front_proxy: None,
            client_cas: ArcSwap::default(),
            tokens: ArcSwap::default(),
            service_accounts: None,
            bootstrap_tokens: true,
            anonymous: true,
        }
    }
}

/// Whom a token stands for.
pub struct AuthenticatedToken {
    /// User that the token authenticates, with groups and extra fields.
    pub user: Arc<User>,
    /// Those of the audiences asked about that the token is meant for.
    pub audiences: Vec<String>,
}

/// Why a token stands for nobody.
#[derive(Debug)]
pub enum TokenAuthError {
    /// No authenticator recognizes the token, so it is rejected with 401.
    Unknown,
    /// One does, and refuses it. The text is for those who may review tokens, and has no secret.
    Refused(String),
    /// A check could not be made.
    Failed(Error),
}

impl From<Error> for TokenAuthError {
    fn from(error: Error) -> TokenAuthError {
        TokenAuthError::Failed(error)
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
        let observe = |left| server.metrics.client_certificate(left);
        self.identify(server, peer, headers, now, &observe)
    }

    /// As [`Authenticator::authenticate`], for a request that has been counted already.
    pub fn reauthenticate(
        &self,
        server: &Server,
        peer: &Peer,
        headers: &HeaderMap,
        now: OffsetDateTime,
    ) -> Result<Arc<User>, Error> {
        self.identify(server, peer, headers, now, &|_| {})
    }

    fn identify(
        &self,
        server: &Server,
        peer: &Peer,
        headers: &HeaderMap,
        now: OffsetDateTime,
        observe: &dyn Fn(time::Duration),
    ) -> Result<Arc<User>, Error> {
        if let Some(local) = peer.local_user() {
            return Ok(local);
        }
        let mut refused = !self.anonymous;
        server.faults.check(AccessCheck::FrontProxy)?;
        let proxied = self.front_proxy.as_ref().map(|proxy| proxy.identify(peer, headers, now));
        match proxied {
            Some(Ok(Some(user))) => return Ok(user),
            None | Some(Ok(None)) => {}
            Some(Err(why)) => {
                tracing::debug!(%why, "front proxy refused");
                refused = true;
            }
        }
        server.faults.check(AccessCheck::ClientCertificate)?;
        match self.authenticate_certificate(peer, now, observe) {
            Ok(Some(user)) => return Ok(user),
            Ok(None) => {}
            Err(why) => {
                tracing::debug!(%why, "client certificate refused");
                refused = true;
            }
        }
        if let Some(token) = bearer(headers) {
            match self.authenticate_token(server, &token, self.audiences(), now) {
                Ok(vouched) => return Ok(vouched.user),
                Err(TokenAuthError::Failed(error)) => return Err(error),
                Err(TokenAuthError::Unknown) => refused = true,
                Err(TokenAuthError::Refused(why)) => {
                    tracing::debug!(%why, "token refused");
                    refused = true;
                }
            }
        }
        if refused { Err(Error::Unauthorized) } else { Ok(Arc::new(User::anonymous())) }
    }

    fn authenticate_certificate(
        &self,
        peer: &Peer,
        now: OffsetDateTime,
        observe: &dyn Fn(time::Duration),
    ) -> Result<Option<Arc<User>>, client_cert::ClientCertError> {
        let Some(verified) = peer.certificate(&self.client_cas.load_full(), now)? else {
            return Ok(None);
        };
        observe(verified.until - now);
        verified.user.clone().map(Some)
    }

    /// Whom a token stands for, if it is meant for any of `audiences`.
    pub fn authenticate_token(
        &self,
        server: &Server,
        token: &str,
        audiences: &[String],
        now: OffsetDateTime,
    ) -> Result<AuthenticatedToken, TokenAuthError> {
        // Tokens that name no audience are for this server, whatever it is called.
        let own = intersection(self.audiences(), audiences);
        let for_us = !own.is_empty() || (self.audiences().is_empty() && audiences.is_empty());
        server.faults.check(AccessCheck::TokenFile)?;
        if for_us && let Some(user) = self.tokens.load().lookup(token) {
            return Ok(AuthenticatedToken { user, audiences: own });
        }
        server.faults.check(AccessCheck::ServiceAccountToken)?;
        let mut refusal = TokenAuthError::Unknown;
        if let Some(verifier) = &self.service_accounts {
            match service_account::identify(server, verifier, token, audiences, now) {
                Ok(vouched) => return Ok(vouched),
                Err(TokenAuthError::Unknown) => {}
                Err(TokenAuthError::Failed(error)) => return Err(TokenAuthError::Failed(error)),
                Err(TokenAuthError::Refused(why)) => refusal = TokenAuthError::Refused(why),
            }
        }
        server.faults.check(AccessCheck::BootstrapToken)?;
        if self.bootstrap_tokens
            && for_us
            && let Some(user) = bootstrap::identify(server, token, now)?
        {
            return Ok(AuthenticatedToken { user: Arc::new(user), audiences: own });
        }
        Err(refusal)
    }

    /// The audiences that this server is.
    pub fn audiences(&self) -> &[String] {
        self.service_accounts.as_ref().map_or(&[], |verifier| verifier.audiences())
    }
}

/// What `these` has in common with `those`, in the order of `these`.
fn intersection(these: &[String], those: &[String]) -> Vec<String> {
    these.iter().filter(|one| those.contains(one)).cloned().collect()
}

/// The bearer token of a request; an empty one counts as none. What is no text can be no token of
/// anybody's, but it was shown.
fn bearer(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let value = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let mut parts = value.split(|byte| *byte == b' ');
    let scheme = parts.next()?;
    let token = parts.next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case(b"bearer").then(|| String::from_utf8_lossy(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn only_a_bearer_with_something_in_it_is_a_token() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer(&headers), None);
        for (value, want) in [
            (&b"Bearer "[..], None),
            (b"Bearer", None),
            (b"Bearer  x", None),
            (b"Bearer x", Some("x")),
            (b"bEARER x ", Some("x")),
            (b"Bearer x y", Some("x")),
            (b"Bearer \xff", Some("\u{fffd}")),
            (b"Basic x", None),
            (b"x", None),
        ] {
            headers.insert(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
            assert_eq!(bearer(&headers).as_deref(), want, "{value:?}");
        }
    }
}
