//! What a service-account token says.

use serde::Deserialize;

/// The claims of a token, as far as they matter here. One that lacks what every token of ours has
/// cannot be read, and neither can one that says a thing twice.
#[derive(Deserialize)]
pub struct TokenClaims {
    /// Who issued it.
    #[serde(rename = "iss")]
    pub issuer: String,
    /// Whose it is: `system:serviceaccount:…`.
    #[serde(rename = "sub")]
    pub subject: String,
    /// Whom it may be shown to.
    #[serde(rename = "aud", deserialize_with = "one_or_more")]
    pub audiences: Vec<String>,
    /// Until when it holds, in seconds since 1970.
    #[serde(rename = "exp")]
    pub expiry: i64,
    /// From when on.
    #[serde(rename = "nbf")]
    pub not_before: Option<i64>,
    /// When it was issued.
    #[serde(rename = "iat")]
    pub issued_at: Option<i64>,
    /// Its own name.
    #[serde(rename = "jti")]
    pub id: Option<String>,
    /// The account, and what the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaims,
}

/// Which account a token is for, and the objects that it does not outlive.
#[derive(Deserialize)]
pub struct KubernetesClaims {
    /// The account's namespace.
    pub namespace: String,
    /// The account.
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
    /// Its name.
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
