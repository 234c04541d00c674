//! Metrics registry: passed as a parameter, filled by every part of the process, encoded for `/metrics`.
//!
//! - [`MetricsRegistry`]: registers metrics of `prometheus-client` and values that are read when scraped.
//! - [`WorkQueueMetrics`], [`ControllerMetrics`]: work queue, worker and watch metrics of controllers, under the names of client-go.
//! - [`register_process_metrics`]: memory and file descriptors of the process.
//!
//! There are no statics: a test that creates a registry sees its own counts only.

mod controller;
mod process;
mod text;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Metric, Registry};

pub use controller::{ControllerMetrics, ReconcileResult, WorkQueueMetrics, WorkTimer};
pub use process::register_process_metrics;
pub use text::METRICS_CONTENT_TYPE;

/// Handle on the metrics of a process. Clones share the same metrics.
///
/// Register every metric once. Where parts are restarted, register when the process starts and pass the metrics on:
/// a second registration of a name would be scraped as a duplicate.
#[derive(Clone, Debug, Default)]
pub struct MetricsRegistry {
    inner: Arc<Mutex<RegistryState>>,
}

#[derive(Debug, Default)]
struct RegistryState {
    registry: Registry,
    /// Counters whose Kubernetes names do not end in `_total`.
    bare_counters: BTreeSet<String>,
}

impl MetricsRegistry {
    /// Creates a registry without metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a metric or a family and returns it. Counters are exposed with the suffix `_total`,
    /// so `name` must not contain it. `help` is one sentence without a full stop.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        debug_assert!(!name.ends_with("_total"), "{name}: the encoder adds _total");
        self.lock().registry.register(name, help, metric.clone());
        metric
    }

    /// Registers a counter that is exposed under exactly this name. Kubelet has counters without
    /// `_total`, and dashboards ask for their names.
    pub fn register_bare_counter<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        let mut state = self.lock();
        state.bare_counters.insert(name.to_owned());
        state.registry.register(name, help, metric.clone());
        metric
    }

    /// Registers gauges whose samples are computed when they are scraped. A gauge without samples is exposed as a
    /// description only. Use an empty `Vec<(String, String)>` as the labels of a gauge without labels.
    pub fn register_scraped_gauge<L, V>(
        &self,
        name: &'static str,
        help: &'static str,
        samples: impl Fn() -> Vec<(L, V)> + Send + Sync + 'static,
    ) where
        L: EncodeLabelSet + 'static,
        V: EncodeGaugeValue + 'static,
    {
        let encode = move |mut encoder: DescriptorEncoder<'_>| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in samples() {
                family.encode_family(&labels)?.encode_gauge(&value)?;
            }
            Ok(())
        };
        self.register_collector(ScrapeCollector { name, encode: Box::new(encode) });
    }

    /// Registers counters whose samples are read when they are scraped, for counts that are kept elsewhere.
    /// As with [`MetricsRegistry::register`], `_total` is added to the name.
    pub fn register_scraped_counter<L, V>(
        &self,
        name: &'static str,
        help: &'static str,
        samples: impl Fn() -> Vec<(L, V)> + Send + Sync + 'static,
    ) where
        L: EncodeLabelSet + 'static,
        V: EncodeCounterValue + 'static,
    {
        let encode = move |mut encoder: DescriptorEncoder<'_>| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, value) in samples() {
                encode_counter(family.encode_family(&labels)?, &value)?;
            }
            Ok(())
        };
        self.register_collector(ScrapeCollector { name, encode: Box::new(encode) });
    }

    /// As [`MetricsRegistry::register_scraped_counter`], exposed under exactly this name.
    pub fn register_scraped_bare_counter<L, V>(
        &self,
        name: &'static str,
        help: &'static str,
        samples: impl Fn() -> Vec<(L, V)> + Send + Sync + 'static,
    ) where
        L: EncodeLabelSet + 'static,
        V: EncodeCounterValue + 'static,
    {
        self.lock().bare_counters.insert(name.to_owned());
        self.register_scraped_counter(name, help, samples);
    }

    /// Registers a collector that encodes several families of one snapshot.
    pub fn register_collector(&self, collector: impl Collector) {
        self.lock().registry.register_collector(Box::new(collector));
    }

    /// Encodes all metrics in the text format 0.0.4, which every scraper reads. Send it with [`METRICS_CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let state = self.lock();
        let mut open_metrics = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut open_metrics, &state.registry);
        text::to_text_format(&open_metrics, &state.bare_counters)
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type EncodeFn = Box<dyn Fn(DescriptorEncoder<'_>) -> fmt::Result + Send + Sync>;

struct ScrapeCollector {
    name: &'static str,
    encode: EncodeFn,
}

impl fmt::Debug for ScrapeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScrapeCollector").field(&self.name).finish()
    }
}

impl Collector for ScrapeCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.encode)(encoder)
    }
}

fn encode_counter<V: EncodeCounterValue>(mut encoder: MetricEncoder<'_>, value: &V) -> fmt::Result {
    encoder.encode_counter::<[(&str, &str); 0], V, f64>(value, None::<&Exemplar<_, f64>>)
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;

    use super::*;

    fn assert_lines(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|each| each == *line), "{line} in\n{text}");
        }
    }

    #[test]
    fn metrics_keep_their_names_in_the_text_format() {
        let registry = MetricsRegistry::new();
        let issued: Family<Vec<(&str, String)>, Counter> =
            registry.register("windlass_signer_issued", "Certificates issued", Family::default());
        issued.get_or_create(&vec![("signer", "a.b/c".to_owned())]).inc();
        let errors: Counter = registry.register_bare_counter(
            "kubelet_server_expiration_renew_errors",
            "Failed renewals of the serving certificate",
            Counter::default(),
        );
        errors.inc_by(3);
        let depth: Gauge = registry.register("depth", "Depth", Gauge::default());
        depth.set(-2);
        let age = registry.register("age_seconds", "Age", Histogram::new([0.5, 60.0, 3600.0]));
        age.observe(60.0);
        age.observe(61.0);
        let text = registry.encode();
        assert_lines(
            &text,
            &[
                "# HELP windlass_signer_issued_total Certificates issued.",
                "# TYPE windlass_signer_issued_total counter",
                "windlass_signer_issued_total{signer=\"a.b/c\"} 1",
                "# HELP kubelet_server_expiration_renew_errors Failed renewals of the serving certificate.",
                "# TYPE kubelet_server_expiration_renew_errors counter",
                "kubelet_server_expiration_renew_errors 3",
                "depth -2",
                "age_seconds_bucket{le=\"0.5\"} 0",
                "age_seconds_bucket{le=\"60\"} 1",
                "age_seconds_bucket{le=\"+Inf\"} 2",
                "age_seconds_sum 121.0",
                "age_seconds_count 2",
            ],
        );
        assert!(!text.contains("EOF"), "{text}");
    }

    #[test]
    fn scraped_values_are_computed_for_every_scrape() {
        let registry = MetricsRegistry::new();
        let count = Arc::new(Mutex::new(0u64));
        let (gauge, counter, bare) = (count.clone(), count.clone(), count.clone());
        registry.register_scraped_gauge("ttl_seconds", "Time left", move || {
            let mut count = gauge.lock().unwrap();
            *count += 1;
            vec![(Vec::<(String, String)>::new(), i64::try_from(*count).unwrap())]
        });
        registry.register_scraped_counter("events", "Events", move || {
            vec![([("reason", "a\"b")], *counter.lock().unwrap())]
        });
        registry.register_scraped_bare_counter("errors", "Errors", move || {
            vec![([("name", "x_total")], *bare.lock().unwrap())]
        });
        registry.register_scraped_gauge("absent", "Absent", Vec::<([(&str, &str); 1], i64)>::new);
        for n in 1..=2 {
            let text = registry.encode();
            assert_lines(
                &text,
                &[
                    &format!("ttl_seconds {n}"),
                    "# TYPE events_total counter",
                    &format!("events_total{{reason=\"a\\\"b\"}} {n}"),
                    "# TYPE errors counter",
                    &format!("errors{{name=\"x_total\"}} {n}"),
                    "# TYPE absent gauge",
                ],
            );
            assert!(!text.lines().any(|line| line.starts_with("absent")), "{text}");
        }
    }

    #[test]
    fn every_sample_belongs_to_the_family_above_it() {
        let registry = MetricsRegistry::new();
        register_process_metrics(&registry);
        let controllers = WorkQueueMetrics::register(&registry);
        controllers.controller("namespace").count_add();
        let text = registry.encode();
        let mut family = "";
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => family = rest.split(' ').next().unwrap(),
                None if line.starts_with('#') => {}
                None => assert!(line.starts_with(family), "{line} under {family}"),
            }
        }
        assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
    }
}
