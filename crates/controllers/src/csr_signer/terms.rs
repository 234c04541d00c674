//! What a signer signs and for how long: Kubernetes' own by Kubernetes' rules, the user's own by
//! their file.

use std::time::Duration;

use windlass_pki::CertificateRequest;

use super::policy::KubernetesSigner;
use crate::signers::config::{RequestProfile, RequesterIdentity};
use crate::signers::profile;

/// What a signer signs and for how long.
#[derive(Clone, Debug)]
pub enum SigningTerms {
    /// The policy of a built-in Kubernetes signer.
    BuiltIn {
        /// Which built-in signer sets the policy.
        signer: KubernetesSigner,
        /// The longest that a certificate lasts.
        longest: Duration,
    },
    /// As the user has it.
    Custom(Box<RequestProfile>),
}

impl SigningTerms {
    /// Whether this is signed for a requester, or why not.
    pub fn check(
        &self,
        requester: &RequesterIdentity<'_>,
        request: &CertificateRequest,
        usages: &[String],
    ) -> Result<(), String> {
        match self {
            SigningTerms::BuiltIn { signer, .. } => {
                signer.check(request, usages).map_err(|error| error.to_string())
            }
            SigningTerms::Custom(profile) => profile::check(profile, requester, request, usages)
                .map_err(|offence| offence.to_string()),
        }
    }

    /// How long a certificate is to last, and the longest it may.
    pub fn requested_and_max_lifetime(
        &self,
        requested: Option<time::Duration>,
    ) -> (Option<time::Duration>, time::Duration) {
        let long = |time: Duration| time::Duration::try_from(time).unwrap_or(time::Duration::MAX);
        match self {
            SigningTerms::BuiltIn { longest, .. } => (requested, long(*longest)),
            SigningTerms::Custom(profile) => (
                Some(requested.unwrap_or_else(|| long(profile.duration))),
                long(profile.max_duration),
            ),
        }
    }

    /// Whether those that vouch for the CA are sent along.
    pub fn includes_chain(&self) -> bool {
        match self {
            SigningTerms::BuiltIn { .. } => false,
            SigningTerms::Custom(profile) => profile.include_chain,
        }
    }
}
