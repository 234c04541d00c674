//! Metrics of certificate revocation lists.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use time::OffsetDateTime;
use windlass_runtime::metrics::MetricsRegistry;

use crate::metrics::SignerLabels;

/// Labels of metrics that exist once per CA key of a signer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListLabels {
    signer: String,
    authority: String,
}

/// Metrics of all lists. Clones share them.
#[derive(Clone, Debug)]
pub struct CrlMetrics {
    next_update: Family<ListLabels, Gauge>,
    revoked: Family<ListLabels, Gauge>,
    omitted: Family<ListLabels, Gauge>,
    failures: Family<ListLabels, Counter>,
    conflicts: Family<SignerLabels, Gauge>,
}

impl CrlMetrics {
    pub(crate) fn register(registry: &MetricsRegistry) -> CrlMetrics {
        CrlMetrics {
            next_update: registry.register(
                "windlass_crl_next_update_timestamp_seconds",
                "Expiry of the published revocation list, in seconds since 1970",
                Family::default(),
            ),
            revoked: registry.register(
                "windlass_crl_revoked_certificates",
                "Certificates in the published revocation list",
                Family::default(),
            ),
            omitted: registry.register(
                "windlass_crl_omitted_certificates",
                "Revoked certificates for which the revocation list has no room",
                Family::default(),
            ),
            failures: registry.register(
                "windlass_crl_sign_failures",
                "Attempts to sign or publish a revocation list that failed",
                Family::default(),
            ),
            conflicts: registry.register(
                "windlass_crl_configmap_conflicts",
                "ConfigMaps that should contain the signer's revocation lists and have another owner",
                Family::default(),
            ),
        }
    }

    /// Sets what is published for an authority.
    pub fn set_list(&self, signer: &str, authority: &str, next_update: OffsetDateTime, revoked: usize) {
        let labels = labels(signer, authority);
        self.next_update.get_or_create(&labels).set(next_update.unix_timestamp());
        self.revoked.get_or_create(&labels).set(to_gauge(revoked));
        // The series exists before the first failure, so that rates are right.
        let _ = self.failures.get_or_create(&labels);
    }

    /// Sets the number of revoked certificates that are not in the list; returns whether it changed.
    pub fn set_omitted(&self, signer: &str, authority: &str, omitted: usize) -> bool {
        let omitted = to_gauge(omitted);
        self.omitted.get_or_create(&labels(signer, authority)).set(omitted) != omitted
    }

    pub fn count_failure(&self, signer: &str, authority: &str) {
        self.failures.get_or_create(&labels(signer, authority)).inc();
    }

    /// Sets the number of ConfigMaps of a signer that belong to others.
    pub fn set_conflicts(&self, signer: &str, conflicts: usize) {
        self.conflicts.get_or_create(&SignerLabels::new(signer)).set(to_gauge(conflicts));
    }

    /// Removes the values of an authority whose list this process does not sign any more.
    pub fn remove_authority(&self, signer: &str, authority: &str) {
        let labels = labels(signer, authority);
        for family in [&self.next_update, &self.revoked, &self.omitted] {
            family.remove(&labels);
        }
    }

    /// Removes all values, because this process does not lead any more.
    pub fn reset(&self) {
        for family in [&self.next_update, &self.revoked, &self.omitted] {
            family.clear();
        }
        self.conflicts.clear();
    }
}

fn labels(signer: &str, authority: &str) -> ListLabels {
    ListLabels { signer: signer.to_owned(), authority: authority.to_owned() }
}

fn to_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
