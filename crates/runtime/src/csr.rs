//! State of a CertificateSigningRequest, computed in one place.
//!
//! A condition counts unless its status is `"False"`. Kubernetes itself ignores the status, because its API server
//! rejects `Approved`, `Denied` and `Failed` with any other status than `True`; older objects may have an empty one.

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use time::OffsetDateTime;

/// Condition type that an approver sets to allow the certificate.
pub const APPROVED: &str = "Approved";
/// Condition type that an approver sets to refuse the certificate.
pub const DENIED: &str = "Denied";
/// Condition type that a signer sets when it will never sign the request.
pub const FAILED: &str = "Failed";

/// Progress of a request. Later variants do not imply that earlier ones were observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CsrState<'a> {
    /// Nobody has approved or denied the request.
    Pending,
    /// The request is approved, and the signer has not answered yet.
    Approved,
    /// An approver denied the request. This is final, even if a certificate is there.
    Denied(&'a CertificateSigningRequestCondition),
    /// The signer rejected the request. This is final.
    Failed(&'a CertificateSigningRequestCondition),
    /// The request is approved and has this certificate chain, in PEM.
    Issued(&'a [u8]),
}

/// Decision of the approvers, whatever the signer made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// No approver has decided yet: neither approved nor denied.
    Undecided,
    /// An approver allowed the certificate, and none denied it.
    Approved,
    /// Denied, possibly besides an approval.
    Denied,
}

/// Computes the state of a request. A certificate without an approval does not count: no approver has checked it.
pub fn state(csr: &CertificateSigningRequest) -> CsrState<'_> {
    if let Some(denied) = condition(csr, DENIED) {
        return CsrState::Denied(denied);
    }
    if let Some(failed) = condition(csr, FAILED) {
        return CsrState::Failed(failed);
    }
    match (condition(csr, APPROVED), certificate(csr)) {
        (None, _) => CsrState::Pending,
        (Some(_), None) => CsrState::Approved,
        (Some(_), Some(chain)) => CsrState::Issued(chain),
    }
}

/// Computes the decision of the approvers alone. An approver decides on failed requests, too.
pub fn decision(csr: &CertificateSigningRequest) -> ApprovalDecision {
    match (condition(csr, APPROVED), condition(csr, DENIED)) {
        (_, Some(_)) => ApprovalDecision::Denied,
        (Some(_), None) => ApprovalDecision::Approved,
        (None, None) => ApprovalDecision::Undecided,
    }
}

/// Formats the state as the column `CONDITION` of `kubectl get csr`: `Pending`, or `Approved` or `Denied`, then `Failed`,
/// then `Issued`, separated by commas.
pub fn condition_column(csr: &CertificateSigningRequest) -> String {
    let decision = match decision(csr) {
        ApprovalDecision::Undecided => "Pending",
        ApprovalDecision::Approved => APPROVED,
        ApprovalDecision::Denied => DENIED,
    };
    let failed = condition(csr, FAILED).map(|_| FAILED);
    let issued = certificate(csr).map(|_| "Issued");
    [Some(decision), failed, issued].into_iter().flatten().collect::<Vec<_>>().join(",")
}

/// Whether a condition with this status counts. The same rule applies to PodCertificateRequests.
pub fn status_counts(status: &str) -> bool {
    status != "False"
}

/// Lists all conditions, also those that do not count.
pub fn conditions(csr: &CertificateSigningRequest) -> &[CertificateSigningRequestCondition] {
    csr.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// Finds the first condition of a type that counts.
pub fn condition<'a>(
    csr: &'a CertificateSigningRequest,
    condition_type: &str,
) -> Option<&'a CertificateSigningRequestCondition> {
    let mut all = conditions(csr).iter();
    all.find(|condition| condition.type_ == condition_type && status_counts(&condition.status))
}

/// Returns the certificate chain in PEM, approved or not; `None` if it is empty.
pub fn certificate(csr: &CertificateSigningRequest) -> Option<&[u8]> {
    let text = csr.status.as_ref()?.certificate.as_ref()?;
    Some(text.0.as_slice()).filter(|text| !text.is_empty())
}

/// Formats reason and message of a condition, one line of each.
pub fn describe_condition(condition: &CertificateSigningRequestCondition) -> String {
    let parts = [&condition.reason, &condition.message];
    describe_reason(parts.map(|part| part.as_deref().unwrap_or_default()))
}

/// As [`describe_condition`], for conditions of other kinds.
pub fn describe_reason(reason_and_message: [&str; 2]) -> String {
    let lines = reason_and_message.map(|part| part.lines().next().unwrap_or_default());
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "no reason given".to_owned() } else { lines.join(": ") }
}

/// Creates a condition that is true as of now.
pub fn true_condition(
    condition_type: &str,
    reason: &str,
    message: &str,
    now: OffsetDateTime,
) -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        type_: condition_type.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: Timestamp::from_second(now.unix_timestamp()).ok().map(Time),
        last_transition_time: None,
    }
}

/// Returns the request with this condition in place of those of its type and of type `replaced`.
pub fn with_condition(
    csr: &CertificateSigningRequest,
    condition: CertificateSigningRequestCondition,
    replaced: &str,
) -> CertificateSigningRequest {
    let mut csr = without_condition(csr, replaced);
    let conditions = csr.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.retain(|old| old.type_ != condition.type_);
    conditions.push(condition);
    csr
}

/// Returns the request without the conditions of a type.
pub fn without_condition(csr: &CertificateSigningRequest, condition_type: &str) -> CertificateSigningRequest {
    let mut csr = csr.clone();
    if let Some(conditions) = csr.status.as_mut().and_then(|status| status.conditions.as_mut()) {
        conditions.retain(|condition| condition.type_ != condition_type);
    }
    csr
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn csr(conditions: &[(&str, &str)], certificate: Option<&str>) -> CertificateSigningRequest {
        let conditions = conditions.iter().map(|(condition_type, status)| {
            json!({"type": condition_type, "status": status, "reason": "Why", "message": "a\nb"})
        });
        let status = json!({"conditions": conditions.collect::<Vec<_>>(), "certificate": certificate});
        let mut object = json!({
            "metadata": {"name": "a"},
            "spec": {"request": "", "signerName": "a.b/c"},
            "status": status,
        });
        if certificate.is_none() {
            object["status"].as_object_mut().map(|status| status.remove("certificate"));
        }
        serde_json::from_value::<CertificateSigningRequest>(object).unwrap()
    }

    #[test]
    fn the_state_follows_from_conditions_and_certificate() {
        let (yes, no, empty) = ("True", "False", "");
        let pem = Some("cGVt");
        type StateRow<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>, &'a str, &'a str);
        let table: &[StateRow<'_>] = &[
            (&[], None, "Pending", "Pending"),
            (&[], Some(""), "Pending", "Pending"),
            (&[], pem, "Pending", "Pending,Issued"),
            (&[("example.com/Seen", yes)], None, "Pending", "Pending"),
            (&[(APPROVED, yes)], None, "Approved", "Approved"),
            (&[(APPROVED, empty)], None, "Approved", "Approved"),
            (&[(APPROVED, "Unknown")], None, "Approved", "Approved"),
            (&[(APPROVED, no)], None, "Pending", "Pending"),
            (&[(APPROVED, no)], pem, "Pending", "Pending,Issued"),
            (&[(APPROVED, no), (APPROVED, yes)], None, "Approved", "Approved"),
            (&[(APPROVED, yes)], Some(""), "Approved", "Approved"),
            (&[(APPROVED, yes)], pem, "Issued", "Approved,Issued"),
            (&[(DENIED, yes)], None, "Denied", "Denied"),
            (&[(DENIED, empty)], None, "Denied", "Denied"),
            (&[(DENIED, no)], None, "Pending", "Pending"),
            (&[(APPROVED, yes), (DENIED, no)], pem, "Issued", "Approved,Issued"),
            (&[(APPROVED, yes), (DENIED, yes)], pem, "Denied", "Denied,Issued"),
            (&[(FAILED, yes)], None, "Failed", "Pending,Failed"),
            (&[(APPROVED, yes), (FAILED, yes)], None, "Failed", "Approved,Failed"),
            (&[(APPROVED, yes), (FAILED, empty)], None, "Failed", "Approved,Failed"),
            (&[(APPROVED, yes), (FAILED, no)], None, "Approved", "Approved"),
            (&[(APPROVED, yes), (FAILED, no)], pem, "Issued", "Approved,Issued"),
            (&[(DENIED, yes), (FAILED, yes)], None, "Denied", "Denied,Failed"),
        ];
        for (conditions, certificate, expected, column) in table {
            let csr = csr(conditions, *certificate);
            let state = match state(&csr) {
                CsrState::Pending => "Pending",
                CsrState::Approved => "Approved",
                CsrState::Denied(_) => "Denied",
                CsrState::Failed(_) => "Failed",
                CsrState::Issued(chain) => {
                    assert_eq!(chain, b"pem");
                    "Issued"
                }
            };
            assert_eq!(state, *expected, "{conditions:?} {certificate:?}");
            assert_eq!(condition_column(&csr), *column, "{conditions:?} {certificate:?}");
        }
        assert_eq!(state(&CertificateSigningRequest::default()), CsrState::Pending);
    }

    #[test]
    fn conditions_are_replaced_and_described() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let approved = true_condition(APPROVED, "Tested", "", now);
        let csr = csr(&[(DENIED, "True"), (APPROVED, "False"), ("Own", "True")], None);
        let approved = with_condition(&csr, approved, DENIED);
        let types: Vec<&str> = conditions(&approved).iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(types, ["Own", APPROVED]);
        assert_eq!(decision(&approved), ApprovalDecision::Approved);
        assert_eq!(describe_condition(condition(&csr, DENIED).unwrap()), "Why: a");
        assert_eq!(describe_condition(condition(&approved, APPROVED).unwrap()), "Tested");
        assert_eq!(describe_reason(["", ""]), "no reason given");
    }
}
