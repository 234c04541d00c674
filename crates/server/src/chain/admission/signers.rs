//! What a caller may do in a signer's name.

use crate::chain::authz::attributes::{
    AuthorizationAttributes, AuthorizationTarget, ResourceAttributes,
};
use crate::verbs::RequestContext;

/// What is done in a signer's name.
#[derive(Clone, Copy)]
pub(super) enum SignerAction {
    /// Requests to it are approved or denied.
    Approve,
    /// Certificates of it are handed out.
    Sign,
    /// Trust anchors are said to be its.
    Attest,
}

impl SignerAction {
    /// The verb that roles name it by.
    pub(super) fn verb(self) -> &'static str {
        match self {
            SignerAction::Approve => "approve",
            SignerAction::Sign => "sign",
            SignerAction::Attest => "attest",
        }
    }
}

/// Whether the caller may: a role names the signer, or all signers of its domain.
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
    // A signer without a name could else be the same as no signer at all, which every rule covers.
    !signer.is_empty() && (allowed(signer) || allowed(&format!("{domain}/*")))
}
