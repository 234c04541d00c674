//! Features that can be turned off, under Kubernetes' names for them.

/// Which features are on. All are, unless turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFeatureGates {
    /// `ClusterTrustBundle`: trust bundles are served.
    pub cluster_trust_bundle: bool,
    /// `ClusterTrustBundleProjection`: pods may project trust bundles.
    pub cluster_trust_bundle_projection: bool,
    /// `PodCertificateRequest`: pods may project certificates of their own, and requests for them are
    /// served.
    pub pod_certificate_request: bool,
}

/// What cannot be turned on or off so.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureGateError {
    /// There is no such feature.
    #[error("unrecognized feature gate: {0} (known: {known})", known = KNOWN.join(", "))]
    Unknown(String),
    /// A feature that is on needs one that is off.
    #[error("{0} is enabled, but depends on features that are disabled: [{1}]")]
    Depends(&'static str, &'static str),
}

const PROJECTION: &str = "ClusterTrustBundleProjection";

const KNOWN: [&str; 3] =
    ["ClusterTrustBundle", "ClusterTrustBundleProjection", "PodCertificateRequest"];

impl Default for ServerFeatureGates {
    fn default() -> ServerFeatureGates {
        ServerFeatureGates {
            cluster_trust_bundle: true,
            cluster_trust_bundle_projection: true,
            pod_certificate_request: true,
        }
    }
}

impl ServerFeatureGates {
    /// All features as they are by default, but these. Without trust bundles there is nothing to project,
    /// so turning them off turns that off as well, unless it is asked for.
    pub fn with<'a>(
        gates: impl Iterator<Item = (&'a str, bool)>,
    ) -> Result<ServerFeatureGates, FeatureGateError> {
        let mut features = ServerFeatureGates::default();
        let mut projection = None;
        for (name, on) in gates {
            features.set(name, on)?;
            if name == PROJECTION {
                projection = Some(on);
            }
        }
        if !features.cluster_trust_bundle {
            if projection == Some(true) {
                return Err(FeatureGateError::Depends(PROJECTION, "ClusterTrustBundle"));
            }
            features.cluster_trust_bundle_projection = false;
        }
        Ok(features)
    }

    /// Turns the feature `name` on or off.
    pub fn set(&mut self, name: &str, on: bool) -> Result<(), FeatureGateError> {
        match name {
            "ClusterTrustBundle" => self.cluster_trust_bundle = on,
            "ClusterTrustBundleProjection" => self.cluster_trust_bundle_projection = on,
            "PodCertificateRequest" => self.pod_certificate_request = on,
            other => return Err(FeatureGateError::Unknown(other.to_owned())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependent_features_are_disabled_together() {
        let all = ServerFeatureGates::default();
        let none = ServerFeatureGates {
            cluster_trust_bundle: false,
            cluster_trust_bundle_projection: false,
            ..all
        };
        for (gates, wanted) in [
            (&[][..], Ok(all)),
            (&[("ClusterTrustBundle", false)], Ok(none)),
            (
                &[(PROJECTION, false)],
                Ok(ServerFeatureGates { cluster_trust_bundle_projection: false, ..all }),
            ),
            (
                &[(PROJECTION, true), ("ClusterTrustBundle", false)],
                Err(FeatureGateError::Depends(PROJECTION, "ClusterTrustBundle")),
            ),
            (&[("Nonsense", true)], Err(FeatureGateError::Unknown("Nonsense".into()))),
        ] {
            assert_eq!(ServerFeatureGates::with(gates.iter().copied()), wanted, "{gates:?}");
        }
        let told = FeatureGateError::Depends(PROJECTION, "ClusterTrustBundle").to_string();
        assert_eq!(
            told,
            "ClusterTrustBundleProjection is enabled, but depends on features that are disabled: [ClusterTrustBundle]"
        );
    }
}
