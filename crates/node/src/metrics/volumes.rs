//! Metrics of volumes, under the names of KEP-3257.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use windlass_runtime::metrics::MetricsRegistry;

/// Label of the source type, as KEP-3257 names it.
pub(super) const SOURCE_LABEL: &str = "projected_volume_source_type";

/// Upper bounds of the histogram buckets, in seconds.
const DURATION_BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

type RefreshLabels = [(&'static str, &'static str); 2];
type DeliveryLabels = [(&'static str, &'static str); 1];

/// Counters and histograms of volume refreshes and bundle deliveries. Clones share the same metrics.
#[derive(Clone, Debug)]
pub struct VolumeMetrics {
    refreshes: Family<RefreshLabels, Counter>,
    durations: Family<RefreshLabels, Histogram>,
    deliveries: Family<DeliveryLabels, Histogram>,
}

impl VolumeMetrics {
    /// Registers the metrics. Call it once for a registry.
    pub fn register(registry: &MetricsRegistry) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(DURATION_BUCKETS);
        let metrics = Self {
            refreshes: registry.register_bare_counter(
                "projectedvolumesource_refresh_count",
                "Refreshes of volume sources, by type and status",
                Family::default(),
            ),
            durations: registry.register(
                "projectedvolumesource_refresh_duration",
                "Duration of refreshes in seconds, including the write to the disk",
                Family::new_with_constructor(histogram),
            ),
            deliveries: registry.register(
                "windlass_node_trust_delivery_seconds",
                "Time from a change of a trust bundle to the file on the disk",
                Family::new_with_constructor(histogram),
            ),
        };
        // A histogram without observations is exposed with zeros, so that rates start at zero.
        for from in ["change", "arrival"] {
            drop(metrics.deliveries.get_or_create(&[("from", from)]));
        }
        metrics
    }

    /// Counts a refresh of a source with this label: planned and written, or failed.
    pub fn refreshed(&self, source: &'static str, ok: bool, took: Duration) {
        let status = if ok { "OK" } else { "Error" };
        let labels = [(SOURCE_LABEL, source), ("status", status)];
        self.refreshes.get_or_create(&labels).inc();
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts the delivery of a changed bundle to the disk: the time since the agent received the change and, as far
    /// as the clocks agree, since it was written to the server.
    pub fn delivered(&self, since_arrival: Duration, since_change: Option<Duration>) {
        let observe = |from, took: Duration| {
            self.deliveries.get_or_create(&[("from", from)]).observe(took.as_secs_f64());
        };
        observe("arrival", since_arrival);
        if let Some(since_change) = since_change {
            observe("change", since_change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_names_of_the_enhancement_proposal() {
        let registry = MetricsRegistry::new();
        let metrics = VolumeMetrics::register(&registry);
        let empty = "windlass_node_trust_delivery_seconds_count{from=\"change\"} 0";
        assert!(registry.encode().lines().any(|found| found == empty));
        let source = "ClusterTrustBundle";
        metrics.refreshed(source, true, Duration::from_millis(3));
        metrics.refreshed(source, false, Duration::from_millis(30));
        metrics.delivered(Duration::from_millis(40), Some(Duration::from_millis(700)));
        metrics.delivered(Duration::from_secs(90), None);
        let text = registry.encode();
        let bundle = "projected_volume_source_type=\"ClusterTrustBundle\"";
        for line in [
            format!("projectedvolumesource_refresh_count{{{bundle},status=\"Error\"}} 1"),
            format!("projectedvolumesource_refresh_duration_bucket{{le=\"0.005\",{bundle},status=\"OK\"}} 1"),
            "windlass_node_trust_delivery_seconds_bucket{le=\"0.5\",from=\"change\"} 0".to_owned(),
            "windlass_node_trust_delivery_seconds_bucket{le=\"1\",from=\"change\"} 1".to_owned(),
            "windlass_node_trust_delivery_seconds_bucket{le=\"60\",from=\"arrival\"} 1".to_owned(),
            "windlass_node_trust_delivery_seconds_count{from=\"arrival\"} 2".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
