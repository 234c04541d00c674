//! Bundle as read by a controller, and its status.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::signer_name::bundle_prefix;

/// A trust-manager Bundle: collects CA certificates and distributes them to namespaces.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Bundle {
    /// The parts of `metadata` that the controller reads.
    pub metadata: BundleMeta,
    /// Desired sources and targets, set by the user.
    pub spec: BundleSpec,
    /// Observed state, set by the controller.
    pub status: Option<BundleStatus>,
}

/// Metadata fields that the controller uses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BundleMeta {
    /// Name of the Bundle, shared by its targets.
    pub name: String,
    /// UID of the Bundle, used in the targets' owner references.
    pub uid: String,
    /// Generation: number of spec changes.
    pub generation: i64,
    /// Time by which it should be deleted; `None` unless being deleted.
    #[serde(rename = "deletionTimestamp")]
    pub deletion_timestamp: Option<String>,
}

/// Desired state of a Bundle: its sources and its target.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct BundleSpec {
    /// Sources of CA certificates, in the order given by the user.
    #[serde(default)]
    pub sources: Vec<BundleSource>,
    /// Target of the certificates; `None` removes previously written targets.
    pub target: Option<BundleTarget>,
}

/// A source of certificates. Exactly one of the fields other than `optional` is set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleSource {
    /// ConfigMaps in the trust namespace.
    pub config_map: Option<ObjectSource>,
    /// Secrets in the trust namespace.
    pub secret: Option<ObjectSource>,
    /// Inline PEM text with one or more certificates.
    pub in_line: Option<String>,
    /// If true, the default CA package.
    #[serde(rename = "useDefaultCAs")]
    pub use_default_cas: Option<bool>,
    /// ClusterTrustBundles selected by name, or by signer and labels.
    pub cluster_trust_bundle: Option<TrustBundleSource>,
    /// Whether the source may be missing.
    pub optional: Option<bool>,
}

/// Objects and keys to read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectSource {
    /// Name of one object; mutually exclusive with `selector`.
    pub name: Option<String>,
    /// `LabelSelector` of the objects; alternative to `name`.
    pub selector: Option<Value>,
    /// The only key to read; mutually exclusive with `include_all_keys`.
    pub key: Option<String>,
    /// If true, reads every key of the object instead of one.
    pub include_all_keys: Option<bool>,
}

/// Selects ClusterTrustBundles by name, or by signer name and labels.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustBundleSource {
    /// Name of one ClusterTrustBundle; mutually exclusive with `signer_name`.
    pub name: Option<String>,
    /// Signer whose ClusterTrustBundles are read; alternative to `name`.
    pub signer_name: Option<String>,
    /// `LabelSelector` of the signer's bundles; used with `signer_name`.
    pub label_selector: Option<Value>,
}

/// Objects that the Bundle is written to, and the namespaces they are created in.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleTarget {
    /// ConfigMap to write in each namespace.
    pub config_map: Option<TargetTemplate>,
    /// Secret to write in each namespace.
    pub secret: Option<TargetTemplate>,
    /// Template of the one cluster-scoped ClusterTrustBundle; absent means none is written.
    pub cluster_trust_bundle: Option<TrustBundleTemplate>,
    /// Formats written besides PEM, in ConfigMaps and Secrets.
    pub additional_formats: Option<AdditionalFormats>,
    /// `LabelSelector` of the target namespaces; `None` selects all.
    pub namespace_selector: Option<Value>,
}

/// Template of a target ConfigMap or Secret.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct TargetTemplate {
    /// Key of the PEM bundle in the target.
    #[serde(default)]
    pub key: String,
    /// Labels and annotations to add to each target object.
    pub metadata: Option<TargetMetadata>,
}

/// Template of the target ClusterTrustBundle.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustBundleTemplate {
    /// Signer of the ClusterTrustBundle; `None` for no signer.
    pub signer_name: Option<String>,
    /// Labels and annotations to add to the ClusterTrustBundle.
    pub metadata: Option<TargetMetadata>,
}

/// Labels and annotations added to targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TargetMetadata {
    /// Annotations to add; keys reserved by trust-manager are rejected.
    pub annotations: BTreeMap<String, String>,
    /// Labels to add; keys reserved by trust-manager are rejected.
    pub labels: BTreeMap<String, String>,
}

/// Keystore formats to write in addition to PEM.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct AdditionalFormats {
    /// Java keystore (JKS) to write; absent means none.
    pub jks: Option<JksKeystore>,
    /// PKCS#12 trust store to write; absent means none.
    pub pkcs12: Option<Pkcs12Keystore>,
}

/// A Java keystore (JKS) in the target object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct JksKeystore {
    /// Key of the keystore in the target.
    #[serde(default)]
    pub key: String,
    /// Password of the keystore; the schema sets a default.
    pub password: Option<StorePassword>,
}

/// A PKCS#12 trust store in the target object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Pkcs12Keystore {
    /// Key of the trust store in the target.
    #[serde(default)]
    pub key: String,
    /// Password of the trust store; empty means none.
    pub password: Option<StorePassword>,
    /// Encryption profile; `None` means `LegacyRC2`.
    pub profile: Option<String>,
}

/// Password of a store. It is mostly public, but never printed.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
pub struct StorePassword(String);

/// Observed state of a Bundle.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BundleStatus {
    /// Conditions of the Bundle, at most one per type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<BundleCondition>,
    /// Version of the default CA package used.
    #[serde(rename = "defaultCAVersion", skip_serializing_if = "Option::is_none")]
    pub default_ca_version: Option<String>,
    /// Result of each source, in source order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceStatus>,
    /// Number of certificates in the targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates: Option<u64>,
    /// Earliest expiry of these certificates, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest_expiry: Option<String>,
}

/// A condition in the standard Kubernetes form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BundleCondition {
    /// Type of the condition, `type` in JSON; unique within the list.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status of the condition: `True`, `False` or `Unknown`.
    pub status: String,
    /// Machine-readable reason in CamelCase, set by the controller.
    pub reason: String,
    /// Explanation of the status for people; may be empty.
    pub message: String,
    /// Time of the last change of `status`.
    pub last_transition_time: String,
    /// Generation that the condition describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Result of reading one source, reported in the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SourceStatus {
    /// Description of the source for people, for example its kind and name.
    pub source: String,
    /// Number of objects that the source selected.
    pub objects: u64,
    /// Number of certificates it provides, before merging with other sources.
    pub certificates: u64,
    /// Reason why the source could not be read, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// ClusterTrustBundles that were read, by name, at most [`MAX_STATUS_BUNDLES`]. The targets have this content if the
    /// Bundle is synced in its present generation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_trust_bundles: Vec<SourceStatusBundle>,
}

/// Largest number of ClusterTrustBundles that the status of a source lists.
pub const MAX_STATUS_BUNDLES: usize = 100;

/// A ClusterTrustBundle as a source has read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SourceStatusBundle {
    /// Name of the ClusterTrustBundle.
    pub name: String,
    /// Digest of its set of certificates: `sha256:` and hexadecimal digits, as nodes report it.
    pub digest: String,
}

impl Bundle {
    /// Deserializes a Bundle from a JSON object that passed validation.
    pub fn from_value(object: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }
}

impl BundleSource {
    /// Returns true if the source may be missing.
    pub fn is_optional(&self) -> bool {
        self.optional == Some(true)
    }
}

impl BundleTarget {
    /// Iterates over the keys it writes into an object whose PEM text is at `key`.
    pub fn keys<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let formats = self.additional_formats.as_ref();
        let jks = formats.and_then(|formats| formats.jks.as_ref()).map(|jks| jks.key.as_str());
        let pkcs12 = formats.and_then(|formats| formats.pkcs12.as_ref());
        [Some(key), jks, pkcs12.map(|pkcs12| pkcs12.key.as_str())].into_iter().flatten()
    }
}

impl TrustBundleTemplate {
    /// Returns the name of the Bundle's ClusterTrustBundle: the signer's prefix and the Bundle's
    /// name.
    pub fn object_name(&self, bundle: &str) -> String {
        match self.signer_name.as_deref().filter(|signer| !signer.is_empty()) {
            Some(signer) => format!("{}{bundle}", bundle_prefix(signer)),
            None => bundle.to_owned(),
        }
    }
}

impl StorePassword {
    /// Returns the password; callers must not print it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for StorePassword {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for StorePassword {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StorePassword")
    }
}
