//! Expiry and health of signing CAs as metrics, read when they are scraped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use windlass_runtime::metrics::MetricsRegistry;

use super::CaSource;
use crate::metrics::SignerLabels;
use crate::signers::rollout::CaRollout;

/// CAs by the signers that sign with them. A CA that was dropped is not exposed.
#[derive(Debug)]
pub struct CaMetrics {
    sources: WeakMap<CaSource>,
    rollouts: WeakMap<CaRollout>,
}

type WeakMap<T> = Arc<Mutex<BTreeMap<String, Weak<T>>>>;

impl CaMetrics {
    pub(crate) fn register(registry: &MetricsRegistry) -> CaMetrics {
        let metrics = CaMetrics { sources: WeakMap::default(), rollouts: WeakMap::default() };
        let sources = metrics.sources.clone();
        registry.register_scraped_gauge(
            "windlass_signer_ca_expiration_seconds",
            "Time until the signer's CA expires; negative after that",
            move || sample(&sources, CaSource::seconds_until_expiry),
        );
        let sources = metrics.sources.clone();
        registry.register_scraped_gauge(
            "windlass_signer_ca_lifetime_seconds",
            "Time from the beginning of the validity of the signer's CA to its end",
            move || sample(&sources, CaSource::lifetime_seconds),
        );
        let sources = metrics.sources.clone();
        registry.register_scraped_gauge(
            "windlass_signer_ca_degraded",
            "Whether the files of the signer's CA are rejected or its CA has expired",
            move || sample(&sources, |source| Some(i64::from(source.error().is_some()))),
        );
        let rollouts = metrics.rollouts.clone();
        registry.register_scraped_gauge(
            "windlass_signer_ca_pending",
            "Whether the signer's newest CA waits until its trust anchor is published and delivered",
            move || sample(&rollouts, |rollout| Some(i64::from(rollout.is_held()))),
        );
        metrics
    }

    /// Exposes the CA that a signer signs with.
    pub fn add_source(&self, signer: &str, source: &Arc<CaSource>) {
        insert(&self.sources, signer, source);
    }

    /// Exposes whether the newest CA of a signer waits for its trust anchor.
    pub fn add_rollout(&self, signer: &str, rollout: &Arc<CaRollout>) {
        insert(&self.rollouts, signer, rollout);
    }
}

fn insert<T>(map: &WeakMap<T>, signer: &str, value: &Arc<T>) {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    map.insert(signer.to_owned(), Arc::downgrade(value));
}

fn sample<T>(map: &WeakMap<T>, value: impl Fn(&T) -> Option<i64>) -> Vec<(SignerLabels, i64)> {
    let map = map.lock().unwrap_or_else(PoisonError::into_inner);
    let sample =
        |(signer, each): (&String, &Weak<T>)| Some((SignerLabels::new(signer), value(&*each.upgrade()?)?));
    map.iter().filter_map(sample).collect()
}
