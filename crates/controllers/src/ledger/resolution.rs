//! Finds out what became of records without a confirmation, from the requests that they answer.

use kube::api::DynamicObject;
use serde_json::Value;
use windlass_ledger::{IssuanceRecord, RequestKind, SerialNumber};
use windlass_pki::ForeignCertificate;
use windlass_runtime::csr::status_counts;

/// What is known about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// The request has the certificate.
    Issued,
    /// The request has another certificate, or was refused without one.
    Abandoned,
    /// The request is still to be answered.
    Pending,
    /// The request is gone. Its client may have read the certificate before, so it counts as outstanding until it expires.
    Unknown,
}

/// Decides by the request of the record's name; `None` if there is none.
pub fn decide(record: &IssuanceRecord, request: Option<&DynamicObject>) -> RecordOutcome {
    let uid = record.request.uid.to_string();
    let Some(request) = request.filter(|request| request.metadata.uid.as_deref() == Some(&uid)) else {
        return RecordOutcome::Unknown;
    };
    let certificate = match record.request.kind {
        RequestKind::CertificateSigningRequest => csr_certificate(request),
        RequestKind::PodCertificateRequest => pod_certificate(request),
    };
    match certificate {
        Some(pem) if leaf_serial(&pem) == Some(record.serial) => RecordOutcome::Issued,
        Some(_) => RecordOutcome::Abandoned,
        None if is_refused(request) => RecordOutcome::Abandoned,
        None => RecordOutcome::Pending,
    }
}

fn csr_certificate(request: &DynamicObject) -> Option<Vec<u8>> {
    let encoded = request.data.pointer("/status/certificate").filter(|value| !value.is_null())?;
    let bytes: k8s_openapi::ByteString = serde_json::from_value(encoded.clone()).unwrap_or_default();
    Some(bytes.0).filter(|bytes| !bytes.is_empty())
}

fn pod_certificate(request: &DynamicObject) -> Option<Vec<u8>> {
    let chain = request.data.pointer("/status/certificateChain").and_then(Value::as_str)?;
    Some(chain.as_bytes().to_vec()).filter(|chain| !chain.is_empty())
}

fn leaf_serial(pem: &[u8]) -> Option<SerialNumber> {
    let leaf = windlass_pki::pem::certificates(pem).ok()?.into_iter().next()?;
    SerialNumber::from_bytes(&ForeignCertificate::from_der(&leaf).ok()?.serial()).ok()
}

fn is_refused(request: &DynamicObject) -> bool {
    let conditions = request.data.pointer("/status/conditions").and_then(Value::as_array);
    let text = |condition: &Value, field: &str| {
        condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    conditions.into_iter().flatten().any(|condition| {
        ["Denied", "Failed"].contains(&text(condition, "type").as_str())
            && status_counts(&text(condition, "status"))
    })
}

#[cfg(test)]
mod tests;
