//! Features of the agent that can be turned off, under Kubernetes' names for them.

/// The feature gates of the agent, by Kubernetes' names; all default to on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// `ClusterTrustBundleProjection`: volumes may hold trust bundles.
    pub cluster_trust_bundle_projection: bool,
    /// `PodCertificateRequest`: volumes may hold certificates of pods.
    pub pod_certificate_request: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self { cluster_trust_bundle_projection: true, pod_certificate_request: true }
    }
}
