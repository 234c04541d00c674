//! Issuance: one certificate per request, after its approval, and for every request in the end.

use super::timeline::StoreTimeline;
use super::{CheckResult, ConsistencyRule, REQUESTS};
use crate::history::{ChaosHistory, Content, OperationOutcome, OperationRequest};

/// Name prefix of requests that need manual approval; the controllers approve the others.
pub const BY_HAND: &str = "certificatesigningrequests/by-hand-";

/// Formats the compared parts of a request: whether it is approved, and the digest of its
/// certificate.
pub fn content(approved: bool, certificate: Option<&str>) -> Content {
    format!("{}/{}", if approved { "approved" } else { "" }, certificate.unwrap_or_default())
}

/// Returns whether the request is approved, and the digest of its certificate, which is empty if
/// there is none.
fn read(content: &Content) -> (bool, &str) {
    let (approved, certificate) = content.split_once('/').unwrap_or((content, ""));
    (approved == "approved", certificate)
}

pub fn check(history: &ChaosHistory, timeline: &StoreTimeline<'_>, verdict: &mut CheckResult) {
    let requests = || timeline.keys().filter(|key| key.starts_with(REQUESTS));
    for key in requests() {
        let (mut approved, mut certificate) = (false, "");
        for span in timeline.spans(key) {
            let Some((now_approved, now)) = span.content.map(read) else { continue };
            if !certificate.is_empty() && now != certificate {
                let what = format!("{key} had {certificate}, and {now:?} at {}", span.from);
                verdict.report_violation(ConsistencyRule::IssuedOnce, what);
            }
            if certificate.is_empty() && !now.is_empty() && !approved {
                let what = format!("{key} got {now} at {}, unapproved", span.from);
                verdict.report_violation(ConsistencyRule::IssuedIfApproved, what);
            }
            if !now.is_empty() {
                certificate = now;
            }
            approved |= now_approved;
        }
        if approved && key.starts_with(BY_HAND) && !has_approval(history, key) {
            verdict.report_violation(
                ConsistencyRule::IssuedIfApproved,
                format!("{key} was issued without an approval"),
            );
        }
    }
    if history.rest.is_empty() {
        return;
    }
    for operation in &history.operations {
        let (OperationRequest::Create { key, .. }, OperationOutcome::Written(_)) =
            (&operation.request, &operation.outcome)
        else {
            continue;
        };
        let last = timeline.spans(key).last().and_then(|span| span.content);
        if key.starts_with(REQUESTS) && last.is_none_or(|content| read(content).1.is_empty()) {
            verdict.report_violation(ConsistencyRule::IssuedAtLast, format!("{key} is {last:?} in the end"));
        }
    }
}

/// Returns whether a client requested the approval and was not refused.
fn has_approval(history: &ChaosHistory, approved: &str) -> bool {
    history.operations.iter().any(|operation| {
        let asked = matches!(&operation.request, OperationRequest::Update { key, .. } if key == approved);
        asked && matches!(operation.outcome, OperationOutcome::Written(_) | OperationOutcome::Unknown { .. })
    })
}
