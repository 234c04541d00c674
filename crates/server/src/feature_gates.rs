//! Feature gates, named as in Kubernetes.

/// Enabled features; all are enabled by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFeatureGates {
    /// `ClusterTrustBundle`: serves the ClusterTrustBundle kind.
    pub cluster_trust_bundle: bool,
    /// `ClusterTrustBundleProjection`: pods may project trust bundles.
    pub cluster_trust_bundle_projection: bool,
    /// `PodCertificateRequest`: pods may project certificates, and PodCertificateRequests are
    /// served.
    pub pod_certificate_request: bool,
    /// `CertificateLedger`: serves LedgerSegments. Without them, certificates are issued without a record.
    pub certificate_ledger: bool,
}

/// Why feature gates were rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureGateError {
    /// The feature does not exist.
    #[error("unrecognized feature gate: {0} (known: {known})", known = KNOWN.join(", "))]
    Unknown(String),
    /// An enabled feature requires a disabled one.
    #[error("{0} is enabled, but depends on features that are disabled: [{1}]")]
    Depends(&'static str, &'static str),
}

const PROJECTION: &str = "ClusterTrustBundleProjection";

const KNOWN: [&str; 4] =
    ["ClusterTrustBundle", "ClusterTrustBundleProjection", "PodCertificateRequest", "CertificateLedger"];

impl Default for ServerFeatureGates {
    fn default() -> ServerFeatureGates {
        ServerFeatureGates {
            cluster_trust_bundle: true,
            cluster_trust_bundle_projection: true,
            pod_certificate_request: true,
            certificate_ledger: true,
        }
    }
}

impl ServerFeatureGates {
    /// Returns the defaults with these changes. Disabling trust bundles disables their projection
    /// too, unless that is explicitly enabled.
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

    /// Enables or disables the feature `name`.
    pub fn set(&mut self, name: &str, on: bool) -> Result<(), FeatureGateError> {
        match name {
            "ClusterTrustBundle" => self.cluster_trust_bundle = on,
            "ClusterTrustBundleProjection" => self.cluster_trust_bundle_projection = on,
            "PodCertificateRequest" => self.pod_certificate_request = on,
            "CertificateLedger" => self.certificate_ledger = on,
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
        let none =
            ServerFeatureGates { cluster_trust_bundle: false, cluster_trust_bundle_projection: false, ..all };
        for (gates, wanted) in [
            (&[][..], Ok(all)),
            (&[("ClusterTrustBundle", false)], Ok(none)),
            (
                &[(PROJECTION, false)],
                Ok(ServerFeatureGates { cluster_trust_bundle_projection: false, ..all }),
            ),
            (&[("CertificateLedger", false)], Ok(ServerFeatureGates { certificate_ledger: false, ..all })),
            (
                &[(PROJECTION, true), ("ClusterTrustBundle", false)],
                Err(FeatureGateError::Depends(PROJECTION, "ClusterTrustBundle")),
            ),
            (&[("Nonsense", true)], Err(FeatureGateError::Unknown("Nonsense".into()))),
        ] {
            assert_eq!(ServerFeatureGates::with(gates.iter().copied()), wanted, "{gates:?}");
        }
        let message = FeatureGateError::Depends(PROJECTION, "ClusterTrustBundle").to_string();
        assert_eq!(
            message,
            "ClusterTrustBundleProjection is enabled, but depends on features that are disabled: [ClusterTrustBundle]"
        );
    }
}
