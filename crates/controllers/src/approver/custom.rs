//! Automatic approval of requests to custom signers.

use windlass_pki::CertificateRequest;

use crate::csr::Csr;
use crate::signers::CustomSigner;
use crate::signers::config::{AllowedRequesters, ApprovalMode, RequestProfile, RequesterIdentity};
use crate::signers::profile::{self, ProfileViolation};

/// Message of the `Approved` condition that automatic approval sets.
pub const MESSAGE: &str = "Auto approving by the signer's profile.";
/// Reason of the condition if the profile does not permit the request.
pub const REASON: &str = "ProfileMismatch";

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AutoApprovalRules<'a> {
    profile: &'a RequestProfile,
    requesters: &'a AllowedRequesters,
}

impl<'a> AutoApprovalRules<'a> {
    /// Returns the rules of a signer; `None` if its requests are approved manually.
    pub fn from_signer(signer: &'a CustomSigner) -> Option<AutoApprovalRules<'a>> {
        let profile = signer.custom.requests.as_ref()?;
        match &profile.approval {
            ApprovalMode::Manual => None,
            ApprovalMode::Automatic(requesters) => Some(AutoApprovalRules { profile, requesters }),
        }
    }
}

/// Verdict of a custom signer's approval policy on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileVerdict {
    /// The requester is allowed and the profile permits the request.
    Good,
    /// The requester is not listed; another approver decides.
    Stranger,
    /// The profile does not permit the request, so the signer would reject it.
    Bad(ProfileViolation),
}

/// Evaluates a request that no approver has decided on.
pub fn evaluate(request: &Csr, asked: &CertificateRequest, rules: AutoApprovalRules<'_>) -> ProfileVerdict {
    let spec = &request.spec;
    let groups = spec.groups.as_deref().unwrap_or_default();
    // The API server sets the requester.
    if !spec.username.as_deref().is_some_and(|user| rules.requesters.contains(user, groups)) {
        return ProfileVerdict::Stranger;
    }
    // No pattern rejects a missing name, so an approver has to decide what such a certificate is for.
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
