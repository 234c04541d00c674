//! Metrics of the agent, under kubelet's names where kubelet has one.
//!
//! [`AgentMetrics::register`] registers all of them once per process. An agent that is restarted in the same process
//! gets the same handle, so that counters go on and nothing is registered twice.

pub mod volumes;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use time::OffsetDateTime;
use windlass_runtime::metrics::MetricsRegistry;

use crate::clock::Clock;
use crate::node_certificates::{NodeCertificateReport, RotationNotice};
use crate::template::CertificatePurpose;
use crate::volume_manager::report::VolumeReports;

use volumes::VolumeMetrics;

/// Kubelet's buckets for the age of certificates, in seconds: a minute to four years.
const AGE_BUCKETS: [f64; 10] = [
    60.0,
    3_600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

/// Notifications by projection, kind and result.
pub type NotificationCounts = Family<[(&'static str, String); 3], Counter>;

/// Handle on the metrics of the agent. Clones share the same metrics.
#[derive(Clone)]
pub struct AgentMetrics {
    registry: MetricsRegistry,
    sources: SourcesSlot,
    rotation_ages: Histogram,
    /// Refreshes of volumes and deliveries of bundles.
    pub volumes: VolumeMetrics,
    /// Attempts to notify applications of host projections.
    pub notifications: NotificationCounts,
}

/// Sources of values that are read when they are scraped.
pub struct AgentSources {
    /// Tells how long certificates are still valid.
    pub clock: Clock,
    /// Reports on the client certificate and, if there is one, the serving certificate.
    pub certificates: Box<dyn Fn() -> Vec<NodeCertificateReport> + Send>,
    /// The latest report of every volume.
    pub volumes: Box<dyn Fn() -> VolumeReports + Send>,
    /// Bytes of all cached ClusterTrustBundles; `None` if they are not known.
    pub bundle_bytes: Box<dyn Fn() -> Option<usize> + Send>,
    /// Number of volume certificates by signer and state.
    pub certificate_states: Box<dyn Fn() -> BTreeMap<(String, &'static str), u64> + Send>,
}

/// Sources of the running agent; `None` before the first one has started.
#[derive(Clone, Default)]
struct SourcesSlot(Arc<Mutex<Option<AgentSources>>>);

impl SourcesSlot {
    /// Computes samples from the sources; none without an agent.
    fn scrape<T>(&self, samples: impl FnOnce(&AgentSources) -> Vec<T>) -> Vec<T> {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sources.as_ref().map(samples).unwrap_or_default()
    }

    /// Computes one sample without labels from the certificate of a purpose, if the agent manages one.
    fn scrape_certificate<T>(
        &self,
        purpose: CertificatePurpose,
        sample: impl Fn(&NodeCertificateReport, OffsetDateTime) -> Option<T>,
    ) -> Vec<(NoLabels, T)> {
        self.scrape(|sources| {
            let now = (sources.clock)().wall;
            let reports = (sources.certificates)().into_iter();
            let reports = reports.filter(|report| report.purpose == purpose);
            reports.filter_map(|report| Some(([], sample(&report, now)?))).collect()
        })
    }
}

type NoLabels = [(&'static str, &'static str); 0];

impl AgentMetrics {
    /// Registers all metrics of an agent. Call it once for a registry.
    pub fn register(registry: &MetricsRegistry) -> Self {
        let sources = SourcesSlot::default();
        register_expiration(registry, &sources);
        register_errors(registry, &sources);
        register_volumes(registry, &sources);
        Self {
            rotation_ages: registry.register(
                "kubelet_certificate_manager_server_rotation_seconds",
                "Age of serving certificates when they were replaced",
                Histogram::new(AGE_BUCKETS),
            ),
            volumes: VolumeMetrics::register(registry),
            notifications: registry.register(
                "windlass_node_notifications",
                "Attempts to notify an application of changed files; result is retry if another attempt follows",
                NotificationCounts::default(),
            ),
            registry: registry.clone(),
            sources,
        }
    }

    /// Sets the sources of scraped values, in place of those of an earlier agent.
    pub fn set_sources(&self, sources: AgentSources) {
        *self.sources.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sources);
    }

    /// Records the age of a replaced serving certificate; other notices are ignored.
    pub fn observe_rotation(&self, notice: &RotationNotice) {
        if let RotationNotice::Stored { age: Some(age), .. } = notice {
            self.rotation_ages.observe(age.as_seconds_f64());
        }
    }

    /// Encodes the whole registry in the Prometheus text format.
    pub fn encode(&self) -> String {
        self.registry.encode()
    }
}

fn register_expiration(registry: &MetricsRegistry, sources: &SourcesSlot) {
    let expires = |report: &NodeCertificateReport| report.held.as_ref().map(|held| held.expires);
    for (purpose, expiration, ttl) in [
        (
            CertificatePurpose::Client,
            "kubelet_certificate_manager_client_expiration_seconds",
            "kubelet_certificate_manager_client_ttl_seconds",
        ),
        (
            CertificatePurpose::Serving,
            "kubelet_certificate_manager_server_expiration_seconds",
            "kubelet_certificate_manager_server_ttl_seconds",
        ),
    ] {
        let slot = sources.clone();
        let help = "Expiry of the certificate, in seconds since 1970";
        registry.register_scraped_gauge(expiration, help, move || {
            slot.scrape_certificate(purpose, |report, _| Some(expires(report)?.unix_timestamp()))
        });
        let slot = sources.clone();
        let help = "Remaining validity of the certificate in seconds; negative after expiry";
        registry.register_scraped_gauge(ttl, help, move || {
            slot.scrape_certificate(purpose, |report, now| Some((expires(report)? - now).whole_seconds()))
        });
    }
}

fn register_errors(registry: &MetricsRegistry, sources: &SourcesSlot) {
    for (purpose, name, help) in [
        (
            CertificatePurpose::Client,
            "kubelet_certificate_manager_client_expiration_renew_errors",
            "Failed renewals of the client certificate",
        ),
        // Kubelet's name for it follows another pattern.
        (
            CertificatePurpose::Serving,
            "kubelet_server_expiration_renew_errors",
            "Failed renewals of the serving certificate",
        ),
    ] {
        let slot = sources.clone();
        registry.register_scraped_bare_counter(name, help, move || {
            slot.scrape_certificate(purpose, |report, _| Some(report.errors))
        });
    }
    let (slot, name) = (sources.clone(), "windlass_node_certificate_rejections");
    let help =
        "Unexpired client certificates that the server rejected, so that the agent requested another one";
    registry.register_scraped_counter(name, help, move || {
        slot.scrape_certificate(CertificatePurpose::Client, |report, _| Some(report.rejections))
    });
    let (slot, name) = (sources.clone(), "windlass_node_certificate_errors");
    let help = "1 while a certificate cannot be renewed, by reason";
    registry.register_scraped_gauge(name, help, move || {
        slot.scrape(|sources| {
            let reports = (sources.certificates)().into_iter();
            let samples = reports.filter_map(|report| {
                let reason = report.trouble.as_ref()?.cause.reason();
                let labels = [("certificate", report.purpose.prefix()), ("reason", reason)];
                Some((labels, 1_i64))
            });
            samples.collect()
        })
    });
}

fn register_volumes(registry: &MetricsRegistry, sources: &SourcesSlot) {
    let (slot, name) = (sources.clone(), "clustertrustbundle_informer_cache_size");
    registry.register_scraped_gauge(name, "Bytes of all cached ClusterTrustBundles", move || {
        slot.scrape(|sources| {
            let bytes = (sources.bundle_bytes)().and_then(|bytes| i64::try_from(bytes).ok());
            bytes.map(|bytes| (NoLabels::default(), bytes)).into_iter().collect()
        })
    });
    let (slot, name) = (sources.clone(), "projectedvolumesource_instances");
    registry.register_scraped_gauge(name, "Sources of the volumes of this node, by type", move || {
        slot.scrape(|sources| {
            let mut instances = BTreeMap::<&'static str, i64>::new();
            for source in (sources.volumes)().values().flat_map(|volume| &volume.sources) {
                *instances.entry(*source).or_default() += 1;
            }
            let samples = instances.into_iter();
            samples.map(|(source, count)| ([(volumes::SOURCE_LABEL, source)], count)).collect()
        })
    });
    let (slot, name) = (sources.clone(), "kubelet_podcertificate_states");
    registry.register_scraped_gauge(name, "Volume certificates by signer and state", move || {
        slot.scrape(|sources| {
            let states = (sources.certificate_states)().into_iter();
            let samples = states.map(|((signer, state), count)| {
                let labels = [("signer_name", signer), ("state", state.to_owned())];
                (labels, i64::try_from(count).unwrap_or(i64::MAX))
            });
            samples.collect()
        })
    });
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;
    use crate::clock::ClockReading;
    use crate::node_certificates::{CertificateFailure, FailureCause};
    use crate::testing::{START, report};
    use crate::volume::id::{VolumeId, VolumeOwner};
    use crate::volume_manager::report::VolumeReport;

    fn sources(reports: Vec<NodeCertificateReport>, now: OffsetDateTime) -> AgentSources {
        AgentSources {
            clock: Arc::new(move || ClockReading { wall: now, since: Default::default() }),
            certificates: Box::new(move || reports.clone()),
            volumes: Box::new(VolumeReports::default),
            bundle_bytes: Box::new(|| None),
            certificate_states: Box::new(BTreeMap::new),
        }
    }

    fn metrics() -> AgentMetrics {
        AgentMetrics::register(&MetricsRegistry::new())
    }

    fn assert_line(text: &str, line: &str) {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }

    #[test]
    fn the_remaining_validity_is_negative_after_expiry() {
        let report = report(CertificatePurpose::Client, Some(START + Duration::hours(1)));
        let metrics = metrics();
        for (now, left) in [(START, "3600"), (START + Duration::hours(2), "-3600")] {
            metrics.set_sources(sources(vec![report.clone()], now));
            let text = metrics.encode();
            assert_line(&text, &format!("kubelet_certificate_manager_client_ttl_seconds {left}"));
            let expires = (START + Duration::hours(1)).unix_timestamp();
            let line = format!("kubelet_certificate_manager_client_expiration_seconds {expires}");
            assert_line(&text, &line);
        }
    }

    #[test]
    fn without_a_certificate_only_errors_are_exposed() {
        let metrics = metrics();
        assert!(!metrics.encode().contains("\nkubelet_certificate_manager_client_"));
        let mut report = report(CertificatePurpose::Client, None);
        report.errors = 3;
        report.trouble =
            Some(CertificateFailure { cause: FailureCause::RequestDenied, message: "no".into() });
        metrics.set_sources(sources(vec![report], START));
        let text = metrics.encode();
        assert!(!text.contains("\nkubelet_certificate_manager_client_ttl_seconds"), "{text}");
        assert_line(&text, "kubelet_certificate_manager_client_expiration_renew_errors 3");
        assert!(!text.contains("\nkubelet_server_expiration_renew_errors"), "{text}");
        let error = "windlass_node_certificate_errors\
                     {certificate=\"kubelet-client\",reason=\"RequestDenied\"} 1";
        assert_line(&text, error);
    }

    #[test]
    fn ages_are_counted_in_the_buckets_of_kubelet() {
        let metrics = metrics();
        for seconds in [60, 61, 3601, 200_000_000] {
            let age = Some(Duration::seconds(seconds));
            metrics.observe_rotation(&RotationNotice::Stored { expires: START, age });
        }
        metrics.observe_rotation(&RotationNotice::Stored { expires: START, age: None });
        let text = metrics.encode();
        let name = "kubelet_certificate_manager_server_rotation_seconds";
        for line in [
            "_bucket{le=\"60\"} 1",
            "_bucket{le=\"3600\"} 2",
            "_bucket{le=\"14400\"} 3",
            "_bucket{le=\"124416000\"} 3",
            "_bucket{le=\"+Inf\"} 4",
            "_sum 200003722.0",
            "_count 4",
        ] {
            assert_line(&text, &format!("{name}{line}"));
        }
    }

    #[test]
    fn volumes_are_scraped_from_their_reports() {
        let source = "ClusterTrustBundle";
        let volume = VolumeReport {
            directory: "v".into(),
            sources: vec![source, "Secret", source],
            ready: true,
            blocked: None,
            changed: None,
            anchors: Vec::new(),
            certificates: Vec::new(),
        };
        let id = VolumeId { owner: VolumeOwner::Host, name: "v".into() };
        let reports = Arc::new(BTreeMap::from([(id, Arc::new(volume))]));
        let metrics = metrics();
        metrics.set_sources(AgentSources {
            volumes: Box::new(move || reports.clone()),
            bundle_bytes: Box::new(|| Some(7)),
            certificate_states: Box::new(|| BTreeMap::from([(("a.b/c".to_owned(), "fresh"), 4)])),
            ..sources(Vec::new(), START)
        });
        let labels = [("projection", "web".into()), ("kind", "http".into()), ("result", "retry".into())];
        metrics.notifications.get_or_create(&labels).inc();
        let text = metrics.encode();
        for line in [
            "clustertrustbundle_informer_cache_size 7",
            "projectedvolumesource_instances{projected_volume_source_type=\"ClusterTrustBundle\"} 2",
            "kubelet_podcertificate_states{signer_name=\"a.b/c\",state=\"fresh\"} 4",
            "windlass_node_notifications_total{projection=\"web\",kind=\"http\",result=\"retry\"} 1",
        ] {
            assert_line(&text, line);
        }
    }
}
