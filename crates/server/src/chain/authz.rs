//! Stage: authorization. Runs before routing, so that denials do not reveal what exists.
//!
//! Authorizers are asked in order: the group with all permissions, the node authorizer, then RBAC.
//! The first with an opinion decides; no opinion or an error is a denial.

// Every match is exhaustive: an unforeseen case must not slip through (CVE-2026-30836).
#![deny(clippy::wildcard_enum_match_arm)]

pub(crate) mod attributes;
pub(crate) mod node;
pub(crate) mod rbac;

use std::sync::Arc;

use attributes::{AuthorizationAttributes, AuthorizationTarget, ResourceAttributes};
use windlass_api::field::quote;

use crate::cache::ResourceCaches;
use crate::error::{Error, ErrorSubject};
use crate::fault_injection::{AccessCheck, FaultInjection};
use crate::feature_gates::ServerFeatureGates;
use crate::registry::KindRegistry;
use crate::user::{MASTERS, User};

/// Decision of an authorizer on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed; the reason goes to the audit log.
    Allow(String),
    /// Denied with a reason; no further authorizer is asked.
    Deny(String),
    /// No opinion, with a reason; the next authorizer is asked.
    NoOpinion(String),
}

impl Decision {
    /// Returns true if the request is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }

    /// Returns the authorizer's reason, whatever the decision is.
    pub fn reason(&self) -> &str {
        match self {
            Decision::Allow(why) | Decision::Deny(why) | Decision::NoOpinion(why) => why,
        }
    }
}

/// Version of all data that decisions depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorizerVersion {
    /// Newest revision of roles and bindings.
    rbac: u64,
    /// Newest revisions of pods and volumes; set for nodes only.
    graph: Option<(u64, u64)>,
}

/// Authorizes requests with node authorizer and RBAC.
pub struct Authorizer {
    node: node::NodeAuthorizer,
    rbac: rbac::RbacAuthorizer,
    faults: FaultInjection,
}

impl Authorizer {
    /// Creates an authorizer that decides by the objects in `caches`.
    pub fn new(
        caches: &Arc<ResourceCaches>,
        registry: &KindRegistry,
        features: ServerFeatureGates,
        faults: FaultInjection,
    ) -> Authorizer {
        Authorizer {
            node: node::NodeAuthorizer::new(caches, registry, features),
            rbac: rbac::RbacAuthorizer::new(caches, registry),
            faults,
        }
    }

    /// Decides whether a request is allowed.
    pub fn decide(&self, asked: &AuthorizationAttributes<'_>) -> Decision {
        if asked.user.has_group(MASTERS) {
            return Decision::Allow(String::new());
        }
        let mut reasons = Vec::new();
        let node = match self.faults.check(AccessCheck::NodeAuthorizer) {
            Ok(()) => self.node.decide(asked),
            Err(error) => failed(&error),
        };
        match node {
            Decision::NoOpinion(why) => reasons.push(why),
            decided @ (Decision::Allow(_) | Decision::Deny(_)) => return decided,
        }
        let rbac = match self.faults.check(AccessCheck::Rbac) {
            Ok(()) => self.rbac.decide(asked),
            Err(error) => failed(&error),
        };
        match rbac {
            Decision::NoOpinion(why) => reasons.push(why),
            decided @ (Decision::Allow(_) | Decision::Deny(_)) => return decided,
        }
        reasons.retain(|why| !why.is_empty());
        Decision::NoOpinion(reasons.join("\n"))
    }

    /// Returns the version that decisions about `user` depend on: the same version yields the same
    /// decisions.
    pub fn version(&self, user: &User) -> AuthorizerVersion {
        AuthorizerVersion {
            rbac: self.rbac.newest(),
            graph: node::identity(user).map(|_| self.node.newest()),
        }
    }

    /// Returns the RBAC authorizer, for queries that list a user's permissions.
    pub fn rbac(&self) -> &rbac::RbacAuthorizer {
        &self.rbac
    }
}

/// A failed check has no opinion, so it never grants access.
fn failed(error: &Error) -> Decision {
    tracing::error!(error = error.internal(), "authorizer failed");
    Decision::NoOpinion(String::new())
}

/// Returns the error for a denied request, in Kubernetes' words.
pub(crate) fn denied(asked: &AuthorizationAttributes<'_>, why: &str) -> Error {
    let mut text = refusal(asked.user, asked.verb, &asked.target);
    if !why.is_empty() {
        text = format!("{text}: {why}");
    }
    match &asked.target {
        AuthorizationTarget::Path(_) => Error::ForbiddenPath(text),
        AuthorizationTarget::Resource(resource) => {
            let ResourceAttributes { group, resource, name, .. } = resource;
            Error::Forbidden(ErrorSubject::new(group, resource, name), text)
        }
    }
}

fn refusal(user: &User, verb: &str, target: &AuthorizationTarget<'_>) -> String {
    let who = quote(&user.name);
    let resource = match target {
        AuthorizationTarget::Path(path) => {
            return format!("User {who} cannot {verb} path {}", quote(path));
        }
        AuthorizationTarget::Resource(resource) => resource,
    };
    let place = if resource.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {}", quote(resource.namespace))
    };
    let (what, group) = (quote(&resource.with_subresource()), quote(resource.group));
    format!("User {who} cannot {verb} resource {what} in API group {group} {place}")
}
