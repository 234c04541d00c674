//! Metrics of Bundles.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use time::OffsetDateTime;
use windlass_runtime::metrics::MetricsRegistry;

#[derive(Clone, Debug)]
pub struct BundleMetrics {
    certificates: Family<BundleLabels, Gauge>,
    expiry: Family<BundleLabels, Gauge>,
    targets: Family<BundleTargetLabels, Gauge>,
    latency: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BundleLabels {
    bundle: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BundleTargetLabels {
    bundle: String,
    state: &'static str,
}

const SYNCED: &str = "synced";
const FAILED: &str = "failed";

impl BundleMetrics {
    pub(crate) fn register(registry: &MetricsRegistry) -> BundleMetrics {
        BundleMetrics {
            certificates: registry.register(
                "windlass_bundle_certificates",
                "Certificates in the targets of a Bundle",
                Family::default(),
            ),
            expiry: registry.register(
                "windlass_bundle_earliest_expiration_timestamp_seconds",
                "Time at which the first certificate expires, in seconds since 1970",
                Family::default(),
            ),
            targets: registry.register(
                "windlass_bundle_targets",
                "Targets of a Bundle, by state",
                Family::default(),
            ),
            latency: registry.register(
                "windlass_bundle_sync_latency_seconds",
                "Time from an observed change until all targets have it",
                // 1 ms to 33 s.
                Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            ),
        }
    }

    /// Sets number and first expiry of the certificates in the targets of a Bundle.
    pub fn set_content(&self, bundle: &str, certificates: usize, expiry: Option<OffsetDateTime>) {
        let labels = BundleLabels { bundle: bundle.to_owned() };
        self.certificates.get_or_create(&labels).set(gauge_value(certificates));
        match expiry {
            Some(expiry) => {
                self.expiry.get_or_create(&labels).set(expiry.unix_timestamp());
            }
            None => {
                self.expiry.remove(&labels);
            }
        }
    }

    /// Sets the number of targets that hold the content of a Bundle, and of those that do not.
    pub fn set_targets(&self, bundle: &str, synced: usize, failed: usize) {
        for (state, count) in [(SYNCED, synced), (FAILED, failed)] {
            let labels = BundleTargetLabels { bundle: bundle.to_owned(), state };
            self.targets.get_or_create(&labels).set(gauge_value(count));
        }
    }

    /// Removes the series of a Bundle that is gone.
    pub fn remove(&self, bundle: &str) {
        let labels = BundleLabels { bundle: bundle.to_owned() };
        self.certificates.remove(&labels);
        self.expiry.remove(&labels);
        for state in [SYNCED, FAILED] {
            self.targets.remove(&BundleTargetLabels { bundle: bundle.to_owned(), state });
        }
    }

    /// Removes the series of all Bundles, which may have changed while another process led.
    pub fn clear(&self) {
        self.certificates.clear();
        self.expiry.clear();
        self.targets.clear();
    }

    /// Records how long it took until all targets had a change.
    pub fn observe_sync(&self, latency: Duration) {
        self.latency.observe(latency.as_secs_f64());
    }
}

fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_exist_while_their_bundle_does() {
        let registry = MetricsRegistry::new();
        let metrics = BundleMetrics::register(&registry);
        let expiry = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(7);
        metrics.set_content("roots", 140, Some(expiry));
        metrics.set_targets("roots", 1999, 1);
        metrics.set_content("gone", 1, Some(expiry));
        metrics.set_targets("gone", 1, 0);
        metrics.remove("gone");
        metrics.observe_sync(Duration::from_millis(3));
        metrics.observe_sync(Duration::from_secs(60));
        let text = registry.encode();
        for line in [
            "windlass_bundle_certificates{bundle=\"roots\"} 140",
            "windlass_bundle_earliest_expiration_timestamp_seconds{bundle=\"roots\"} 7",
            "windlass_bundle_targets{bundle=\"roots\",state=\"synced\"} 1999",
            "windlass_bundle_targets{bundle=\"roots\",state=\"failed\"} 1",
            "windlass_bundle_sync_latency_seconds_bucket{le=\"0.002\"} 0",
            "windlass_bundle_sync_latency_seconds_bucket{le=\"0.004\"} 1",
            "windlass_bundle_sync_latency_seconds_bucket{le=\"32.768\"} 1",
            "windlass_bundle_sync_latency_seconds_bucket{le=\"+Inf\"} 2",
            "windlass_bundle_sync_latency_seconds_sum 60.003",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("gone"), "{text}");
        metrics.set_content("roots", 0, None);
        assert!(!registry.encode().contains("timestamp_seconds{"), "an expiry that is not known any more");
        metrics.clear();
        assert!(!registry.encode().contains("roots"));
    }
}
