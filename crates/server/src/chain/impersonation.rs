//! Stage: acting as somebody else.
//!
//! `Impersonate-User` and its companions name a user to do the request as. Whether the caller may is
//! decided as in Kubernetes: first by the constrained modes, which also look at what is asked, then by
//! the right `impersonate` alone. After this stage the headers mean nothing.

// Every case is decided: one that nobody thought of must not slip through (CVE-2026-30836).
#![deny(clippy::wildcard_enum_match_arm)]

mod extra;
mod headers;
mod modes;

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use super::authz::attributes::AuthorizationAttributes;
use crate::error::Error;
use crate::fault_injection::AccessCheck;
use crate::request::info::RequestInfo;
use crate::server::Server;
use crate::user::User;

/// The user that a request is to be done as; none if it is the caller.
pub(super) fn impersonate(
    server: &Server,
    caller: &Arc<User>,
    headers: &HeaderMap,
    info: &RequestInfo,
) -> Result<Option<Arc<User>>, Error> {
    let Some(wanted) = headers::read(headers)? else { return Ok(None) };
    server.faults.check(AccessCheck::Impersonation)?;
    let target = AuthorizationAttributes::from_request(caller, info, None);
    let user = modes::decide(&wanted, &target, &|asked| server.authorizer.decide(asked))?;
    tracing::debug!(caller = caller.name, user = user.name, "impersonation");
    Ok(Some(Arc::new(user)))
}

/// Whether a header is one of those that name the user.
pub(super) fn reads(header: &HeaderName) -> bool {
    header.as_str().starts_with(headers::PREFIX)
}

#[cfg(test)]
mod tests;
