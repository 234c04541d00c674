//! NodeTrust for clients: its API resource, and what its sources select.

use kube::core::ApiResource;
use serde_json::Value;
use windlass_api::node_trust::RESOURCE;
pub use windlass_api::node_trust::{NodeTrustBundle, NodeTrustSource, NodeTrustStatus};
use windlass_api::selector::labels::LabelSelector;

use crate::volume::trust_anchors::{BundleSelector, Digest};

/// Returns which bundles a source requests; `None` if its selector is invalid.
pub fn parse_selector(source: &NodeTrustSource) -> Option<BundleSelector> {
    if !source.name.is_empty() {
        return Some(BundleSelector::Name(source.name.clone()));
    }
    let labels = source.label_selector.as_ref().unwrap_or(&Value::Null);
    Some(BundleSelector::Signer(source.signer_name.clone(), LabelSelector::from_object(labels).ok()?))
}

/// Returns the API resource of NodeTrust, for dynamic clients.
pub fn resource() -> ApiResource {
    ApiResource {
        group: RESOURCE.group.into(),
        version: RESOURCE.version.into(),
        api_version: RESOURCE.api_version.into(),
        kind: RESOURCE.kind.into(),
        plural: RESOURCE.plural.into(),
    }
}

/// Formats a digest as in the object.
pub fn digest_text(digest: &Digest) -> String {
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    std::iter::once("sha256:".to_owned()).chain(digits).collect()
}
