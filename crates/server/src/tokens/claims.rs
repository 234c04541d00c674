//! What a service-account token says.

use serde::Deserialize;

/// The claims of a token, as far as they matter here. One that lacks what every token of ours has
/// cannot be read, and neither can one that says a thing twice.
#[derive(Deserialize)]
pub struct TokenClaims {
    /// `iss`: URL of the server that issued the token.
    #[serde(rename = "iss")]
    pub issuer: String,
    /// `sub`: user name of the account, `system:serviceaccount:<namespace>:<name>`.
    #[serde(rename = "sub")]
    pub subject: String,
    /// Whom it may be shown to.
    #[serde(rename = "aud", deserialize_with = "one_or_more")]
    pub audiences: Vec<String>,
    /// Until when it holds, in seconds since 1970.
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
    /// The account, and what the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaims,
}

/// Which account a token is for, and the objects that it does not outlive.
#[derive(Deserialize)]
pub struct KubernetesClaims {
    /// Namespace of the service account and of the bound objects.
    pub namespace: String,
    /// Service account by name and UID; both must still match.
    #[serde(rename = "serviceaccount")]
    pub account: ClaimReference,
    /// The pod it was made for.
    pub pod: Option<ClaimReference>,
    /// The secret it is bound to.
    pub secret: Option<ClaimReference>,
    /// The node it is bound to; with a pod, the node that the pod is on.
    pub node: Option<ClaimReference>,
}

/// An object, and which one of those that have had its name.
#[derive(Deserialize)]
pub struct ClaimReference {
    /// Name of the object when the token was issued.
    pub name: String,
    /// Its UID. The node of a pod may not have been known by one.
    #[serde(default)]
    pub uid: String,
}

/// RFC 7519 §4.1.3: a single audience may stand alone.
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
