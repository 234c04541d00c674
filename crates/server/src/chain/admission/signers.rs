//! What a caller may do in a signer's name.

use crate::chain::authz::attributes::{Attributes, Resource, Target};
use crate::verbs::Call;

/// What is done in a signer's name.
#[derive(Clone, Copy)]
pub enum Act {
    /// Requests to it are approved or denied.
    Approve,
    /// Certificates of it are handed out.
    Sign,
    /// Trust anchors are said to be its.
    Attest,
}

impl Act {
    /// The verb that roles name it by.
    pub fn verb(self) -> &'static str {
        match self {
            Act::Approve => "approve",
            Act::Sign => "sign",
            Act::Attest => "attest",
        }
    }
}

/// Whether the caller may: a role names the signer, or all signers of its domain.
pub fn permits(call: &Call<'_>, act: Act, signer: &str) -> bool {
    let allowed = |name: &str| {
        let asked = Attributes {
            user: call.user,
            verb: act.verb(),
            target: Target::Resource(Resource {
                group: "certificates.k8s.io",
                version: "*",
                resource: "signers",
                name,
                ..Resource::default()
            }),
        };
        call.server.authorizer.decide(&asked).is_allow()
    };
    let domain = signer.split('/').next().unwrap_or_default();
    // A signer without a name could else be the same as no signer at all, which every rule covers.
    !signer.is_empty() && (allowed(signer) || allowed(&format!("{domain}/*")))
}
