//! A NodeTrust: one small object for each node, named after it.

use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_api::selector::labels::LabelSelector;

use crate::volume::trust_anchors::{BundleSelector, Digest};

/// The `status` of a NodeTrust, which the node's agent writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTrustStatus {
    /// How many volumes ask for anchors.
    pub volumes: u32,
    /// How many of them do not have what they should have.
    pub blocked: u32,
    /// How many bundles are in volumes.
    pub bundles: u32,
    /// What is asked for and what is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<NodeTrustSource>,
    /// How many more sources there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_sources: u32,
}

/// Volumes that ask for the same and carry the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTrustSource {
    /// The bundle that is asked for by its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The signer whose bundles are asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub signer_name: String,
    /// Which of the signer's: a `LabelSelector`. Without one, none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<Value>,
    /// Whether there may be no anchors.
    #[serde(skip_serializing_if = "is_false")]
    pub optional: bool,
    /// The digest of all anchors that are in the files; empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The bundles that they come from, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bundles: Vec<NodeTrustBundle>,
    /// `host/name` or `namespace/pod/volume`; at most 256, see `more_volumes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// How many more volumes there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_volumes: u32,
    /// Why they do not have what they should have.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A ClusterTrustBundle whose anchors are in the files of volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTrustBundle {
    /// Name of the ClusterTrustBundle, as in `metadata.name`.
    pub name: String,
    /// `metadata.generation` of the delivered bundle; 0 is omitted.
    #[serde(skip_serializing_if = "is_zero_generation")]
    pub generation: i64,
    /// The digest of its anchors.
    pub digest: String,
}

impl NodeTrustSource {
    /// Which bundles are asked for, if that can be read.
    pub fn select(&self) -> Option<BundleSelector> {
        if !self.name.is_empty() {
            return Some(BundleSelector::Name(self.name.clone()));
        }
        let labels = self.label_selector.as_ref().unwrap_or(&Value::Null);
        Some(BundleSelector::Signer(
            self.signer_name.clone(),
            LabelSelector::from_object(labels).ok()?,
        ))
    }
}

/// Returns the API resource of NodeTrust, for dynamic clients.
pub fn resource() -> ApiResource {
    ApiResource {
        group: "windlass.dev".into(),
        version: "v1alpha1".into(),
        api_version: "windlass.dev/v1alpha1".into(),
        kind: "NodeTrust".into(),
        plural: "nodetrusts".into(),
    }
}

/// A digest as it is written in the object.
pub fn digest_text(digest: &Digest) -> String {
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    std::iter::once("sha256:".to_owned()).chain(digits).collect()
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_zero_generation(number: &i64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_false(flag: &bool) -> bool {
    !flag
}
