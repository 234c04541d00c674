//! Metrics of the ledger and of the certificates in it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use windlass_ledger::{AuthorityTotals, LedgerChain};
use windlass_runtime::metrics::MetricsRegistry;

const BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 15.0];

/// Label of metrics that exist once per chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChainLabels {
    chain: &'static str,
}

/// Labels of metrics that exist once per CA key of a signer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuthorityLabels {
    signer: String,
    authority: String,
}

/// Metrics of the ledger. Clones share them.
#[derive(Clone, Debug)]
pub struct LedgerMetrics {
    available: Gauge,
    entries: Family<ChainLabels, Counter>,
    segments: Family<ChainLabels, Gauge>,
    bytes: Family<ChainLabels, Gauge>,
    unconfirmed: Family<ChainLabels, Gauge>,
    problems: Family<ChainLabels, Gauge>,
    unresolved: Gauge,
    write_duration: Histogram,
    write_failures: Counter,
    totals: Arc<Mutex<Vec<AuthorityTotals>>>,
}

impl LedgerMetrics {
    pub(crate) fn register(registry: &MetricsRegistry) -> LedgerMetrics {
        let totals = Arc::default();
        register_totals(registry, &totals);
        LedgerMetrics {
            available: registry.register(
                "windlass_ledger_available",
                "Whether the API server serves LedgerSegments; certificates are not recorded otherwise",
                Gauge::default(),
            ),
            entries: registry.register(
                "windlass_ledger_entries",
                "Entries appended to the ledger",
                Family::default(),
            ),
            segments: registry.register(
                "windlass_ledger_segments",
                "Segments of the ledger",
                Family::default(),
            ),
            bytes: registry.register(
                "windlass_ledger_bytes",
                "Size of the entries of all segments, without base64",
                Family::default(),
            ),
            unconfirmed: registry.register(
                "windlass_ledger_unconfirmed",
                "Issued certificates whose confirmation is not written yet",
                Family::default(),
            ),
            problems: registry.register(
                "windlass_ledger_chain_problems",
                "Missing, modified, reordered and duplicate segments",
                Family::default(),
            ),
            unresolved: registry.register(
                "windlass_ledger_unresolved",
                "Records of which it is not known whether a certificate was issued",
                Gauge::default(),
            ),
            write_duration: registry.register(
                "windlass_ledger_write_duration_seconds",
                "Duration of writes to the ledger, each with all entries that waited",
                Histogram::new(BUCKETS),
            ),
            write_failures: registry.register(
                "windlass_ledger_write_failures",
                "Writes to the ledger that failed, conflicts included",
                Counter::default(),
            ),
            totals,
        }
    }

    pub fn set_available(&self, available: bool) {
        self.available.set(i64::from(available));
    }

    pub fn count_entries(&self, chain: LedgerChain, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.entries.get_or_create(&labels(chain)).inc_by(count);
    }

    pub fn set_size(&self, chain: LedgerChain, segments: usize, bytes: usize) {
        self.segments.get_or_create(&labels(chain)).set(to_gauge(segments));
        self.bytes.get_or_create(&labels(chain)).set(to_gauge(bytes));
    }

    pub fn set_lag(&self, chain: LedgerChain, count: usize) {
        self.unconfirmed.get_or_create(&labels(chain)).set(to_gauge(count));
    }

    pub fn set_problems(&self, chain: LedgerChain, count: usize) {
        self.problems.get_or_create(&labels(chain)).set(to_gauge(count));
    }

    pub fn set_unresolved(&self, count: usize) {
        self.unresolved.set(to_gauge(count));
    }

    pub fn observe_write(&self, duration: Duration) {
        self.write_duration.observe(duration.as_secs_f64());
    }

    pub fn count_failure(&self) {
        self.write_failures.inc();
    }

    pub fn set_totals(&self, totals: Vec<AuthorityTotals>) {
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner) = totals;
    }

    /// Removes all gauges: only the leader knows their values.
    pub fn reset(&self) {
        self.available.set(0);
        self.unresolved.set(0);
        for family in [&self.segments, &self.bytes, &self.unconfirmed, &self.problems] {
            family.clear();
        }
        self.set_totals(Vec::new());
    }
}

fn register_totals(registry: &MetricsRegistry, totals: &Arc<Mutex<Vec<AuthorityTotals>>>) {
    let register = |name, help, value: fn(&AuthorityTotals) -> Option<i64>| {
        let totals = totals.clone();
        registry.register_scraped_gauge(name, help, move || {
            let totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            let sample = |each: &AuthorityTotals| {
                let labels =
                    AuthorityLabels { signer: each.signer.clone(), authority: each.authority.to_string() };
                Some((labels, value(each)?))
            };
            totals.iter().filter_map(sample).collect()
        });
    };
    register("windlass_ledger_certificates_issued", "Issued certificates in the ledger", |each| {
        i64::try_from(each.issued).ok()
    });
    register("windlass_ledger_certificates_unexpired", "Certificates that have not expired", |each| {
        i64::try_from(each.unexpired).ok()
    });
    register(
        "windlass_ledger_certificates_outstanding",
        "Certificates that have neither expired nor been superseded or revoked",
        |each| i64::try_from(each.outstanding).ok(),
    );
    register(
        "windlass_ledger_certificates_revoked",
        "Certificates that are revoked and have not expired",
        |each| i64::try_from(each.revoked).ok(),
    );
    register(
        "windlass_ledger_certificates_expiring",
        "Outstanding certificates in the last tenth of their lifetime, without those of pods",
        |each| i64::try_from(each.expiring).ok(),
    );
    register(
        "windlass_ledger_earliest_expiration_timestamp_seconds",
        "First expiry among the outstanding certificates",
        |each| each.earliest_expiry,
    );
    register(
        "windlass_ledger_latest_expiration_timestamp_seconds",
        "Last expiry among the unexpired certificates",
        |each| each.latest_expiry,
    );
}

fn labels(chain: LedgerChain) -> ChainLabels {
    ChainLabels { chain: chain.name() }
}

fn to_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
