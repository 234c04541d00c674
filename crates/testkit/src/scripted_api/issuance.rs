//! What the scripted server does with a request for a certificate.

use std::sync::Arc;

use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use tokio::time::Instant;
use windlass_pki::{CertificateRequest, PrivateKey, PublicKey};

use crate::{CertificateFixture, START};

/// Computes the issued certificate chain of a CertificateSigningRequest, in PEM.
pub type Signer = Arc<dyn Fn(&CertificateRequest) -> String + Send + Sync>;

/// How requests are decided.
#[derive(Clone)]
pub enum SigningPolicy {
    /// Nobody decides it.
    Wait,
    /// It is approved and waits for a signer.
    Approve,
    /// It is approved and signed by a function.
    Sign(Signer),
    /// A certificate for this long is issued, to be renewed after two thirds of it.
    Issue(Duration),
    /// A certificate for another key is issued.
    IssueForAnother,
    /// A certificate that has expired is issued.
    IssueExpired,
    /// Something that is no certificate is issued.
    IssueNonsense,
    /// It gets a condition of this type, such as `Denied` or `Failed`.
    Refuse(&'static str),
}

impl SigningPolicy {
    /// Sets the status of a request; the server's time began at an instant.
    pub(super) fn apply(&self, request: &mut Value, began: Instant) {
        let now = START + began.elapsed();
        let (life, key) = match self {
            SigningPolicy::Wait => return,
            SigningPolicy::Approve => {
                request["status"] = json!({"conditions": [condition("Approved")]});
                return;
            }
            SigningPolicy::Refuse(kind) => {
                request["status"] = json!({"conditions": [condition(kind)]});
                return;
            }
            SigningPolicy::Sign(signer) => {
                let chain = signer(&certificate_request(request).unwrap());
                return set_issued(request, chain, now, now);
            }
            SigningPolicy::IssueForAnother => {
                (Duration::DAY, PrivateKey::generate().unwrap().public_key().clone())
            }
            SigningPolicy::Issue(life) => (*life, requested_key(request)),
            SigningPolicy::IssueExpired => (-Duration::MINUTE, requested_key(request)),
            SigningPolicy::IssueNonsense => (Duration::DAY, requested_key(request)),
        };
        let from = if life.is_negative() { now - Duration::HOUR } else { now };
        let until = now + life;
        let chain = match self {
            SigningPolicy::IssueNonsense => "nonsense".to_owned(),
            _ => {
                let signed = CertificateFixture { until, ..CertificateFixture::client(from) };
                format!("a note\n{}", signed.pem(&key))
            }
        };
        set_issued(request, chain, from, until);
    }
}

fn condition(kind: &str) -> Value {
    let reason = if kind == "Issued" { "" } else { "Because" };
    json!({"type": kind, "status": "True", "reason": reason, "message": "of the script"})
}

fn set_issued(request: &mut Value, chain: String, from: OffsetDateTime, until: OffsetDateTime) {
    let text = |time: OffsetDateTime| time.format(&Rfc3339).unwrap();
    request["status"] = match request["spec"]["request"].is_null() {
        true => json!({
            "conditions": [condition("Issued")], "certificateChain": chain,
            "notBefore": text(from), "notAfter": text(until),
            "beginRefreshAt": text(from + (until - from) * 2 / 3),
        }),
        false => json!({
            "conditions": [condition("Approved")],
            "certificate": k8s_openapi::ByteString(chain.into_bytes()),
        }),
    };
}

pub(super) fn requested_key(request: &Value) -> PublicKey {
    match bytes_field(request, "pkixPublicKey") {
        Some(key) => PublicKey::from_der(&key).unwrap(),
        None => certificate_request(request).unwrap().public_key().to_public_key().unwrap(),
    }
}

fn certificate_request(request: &Value) -> Option<CertificateRequest> {
    if let Some(stub) = bytes_field(request, "stubPKCS10Request") {
        return CertificateRequest::from_der(&stub).ok();
    }
    CertificateRequest::from_pem(&bytes_field(request, "request")?).ok()
}

fn bytes_field(request: &Value, field: &str) -> Option<Vec<u8>> {
    let value = request["spec"][field].clone();
    let bytes = serde_json::from_value::<k8s_openapi::ByteString>(value).unwrap_or_default();
    Some(bytes.0).filter(|bytes| !bytes.is_empty())
}
