//! PodCertificateRequests in any version of the API: their state, the proof that one may be signed, and the answer.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use windlass_pki::{CertificateRequest, Error, SubjectKey};
use windlass_runtime::csr::status_counts;

use super::decision::RefusalReason;
use super::lifetime::CertificateTimes;

/// A request as the API returned it. Fields that are not used here are written back unchanged.
pub type PodRequest = DynamicObject;

/// Condition types that answer a request.
const SETTLED: [&str; 3] = ["Issued", "Denied", "Failed"];
/// Default of the API for `maxExpirationSeconds`.
const DEFAULT_SECONDS: i64 = 24 * 60 * 60;

/// Returns the name of the signer that a request is addressed to.
pub fn signer_name(request: &PodRequest) -> &str {
    request.data.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a request waits for an answer: it has no certificate, and no condition that counts answers it.
pub fn is_pending(request: &PodRequest) -> bool {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let conditions = request.data.pointer("/status/conditions").and_then(Value::as_array);
    text(request.data.pointer("/status/certificateChain")).is_empty()
        && !conditions.into_iter().flatten().any(|condition| {
            SETTLED.contains(&text(condition.get("type")).as_str())
                && status_counts(&text(condition.get("status")))
        })
}

/// Reason for which a request cannot be signed.
#[derive(Debug, PartialEq, Eq)]
pub enum UnsignablePodRequest {
    /// The request is already answered.
    NotPending,
    /// A field of the request has the wrong type.
    Unreadable(String),
    /// The requester does not prove possession of the key.
    KeyUnproven(String),
    /// The pod does not exist, or another pod has its name. The pod may appear later.
    PodNotFound(String),
    /// The pod has another service account than the request.
    NotPermitted(String),
}

/// A request that is neither issued, denied nor failed.
pub struct PendingPodRequest {
    namespace: String,
    spec: PodRequestSpec,
}

/// A pending request whose requester holds the key, for a pod that exists and runs as the service account of the request.
/// Signing needs one, and [`PendingPodRequest::verify`] is the only way to get it.
pub struct VerifiedPodRequest<'a> {
    request: PendingPodRequest,
    key: SubjectKey,
    pod: &'a Pod,
}

impl PendingPodRequest {
    /// Parses a request that is not answered yet.
    pub fn parse(request: &PodRequest) -> Result<PendingPodRequest, UnsignablePodRequest> {
        if !is_pending(request) {
            return Err(UnsignablePodRequest::NotPending);
        }
        let spec = PodRequestSpec::from_request(request)
            .map_err(|error| UnsignablePodRequest::Unreadable(error.to_string()))?;
        Ok(PendingPodRequest { namespace: request.namespace().unwrap_or_default(), spec })
    }

    /// Returns the namespace of the request and of its pod.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the requested values, which are unverified.
    pub fn spec(&self) -> &PodRequestSpec {
        &self.spec
    }

    /// Verifies the key of the request, and that `pod`, which was read by its name, is the pod that it is for.
    pub fn verify(self, pod: Option<&Pod>) -> Result<VerifiedPodRequest<'_>, UnsignablePodRequest> {
        let key = self.spec.verified_key().map_err(UnsignablePodRequest::KeyUnproven)?;
        let PodRequestSpec { pod_name, pod_uid, service_account_name, .. } = &self.spec;
        let namespace = &self.namespace;
        // Without its pod the request will be removed, too.
        let Some(pod) = pod.filter(|pod| pod.metadata.uid.as_ref() == Some(pod_uid)) else {
            let message = format!("pod {namespace}/{pod_name} with uid {pod_uid} does not exist");
            return Err(UnsignablePodRequest::PodNotFound(message));
        };
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        if account.unwrap_or("default") != service_account_name {
            let message =
                format!("pod {namespace}/{pod_name} does not run as service account {service_account_name}");
            return Err(UnsignablePodRequest::NotPermitted(message));
        }
        Ok(VerifiedPodRequest { request: self, key, pod })
    }
}

impl VerifiedPodRequest<'_> {
    /// Returns the namespace of the pod.
    pub fn namespace(&self) -> &str {
        &self.request.namespace
    }

    /// Returns the requested values.
    pub fn spec(&self) -> &PodRequestSpec {
        &self.request.spec
    }

    /// Returns the key to certify.
    pub fn key(&self) -> &SubjectKey {
        &self.key
    }

    /// Returns the pod that the certificate is for.
    pub fn pod(&self) -> &Pod {
        self.pod
    }
}

/// Fields of a request that a signer uses.
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
    /// Node that runs the pod, whose agent made the request.
    pub node_name: String,
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
        request.data.get("spec").map_or_else(|| Ok(PodRequestSpec::default()), PodRequestSpec::deserialize)
    }

    /// Returns the maximum lifetime that the request allows.
    pub fn max_lifetime(&self) -> Duration {
        Duration::seconds(self.max_expiration_seconds.unwrap_or(DEFAULT_SECONDS))
    }

    /// Whether the request has a key. Version v1 does not show the older form of proof.
    pub fn has_key(&self) -> bool {
        non_empty_bytes(self.stub.as_ref()).is_some()
            || non_empty_bytes(self.pkix_public_key.as_ref()).is_some()
    }

    /// Returns the key if the requester proves possession of it.
    fn verified_key(&self) -> Result<SubjectKey, String> {
        if let Some(stub) = non_empty_bytes(self.stub.as_ref()) {
            let request = CertificateRequest::from_der(stub).map_err(|error| error.to_string())?;
            request.verify_signature().map_err(|error| Error::Unproven(error).to_string())?;
            return Ok(request.public_key().clone());
        }
        let key = non_empty_bytes(self.pkix_public_key.as_ref()).ok_or("the request has no key")?;
        let key = SubjectKey::from_der(key).map_err(|error| error.to_string())?;
        let proof = non_empty_bytes(self.proof_of_possession.as_ref()).unwrap_or_default();
        let proven = key.verify_possession(self.pod_uid.as_bytes(), proof);
        proven.map_err(|error| format!("unable to verify proof of possession: {error}"))?;
        Ok(key)
    }

    /// Returns the keys of the annotations that the author of the pod addressed to the signer.
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

/// Returns the request with the condition `kind` that refuses it.
pub fn with_refusal(
    request: &PodRequest,
    kind: &str,
    why: &RefusalReason,
    now: OffsetDateTime,
) -> PodRequest {
    with_status(request, json!({"conditions": [build_condition(kind, why.reason, &why.message, now)]}))
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
