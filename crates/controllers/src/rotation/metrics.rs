//! Metrics of rotations.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use windlass_api::ca_rotation::{CaRotationStatus, RotationPhase};
use windlass_runtime::metrics::MetricsRegistry;

use crate::metrics::SignerLabels;

/// Progress of the last rotation of each signer.
#[derive(Clone, Debug)]
pub struct RotationMetrics {
    phases: Family<PhaseLabels, Gauge>,
    consumers: Family<ProofLabels, Gauge>,
    leaves: Family<SignerLabels, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    signer: String,
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProofLabels {
    signer: String,
    proof: &'static str,
}

impl RotationMetrics {
    pub fn register(registry: &MetricsRegistry) -> RotationMetrics {
        RotationMetrics {
            phases: registry.register(
                "windlass_rotation_phase",
                "Phase of the CA rotation of a signer: 1 for the current one",
                Family::default(),
            ),
            consumers: registry.register(
                "windlass_rotation_consumers",
                "Volumes and Bundles with trust anchors of a signer whose CA is rotated, by what is proven about them",
                Family::default(),
            ),
            leaves: registry.register(
                "windlass_rotation_outstanding_leaves",
                "Certificates of the old CA that have neither expired nor been superseded or revoked",
                Family::default(),
            ),
        }
    }

    /// Sets the values of a signer to those of its rotation.
    pub fn set(&self, signer: &str, status: &CaRotationStatus) {
        let back = [RotationPhase::RollingBack, RotationPhase::RolledBack, RotationPhase::Failed];
        for phase in RotationPhase::FORWARD.into_iter().chain(back) {
            let labels = PhaseLabels { signer: signer.to_owned(), phase: phase.as_str() };
            self.phases.get_or_create(&labels).set(i64::from(status.phase == Some(phase)));
        }
        let counts = status.consumers.clone().unwrap_or_default();
        let proofs = [
            ("total", counts.total),
            ("written", counts.written),
            ("read", counts.read),
            ("not_read", counts.not_read),
            ("not_observable", counts.not_observable),
            ("accepted", counts.accepted),
            ("excluded", counts.excluded),
        ];
        for (proof, count) in proofs {
            let labels = ProofLabels { signer: signer.to_owned(), proof };
            self.consumers.get_or_create(&labels).set(i64::from(count));
        }
        if let Some(leaves) = &status.leaves {
            let outstanding = i64::try_from(leaves.outstanding).unwrap_or(i64::MAX);
            self.leaves.get_or_create(&SignerLabels::new(signer)).set(outstanding);
        }
    }

    /// Removes all values: only the leader knows them.
    pub fn reset(&self) {
        self.phases.clear();
        self.consumers.clear();
        self.leaves.clear();
    }
}
