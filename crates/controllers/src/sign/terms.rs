//! What a signer signs and for how long: Kubernetes' own by Kubernetes' rules, the user's own by
//! their file.

use std::time::Duration;

use windlass_pki::CertificateRequest;

use super::policy::Signer;
use crate::signers::config::{RequestProfile, Requester};
use crate::signers::profile;

/// What a signer signs and for how long.
#[derive(Clone, Debug)]
pub enum Terms {
    /// As Kubernetes has it.
    BuiltIn {
        /// Which one it is.
        signer: Signer,
        /// The longest that a certificate lasts.
        longest: Duration,
    },
    /// As the user has it.
    Custom(Box<RequestProfile>),
}

impl Terms {
    /// Whether this is signed for a requester, or why not.
    pub fn check(
        &self,
        requester: &Requester<'_>,
        request: &CertificateRequest,
        usages: &[String],
    ) -> Result<(), String> {
        match self {
            Terms::BuiltIn { signer, .. } => {
                signer.check(request, usages).map_err(|error| error.to_string())
            }
            Terms::Custom(profile) => profile::check(profile, requester, request, usages)
                .map_err(|offence| offence.to_string()),
        }
    }

    /// How long a certificate is to last, and the longest it may.
    pub fn time(
        &self,
        requested: Option<time::Duration>,
    ) -> (Option<time::Duration>, time::Duration) {
        let long = |time: Duration| time::Duration::try_from(time).unwrap_or(time::Duration::MAX);
        match self {
            Terms::BuiltIn { longest, .. } => (requested, long(*longest)),
            Terms::Custom(profile) => {
                (Some(requested.unwrap_or_else(|| long(profile.lifetime))), long(profile.longest))
            }
        }
    }

    /// Whether those that vouch for the CA are sent along.
    pub fn sends_chain(&self) -> bool {
        match self {
            Terms::BuiltIn { .. } => false,
            Terms::Custom(profile) => profile.chain,
        }
    }
}
