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

/// Why features cannot be as they were asked for.
#[derive(Debug, thiserror::Error)]
pub enum BadGates {
    /// A feature that does not exist.
    #[error("unrecognized feature gate: {0} (there are {known})", known = KNOWN.join(", "))]
    Unknown(String),
    /// A feature that was turned on without one that it needs.
    #[error("{feature} is enabled, but depends on features that are disabled: [{needs}]")]
    Dependency {
        /// The feature.
        feature: &'static str,
        /// What it needs.
        needs: &'static str,
    },
}

const BUNDLE: &str = "ClusterTrustBundle";
const PROJECTION: &str = "ClusterTrustBundleProjection";
const POD_REQUEST: &str = "PodCertificateRequest";
const KNOWN: [&str; 3] = [BUNDLE, PROJECTION, POD_REQUEST];

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
    /// The features after turning some on or off, by name; the last word on each counts. Here a
    /// feature that nobody asked for goes with the one that it needs. In Kubernetes, where it is off
    /// from the start, there is nothing to go.
    pub fn from_gates<'a>(
        gates: impl IntoIterator<Item = (&'a str, bool)>,
    ) -> Result<Features, BadGates> {
        let mut features = Features::default();
        let mut projection = None;
        for (name, on) in gates {
            match name {
                BUNDLE => features.cluster_trust_bundle = on,
                PROJECTION => projection = Some(on),
                POD_REQUEST => features.pod_certificate_request = on,
                other => return Err(BadGates::Unknown(other.to_owned())),
            }
        }
        features.cluster_trust_bundle_projection =
            projection.unwrap_or(features.cluster_trust_bundle);
        if features.cluster_trust_bundle_projection && !features.cluster_trust_bundle {
            return Err(BadGates::Dependency { feature: PROJECTION, needs: BUNDLE });
        }
        Ok(features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projection_goes_with_what_it_needs() {
        // Gates, and whether bundles are served, projected, and pods have certificates.
        let cases: [(&[(&str, bool)], Result<[bool; 3], &str>); 9] = [
            (&[], Ok([true, true, true])),
            (&[(BUNDLE, false)], Ok([false, false, true])),
            (&[(PROJECTION, false)], Ok([true, false, true])),
            (&[(BUNDLE, false), (PROJECTION, false)], Ok([false, false, true])),
            (&[(BUNDLE, true), (PROJECTION, true)], Ok([true, true, true])),
            (&[(BUNDLE, false), (BUNDLE, true)], Ok([true, true, true])),
            (&[(POD_REQUEST, false)], Ok([true, true, false])),
            (
                &[(PROJECTION, true), (BUNDLE, false)],
                Err(
                    "ClusterTrustBundleProjection is enabled, but depends on features that are disabled: [ClusterTrustBundle]",
                ),
            ),
            (
                &[("Teleportation", true)],
                Err(
                    "unrecognized feature gate: Teleportation (there are ClusterTrustBundle, ClusterTrustBundleProjection, PodCertificateRequest)",
                ),
            ),
        ];
        for (gates, want) in cases {
            let got = Features::from_gates(gates.iter().copied()).map(|features| {
                [
                    features.cluster_trust_bundle,
                    features.cluster_trust_bundle_projection,
                    features.pod_certificate_request,
                ]
            });
            assert_eq!(got.map_err(|e| e.to_string()), want.map_err(str::to_owned), "{gates:?}");
        }
    }
}
