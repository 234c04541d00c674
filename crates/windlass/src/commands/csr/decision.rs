//! Approves and denies requests, as `kubectl certificate` does.

use anyhow::{Context as _, Error, Result, anyhow, bail};
use http::Request as HttpRequest;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_runtime::csr::{self, ApprovalDecision};

use super::CsrObject;
use crate::commands::api_client;

/// Attempts to write while the request changes concurrently.
const ATTEMPTS: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CsrDecision {
    Approve,
    Deny,
}

/// Whether this command changed the request, or found it decided already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// This command added the condition.
    Now,
    /// The request already had the same condition.
    Before,
}

/// Reason and message of the condition that records the decision.
#[derive(Debug, Clone)]
pub struct DecisionReason {
    word: String,
    message: String,
}

impl CsrDecision {
    /// Type of the condition that records the decision.
    pub const fn condition(self) -> &'static str {
        match self {
            Self::Approve => csr::APPROVED,
            Self::Deny => csr::DENIED,
        }
    }

    pub const fn done(self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::Deny => "denied",
        }
    }

    const fn opposite(self) -> Self {
        match self {
            Self::Approve => Self::Deny,
            Self::Deny => Self::Approve,
        }
    }
}

impl DecisionReason {
    /// Reason and message of the flags, or defaults that name the command.
    pub fn from_flags(decision: CsrDecision, word: Option<String>, message: Option<String>) -> Self {
        let (usual, command) = match decision {
            CsrDecision::Approve => ("WindlassApprove", "windlass csr approve"),
            CsrDecision::Deny => ("WindlassDeny", "windlass csr deny"),
        };
        Self {
            word: word.unwrap_or_else(|| usual.into()),
            message: message.unwrap_or_else(|| format!("This CSR was {} by {command}.", decision.done())),
        }
    }
}

/// Records a decision on this request. Repeating a decision changes nothing; the opposite of an earlier one is an error.
pub async fn decide(
    client: &Client,
    request: &CsrObject,
    decision: CsrDecision,
    reason: &DecisionReason,
) -> Result<DecisionOutcome> {
    let api: Api<CsrObject> = Api::all(client.clone());
    let name = request.name_any();
    let mut current = request.clone();
    for _ in 0..ATTEMPTS {
        let Some(decided) = decided(&current, decision, reason, OffsetDateTime::now_utc())? else {
            return Ok(DecisionOutcome::Before);
        };
        let post = PostParams::default();
        let written = api.replace_subresource("approval", &name, &post, &decided);
        match api_client::with_timeout(written).await? {
            Ok(_) => return Ok(DecisionOutcome::Now),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                let needed = missing(client, &request.spec.signer_name).await;
                return Err(denied_error(&name, decision, &needed, &status.message));
            }
            Err(error) => {
                let doing = format!("{name} was not {}", decision.done());
                return Err(api_client::explain(error)).context(doing);
            }
        }
        current = api_client::with_timeout(api.get(&name)).await?.map_err(api_client::explain)?;
        if current.metadata.uid != request.metadata.uid {
            bail!("{name} was replaced by another request; review it with windlass csr show {name}");
        }
    }
    bail!("{name} changes continuously; retry later")
}

/// Adds the decision to a request; `None` if it has the same one already.
fn decided(
    request: &CsrObject,
    decision: CsrDecision,
    reason: &DecisionReason,
    now: OffsetDateTime,
) -> Result<Option<CsrObject>> {
    let name = request.name_any();
    match (csr::decision(request), decision) {
        (ApprovalDecision::Undecided, _) => {}
        (ApprovalDecision::Approved, CsrDecision::Approve)
        | (ApprovalDecision::Denied, CsrDecision::Deny) => return Ok(None),
        (ApprovalDecision::Approved | ApprovalDecision::Denied, _) => {
            let (opposite, done) = (decision.opposite().done(), decision.done());
            bail!("{name} is already {opposite} and cannot be {done}; create a new request");
        }
    }
    let mut request = request.clone();
    let mut condition = csr::true_condition(decision.condition(), &reason.word, &reason.message, now);
    // The server sets it, as with kubectl.
    condition.last_transition_time = None;
    let status = request.status.get_or_insert_default();
    status.conditions.get_or_insert_default().push(condition);
    Ok(Some(request))
}

/// Lists the permissions that the decision needs and the user does not have.
async fn missing(client: &Client, signer: &str) -> Vec<String> {
    let resource = "certificatesigningrequests";
    let needs = [
        (
            json!({"verb": "update", "resource": resource, "subresource": "approval"}),
            format!("update {resource}/approval"),
        ),
        (
            json!({"verb": "approve", "resource": "signers", "name": signer}),
            format!("approve signers {signer}"),
        ),
    ];
    let mut missing = Vec::new();
    for (mut attributes, permission) in needs {
        attributes["group"] = json!("certificates.k8s.io");
        // If the check fails, both are listed.
        if !check_access(client, attributes).await.unwrap_or(false) {
            missing.push(permission);
        }
    }
    missing
}

async fn check_access(client: &Client, attributes: Value) -> Result<bool> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let request = HttpRequest::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header("content-type", "application/json")
        .body(review.to_string().into_bytes())?;
    let answer: Value = api_client::with_timeout(client.request(request)).await??;
    Ok(answer["status"]["allowed"] == true)
}

fn denied_error(name: &str, decision: CsrDecision, missing: &[String], message: &str) -> Error {
    let done = decision.done();
    if missing.is_empty() {
        return anyhow!("{name} was not {done}: {message}");
    }
    let missing = missing.join("\" and \"");
    anyhow!("{name} was not {done}: missing permission to \"{missing}\" ({message})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kinds: &[&str]) -> CsrObject {
        let conditions = kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect::<Vec<_>>();
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"request": "", "signerName": "example.com/a"},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// Conditions before, decision, and conditions after: `None` if the decision is rejected, empty
    /// if nothing has to be written.
    type Case = (&'static [&'static str], CsrDecision, Option<&'static [&'static str]>);

    #[test]
    fn an_earlier_decision_is_not_changed() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let table: [Case; 7] = [
            (&[], CsrDecision::Approve, Some(&["Approved"])),
            (&[], CsrDecision::Deny, Some(&["Denied"])),
            (&["windlass.dev/ApprovalDelayed"], CsrDecision::Approve, {
                Some(&["windlass.dev/ApprovalDelayed", "Approved"])
            }),
            (&["Approved"], CsrDecision::Approve, Some(&[])),
            (&["Denied"], CsrDecision::Deny, Some(&[])),
            (&["Denied"], CsrDecision::Approve, None),
            (&["Approved", "Failed"], CsrDecision::Deny, None),
        ];
        for (before, decision, after) in table {
            let reason = DecisionReason::from_flags(decision, Some("Because".into()), None);
            match (decided(&request(before), decision, &reason, now), after) {
                (Ok(None), Some([])) => {}
                (Ok(Some(decided)), Some(after)) => {
                    let found = csr::conditions(&decided);
                    let kinds = found.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>();
                    assert_eq!(kinds, after);
                    let last = found.last().unwrap();
                    assert_eq!(last.reason.as_deref(), Some("Because"));
                    assert!(last.message.as_ref().unwrap().contains(decision.done()));
                }
                (Err(error), None) => {
                    assert!(error.to_string().contains("create a new request"), "{error}")
                }
                (found, _) => panic!("{before:?} {decision:?}: {found:?}"),
            }
        }
    }
}
