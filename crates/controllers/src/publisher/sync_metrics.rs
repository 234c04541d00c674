//! Counters of publishers, under the names of kube-controller-manager.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use windlass_runtime::metrics::MetricsRegistry;

use crate::metrics::SignerLabels;

/// Metric families of all publishers.
#[derive(Debug)]
pub struct PublisherMetrics {
    /// Syncs of the `kube-root-ca.crt` ConfigMaps.
    pub root_ca: SyncMetrics,
    /// Syncs of the ClusterTrustBundle of the API server.
    pub trust_bundle: SyncMetrics,
    /// Syncs of the ClusterTrustBundles of custom signers.
    pub anchors: SyncMetrics,
    conflicts: Family<SignerLabels, Gauge>,
}

/// Syncs of one publisher, by the HTTP status code with which they ended.
#[derive(Clone, Debug)]
pub struct SyncMetrics {
    syncs: Family<CodeLabels, Counter>,
    durations: Family<CodeLabels, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: u16,
}

impl PublisherMetrics {
    pub(crate) fn register(registry: &MetricsRegistry) -> PublisherMetrics {
        PublisherMetrics {
            root_ca: SyncMetrics::register(registry, "root_ca_cert_publisher"),
            trust_bundle: SyncMetrics::register(registry, "clustertrustbundle_publisher"),
            anchors: SyncMetrics::register(registry, "windlass_signer_bundle"),
            conflicts: registry.register(
                "windlass_signer_bundle_conflict",
                "Whether another manager owns the signer's bundle, so that its anchors are not published",
                Family::default(),
            ),
        }
    }

    /// Records whether another manager owns the bundle of a signer; returns whether that changed.
    pub fn set_conflict(&self, signer: &str, conflict: bool) -> bool {
        let conflict = i64::from(conflict);
        self.conflicts.get_or_create(&SignerLabels::new(signer)).set(conflict) != conflict
    }
}

impl SyncMetrics {
    fn register(registry: &MetricsRegistry, prefix: &str) -> SyncMetrics {
        // The buckets of kube-controller-manager: 1 ms to 16 s.
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 15));
        SyncMetrics {
            syncs: registry.register(
                &format!("{prefix}_sync"),
                "Syncs, by HTTP status code",
                Family::default(),
            ),
            durations: registry.register(
                &format!("{prefix}_sync_duration_seconds"),
                "Duration of syncs, by HTTP status code",
                Family::new_with_constructor(histogram),
            ),
        }
    }

    /// Records a sync by its HTTP status code and duration.
    pub fn observe(&self, code: u16, duration: Duration) {
        let labels = CodeLabels { code };
        self.syncs.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(duration.as_secs_f64());
    }
}

/// Maps the outcome of a sync to a status code: 200, the code of the server's response, or 500.
pub fn status_code<T>(outcome: &anyhow::Result<T>) -> u16 {
    match outcome {
        Ok(_) => 200,
        Err(error) => match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => status.code,
            _ => 500,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_are_counted_by_code() {
        let registry = MetricsRegistry::new();
        let syncs = SyncMetrics::register(&registry, "p");
        syncs.observe(200, Duration::from_millis(3));
        syncs.observe(200, Duration::from_secs(60));
        syncs.observe(422, Duration::ZERO);
        let text = registry.encode();
        for line in [
            "p_sync_total{code=\"200\"} 2",
            "p_sync_total{code=\"422\"} 1",
            "p_sync_duration_seconds_bucket{le=\"0.002\",code=\"200\"} 0",
            "p_sync_duration_seconds_bucket{le=\"0.004\",code=\"200\"} 1",
            "p_sync_duration_seconds_bucket{le=\"16.384\",code=\"200\"} 1",
            "p_sync_duration_seconds_bucket{le=\"+Inf\",code=\"200\"} 2",
            "p_sync_duration_seconds_sum{code=\"200\"} 60.003",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn a_conflict_is_reported_when_it_changes() {
        let registry = MetricsRegistry::new();
        let publishers = PublisherMetrics::register(&registry);
        let changes = [false, true, true, false].map(|it| publishers.set_conflict("a.b/c", it));
        assert_eq!(changes, [false, true, false, true]);
        assert!(registry.encode().contains("windlass_signer_bundle_conflict{signer=\"a.b/c\"} 0\n"));
    }
}
