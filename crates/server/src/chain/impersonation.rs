//! Stage: impersonation.
//!
//! `Impersonate-User` and its companion headers name the user to perform the request as. Permission
//! is decided as in Kubernetes: first by the constrained modes, which also consider the request,
//! then by the verb `impersonate` alone. The headers are ignored after this stage.

// Every match is exhaustive: an unforeseen case must not slip through (CVE-2026-30836).
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

/// Returns the impersonated user; `None` without impersonation.
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

/// Returns true if the header is an impersonation header.
pub(super) fn reads(header: &HeaderName) -> bool {
    header.as_str().starts_with(headers::PREFIX)
}

#[cfg(test)]
mod tests;
