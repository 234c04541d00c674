//! A pod's request for a certificate, in whichever version of the API it comes, and its answer.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use windlass_pki::{CertificateRequest, Error, SubjectKey};

use super::decision::RefusalReason;
use super::lifetime::CertificateTimes;

/// A request as the API has it. What is not looked at goes back as it came.
pub type PodRequest = DynamicObject;

/// The conditions that settle a request.
const SETTLED: [&str; 3] = ["Issued", "Denied", "Failed"];
/// What the API takes for granted if a request does not say.
const DEFAULT_SECONDS: i64 = 24 * 60 * 60;

/// The signer that a request is for.
pub fn signer_name(request: &PodRequest) -> &str {
    request.data.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default()
}

/// Whether nobody has answered it.
pub fn is_pending(request: &PodRequest) -> bool {
    let conditions = request.data.pointer("/status/conditions").and_then(Value::as_array);
    !conditions.into_iter().flatten().any(|condition| {
        let kind = condition.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| SETTLED.contains(&kind))
    })
}

/// What a request asks for, as far as a signer cares.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodRequestSpec {
    /// The pod that will use the certificate.
    pub pod_name: String,
    /// UID of the pod, which must match the pod's current UID.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// The account that the pod runs as.
    pub service_account_name: String,
    max_expiration_seconds: Option<i64>,
    #[serde(rename = "stubPKCS10Request")]
    stub: Option<ByteString>,
    pkix_public_key: Option<ByteString>,
    proof_of_possession: Option<ByteString>,
    unverified_user_annotations: Option<BTreeMap<String, String>>,
}

impl PodRequestSpec {
    /// Reads what a request asks for.
    pub fn from_request(request: &PodRequest) -> Result<PodRequestSpec, serde_json::Error> {
        request
            .data
            .get("spec")
            .map_or_else(|| Ok(PodRequestSpec::default()), PodRequestSpec::deserialize)
    }

    /// The longest that the certificate may last.
    pub fn max_lifetime(&self) -> Duration {
        Duration::seconds(self.max_expiration_seconds.unwrap_or(DEFAULT_SECONDS))
    }

    /// Whether there is a key at all. In v1 the older form of proof is not to be seen.
    pub fn has_key(&self) -> bool {
        non_empty_bytes(self.stub.as_ref()).is_some()
            || non_empty_bytes(self.pkix_public_key.as_ref()).is_some()
    }

    /// The key, which whoever asks has proven to hold.
    pub fn verified_key(&self) -> Result<SubjectKey, String> {
        if let Some(stub) = non_empty_bytes(self.stub.as_ref()) {
            let request = CertificateRequest::from_der(stub).map_err(|error| error.to_string())?;
            request.verify_signature().map_err(|error| Error::Unproven(error).to_string())?;
            return Ok(request.public_key().clone());
        }
        let key = non_empty_bytes(self.pkix_public_key.as_ref()).ok_or("there is no key")?;
        let key = SubjectKey::from_der(key).map_err(|error| error.to_string())?;
        let proof = non_empty_bytes(self.proof_of_possession.as_ref()).unwrap_or_default();
        let proven = key.verify_possession(self.pod_uid.as_bytes(), proof);
        proven.map_err(|error| format!("unable to verify proof of possession: {error}"))?;
        Ok(key)
    }

    /// What the pod's author wants to tell the signer: the keys.
    pub fn annotations(&self) -> impl Iterator<Item = &str> {
        self.unverified_user_annotations.iter().flatten().map(|(key, _)| key.as_str())
    }
}

fn non_empty_bytes(field: Option<&ByteString>) -> Option<&[u8]> {
    field.map(|bytes| bytes.0.as_slice()).filter(|bytes| !bytes.is_empty())
}

/// The request with a certificate.
pub fn with_certificate(
    request: &PodRequest,
    chain: &str,
    times: &CertificateTimes,
    now: OffsetDateTime,
) -> PodRequest {
    with_status(
        request,
        json!({
            "conditions": [build_condition("Issued", "Issued", "", now)],
            "certificateChain": chain,
            "notBefore": to_time(times.validity.not_before()),
            "beginRefreshAt": to_time(times.begin_refresh_at),
            "notAfter": to_time(times.validity.not_after()),
        }),
    )
}

/// The request with a word why it gets none.
pub fn with_refusal(
    request: &PodRequest,
    kind: &str,
    why: &RefusalReason,
    now: OffsetDateTime,
) -> PodRequest {
    with_status(
        request,
        json!({"conditions": [build_condition(kind, why.reason, &why.message, now)]}),
    )
}

fn with_status(request: &PodRequest, status: Value) -> PodRequest {
    let mut request = request.clone();
    if let Some(data) = request.data.as_object_mut() {
        data.insert("status".into(), status);
    }
    request
}

fn build_condition(kind: &str, reason: &str, message: &str, now: OffsetDateTime) -> Value {
    json!({
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": to_time(now),
    })
}

fn to_time(time: OffsetDateTime) -> Option<Time> {
    Timestamp::from_second(time.unix_timestamp()).ok().map(Time)
}
