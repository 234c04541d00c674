//! PodCertificateRequest in any version of the API, and its answer.

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

/// A request, untyped, so that unknown fields survive the write.
pub type PodRequest = DynamicObject;

/// Conditions that are final.
const SETTLED: [&str; 3] = ["Issued", "Denied", "Failed"];
/// Default of the API for a missing lifetime.
const DEFAULT_SECONDS: i64 = 24 * 60 * 60;

/// Returns the signer name of a request.
pub fn signer_name(request: &PodRequest) -> &str {
    request.data.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default()
}

/// Whether the request has no answer yet.
pub fn is_pending(request: &PodRequest) -> bool {
    let conditions = request.data.pointer("/status/conditions").and_then(Value::as_array);
    !conditions.into_iter().flatten().any(|condition| {
        let kind = condition.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| SETTLED.contains(&kind))
    })
}

/// Fields of the spec that a signer needs.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodRequestSpec {
    /// Name of the pod that uses the certificate.
    pub pod_name: String,
    /// UID of the pod, which must match the pod's current UID.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// Service account of the pod.
    pub service_account_name: String,
    max_expiration_seconds: Option<i64>,
    #[serde(rename = "stubPKCS10Request")]
    stub: Option<ByteString>,
    pkix_public_key: Option<ByteString>,
    proof_of_possession: Option<ByteString>,
    unverified_user_annotations: Option<BTreeMap<String, String>>,
}

impl PodRequestSpec {
    /// Parses the spec of a request.
    pub fn from_request(request: &PodRequest) -> Result<PodRequestSpec, serde_json::Error> {
        request
            .data
            .get("spec")
            .map_or_else(|| Ok(PodRequestSpec::default()), PodRequestSpec::deserialize)
    }

    /// Returns the longest lifetime that the request accepts.
    pub fn max_lifetime(&self) -> Duration {
        Duration::seconds(self.max_expiration_seconds.unwrap_or(DEFAULT_SECONDS))
    }

    /// Whether the request contains a key. v1 does not show the older form of proof.
    pub fn has_key(&self) -> bool {
        non_empty_bytes(self.stub.as_ref()).is_some()
            || non_empty_bytes(self.pkix_public_key.as_ref()).is_some()
    }

    /// Returns the public key after verifying the proof of possession.
    pub fn verified_key(&self) -> Result<SubjectKey, String> {
        if let Some(stub) = non_empty_bytes(self.stub.as_ref()) {
            let request = CertificateRequest::from_der(stub).map_err(|error| error.to_string())?;
            request.verify_signature().map_err(|error| Error::Unproven(error).to_string())?;
            return Ok(request.public_key().clone());
        }
        let key =
            non_empty_bytes(self.pkix_public_key.as_ref()).ok_or("the request contains no key")?;
        let key = SubjectKey::from_der(key).map_err(|error| error.to_string())?;
        let proof = non_empty_bytes(self.proof_of_possession.as_ref()).unwrap_or_default();
        let proven = key.verify_possession(self.pod_uid.as_bytes(), proof);
        proven.map_err(|error| format!("unable to verify proof of possession: {error}"))?;
        Ok(key)
    }

    /// Lists the keys of the user config, which the author of the pod sets for the signer.
    pub fn annotations(&self) -> impl Iterator<Item = &str> {
        self.unverified_user_annotations.iter().flatten().map(|(key, _)| key.as_str())
    }
}

fn non_empty_bytes(field: Option<&ByteString>) -> Option<&[u8]> {
    field.map(|bytes| bytes.0.as_slice()).filter(|bytes| !bytes.is_empty())
}

/// Returns the request with a certificate.
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

/// Returns the request with a final condition and its reason.
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
