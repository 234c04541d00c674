//! Features that can be turned off, under Kubernetes' names for them.

/// Which features are on. All are, unless turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `ClusterTrustBundle`: trust bundles are served.
    pub cluster_trust_bundle: bool,
    /// `ClusterTrustBundleProjection`: pods may project trust bundles.
    pub cluster_trust_bundle_projection: bool,
    /// `PodCertificateRequest`: pods may project certificates of their own, and requests for them are
    /// served.
    pub pod_certificate_request: bool,
}

/// A feature that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("unrecognized feature gate: {0} (there are {known})", known = KNOWN.join(", "))]
pub struct Unknown(String);

const KNOWN: [&str; 3] =
    ["ClusterTrustBundle", "ClusterTrustBundleProjection", "PodCertificateRequest"];

impl Default for Features {
    fn default() -> Features {
        Features {
            cluster_trust_bundle: true,
            cluster_trust_bundle_projection: true,
            pod_certificate_request: true,
        }
    }
}

impl Features {
    /// Turns the feature `name` on or off.
    pub fn set(&mut self, name: &str, on: bool) -> Result<(), Unknown> {
        match name {
            "ClusterTrustBundle" => self.cluster_trust_bundle = on,
            "ClusterTrustBundleProjection" => self.cluster_trust_bundle_projection = on,
            "PodCertificateRequest" => self.pod_certificate_request = on,
            other => return Err(Unknown(other.to_owned())),
        }
        Ok(())
    }
}
