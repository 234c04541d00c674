//! Claims of a service account token.

use serde::Deserialize;

/// The claims of a token that are evaluated here. Tokens that lack a claim common to all our
/// tokens, or that repeat a claim, are rejected.
#[derive(Deserialize)]
pub struct TokenClaims {
    /// `iss`: URL of the server that issued the token.
    #[serde(rename = "iss")]
    pub issuer: String,
    /// `sub`: user name of the account, `system:serviceaccount:<namespace>:<name>`.
    #[serde(rename = "sub")]
    pub subject: String,
    /// `aud`: audiences that the token is valid for.
    #[serde(rename = "aud", deserialize_with = "one_or_more")]
    pub audiences: Vec<String>,
    /// `exp`: expiry in seconds since the epoch.
    #[serde(rename = "exp")]
    pub expiry: i64,
    /// `nbf`: seconds since the epoch before which the token is invalid.
    #[serde(rename = "nbf")]
    pub not_before: Option<i64>,
    /// `iat`: time of issue in seconds since the epoch.
    #[serde(rename = "iat")]
    pub issued_at: Option<i64>,
    /// `jti`: unique ID of the token; recorded with the user it authenticates.
    #[serde(rename = "jti")]
    pub id: Option<String>,
    /// Service account and bound objects of the token.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaims,
}

/// Service account of a token, and the objects whose deletion invalidates it.
#[derive(Deserialize)]
pub struct KubernetesClaims {
    /// Namespace of the service account and of the bound objects.
    pub namespace: String,
    /// Service account by name and UID; both must still match.
    #[serde(rename = "serviceaccount")]
    pub account: ClaimReference,
    /// Pod that the token is bound to.
    pub pod: Option<ClaimReference>,
    /// Secret that the token is bound to.
    pub secret: Option<ClaimReference>,
    /// Node that the token is bound to; with a pod, the pod's node.
    pub node: Option<ClaimReference>,
}

/// Name and UID of an object.
#[derive(Deserialize)]
pub struct ClaimReference {
    /// Name of the object when the token was issued.
    pub name: String,
    /// UID of the object; may be empty for the node of a pod.
    #[serde(default)]
    pub uid: String,
}

/// RFC 7519 §4.1.3: a single audience may be a plain string.
fn one_or_more<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum AudienceClaim {
        One(String),
        More(Vec<String>),
    }
    Ok(match AudienceClaim::deserialize(from)? {
        AudienceClaim::One(audience) => vec![audience],
        AudienceClaim::More(audiences) => audiences,
    })
}
