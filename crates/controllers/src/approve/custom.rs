//! Whether a request to a signer of the user's own is approved by itself.

use windlass_pki::CertificateRequest;

use crate::requests::Request;
use crate::signers::CustomSigner;
use crate::signers::config::{Approval, RequestProfile, Requester, Requesters};
use crate::signers::profile::{self, Offence};

/// What an approval says.
pub const MESSAGE: &str = "Auto approving by the signer's profile.";
/// Why a request is not approved though its requester's are, in one word.
pub const REASON: &str = "ProfileMismatch";

/// What is approved, and of whom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules<'a> {
    profile: &'a RequestProfile,
    requesters: &'a Requesters,
}

impl<'a> Rules<'a> {
    /// Those of a signer, if it approves by itself.
    pub fn of(signer: &'a CustomSigner) -> Option<Rules<'a>> {
        let profile = signer.custom.requests.as_ref()?;
        match &profile.approval {
            Approval::Manual => None,
            Approval::Automatic(requesters) => Some(Rules { profile, requesters }),
        }
    }
}

/// What is thought of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is approved.
    Good,
    /// Somebody asks whose requests others decide on.
    Stranger,
    /// The signer would not sign it.
    Bad(Offence),
}

/// What is thought of a request that nobody has decided on.
pub fn judge(request: &Request, asked: &CertificateRequest, rules: Rules<'_>) -> Judgement {
    let spec = &request.spec;
    let groups = spec.groups.as_deref().unwrap_or_default();
    // The API server writes down who asks.
    if !spec.username.as_deref().is_some_and(|user| rules.requesters.has(user, groups)) {
        return Judgement::Stranger;
    }
    // No pattern says no to what is not there: a person has to decide what such a one is for.
    if !profile::names_somebody(asked) {
        return Judgement::Bad(Offence::Nameless);
    }
    let usages = spec.usages.as_deref().unwrap_or_default();
    let requester = Requester::new(spec.username.as_deref().unwrap_or_default());
    match profile::check(rules.profile, &requester, asked, usages) {
        Ok(()) => Judgement::Good,
        Err(offence) => Judgement::Bad(offence),
    }
}
