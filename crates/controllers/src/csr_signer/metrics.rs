//! Counters and latency of signers.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use windlass_runtime::metrics::MetricsRegistry;

use super::policy::KubernetesSigner;
use crate::metrics::SignerLabels;

/// Upper bounds of the signing latency, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

/// Metric families of all signers, for CertificateSigningRequests and PodCertificateRequests.
#[derive(Debug)]
pub struct SignerMetrics {
    requests: Family<SignerLabels, Counter>,
    issued: Family<SignerLabels, Counter>,
    failed: Family<SignerLabels, Counter>,
    delayed: Family<SignerLabels, Counter>,
    limited: Family<LimitLabels, Counter>,
    latency: Family<SignerLabels, Histogram, fn() -> Histogram>,
}

/// Labels of requests that exceed a limit of their signer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    signer: String,
    reason: &'static str,
}

/// Counters and latency histogram of one signer.
#[derive(Clone, Debug)]
pub struct SignerCounters {
    signer: String,
    limited: Family<LimitLabels, Counter>,
    /// Attempts to sign an approved request; a request that is retried counts each time.
    pub requests: Counter,
    /// Certificates issued since the process started.
    pub issued: Counter,
    /// Requests that were rejected permanently.
    pub failed: Counter,
    /// Attempts that failed and are retried.
    pub delayed: Counter,
    latency: Histogram,
}

impl SignerMetrics {
    pub(crate) fn register(registry: &MetricsRegistry) -> SignerMetrics {
        let counter = |name, help| registry.register(name, help, Family::default());
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let metrics = SignerMetrics {
            requests: counter("windlass_signer_requests", "Attempts to sign approved requests"),
            issued: counter("windlass_signer_issued", "Certificates issued"),
            failed: counter("windlass_signer_failed", "Requests rejected permanently"),
            delayed: counter("windlass_signer_delayed", "Attempts to sign that are retried"),
            limited: registry.register(
                "windlass_signer_limited",
                "Attempts to sign that a limit of the signer delays",
                Family::default(),
            ),
            latency: registry.register(
                "windlass_signer_latency_seconds",
                "Time from the observed approval until the certificate is written",
                Family::new_with_constructor(histogram),
            ),
        };
        // Built-in signers are exposed even if they have no CA.
        for signer in KubernetesSigner::ALL {
            metrics.signer(signer.name());
        }
        metrics
    }

    /// Returns the counters of a signer, which are exposed from now on.
    pub fn signer(&self, name: &str) -> SignerCounters {
        let labels = SignerLabels::new(name);
        SignerCounters {
            signer: name.to_owned(),
            limited: self.limited.clone(),
            requests: self.requests.get_or_create_owned(&labels),
            issued: self.issued.get_or_create_owned(&labels),
            failed: self.failed.get_or_create_owned(&labels),
            delayed: self.delayed.get_or_create_owned(&labels),
            latency: self.latency.get_or_create_owned(&labels),
        }
    }
}

impl SignerCounters {
    /// Counts a request that exceeds a limit, by the reason that the request reports.
    pub fn count_limited(&self, reason: &'static str) {
        let labels = LimitLabels { signer: self.signer.clone(), reason };
        self.limited.get_or_create_owned(&labels).inc();
    }

    /// Counts a certificate that was written this long after its request was first seen approved.
    pub fn count_issued(&self, latency: Duration) {
        self.issued.inc();
        self.latency.observe(latency.as_secs_f64());
    }
}
