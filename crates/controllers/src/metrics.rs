//! Metrics of the controllers, registered once per process: controllers restart whenever this process becomes the leader.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use windlass_runtime::metrics::{ControllerMetrics, MetricsRegistry, WorkQueueMetrics};

use crate::bundles::BundleMetrics;
use crate::ca::CaMetrics;
use crate::csr_signer::SignerMetrics;
use crate::election::ElectionMetrics;
use crate::ledger::LedgerMetrics;
use crate::publisher::PublisherMetrics;
use crate::revocation::CrlMetrics;
use crate::rotation::RotationMetrics;
use crate::signers::SignerStatistics;
use crate::signers::objects::SignerObjectMetrics;

pub(crate) const GARBAGE: &str = "garbage_collector_attempt_to_delete";
/// Queue of namespaces that are being deleted.
pub(crate) const NAMESPACES: &str = "namespace";
/// Queue of namespaces without a `default` service account.
pub(crate) const ACCOUNTS: &str = "serviceaccount";
/// Queue of nodes that stopped reporting.
pub(crate) const NODE_LIFECYCLE: &str = "node_lifecycle_controller";
/// Queue of pods without a node.
pub(crate) const UNSCHEDULED: &str = "unscheduled_pod";
pub(crate) const AGGREGATION: &str = "ClusterRoleAggregator";
/// Queue of CertificateSigningRequests without an approval.
pub(crate) const APPROVING: &str = "csrapproving";
pub(crate) const SIGNING: &str = "csrsigning";
/// Queue of PodCertificateRequests without a certificate.
pub(crate) const POD_SIGNING: &str = "podcertificatesigning";
/// Queue of requests whose retention period has ended.
pub(crate) const CLEANING: &str = "csrcleaner";
/// Queue of namespaces whose `kube-root-ca.crt` is missing or stale.
pub(crate) const ROOT_CA: &str = "root_ca_cert_publisher";
/// Queue of the ClusterTrustBundle of the API server.
pub(crate) const TRUST_BUNDLE: &str = "ca_cert_publisher_cluster_trust_bundles";
/// Queue of the ClusterTrustBundles of custom signers.
pub(crate) const ANCHORS: &str = "signer_trust_bundles";
pub(crate) const BUNDLES: &str = "bundles";
/// Queue of signers with CARotations.
pub(crate) const ROTATIONS: &str = "ca_rotations";
/// Watch of Signer objects, which has no queue of its own.
pub(crate) const SIGNERS: &str = "signers";
/// Queue of revocations that are not in the ledger.
pub(crate) const REVOCATIONS: &str = "certificate_revocations";
/// Queue of authorities whose revocation list is due.
pub(crate) const CRLS: &str = "certificate_revocation_lists";
/// Queue of ConfigMaps with revocation lists.
pub(crate) const CRL_CONFIG_MAPS: &str = "certificate_revocation_list_configmaps";

const QUEUES: [&str; 19] = [
    GARBAGE,
    NAMESPACES,
    ACCOUNTS,
    NODE_LIFECYCLE,
    UNSCHEDULED,
    AGGREGATION,
    APPROVING,
    SIGNING,
    POD_SIGNING,
    CLEANING,
    ROOT_CA,
    TRUST_BUNDLE,
    ANCHORS,
    BUNDLES,
    ROTATIONS,
    SIGNERS,
    REVOCATIONS,
    CRLS,
    CRL_CONFIG_MAPS,
];

/// Metric families of all controllers in a process.
#[derive(Debug)]
pub struct MetricFamilies {
    queues: WorkQueueMetrics,
    /// Discoveries that failed for at least one group.
    pub(crate) discovery_failures: Counter,
    pub(crate) authorities: CaMetrics,
    pub(crate) signers: SignerMetrics,
    pub(crate) publishers: PublisherMetrics,
    pub(crate) bundles: BundleMetrics,
    pub(crate) elections: ElectionMetrics,
    pub(crate) ledger: LedgerMetrics,
    pub(crate) crl: CrlMetrics,
    pub(crate) signer_objects: SignerObjectMetrics,
    pub(crate) rotations: RotationMetrics,
    /// Numbers about signers for their status, which are not exposed here.
    pub statistics: Arc<SignerStatistics>,
}

/// Label of metrics that exist once per signer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SignerLabels {
    signer: String,
}

impl SignerLabels {
    pub(crate) fn new(signer: &str) -> SignerLabels {
        SignerLabels { signer: signer.to_owned() }
    }
}

impl MetricFamilies {
    /// Registers the families. Call it once per registry: a second registration would expose every name twice.
    pub fn register(registry: &MetricsRegistry) -> Arc<MetricFamilies> {
        let queues = WorkQueueMetrics::register(registry);
        // Series that exist before the first event make rates right from the start.
        for name in QUEUES {
            queues.controller(name);
        }
        Arc::new(MetricFamilies {
            queues,
            discovery_failures: registry.register(
                "garbagecollector_controller_resources_sync_error",
                "Failures to discover the resources of the API",
                Counter::default(),
            ),
            authorities: CaMetrics::register(registry),
            signers: SignerMetrics::register(registry),
            publishers: PublisherMetrics::register(registry),
            bundles: BundleMetrics::register(registry),
            elections: ElectionMetrics::register(registry),
            ledger: LedgerMetrics::register(registry),
            rotations: RotationMetrics::register(registry),
            crl: CrlMetrics::register(registry),
            signer_objects: SignerObjectMetrics::register(registry),
            statistics: Arc::default(),
        })
    }

    /// Creates metrics that are not exported, for tests of single controllers.
    pub fn unregistered() -> Arc<MetricFamilies> {
        MetricFamilies::register(&MetricsRegistry::new())
    }

    /// Returns the metrics of a work queue and of the watches that fill it.
    pub(crate) fn queue(&self, name: &'static str) -> Arc<ControllerMetrics> {
        self.queues.controller(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_belongs_to_the_family_above_it_and_every_family_appears_once() {
        let registry = MetricsRegistry::new();
        let families = MetricFamilies::register(&registry);
        families.queue(NAMESPACES).count_add();
        families.publishers.set_conflict("a.b/c", true);
        let PublisherMetrics { root_ca, trust_bundle, anchors, .. } = &families.publishers;
        for syncs in [root_ca, trust_bundle, anchors] {
            syncs.observe(200, std::time::Duration::ZERO);
        }
        families.bundles.set_targets("roots", 1, 0);
        families.crl.set_list("a.b/c", "0a", time::OffsetDateTime::UNIX_EPOCH, 0);
        families.elections.lease("windlass-controllers");
        let text = registry.encode();
        let mut known = std::collections::BTreeSet::new();
        let mut family = "";
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => {
                    family = rest.split(' ').next().unwrap();
                    assert!(known.insert(family), "{family} appears twice");
                }
                None if line.starts_with('#') => {}
                None => assert!(line.starts_with(family), "{line} under {family}"),
            }
        }
        for line in [
            "workqueue_depth{name=\"namespace\"} 1",
            "workqueue_depth{name=\"bundles\"} 0",
            "workqueue_unfinished_work_seconds{name=\"serviceaccount\"} 0.0",
            "garbagecollector_controller_resources_sync_error_total 0",
            "windlass_signer_issued_total{signer=\"kubernetes.io/kubelet-serving\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        for family in [
            "windlass_signer_ca_expiration_seconds",
            "windlass_signer_ca_lifetime_seconds",
            "windlass_signer_ca_degraded",
            "windlass_signer_ca_pending",
            "windlass_signer_bundle_conflict",
            "windlass_signer_latency_seconds",
            "root_ca_cert_publisher_sync_total",
            "clustertrustbundle_publisher_sync_duration_seconds",
            "windlass_signer_bundle_sync_total",
            "windlass_bundle_targets",
            "leader_election_master_status",
            "leader_election_slowpath_total",
            "windlass_ledger_available",
            "windlass_ledger_write_duration_seconds",
            "windlass_crl_next_update_timestamp_seconds",
            "windlass_crl_revoked_certificates",
            "windlass_crl_sign_failures_total",
            "windlass_ledger_certificates_expiring",
            "windlass_signer_ready",
        ] {
            assert!(known.contains(family), "{family} in\n{text}");
        }
    }
}
