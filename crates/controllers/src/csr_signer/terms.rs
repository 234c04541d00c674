//! Policy and lifetimes of a signer: those of Kubernetes for built-in signers, and the profile in `signers.yaml` for
//! custom ones.

use std::time::Duration;

use windlass_pki::CertificateRequest;

use super::policy::KubernetesSigner;
use crate::signers::config::{RequestProfile, RequesterIdentity};
use crate::signers::profile;

/// Policy and lifetimes of a signer.
#[derive(Clone, Debug)]
pub enum SigningTerms {
    /// The policy of a built-in Kubernetes signer.
    BuiltIn {
        /// Which built-in signer sets the policy.
        signer: KubernetesSigner,
        /// Longest lifetime of a certificate.
        longest: Duration,
    },
    /// Profile of a custom signer.
    Custom(Box<RequestProfile>),
}

impl SigningTerms {
    /// Checks whether the policy permits a request of this requester.
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

    /// Returns default and longest lifetime of a certificate.
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

    /// Whether intermediates follow the leaf.
    pub fn includes_chain(&self) -> bool {
        match self {
            SigningTerms::BuiltIn { .. } => false,
            SigningTerms::Custom(profile) => profile.include_chain,
        }
    }
}
