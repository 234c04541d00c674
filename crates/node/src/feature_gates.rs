//! Feature gates of the agent, with Kubernetes' names.

/// The feature gates of the agent, by Kubernetes' names; all default to on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// `ClusterTrustBundleProjection`: volumes may contain trust bundles.
    pub cluster_trust_bundle_projection: bool,
    /// `PodCertificateRequest`: volumes may contain certificates of pods.
    pub pod_certificate_request: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self { cluster_trust_bundle_projection: true, pod_certificate_request: true }
    }
}
