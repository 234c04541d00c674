//! Metrics of the server, under the names of kube-apiserver.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge as RawGauge;
use prometheus_client::metrics::histogram::Histogram;
use windlass_api::status::qualified_kind;
use windlass_runtime::metrics::{MetricsRegistry, register_process_metrics};

use crate::cache::ResourceCaches;
use crate::registry::kind::{CertificateIssuance, Kind, ServedVersion};

/// Metrics of the API server, with the names of kube-apiserver.
pub struct ServerMetrics {
    registry: MetricsRegistry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram>,
    inflight: Family<InflightLabels, RawGauge>,
    longrunning: Family<LongrunningLabels, RawGauge>,
    certificates: Histogram,
    lifetimes_requested: Family<SignerLabels, Counter>,
    lifetimes_honored: Family<SignerLabels, Counter>,
    store_errors: Family<StoreLabels, Counter>,
    watches_revoked: Counter,
}

/// Labels of a request, with a bounded set of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestDimensions {
    /// Verb in upper case: `GET`, `LIST`, `WATCH`, `POST`, …
    pub verb: &'static str,
    /// API group of the resource; empty for the core group.
    pub group: &'static str,
    /// API version, for example `v1`; empty for non-resource paths.
    pub version: &'static str,
    /// Plural resource name; empty for non-resource paths.
    pub resource: &'static str,
    /// Subresource, for example `status`; empty for the main resource.
    pub subresource: &'static str,
    /// Scope of the request: `cluster`, `namespace`, `resource` or empty.
    pub scope: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: u32,
    component: &'static str,
    dry_run: &'static str,
    group: &'static str,
    resource: &'static str,
    scope: &'static str,
    subresource: &'static str,
    verb: &'static str,
    version: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    component: &'static str,
    group: &'static str,
    resource: &'static str,
    scope: &'static str,
    subresource: &'static str,
    verb: &'static str,
    version: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InflightLabels {
    request_kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LongrunningLabels {
    component: &'static str,
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
    version: &'static str,
}

/// Named as in kube-apiserver, whose label differs in case from all others.
type SignerLabels = [(&'static str, String); 1];

const COMPONENT: &str = "apiserver";

/// Buckets of kube-apiserver, in seconds.
const BUCKETS: [f64; 22] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0,
];

/// Buckets of kube-apiserver for the remaining lifetime of certificates: half an hour to a year.
const LIFETIMES: [f64; 14] = [
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

impl ServerMetrics {
    /// Registers the metrics of a server and of the process, all at zero.
    pub fn register(registry: MetricsRegistry) -> ServerMetrics {
        register_process_metrics(&registry);
        let durations: Family<DurationLabels, Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        ServerMetrics {
            requests: registry.register(
                "apiserver_request",
                "Requests by verb, resource and code",
                Family::default(),
            ),
            durations: registry.register(
                "apiserver_request_duration_seconds",
                "Time from the arrival of a request to its response",
                durations,
            ),
            inflight: registry.register(
                "apiserver_current_inflight_requests",
                "Requests in progress",
                Family::default(),
            ),
            longrunning: registry.register(
                "apiserver_longrunning_requests",
                "Open watches",
                Family::default(),
            ),
            certificates: registry.register(
                "apiserver_client_certificate_expiration_seconds",
                "Remaining lifetime of the client certificate of a request",
                Histogram::new(LIFETIMES),
            ),
            lifetimes_requested: registry.register(
                "apiserver_certificates_registry_csr_requested_duration",
                "Issued certificate signing requests with a requested lifetime, by signer",
                Family::default(),
            ),
            lifetimes_honored: registry.register(
                "apiserver_certificates_registry_csr_honored_duration",
                "Issued certificate signing requests that got the requested lifetime, by signer",
                Family::default(),
            ),
            store_errors: registry.register(
                "windlass_store_errors",
                "Failed calls to the store, by reason",
                Family::default(),
            ),
            watches_revoked: registry.register(
                "windlass_watches_revoked",
                "Open watches ended because their requester is no longer allowed",
                Counter::default(),
            ),
            registry,
        }
    }

    /// Counts a call to the store that failed, or whose outcome is unknown.
    pub fn store_refused(&self, reason: &'static str) {
        self.store_errors.get_or_create(&StoreLabels { reason }).inc();
    }

    /// Counts a finished request and records how long it took.
    pub fn request(&self, facts: RequestDimensions, dry_run: bool, code: u16, took: Duration) {
        let RequestDimensions { verb, group, version, resource, subresource, scope } = facts;
        let labels = RequestLabels {
            code: code.into(),
            component: COMPONENT,
            dry_run: if dry_run { "All" } else { "" },
            group,
            resource,
            scope,
            subresource,
            verb,
            version,
        };
        self.requests.get_or_create(&labels).inc();
        if verb != "WATCH" {
            let labels =
                DurationLabels { component: COMPONENT, group, resource, scope, subresource, verb, version };
            self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        }
    }

    /// Counts a request with a client certificate of this remaining lifetime.
    pub fn client_certificate(&self, left: time::Duration) {
        self.certificates.observe(left.as_seconds_f64());
    }

    /// Counts a request as in flight until the guard is dropped.
    pub fn inflight(&self, mutating: bool) -> GaugeGuard {
        let request_kind = if mutating { "mutating" } else { "readOnly" };
        GaugeGuard::increment(self.inflight.get_or_create_owned(&InflightLabels { request_kind }))
    }

    /// Counts a watch as open until the guard is dropped.
    pub fn watch_started(&self, served: &ServedVersion, kind: &Kind) -> GaugeGuard {
        let labels = LongrunningLabels {
            component: COMPONENT,
            group: served.group,
            resource: kind.plural,
            verb: "WATCH",
            version: served.version,
        };
        GaugeGuard::increment(self.longrunning.get_or_create_owned(&labels))
    }

    /// Counts a watch that ended because access was revoked.
    pub fn watch_revoked(&self) {
        self.watches_revoked.inc();
    }

    /// Counts an issued certificate whose lifetime was requested.
    pub fn issued(&self, issued: CertificateIssuance) {
        let labels = [("signerName", issued.signer)];
        self.lifetimes_requested.get_or_create(&labels).inc();
        if issued.honored {
            self.lifetimes_honored.get_or_create(&labels).inc();
        }
    }

    /// Encodes the whole registry in the Prometheus text format.
    pub fn encode(&self) -> String {
        self.registry.encode()
    }
}

/// Decrements a gauge when dropped.
pub struct GaugeGuard(RawGauge<i64, AtomicI64>);

impl GaugeGuard {
    fn increment(gauge: RawGauge<i64, AtomicI64>) -> GaugeGuard {
        gauge.inc();
        GaugeGuard(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Labels of a metric that has one value.
pub(crate) const UNLABELED: [(&str, &str); 0] = [];

pub(crate) fn register_cache_metrics(
    registry: &MetricsRegistry,
    caches: &Arc<ResourceCaches>,
    kinds: Vec<&'static Kind>,
) {
    let sizes = caches.clone();
    registry.register_scraped_gauge("apiserver_storage_objects", "Objects stored, by kind", move || {
        let stored = kinds.iter().filter_map(|kind| {
            let count = sizes.for_kind(kind)?.len();
            Some(([("resource", qualified_kind(kind.stored().group, kind.plural))], count))
        });
        stored.collect()
    });
    let caches = caches.clone();
    registry.register_scraped_gauge(
        "windlass_store_revision",
        "Newest revision that reads show",
        move || vec![(UNLABELED, caches.applied())],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrapers_find_kubernetes_names() {
        let registry = MetricsRegistry::new();
        registry.register("more", "Metric of another part of the process", RawGauge::<i64>::default()).set(1);
        let metrics = ServerMetrics::register(registry);
        let facts = RequestDimensions {
            verb: "LIST",
            group: "",
            version: "v1",
            resource: "pods",
            subresource: "",
            scope: "cluster",
        };
        metrics.request(facts, false, 200, Duration::from_millis(3));
        let text = metrics.encode();
        for words in [
            "# TYPE apiserver_request_total counter",
            "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 1",
            "apiserver_request_duration_seconds_bucket{le=\"0.005\"",
            "more 1",
        ] {
            assert!(text.contains(words), "{words} in\n{text}");
        }
        assert!(!text.contains("EOF"));
    }

    #[test]
    fn the_time_left_to_certificates_is_counted() {
        let metrics = ServerMetrics::register(MetricsRegistry::new());
        metrics.client_certificate(time::Duration::hours(3));
        let text = metrics.encode();
        for (bucket, count) in [("7200", 0), ("21600", 1)] {
            let line =
                format!("apiserver_client_certificate_expiration_seconds_bucket{{le=\"{bucket}\"}} {count}");
            assert!(text.contains(&line), "{line} in\n{text}");
        }
    }

    #[test]
    fn a_gauge_goes_down_when_dropped() {
        let metrics = ServerMetrics::register(MetricsRegistry::new());
        let held = metrics.inflight(true);
        assert!(metrics.encode().contains("{request_kind=\"mutating\"} 1"));
        drop(held);
        assert!(metrics.encode().contains("{request_kind=\"mutating\"} 0"));
    }
}
