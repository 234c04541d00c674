//! A Bundle as a controller reads it, and its status.

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
    /// What has become of it.
    pub status: Option<BundleStatus>,
}

/// What of the metadata matters here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BundleMeta {
    /// The name, which the targets share.
    pub name: String,
    /// The identity over time, which the targets are owned by.
    pub uid: String,
    /// How often the wanted state has changed.
    pub generation: i64,
    /// When it is to be gone, if it is being deleted.
    #[serde(rename = "deletionTimestamp")]
    pub deletion_timestamp: Option<String>,
}

/// Desired state of a Bundle: its sources and its target.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct BundleSpec {
    /// Sources of CA certificates, in the order given by the user.
    #[serde(default)]
    pub sources: Vec<BundleSource>,
    /// Where they go; none cleans up what was written before.
    pub target: Option<BundleTarget>,
}

/// Where certificates come from. One of the fields but `optional` is set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleSource {
    /// ConfigMaps in the trust namespace.
    pub config_map: Option<ObjectSource>,
    /// Secrets in the trust namespace.
    pub secret: Option<ObjectSource>,
    /// Inline PEM text with one or more certificates.
    pub in_line: Option<String>,
    /// The default package, if true.
    #[serde(rename = "useDefaultCAs")]
    pub use_default_cas: Option<bool>,
    /// ClusterTrustBundles selected by name, or by signer and labels.
    pub cluster_trust_bundle: Option<TrustBundleSource>,
    /// Whether it may be missing.
    pub optional: Option<bool>,
}

/// Which objects, and which of their keys.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectSource {
    /// Name of one object; mutually exclusive with `selector`.
    pub name: Option<String>,
    /// Or those with these labels: a `LabelSelector`.
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
    /// Or those of a signer,
    pub signer_name: Option<String>,
    /// with these labels: a `LabelSelector`.
    pub label_selector: Option<Value>,
}

/// Objects that the Bundle is written to, and the namespaces they are created in.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleTarget {
    /// A ConfigMap in each namespace.
    pub config_map: Option<TargetTemplate>,
    /// A Secret in each namespace.
    pub secret: Option<TargetTemplate>,
    /// Template of the one cluster-scoped ClusterTrustBundle; absent means none is written.
    pub cluster_trust_bundle: Option<TrustBundleTemplate>,
    /// Formats beside PEM, in ConfigMaps and Secrets.
    pub additional_formats: Option<AdditionalFormats>,
    /// Which namespaces: a `LabelSelector`; none is all.
    pub namespace_selector: Option<Value>,
}

/// What a ConfigMap or Secret looks like.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct TargetTemplate {
    /// The key of the PEM text.
    #[serde(default)]
    pub key: String,
    /// Labels and annotations to add to each target object.
    pub metadata: Option<TargetMetadata>,
}

/// What the ClusterTrustBundle looks like.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustBundleTemplate {
    /// Who vouches for it; none is nobody.
    pub signer_name: Option<String>,
    /// Labels and annotations to add to the ClusterTrustBundle.
    pub metadata: Option<TargetMetadata>,
}

/// Labels and annotations of targets.
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
    /// Its key in the target.
    #[serde(default)]
    pub key: String,
    /// Its password; the schema sets one.
    pub password: Option<StorePassword>,
}

/// A PKCS#12 trust store in the target object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Pkcs12Keystore {
    /// Its key in the target.
    #[serde(default)]
    pub key: String,
    /// Its password; an empty one is none.
    pub password: Option<StorePassword>,
    /// How it is encrypted; none is `LegacyRC2`.
    pub profile: Option<String>,
}

/// The password of a store. It is mostly public, but not printed.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
pub struct StorePassword(String);

/// What has become of a Bundle.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BundleStatus {
    /// Conditions of the Bundle, at most one per type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<BundleCondition>,
    /// Which default package was used.
    #[serde(rename = "defaultCAVersion", skip_serializing_if = "Option::is_none")]
    pub default_ca_version: Option<String>,
    /// What each source gave, in the order of the sources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceStatus>,
    /// How many certificates the targets have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates: Option<u64>,
    /// When the first of them expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest_expiry: Option<String>,
}

/// A condition, as all of Kubernetes has it.
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
    /// Since when the status is what it is.
    pub last_transition_time: String,
    /// Which generation it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Result of reading one source, reported in the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SourceStatus {
    /// Description of the source for people, for example its kind and name.
    pub source: String,
    /// How many objects it is.
    pub objects: u64,
    /// How many certificates it gave, before those of other sources.
    pub certificates: u64,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Bundle {
    /// Deserializes a Bundle from a JSON object that passed validation.
    pub fn from_value(object: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }
}

impl BundleSource {
    /// Whether it may be missing.
    pub fn is_optional(&self) -> bool {
        self.optional == Some(true)
    }
}

impl BundleTarget {
    /// The keys that it writes into an object whose PEM text is at `key`.
    pub fn keys<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let formats = self.additional_formats.as_ref();
        let jks = formats.and_then(|formats| formats.jks.as_ref()).map(|jks| jks.key.as_str());
        let pkcs12 = formats.and_then(|formats| formats.pkcs12.as_ref());
        [Some(key), jks, pkcs12.map(|pkcs12| pkcs12.key.as_str())].into_iter().flatten()
    }
}

impl TrustBundleTemplate {
    /// The name of the ClusterTrustBundle for the Bundle of this name: that name, after what the
    /// signer's names begin with.
    pub fn object_name(&self, bundle: &str) -> String {
        match self.signer_name.as_deref().filter(|signer| !signer.is_empty()) {
            Some(signer) => format!("{}{bundle}", bundle_prefix(signer)),
            None => bundle.to_owned(),
        }
    }
}

impl StorePassword {
    /// The password, to be used and not shown.
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
