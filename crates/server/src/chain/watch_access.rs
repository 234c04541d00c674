//! Authentication and authorization of watches that are already open.
//!
//! A request is checked once, before it is answered; a watch is answered for up to an hour. It keeps its
//! credential and is checked again before an event is delivered if anything changed that the first check
//! depended on, and at least once in [`limits::WATCH_RECHECK`], because certificates and tokens expire
//! without any change. What a check depends on is compared by revisions and pointers, so a watch that
//! delivers thousands of events costs thousands of comparisons and one check; an idle watch costs one
//! check a minute, whatever is written. A revocation wakes all watches, and those of clients with a
//! certificate are checked at once.
//!
//! A watch that is no longer allowed ends with an ERROR event that holds the Status (401 or 403) of a new
//! request. Informers log it, relist, and get the same status there; without the event they would
//! silently retry the watch first.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use rand::Rng as _;
use tokio::time::Instant;
use windlass_api::selector::fields::FieldSelector;

use super::authn::CredentialDependencies;
use super::authz::attributes::AuthorizationAttributes;
use super::authz::{AuthorizerVersion, Decision, denied};
use super::impersonation::{self, impersonate};
use crate::error::Error;
use crate::limits;
use crate::peer::Peer;
use crate::request::info::RequestInfo;
use crate::server::Server;
use crate::user::User;

/// Checks again whether the requester of an open watch may still receive its events.
pub struct WatchAccess {
    server: Arc<Server>,
    peer: Arc<Peer>,
    /// The headers that authentication and impersonation read, and no others.
    headers: HeaderMap,
    info: RequestInfo,
    fields: Option<FieldSelector>,
    /// User that the watch was opened as.
    user: Arc<User>,
    /// Dependencies of the last check; `None` before the first one.
    snapshot: Option<AccessSnapshot>,
    due: Instant,
}

struct AccessSnapshot {
    credential: CredentialDependencies,
    authorizer: AuthorizerVersion,
    /// Revision of the revocations that the check saw; 0 for a client without a certificate.
    revocations: u64,
}

impl WatchAccess {
    /// Creates the check of a watch that `caller` was just allowed to open as `user`.
    pub fn new(
        server: &Arc<Server>,
        peer: &Arc<Peer>,
        headers: &HeaderMap,
        (info, fields): (&RequestInfo, Option<&FieldSelector>),
        (caller, user): (&User, &Arc<User>),
    ) -> WatchAccess {
        WatchAccess {
            headers: credential_headers(server, peer, headers, caller),
            server: server.clone(),
            peer: peer.clone(),
            info: info.clone(),
            fields: fields.cloned(),
            user: user.clone(),
            snapshot: None,
            due: next_check(),
        }
    }

    /// Returns when the next check is due even if nothing changes.
    pub fn next_check_at(&self) -> Instant {
        self.due
    }

    /// Checks whether events read before this call may be delivered.
    pub fn verify(&mut self) -> Result<(), Error> {
        if self.is_current() && Instant::now() < self.due {
            return Ok(());
        }
        // Before the check, so that a change during the check is detected by the next one.
        self.snapshot = Some(self.capture());
        self.due = next_check();
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| self.check()));
        let outcome =
            checked.unwrap_or_else(|_| Err(Error::Internal("access check of a watch panicked".into())));
        if let Err(error) = &outcome {
            let (user, path) = (&self.user.name, &self.info.path);
            let cause = error.internal().map_or_else(|| error.status().message, str::to_owned);
            tracing::info!(user, path, cause, "watch ended: no longer allowed");
            self.server.metrics.watch_revoked();
        }
        outcome
    }

    fn is_current(&self) -> bool {
        let Some(basis) = &self.snapshot else { return false };
        basis.authorizer == self.authorizer_version()
            && !self.has_new_revocations()
            && self.server.authenticator.is_current(&basis.credential)
    }

    /// Returns true if certificates were revoked since the last check of a client with a certificate.
    pub fn has_new_revocations(&self) -> bool {
        let seen = self.snapshot.as_ref().map(|snapshot| snapshot.revocations);
        self.peer.has_certificate() && seen != Some(self.server.revocations.newest())
    }

    fn capture(&self) -> AccessSnapshot {
        let has_certificate = self.peer.has_certificate();
        AccessSnapshot {
            revocations: if has_certificate { self.server.revocations.visible() } else { 0 },
            authorizer: self.authorizer_version(),
            credential: self.server.authenticator.credential_dependencies(&self.server, &self.headers),
        }
    }

    fn authorizer_version(&self) -> AuthorizerVersion {
        self.server.authorizer.version(&self.user)
    }

    /// Repeats the stages of a new request.
    fn check(&self) -> Result<(), Error> {
        let (server, now) = (&self.server, (self.server.clock)());
        let authenticator = &server.authenticator;
        let caller = authenticator.reauthenticate(server, &self.peer, &self.headers, now)?;
        let impersonated = impersonate(server, &caller, &self.headers, &self.info)?;
        let user = impersonated.unwrap_or(caller);
        // The audit log and the limits attribute the watch to another user.
        if (&user.name, &user.uid) != (&self.user.name, &self.user.uid) {
            return Err(Error::Unauthorized);
        }
        let asked = AuthorizationAttributes::from_request(&user, &self.info, self.fields.as_ref());
        match server.authorizer.decide(&asked) {
            Decision::Allow(_) => Ok(()),
            Decision::Deny(why) | Decision::NoOpinion(why) => Err(denied(&asked, &why)),
        }
    }
}

/// Randomized, so that thousands of watches are not checked at once.
fn next_check() -> Instant {
    let part = rand::rng().random_range(0.75..1.0);
    Instant::now() + limits::WATCH_RECHECK.mul_f64(part)
}

/// Copies the headers that a later check reads. A token that did not authenticate the caller is
/// omitted: it may be as large as all headers together, and a user may have thousands of watches.
fn credential_headers(server: &Server, peer: &Peer, headers: &HeaderMap, caller: &User) -> HeaderMap {
    let authenticator = &server.authenticator;
    let is_read = |name: &http::HeaderName| {
        impersonation::reads(name)
            || authenticator.front_proxy.as_ref().is_some_and(|proxy| proxy.reads(name))
    };
    let mut kept = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| is_read(name)) {
        // Copied, because the value may reference a larger buffer.
        if let Ok(value) = http::HeaderValue::from_bytes(value.as_bytes()) {
            kept.append(name, value);
        }
    }
    let now = (server.clock)();
    let without = authenticator.reauthenticate(server, peer, &kept, now);
    let suffices = without.is_ok_and(|user| (&user.name, &user.uid) == (&caller.name, &caller.uid));
    if let Some(token) = headers.get(AUTHORIZATION).filter(|_| !suffices)
        && let Ok(mut token) = http::HeaderValue::from_bytes(token.as_bytes())
    {
        token.set_sensitive(true);
        kept.insert(AUTHORIZATION, token);
    }
    kept
}
