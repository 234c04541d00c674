//! Where a test can make a check fail: with an error, or by a panic. A server that serves has none.
//!
//! Every check that stands between a caller and an object names itself here before it decides, so that
//! a test can go through all of them and see that one that fails denies.

use std::sync::Arc;

use crate::error::Error;

/// A check that stands between a caller and an object.
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

/// Decides which checks fail. Empty where nothing is tested.
#[derive(Clone, Default)]
pub struct FaultInjection(Option<Arc<FaultInjector>>);

type FaultInjector = dyn Fn(AccessCheck) -> Result<(), String> + Send + Sync;

impl FaultInjection {
    /// Checks for which `inject` returns an error, or panics, fail.
    pub fn injected(
        inject: impl Fn(AccessCheck) -> Result<(), String> + Send + Sync + 'static,
    ) -> FaultInjection {
        FaultInjection(Some(Arc::new(inject)))
    }

    /// Called by a check before it decides.
    pub fn check(&self, check: AccessCheck) -> Result<(), Error> {
        match &self.0 {
            None => Ok(()),
            Some(inject) => inject(check).map_err(Error::Internal),
        }
    }
}
