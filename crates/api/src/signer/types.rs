//! Signer as a controller reads it, and its status. Durations and times are in their wire format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The configuration of a signer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerSpec {
    /// Name that requests give as `signerName`; immutable.
    pub signer_name: String,
    /// Source of the CA certificate and key.
    pub ca: SignerCa,
    /// Which CertificateSigningRequests are signed; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<SignerRequests>,
    /// Which PodCertificateRequests are signed; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<SignerPods>,
    /// Where trust anchors are published; nowhere if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<SignerPublication>,
    /// Which signers get an intermediate CA from this one; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intermediates: Option<SignerIntermediates>,
    /// Limits on pending requests and issuance; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<SignerLimits>,
    /// Certificate revocation lists; the defaults if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<SignerCrl>,
}

/// Source of the CA certificate and key. Exactly one of the first five fields is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerCa {
    /// A CA that the controllers generate and keep in a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_signed: Option<SignerSelfSigned>,
    /// A `kubernetes.io/tls` Secret in the namespace of the signers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// A key in a PKCS#11 token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pkcs11: Option<SignerPkcs11>,
    /// Signer that issues the CA certificate as an intermediate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_signer_name: Option<String>,
    /// The CA of the entry for this signer in the file of the controllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signers_file: Option<SignerFileSource>,
    /// Type of the key of an intermediate; only with `issuer_signer_name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_type: Option<String>,
    /// Common name of an intermediate; only with `issuer_signer_name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_name: Option<String>,
    /// Validity of an intermediate, at least 24h; only with `issuer_signer_name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

/// A CA that the controllers generate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerSelfSigned {
    /// Type of the key; ECDSAP256 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_type: Option<String>,
    /// Common name of the CA; the name of the signer if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_name: Option<String>,
    /// Validity of the CA certificate, at least 24h; 87600h if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// How long before its expiry the CA is renewed; less than `duration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<String>,
}

/// A key in a PKCS#11 token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerPkcs11 {
    /// PKCS#11 URI of the key, without module and PIN.
    pub uri: String,
    /// Secret whose `tls.crt` is the CA certificate with its chain.
    pub certificate_secret_name: String,
}

/// The entry of the signers file, which has no options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignerFileSource {}

/// Which CertificateSigningRequests are signed. What is not listed is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerRequests {
    /// Patterns of allowed common names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_names: Option<Vec<String>>,
    /// Allowed organizations, literal or `*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organizations: Option<Vec<String>>,
    /// Patterns of allowed DNS names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_names: Option<Vec<String>>,
    /// Allowed addresses and address blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_addresses: Option<Vec<String>>,
    /// Patterns of allowed e-mail addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email_addresses: Option<Vec<String>>,
    /// Patterns of allowed URIs; none are allowed if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uris: Option<Vec<String>>,
    /// Allowed usages by their Kubernetes names; never empty.
    pub usages: Vec<String>,
    /// Usages that every request must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_usages: Option<Vec<String>>,
    /// Allowed key types; all strong ones if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_types: Option<Vec<String>>,
    /// Longest validity, at least 10m.
    pub max_duration: String,
    /// Validity if a request names none; `max_duration` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Whether intermediates follow the certificate; true if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_chain: Option<bool>,
    /// Who is approved automatically; another approver decides if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<SignerApproval>,
}

/// Automatic approval of CertificateSigningRequests; without it, approval is manual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignerApproval {
    /// Requesters whose requests the signer approves if the profile allows them.
    pub automatic: SignerRequesters,
}

/// Requesters by their full names; at least one is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignerRequesters {
    /// User names as the server authenticates them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    /// Groups whose members are approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
}

/// Which PodCertificateRequests are signed, and what the certificates contain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerPods {
    /// Trust domain of the SPIFFE URI; no URI if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
    /// Whether certificates have the DNS names of the pod's services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_names: Option<bool>,
    /// Domain of these names; `cluster.local` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_domain: Option<String>,
    /// Namespaces whose pods get certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// Service accounts whose pods get certificates, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_accounts: Option<Vec<String>>,
    /// Usages of the certificates; those of the key type if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usages: Option<Vec<String>>,
    /// Allowed key types; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_types: Option<Vec<String>>,
    /// Longest validity, at least 1h; 24h if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<String>,
    /// Fraction of its validity after which a certificate is renewed; 0.66 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_after: Option<f64>,
}

/// ClusterTrustBundle with the trust anchors of the signer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignerPublication {
    /// Last part of its name, after the prefix of the signer; `anchors` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels besides [`super::MANAGED_BY_LABEL`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// A second bundle, which changes first during a rotation; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<SignerCanaryPublication>,
}

/// ClusterTrustBundle that gets a new trust anchor, and loses an old one, before the other one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerCanaryPublication {
    /// Last part of its name, after the prefix of the signer; `canary` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels besides [`super::MANAGED_BY_LABEL`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Signers that get an intermediate CA from this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerIntermediates {
    /// Names of these signers; never empty.
    pub signer_names: Vec<String>,
    /// Longest validity of an intermediate, at least 24h.
    pub max_duration: String,
    /// How many intermediates may follow an intermediate; 0 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_path_length: Option<u32>,
}

/// Limits of a signer; an absent one does not limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerLimits {
    /// Most requests that may wait for a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_requests: Option<u32>,
    /// Most certificates that one requester gets in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates_per_requester_per_hour: Option<u32>,
}

/// Certificate revocation lists of a signer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerCrl {
    /// URLs that issued certificates name as the source of the list; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution_points: Option<Vec<String>>,
    /// Validity of a list, at least 1m; 24h if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

/// What the controllers report about a signer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerStatus {
    /// The generation that the status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, CAExpiring and Published; at most one of each type.
    #[serde(default)]
    pub conditions: Vec<SignerCondition>,
    /// Number of requests that wait for a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_requests: Option<u32>,
    /// When the signer last issued a certificate; absent if never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_issued_time: Option<String>,
    /// The CA keys, newest first; at most [`super::MAX_AUTHORITIES`].
    #[serde(default)]
    pub authorities: Vec<SignerAuthority>,
}

/// One condition of a signer, with the fields of `metav1.Condition`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerCondition {
    /// One of [`super::READY`], [`super::CA_EXPIRING`] and [`super::PUBLISHED`].
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The generation of the signer it was found in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the status last changed.
    pub last_transition_time: String,
    /// One word for the reason.
    pub reason: String,
    /// The reason in a sentence.
    pub message: String,
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
