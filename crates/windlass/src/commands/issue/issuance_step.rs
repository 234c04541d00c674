//! How far a request for a certificate has come, and what it waits for.

use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition as Condition;

use crate::commands::csr::CsrObject;
use crate::commands::csr::view::conditions;
use crate::commands::print::plain;

/// How far a request has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuanceStep {
    /// Somebody has to approve it; perhaps somebody said why that takes long.
    Approval(Option<String>),
    /// The signer has to sign it; perhaps it said why that takes long.
    Signing(Option<String>),
    /// The issued chain in PEM, leaf first.
    Issued(Vec<u8>),
    /// Somebody does not want it to have one.
    Denied(String),
    /// The signer does not want it to have one.
    Failed(String),
}

/// How far this one has come. Kubernetes' own clients look in this order, too.
pub fn step(request: &CsrObject) -> IssuanceStep {
    let said = |kind: &str| conditions(request).iter().find(|said| said.type_ == kind);
    let why = |kind: &str| said(kind).map(|said| reason_text(&said.reason, &said.message));
    let failed = said("Failed").filter(|said| matches!(said.status.as_str(), "True" | ""));
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    if let Some(why) = why("Denied") {
        return IssuanceStep::Denied(why);
    }
    if let Some(failed) = failed {
        return IssuanceStep::Failed(reason_text(&failed.reason, &failed.message));
    }
    match (said("Approved"), certificate.filter(|text| !text.0.is_empty())) {
        (None, _) => IssuanceStep::Approval(delay(request)),
        (Some(_), None) => IssuanceStep::Signing(delay(request)),
        (Some(_), Some(certificate)) => IssuanceStep::Issued(certificate.0.clone()),
    }
}

impl IssuanceStep {
    /// What is waited for, or how it ended.
    pub fn text(&self, name: &str, signer: &str) -> String {
        let delayed = |delay: &Option<String>| match delay {
            Some(why) => format!(" ({why})"),
            None => String::new(),
        };
        match self {
            Self::Approval(delay) => {
                let delay = delayed(delay);
                format!("waiting for approval of {name}{delay}: kubectl certificate approve {name}")
            }
            Self::Signing(delay) => {
                format!("approved {name}; waiting for signer {signer}{}", delayed(delay))
            }
            Self::Issued(_) => format!("{name} has a certificate"),
            Self::Denied(why) => format!("{name} was denied: {why}"),
            Self::Failed(why) => format!("{signer} does not sign {name}: {why}"),
        }
    }
}

/// What somebody has to say beyond the three conditions that Kubernetes knows.
fn delay(request: &CsrObject) -> Option<String> {
    let known = ["Approved", "Denied", "Failed"];
    let other = |said: &&Condition| said.status == "True" && !known.contains(&said.type_.as_str());
    let last = conditions(request).iter().rfind(other);
    last.map(|said| reason_text(&said.reason, &said.message))
}

fn reason_text(reason: &Option<String>, message: &Option<String>) -> String {
    let given = [reason, message].map(|text| text.as_deref().unwrap_or_default().trim());
    let given = given.into_iter().filter(|text| !text.is_empty()).map(plain).collect::<Vec<_>>();
    if given.is_empty() { "no reason was given".into() } else { given.join(": ") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(status: Value) -> CsrObject {
        let spec = json!({"request": "", "signerName": "example.com/a"});
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec, "status": status}))
            .unwrap()
    }

    fn condition_json(kind: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    }

    #[test]
    fn every_state_is_a_step() {
        let approved = condition_json("Approved", "True", "Checked", "fine");
        let slow = condition_json("windlass.dev/SigningDelayed", "True", "SignerExpired", "no\nCA");
        let over = condition_json("windlass.dev/SigningDelayed", "False", "Fine", "");
        let failed = condition_json("Failed", "True", "SignerValidationFailure", "usages");
        let unfailed = condition_json("Failed", "False", "", "");
        let denied = condition_json("Denied", "True", "", "");
        let wait = |why: &str| Some(why.to_owned());
        let table = [
            (json!({}), IssuanceStep::Approval(None)),
            (json!({"certificate": "AAAA"}), IssuanceStep::Approval(None)),
            (json!({"conditions": [slow]}), IssuanceStep::Approval(wait("SignerExpired: no CA"))),
            (json!({"conditions": [approved]}), IssuanceStep::Signing(None)),
            (json!({"conditions": [approved, over]}), IssuanceStep::Signing(None)),
            (
                json!({"conditions": [slow, approved]}),
                IssuanceStep::Signing(wait("SignerExpired: no CA")),
            ),
            (json!({"conditions": [approved], "certificate": ""}), IssuanceStep::Signing(None)),
            (
                json!({"conditions": [approved], "certificate": "AAAA"}),
                IssuanceStep::Issued(vec![0; 3]),
            ),
            (
                json!({"conditions": [approved, failed]}),
                IssuanceStep::Failed("SignerValidationFailure: usages".into()),
            ),
            (
                json!({"conditions": [approved, unfailed], "certificate": "AAAA"}),
                IssuanceStep::Issued(vec![0; 3]),
            ),
            (json!({"conditions": [denied]}), IssuanceStep::Denied("no reason was given".into())),
            (json!({"conditions": [failed, denied]}), {
                IssuanceStep::Denied("no reason was given".into())
            }),
        ];
        for (status, expected) in table {
            assert_eq!(step(&request(status.clone())), expected, "{status}");
        }
    }

    #[test]
    fn pending_steps_name_the_next_action() {
        let table = [
            (
                IssuanceStep::Approval(None),
                "waiting for approval of csr-abc: kubectl certificate approve csr-abc",
            ),
            (
                IssuanceStep::Approval(Some("Odd: no node".into())),
                "waiting for approval of csr-abc (Odd: no node): kubectl certificate approve csr-abc",
            ),
            (IssuanceStep::Signing(None), "approved csr-abc; waiting for signer example.com/a"),
            (
                IssuanceStep::Signing(Some("SignerExpired: no CA".into())),
                "approved csr-abc; waiting for signer example.com/a (SignerExpired: no CA)",
            ),
            (IssuanceStep::Denied("Unknown: who?".into()), "csr-abc was denied: Unknown: who?"),
            (IssuanceStep::Failed("usages".into()), "example.com/a does not sign csr-abc: usages"),
        ];
        for (step, text) in table {
            assert_eq!(step.text("csr-abc", "example.com/a"), text);
        }
    }
}
