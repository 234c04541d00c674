//! Signer as a controller reads it, and its status. Durations and times are in their wire format.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conditions::ObjectCondition;

/// Configuration of a signer. The controllers parse its sections as they parse those of the signers file, so
/// these stay JSON here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerSpec {
    /// Name that requests give as `signerName`; immutable.
    pub signer_name: String,
    /// Source of the CA certificate and key.
    pub ca: Value,
    /// CertificateSigningRequests that are signed; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Value>,
    /// PodCertificateRequests that are signed; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<Value>,
    /// ClusterTrustBundle that the trust anchors are published in; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<Value>,
    /// Signers that may request an intermediate CA; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intermediates: Option<Value>,
    /// Limits on pending requests and issuance; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Value>,
    /// Certificate revocation lists; the defaults if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<Value>,
}

/// Observed state of a signer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerStatus {
    /// `metadata.generation` of the signer that the status was determined for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, CAExpiring, Published and CRLPublished; at most one of each type.
    #[serde(default)]
    pub conditions: Vec<ObjectCondition>,
    /// Number of requests without a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_requests: Option<u32>,
    /// When the signer last issued a certificate; absent if never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_issued_time: Option<String>,
    /// The CA keys, newest first; at most [`super::MAX_AUTHORITIES`].
    #[serde(default)]
    pub authorities: Vec<SignerAuthority>,
}

/// One CA key of a signer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerAuthority {
    /// Subject key identifier of the CA certificate, in lower-case hexadecimal.
    pub id: String,
    /// Subject of the CA certificate, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Start of the validity of the CA certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// End of the validity of the CA certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<String>,
    /// What the key is used for.
    pub state: AuthorityState,
    /// Number of certificates in the ledger that this key signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issued_certificates: Option<u64>,
    /// Number of those that have not expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexpired_certificates: Option<u64>,
    /// When the last of them expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_expiry: Option<String>,
}

/// What a CA key is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AuthorityState {
    /// Published, but not signing yet.
    Prepared,
    /// Signs new certificates; one authority per signer at most.
    Active,
    /// No longer signing, still published.
    Retiring,
    /// Not to be trusted any more.
    Tainted,
}

impl AuthorityState {
    /// Returns the name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            AuthorityState::Prepared => "Prepared",
            AuthorityState::Active => "Active",
            AuthorityState::Retiring => "Retiring",
            AuthorityState::Tainted => "Tainted",
        }
    }
}
