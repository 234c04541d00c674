use serde_json::{Value, json};
use time::macros::datetime;

use super::*;

fn request(status: &Value) -> SignerRequest {
    let object = json!({
        "metadata": {"name": "r", "creationTimestamp": "2026-06-01T12:00:00Z"},
        "spec": {"request": "", "signerName": "a.b/c"},
        "status": status,
    });
    SignerRequest::from_csr(&serde_json::from_value(object).unwrap())
}

fn pod_request(conditions: &Value) -> SignerRequest {
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "PodCertificateRequest",
        "metadata": {"name": "r", "namespace": "ns", "creationTimestamp": "2026-06-01T12:00:00Z"},
        "spec": {"signerName": "a.b/c"},
        "status": {"conditions": conditions},
    });
    SignerRequest::from_pod_request(&serde_json::from_value(object).unwrap())
}

#[test]
fn pending_requests_have_the_right_state() {
    let made = datetime!(2026-06-01 12:00 UTC);
    let approved = json!({
        "type": "Approved", "status": "True", "lastUpdateTime": "2026-06-01T13:00:00Z",
    });
    let says = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "m"});
    let table = [
        (json!({}), RequestState::ToApprove, made, None),
        (
            json!({"conditions": [says("windlass.dev/ApprovalDelayed")]}),
            RequestState::ToApprove,
            made,
            Some("windlass.dev/ApprovalDelayed R: m"),
        ),
        (json!({"conditions": [approved]}), RequestState::ToSign, datetime!(2026-06-01 13:00 UTC), None),
        (
            json!({"conditions": [approved, says("windlass.dev/SigningDelayed")]}),
            RequestState::ToSign,
            datetime!(2026-06-01 13:00 UTC),
            Some("windlass.dev/SigningDelayed R: m"),
        ),
        (json!({"conditions": [approved], "certificate": "eA=="}), RequestState::Issued, made, None),
        (json!({"conditions": [approved, says("Failed")]}), RequestState::Failed, made, None),
        (json!({"conditions": [says("Denied")]}), RequestState::Denied, made, None),
    ];
    for (status, state, since, why) in table {
        let asked = request(&status);
        let found = (asked.state, asked.since, asked.why.as_deref());
        assert_eq!(found, (state, Some(since), why), "{status}");
    }
    for (conditions, state) in [
        (json!(null), RequestState::ToSign),
        (json!([]), RequestState::ToSign),
        (json!([says("Issued")]), RequestState::Issued),
        (json!([says("Denied")]), RequestState::Denied),
        (json!([says("Failed")]), RequestState::Failed),
    ] {
        let asked = pod_request(&conditions);
        assert_eq!((asked.state, asked.name.as_str()), (state, "ns/r"), "{conditions}");
    }
}

#[test]
fn each_is_counted_once() {
    let mut asked =
        vec![request(&json!({})), pod_request(&json!([])), pod_request(&json!([{"type": "Issued"}]))];
    asked.push(SignerRequest { signer: "other/x".into(), ..pod_request(&json!([{"type": "Failed"}])) });
    let tallies = tallies(&asked);
    let (requests, pods) = &tallies["a.b/c"];
    assert_eq!(*requests, RequestCounts { awaiting_approval: 1, ..RequestCounts::default() });
    let waiting = RequestCounts {
        awaiting_signature: 1,
        oldest_awaiting_signature: Some(datetime!(2026-06-01 12:00 UTC)),
        issued: 1,
        ..RequestCounts::default()
    };
    assert_eq!(*pods, waiting);
    assert_eq!(requests.merge(pods), RequestCounts { awaiting_approval: 1, ..waiting });
    assert_eq!(tallies["other/x"].1.failed, 1);
    let text = serde_json::to_value(pods).unwrap();
    assert_eq!(text["oldestAwaitingSignature"], "2026-06-01T12:00:00Z");
}
