//! Where a test can make a check fail: with an error, or by a panic. A server that serves has none.
//!
//! Every check that stands between a caller and an object names itself here before it decides, so that
//! a test can go through all of them and see that one that fails denies.

use std::sync::Arc;

use crate::error::Error;

/// A check that stands between a caller and an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Check {
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

impl Check {
    /// All of them.
    pub const ALL: &[Check] = &[
        Check::FrontProxy,
        Check::ClientCertificate,
        Check::TokenFile,
        Check::ServiceAccountToken,
        Check::BootstrapToken,
        Check::Impersonation,
        Check::FlowControl,
        Check::NodeAuthorizer,
        Check::Rbac,
        Check::Escalation,
        Check::NamespaceLifecycle,
        Check::NodeRestriction,
        Check::ServiceAccountAdmission,
        Check::Signers,
    ];
}

/// Decides which checks fail. Empty where nothing is tested.
#[derive(Clone, Default)]
pub struct Faults(Option<Arc<Injector>>);

type Injector = dyn Fn(Check) -> Result<(), String> + Send + Sync;

impl Faults {
    /// Checks for which `inject` returns an error, or panics, fail.
    pub fn injected(
        inject: impl Fn(Check) -> Result<(), String> + Send + Sync + 'static,
    ) -> Faults {
        Faults(Some(Arc::new(inject)))
    }

    /// Called by a check before it decides.
    pub fn at(&self, check: Check) -> Result<(), Error> {
        match &self.0 {
            None => Ok(()),
            Some(inject) => inject(check).map_err(Error::Internal),
        }
    }
}
