//! Stage: may the caller do this? Decided before routing, so that what exists is not given away.
//!
//! The authorizers are asked in order: the group that may do everything, then the node authorizer,
//! then RBAC. The first that has an opinion decides; none of them having one is a no, and so is an error.

// Every case is decided: one that nobody thought of must not slip through (CVE-2026-30836).
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

/// What an authorizer says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed; the reason goes to the audit log.
    Allow(String),
    /// No, and why; nobody else is asked.
    Deny(String),
    /// Not for me to say, and why.
    NoOpinion(String),
}

impl Decision {
    /// Whether it is a yes.
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

/// The state of everything that decisions are made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorizerVersion {
    /// The newest revision of roles and bindings.
    rbac: u64,
    /// The newest revisions of pods and volumes; they matter to nodes alone.
    graph: Option<(u64, u64)>,
}

/// Decides what callers may do.
pub struct Authorizer {
    node: node::NodeAuthorizer,
    rbac: rbac::RbacAuthorizer,
    faults: FaultInjection,
}

impl Authorizer {
    /// Decides by the objects in `caches`.
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

    /// Whether a request is allowed.
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

    /// What decisions about `user` depend on now: as long as it is the same, so are they.
    pub fn version(&self, user: &User) -> AuthorizerVersion {
        AuthorizerVersion {
            rbac: self.rbac.newest(),
            graph: node::identity(user).map(|_| self.node.newest()),
        }
    }

    /// RBAC, for those who ask what a user may do rather than whether.
    pub fn rbac(&self) -> &rbac::RbacAuthorizer {
        &self.rbac
    }
}

/// A check that errs has no opinion that could let anybody in.
fn failed(error: &Error) -> Decision {
    tracing::error!(error = error.internal(), "authorizer failed");
    Decision::NoOpinion(String::new())
}

/// What a caller is told who may not do what was asked, in Kubernetes' words.
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
