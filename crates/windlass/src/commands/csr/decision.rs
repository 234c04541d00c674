//! Approving and denying, as `kubectl certificate` does it.

use anyhow::{Context as _, Error, Result, anyhow, bail};
use http::Request as HttpRequest;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition as Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::CsrObject;
use super::view::conditions;
use crate::commands::api_client;

/// How often to try again when somebody else wrote at the same time.
const ATTEMPTS: usize = 10;

/// What to say of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CsrDecision {
    /// It may have a certificate.
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
    /// The type of the condition that says so.
    pub const fn condition(self) -> &'static str {
        match self {
            Self::Approve => "Approved",
            Self::Deny => "Denied",
        }
    }

    /// What a request is after it.
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
    /// The reason that was given, or that it was done here.
    pub fn from_flags(
        decision: CsrDecision,
        word: Option<String>,
        message: Option<String>,
    ) -> Self {
        let (usual, command) = match decision {
            CsrDecision::Approve => ("WindlassApprove", "windlass csr approve"),
            CsrDecision::Deny => ("WindlassDeny", "windlass csr deny"),
        };
        Self {
            word: word.unwrap_or_else(|| usual.into()),
            message: message
                .unwrap_or_else(|| format!("This CSR was {} by {command}.", decision.done())),
        }
    }
}

/// Says it of this very request. If it has been said before, all is well; if the opposite has, that
/// is an error.
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
        let Some(decided) = decided(&current, decision, reason, Timestamp::now())? else {
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
                let doing = format!("{name} could not be {}", decision.done());
                return Err(api_client::explain(error)).context(doing);
            }
        }
        current = api_client::with_timeout(api.get(&name)).await?.map_err(api_client::explain)?;
        if current.metadata.uid != request.metadata.uid {
            bail!("{name} is another request now: look at it with windlass csr show {name}");
        }
    }
    bail!("{name} keeps changing: try again")
}

/// The request with the decision on it; none if it is there.
fn decided(
    request: &CsrObject,
    decision: CsrDecision,
    reason: &DecisionReason,
    now: Timestamp,
) -> Result<Option<CsrObject>> {
    let name = request.name_any();
    let has = |kind: &str| conditions(request).iter().any(|condition| condition.type_ == kind);
    if has(decision.opposite().condition()) {
        let (opposite, done) = (decision.opposite().done(), decision.done());
        bail!("{name} is {opposite} for good and cannot be {done}: a new request is needed");
    }
    if has(decision.condition()) {
        return Ok(None);
    }
    let mut request = request.clone();
    let status = request.status.get_or_insert_default();
    status.conditions.get_or_insert_default().push(Condition {
        type_: decision.condition().into(),
        status: "True".into(),
        reason: Some(reason.word.clone()),
        message: Some(reason.message.clone()),
        last_update_time: Some(Time(now)),
        last_transition_time: None,
    });
    Ok(Some(request))
}

/// What somebody who wants to decide needs and does not have.
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
    for (mut attributes, told) in needs {
        attributes["group"] = json!("certificates.k8s.io");
        // Who cannot find out is told of both.
        if !check_access(client, attributes).await.unwrap_or(false) {
            missing.push(told);
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
        return anyhow!("{name} could not be {done}: {message}");
    }
    let missing = missing.join("\" and \"");
    anyhow!("{name} could not be {done}: you are not allowed to \"{missing}\" ({message})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kinds: &[&str]) -> CsrObject {
        let conditions =
            kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect::<Vec<_>>();
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"request": "", "signerName": "example.com/a"},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// The conditions before, what is said, and the conditions after: none of them if nothing has to be
    /// written, no answer if it must not be.
    type Case = (&'static [&'static str], CsrDecision, Option<&'static [&'static str]>);

    #[test]
    fn an_earlier_decision_is_not_changed() {
        let now = Timestamp::UNIX_EPOCH;
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
                    let found = conditions(&decided);
                    let kinds = found.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>();
                    assert_eq!(kinds, after);
                    let last = found.last().unwrap();
                    assert_eq!(last.reason.as_deref(), Some("Because"));
                    assert!(last.message.as_ref().unwrap().contains(decision.done()));
                }
                (Err(error), None) => assert!(error.to_string().contains("for good"), "{error}"),
                (found, _) => panic!("{before:?} {decision:?}: {found:?}"),
            }
        }
    }
}
