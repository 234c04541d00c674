//! Compares the results of the controllers with those of kube-controller-manager.
//!
//! `issuance.json` contains requests and their results: rejected by the API, failed, left pending,
//! or issued with this content.

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use x509_cert::der::{Decode as _, Encode as _};

use crate::certificates::{SigningLoops, approve, condition, is_settled};
use crate::fixture::{TestCluster, object, wait_until};

const AUTHORITY_KEY_IDENTIFIER: &str = "2.5.29.35";

#[tokio::test]
async fn requests_end_as_they_do_in_kubernetes() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("issuance.json")).unwrap();
    let world = TestCluster::without_controllers().await;
    let _signing = SigningLoops::start(&world);
    let api: Api<CertificateSigningRequest> = Api::all(world.client.clone());
    let (mut ends, mut differences) = (Vec::new(), Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let name = format!("case-{number}");
        let (end, wanted) = (outcome(&api, &name, case).await, expected_outcome(case));
        if end != wanted {
            differences.push(format!("{}: {end}\n  instead of {wanted}", case["case"]));
        }
        ends.extend(wanted.as_object().unwrap().keys().cloned());
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let count = |end: &str| ends.iter().filter(|each| *each == end).count();
    assert_eq!((count("issued"), count("failed"), count("pending")), (23, 12, 1));
}

async fn outcome(api: &Api<CertificateSigningRequest>, name: &str, case: &Value) -> Value {
    let mut request: CertificateSigningRequest = object(json!({
        "metadata": {"name": name},
        "spec": {
            "request": "",
            "signerName": case["signerName"],
            "usages": case["usages"],
            "expirationSeconds": case.get("expirationSeconds"),
        },
    }));
    request.spec.request = ByteString(case["request"].as_str().unwrap().into());
    match api.create(&PostParams::default(), &request).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) => return json!({"refused": status.code}),
        Err(error) => panic!("{name}: {error}"),
    }
    approve(api, name).await;
    if case.get("pending").is_some() {
        return assert_untouched(api, name).await;
    }
    let request = wait_until(api, name, "be answered", is_settled).await.unwrap();
    if let Some(failed) = condition(&request, "Failed") {
        return json!({"failed": {"reason": failed.reason, "message": failed.message}});
    }
    let text = request.status.unwrap().certificate.unwrap().0;
    json!({"issued": describe_certificate(&text)})
}

/// Asserts that a request is unchanged after a later one was answered.
async fn assert_untouched(api: &Api<CertificateSigningRequest>, name: &str) -> Value {
    let before = api.get(name).await.unwrap();
    let later = format!("{name}-later");
    crate::certificates::create_csr(api, &later, "key p256").await;
    approve(api, &later).await;
    wait_until(api, &later, "be answered", is_settled).await;
    let after = api.get(name).await.unwrap();
    assert_eq!(after, before);
    json!({"pending": true})
}

fn expected_outcome(case: &Value) -> Value {
    if let Some(refused) = case.get("refused") {
        return json!({"refused": refused["status"]});
    }
    if let Some(failed) = case.get("failed") {
        return json!({ "failed": failed });
    }
    if case.get("pending").is_some() {
        return json!({"pending": true});
    }
    let issued = &case["issued"];
    json!({"issued": {
        "subject_der": issued["subject_der"],
        "lifetime_seconds": issued["lifetime_seconds"],
        "extensions": issued["extensions"],
        "has_authority_key_id": issued["has_authority_key_id"],
        "blocks": issued["blocks"],
    }})
}

/// Describes a certificate as the recording does, without fields that depend on the signer.
fn describe_certificate(text: &[u8]) -> Value {
    let blocks = windlass_pki::pem::certificates(text).unwrap();
    let certificate = x509_cert::Certificate::from_der(&blocks[0]).unwrap();
    let body = certificate.tbs_certificate();
    let seconds = |time: x509_cert::time::Time| time.to_unix_duration().as_secs();
    let all = body.extensions().unwrap();
    let is_own = |oid: String| oid == AUTHORITY_KEY_IDENTIFIER;
    let others = all.iter().filter(|extension| !is_own(extension.extn_id.to_string()));
    let extensions = others.map(|extension| {
        json!({
            "oid": extension.extn_id.to_string(),
            "critical": extension.critical,
            "value": encode_hex(extension.extn_value.as_bytes()),
        })
    });
    let validity = body.validity();
    json!({
        "subject_der": encode_hex(&body.subject().to_der().unwrap()),
        "lifetime_seconds": seconds(validity.not_after) - seconds(validity.not_before),
        "extensions": extensions.collect::<Vec<_>>(),
        "has_authority_key_id": all.iter().any(|each| is_own(each.extn_id.to_string())),
        "blocks": blocks.len(),
    })
}

fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
