//! Stage: authentication by front proxy, client certificate or token, else anonymous.
//!
//! Authenticators are tried in Kubernetes' order, and the first that recognizes the caller decides.
//! If none does, an invalid credential is a 401, never anonymous. A check that cannot be completed
//! fails the request.

// Every match is exhaustive: an unforeseen case must not slip through (CVE-2026-30836).
#![deny(clippy::wildcard_enum_match_arm)]

pub(crate) mod bootstrap;
pub(crate) mod client_cert;
mod credential_dependencies;
pub(crate) mod front_proxy;
pub(crate) mod revocation;
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
    /// Trusted front proxy that authenticates users; `None` disables it.
    pub front_proxy: Option<FrontProxy>,
    /// Trust anchors of client certificates; replaced when the file is reloaded.
    pub client_cas: ArcSwap<ClientCas>,
    /// Static tokens of `--token-auth-file`; replaced when the file is reloaded.
    pub tokens: ArcSwap<TokenFile>,
    /// Verifier of service account tokens; without it they are rejected.
    pub service_accounts: Option<Arc<TokenVerifier>>,
    /// Whether bootstrap tokens in secrets of `kube-system` are accepted.
    pub bootstrap_tokens: bool,
    /// Whether callers without a credential become [`User::anonymous`] or are rejected.
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

pub struct AuthenticatedToken {
    /// User that the token authenticates, with groups and extra fields.
    pub user: Arc<User>,
    /// Those of the requested audiences that the token is valid for.
    pub audiences: Vec<String>,
}

/// Why a token does not authenticate.
#[derive(Debug)]
pub enum TokenAuthError {
    /// No authenticator recognizes the token, so it is rejected with 401.
    Unknown,
    /// An authenticator recognizes the token and rejects it. The text contains no secret and is for
    /// callers who may review tokens.
    Refused(String),
    /// A check could not be completed.
    Failed(Error),
}

impl From<Error> for TokenAuthError {
    fn from(error: Error) -> TokenAuthError {
        TokenAuthError::Failed(error)
    }
}

impl Authenticator {
    /// Authenticates the caller. An invalid credential is a 401, never anonymous.
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

    /// Like [`Authenticator::authenticate`], for a request already counted in the metrics.
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
        let proxied =
            self.front_proxy.as_ref().map(|proxy| proxy.identify(&server.revocations, peer, headers, now));
        match proxied {
            Some(Ok(Some(user))) => return Ok(user),
            None | Some(Ok(None)) => {}
            Some(Err(why)) => {
                tracing::debug!(%why, "front proxy refused");
                refused = true;
            }
        }
        server.faults.check(AccessCheck::ClientCertificate)?;
        match self.authenticate_certificate(server, peer, now, observe) {
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
        server: &Server,
        peer: &Peer,
        now: OffsetDateTime,
        observe: &dyn Fn(time::Duration),
    ) -> Result<Option<Arc<User>>, client_cert::ClientCertError> {
        let Some(verified) = peer.certificate(&self.client_cas.load_full(), now)? else {
            return Ok(None);
        };
        server.revocations.check(&verified)?;
        observe(verified.until - now);
        verified.user.clone().map(Some)
    }

    /// Authenticates a token that is valid for any of `audiences`.
    pub fn authenticate_token(
        &self,
        server: &Server,
        token: &str,
        audiences: &[String],
        now: OffsetDateTime,
    ) -> Result<AuthenticatedToken, TokenAuthError> {
        // Tokens without an audience are for this server, whatever its audiences are.
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

    /// Returns the audiences of this server.
    pub fn audiences(&self) -> &[String] {
        self.service_accounts.as_ref().map_or(&[], |verifier| verifier.audiences())
    }
}

/// Returns the elements of `these` that are in `those`, in order.
fn intersection(these: &[String], those: &[String]) -> Vec<String> {
    these.iter().filter(|one| those.contains(one)).cloned().collect()
}

/// Returns the bearer token of a request; an empty one counts as none. A non-UTF-8 value cannot
/// match any token, but it counts as a presented credential.
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
