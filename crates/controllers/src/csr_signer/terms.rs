//! Terms of a signer: which requests it signs, and with which lifetime.

use std::time::Duration;

use windlass_pki::{Certificate, DistributionPoint};

use super::approved_csr::ApprovedCsr;
use super::policy::KubernetesSigner;
use crate::signers::config::{RequestProfile, resolve_points};
use crate::signers::profile;

/// Which requests a signer signs, and with which lifetime.
#[derive(Clone, Debug)]
pub enum SigningTerms {
    /// Policy of a built-in Kubernetes signer.
    BuiltIn {
        /// Built-in signer that sets the policy.
        signer: KubernetesSigner,
        /// Maximum lifetime of a certificate.
        max_duration: Duration,
    },
    /// The profile of a custom signer.
    Custom(Box<RequestProfile>),
}

impl SigningTerms {
    /// Checks that the policy allows everything in the request; the error names the first violation.
    pub fn check(&self, request: &ApprovedCsr<'_>) -> Result<(), String> {
        let (asked, usages) = (request.request(), request.usages());
        match self {
            SigningTerms::BuiltIn { signer, .. } => {
                signer.check(asked, usages).map_err(|error| error.to_string())
            }
            SigningTerms::Custom(profile) => profile::check(profile, &request.requester(), asked, usages)
                .map_err(|violation| violation.to_string()),
        }
    }

    /// Returns the lifetime to issue, if it is determined by request or profile, and its maximum.
    pub fn requested_and_max_lifetime(
        &self,
        requested: Option<time::Duration>,
    ) -> (Option<time::Duration>, time::Duration) {
        let long = |time: Duration| time::Duration::try_from(time).unwrap_or(time::Duration::MAX);
        match self {
            SigningTerms::BuiltIn { max_duration, .. } => (requested, long(*max_duration)),
            SigningTerms::Custom(profile) => {
                (Some(requested.unwrap_or_else(|| long(profile.duration))), long(profile.max_duration))
            }
        }
    }

    /// Returns the URLs of the CA's revocation list that certificates contain. Those of built-in signers have none.
    pub fn distribution_points(&self, ca: &Certificate) -> Vec<DistributionPoint> {
        match self {
            SigningTerms::BuiltIn { .. } => Vec::new(),
            SigningTerms::Custom(profile) => resolve_points(&profile.distribution_points, &ca.authority_id()),
        }
    }

    /// Whether the intermediates of the CA are appended to certificates.
    pub fn includes_chain(&self) -> bool {
        match self {
            SigningTerms::BuiltIn { .. } => false,
            SigningTerms::Custom(profile) => profile.include_chain,
        }
    }
}
