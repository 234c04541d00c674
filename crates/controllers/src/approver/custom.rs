//! Whether a request to a signer of the user's own is approved by itself.

use windlass_pki::CertificateRequest;

use crate::csr::Csr;
use crate::signers::CustomSigner;
use crate::signers::config::{AllowedRequesters, ApprovalMode, RequestProfile, RequesterIdentity};
use crate::signers::profile::{self, ProfileViolation};

/// Message of the `Approved` condition that automatic approval sets.
pub const MESSAGE: &str = "Auto approving by the signer's profile.";
/// Why a request is not approved though its requester's are, in one word.
pub const REASON: &str = "ProfileMismatch";

/// What is approved, and of whom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AutoApprovalRules<'a> {
    profile: &'a RequestProfile,
    requesters: &'a AllowedRequesters,
}

impl<'a> AutoApprovalRules<'a> {
    /// Those of a signer, if it approves by itself.
    pub fn from_signer(signer: &'a CustomSigner) -> Option<AutoApprovalRules<'a>> {
        let profile = signer.custom.requests.as_ref()?;
        match &profile.approval {
            ApprovalMode::Manual => None,
            ApprovalMode::Automatic(requesters) => Some(AutoApprovalRules { profile, requesters }),
        }
    }
}

/// What is thought of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileVerdict {
    /// The requester is allowed and the profile permits the request.
    Good,
    /// Somebody asks whose requests others decide on.
    Stranger,
    /// The signer would not sign it.
    Bad(ProfileViolation),
}

/// What is thought of a request that nobody has decided on.
pub fn evaluate(
    request: &Csr,
    asked: &CertificateRequest,
    rules: AutoApprovalRules<'_>,
) -> ProfileVerdict {
    let spec = &request.spec;
    let groups = spec.groups.as_deref().unwrap_or_default();
    // The API server writes down who asks.
    if !spec.username.as_deref().is_some_and(|user| rules.requesters.contains(user, groups)) {
        return ProfileVerdict::Stranger;
    }
    // No pattern says no to what is not there: a person has to decide what such a one is for.
    if !profile::has_subject(asked) {
        return ProfileVerdict::Bad(ProfileViolation::Nameless);
    }
    let usages = spec.usages.as_deref().unwrap_or_default();
    let requester = RequesterIdentity::new(spec.username.as_deref().unwrap_or_default());
    match profile::check(rules.profile, &requester, asked, usages) {
        Ok(()) => ProfileVerdict::Good,
        Err(offence) => ProfileVerdict::Bad(offence),
    }
}
