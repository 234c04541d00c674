//! Permissions of callers on signers.

use crate::chain::authz::attributes::{AuthorizationAttributes, AuthorizationTarget, ResourceAttributes};
use crate::verbs::RequestContext;

#[derive(Clone, Copy)]
pub(super) enum SignerAction {
    /// Approve or deny requests to the signer.
    Approve,
    /// Issue certificates in the signer's name.
    Sign,
    /// Publish trust anchors in the signer's name.
    Attest,
}

impl SignerAction {
    /// Returns the RBAC verb of the action.
    pub(super) fn verb(self) -> &'static str {
        match self {
            SignerAction::Approve => "approve",
            SignerAction::Sign => "sign",
            SignerAction::Attest => "attest",
        }
    }
}

/// Returns true if a role grants the action for the signer or for all signers of its domain.
pub(super) fn permits(call: &RequestContext<'_>, act: SignerAction, signer: &str) -> bool {
    let allowed = |name: &str| {
        let asked = AuthorizationAttributes {
            user: call.user,
            verb: act.verb(),
            target: AuthorizationTarget::Resource(ResourceAttributes {
                group: "certificates.k8s.io",
                version: "*",
                resource: "signers",
                name,
                ..ResourceAttributes::default()
            }),
        };
        call.server.authorizer.decide(&asked).is_allowed()
    };
    let domain = signer.split('/').next().unwrap_or_default();
    // An empty signer name would otherwise match like no name at all, which every rule covers.
    !signer.is_empty() && (allowed(signer) || allowed(&format!("{domain}/*")))
}
