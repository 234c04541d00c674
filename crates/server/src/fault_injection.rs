//! Fault injection for tests, which makes access checks fail with an error or a panic. Disabled in
//! production.
//!
//! Every check between a caller and an object calls this before it decides, so that tests can fail
//! each one and verify that the request is denied.

use std::sync::Arc;

use crate::error::Error;

/// A check that guards access to objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum AccessCheck {
    FrontProxy,
    ClientCertificate,
    TokenFile,
    ServiceAccountToken,
    BootstrapToken,
    Impersonation,
    FlowControl,
    NodeAuthorizer,
    Rbac,
    Escalation,
    NamespaceLifecycle,
    NodeRestriction,
    ServiceAccountAdmission,
    Signers,
}

impl AccessCheck {
    /// All checks, so that tests can make each one fail.
    pub const ALL: &[AccessCheck] = &[
        AccessCheck::FrontProxy,
        AccessCheck::ClientCertificate,
        AccessCheck::TokenFile,
        AccessCheck::ServiceAccountToken,
        AccessCheck::BootstrapToken,
        AccessCheck::Impersonation,
        AccessCheck::FlowControl,
        AccessCheck::NodeAuthorizer,
        AccessCheck::Rbac,
        AccessCheck::Escalation,
        AccessCheck::NamespaceLifecycle,
        AccessCheck::NodeRestriction,
        AccessCheck::ServiceAccountAdmission,
        AccessCheck::Signers,
    ];
}

/// Decides which checks fail; empty outside of tests.
#[derive(Clone, Default)]
pub struct FaultInjection(Option<Arc<FaultInjector>>);

type FaultInjector = dyn Fn(AccessCheck) -> Result<(), String> + Send + Sync;

impl FaultInjection {
    /// Fails the checks for which `inject` returns an error or panics.
    pub fn injected(
        inject: impl Fn(AccessCheck) -> Result<(), String> + Send + Sync + 'static,
    ) -> FaultInjection {
        FaultInjection(Some(Arc::new(inject)))
    }

    /// Called by each check before it decides.
    pub fn check(&self, check: AccessCheck) -> Result<(), Error> {
        match &self.0 {
            None => Ok(()),
            Some(inject) => inject(check).map_err(Error::Internal),
        }
    }
}
