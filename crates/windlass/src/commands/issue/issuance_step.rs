//! Progress of a certificate signing request, and what it waits for.

use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition as Condition;

use windlass_runtime::csr::{self, CsrState};

use crate::commands::csr::CsrObject;
use crate::commands::print::plain;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuanceStep {
    /// Waits for approval; with the reason of a delay, if a controller reports one.
    Approval(Option<String>),
    /// Waits for the signer; with the reason of a delay, if it reports one.
    Signing(Option<String>),
    /// The issued chain in PEM, leaf first.
    Issued(Vec<u8>),
    /// Denied by an approver, with the reason.
    Denied(String),
    /// Rejected by the signer, with the reason.
    Failed(String),
}

/// Determines the progress of a request.
pub fn step(request: &CsrObject) -> IssuanceStep {
    match csr::state(request) {
        CsrState::Pending => IssuanceStep::Approval(delay(request)),
        CsrState::Approved => IssuanceStep::Signing(delay(request)),
        CsrState::Denied(denied) => IssuanceStep::Denied(reason_text(denied)),
        CsrState::Failed(failed) => IssuanceStep::Failed(reason_text(failed)),
        CsrState::Issued(chain) => IssuanceStep::Issued(chain.to_vec()),
    }
}

impl IssuanceStep {
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
            Self::Issued(_) => format!("issued certificate of {name}"),
            Self::Denied(why) => format!("{name} was denied: {why}"),
            Self::Failed(why) => format!("signer {signer} rejected {name}: {why}"),
        }
    }
}

/// Returns the reason of the last condition besides those of Kubernetes.
fn delay(request: &CsrObject) -> Option<String> {
    let known = [csr::APPROVED, csr::DENIED, csr::FAILED];
    let other =
        |condition: &&Condition| condition.status == "True" && !known.contains(&condition.type_.as_str());
    csr::conditions(request).iter().rfind(other).map(reason_text)
}

fn reason_text(condition: &Condition) -> String {
    plain(&csr::describe_condition(condition))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(status: Value) -> CsrObject {
        let spec = json!({"request": "", "signerName": "example.com/a"});
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec, "status": status})).unwrap()
    }

    fn condition_json(kind: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    }

    #[test]
    fn every_state_is_a_step() {
        let approved = condition_json("Approved", "True", "Checked", "fine");
        let slow = condition_json("windlass.dev/SigningDelayed", "True", "SignerExpired", "no CA\nsince");
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
            (json!({"conditions": [slow, approved]}), IssuanceStep::Signing(wait("SignerExpired: no CA"))),
            (json!({"conditions": [approved], "certificate": ""}), IssuanceStep::Signing(None)),
            (json!({"conditions": [approved], "certificate": "AAAA"}), IssuanceStep::Issued(vec![0; 3])),
            (
                json!({"conditions": [approved, failed]}),
                IssuanceStep::Failed("SignerValidationFailure: usages".into()),
            ),
            (
                json!({"conditions": [approved, unfailed], "certificate": "AAAA"}),
                IssuanceStep::Issued(vec![0; 3]),
            ),
            (json!({"conditions": [denied]}), IssuanceStep::Denied("no reason given".into())),
            (json!({"conditions": [failed, denied]}), { IssuanceStep::Denied("no reason given".into()) }),
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
            (IssuanceStep::Failed("usages".into()), "signer example.com/a rejected csr-abc: usages"),
        ];
        for (step, text) in table {
            assert_eq!(step.text("csr-abc", "example.com/a"), text);
        }
    }
}
