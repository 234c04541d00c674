//! Watch of all ClusterTrustBundles, in the API version that the server has.

mod cache;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::clock::{Clock, ClockReading};
use crate::feature_gates::FeatureGates;
use crate::volume::plan::OptionalApi;
use crate::volume::tainted_authority::TaintedAuthorities;
use crate::volume::trust_anchors::TrustBundleIndex;
use windlass_runtime::discovery::CLUSTER_TRUST_BUNDLES;

use super::optional_kind::{OptionalKindEvent, watch_optional_kind};
use cache::BundleCache;

/// Snapshot of the known ClusterTrustBundles.
#[derive(Clone, Debug)]
pub struct BundleView {
    /// All ClusterTrustBundles, or why they are not available.
    pub bundles: OptionalApi<TrustBundleIndex>,
    /// Last change of each bundle that changed while it was watched. Bundles of the first list are
    /// not included.
    pub arrivals: BTreeMap<String, BundleArrival>,
}

/// Times of the last observed change of a ClusterTrustBundle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BundleArrival {
    /// When this agent received the change, on both clocks.
    pub received: ClockReading,
    /// Time of the write, from the newest entry of `metadata.managedFields`, to the second.
    pub written: Option<OffsetDateTime>,
}

impl BundleView {
    /// Returns the tainted authorities of a signer, from all of its bundles; none while bundles are not known.
    pub fn taints(&self, signer: &str) -> TaintedAuthorities {
        match &self.bundles {
            OptionalApi::Synced(bundles) => bundles.taints(signer),
            OptionalApi::Off | OptionalApi::Missing | OptionalApi::Unsynced => TaintedAuthorities::default(),
        }
    }
}

/// Returns the view before the first list.
pub fn initial_view(gates: FeatureGates) -> Arc<BundleView> {
    let on = gates.cluster_trust_bundle_projection;
    let bundles = if on { OptionalApi::Unsynced } else { OptionalApi::Off };
    Arc::new(BundleView { bundles, arrivals: BTreeMap::new() })
}

/// Publishes the ClusterTrustBundles whenever they change. Never returns.
pub async fn watch_bundles(client: Client, clock: Clock, out: watch::Sender<Arc<BundleView>>) {
    let mut cache = BundleCache::default();
    let mut is_changed = false;
    let handle = |event: OptionalKindEvent| match event {
        OptionalKindEvent::NotServed => {
            cache.mark_missing();
            out.send_replace(cache.view());
        }
        OptionalKindEvent::Object(event) => is_changed |= cache.apply(event, clock()),
        OptionalKindEvent::BatchEnd => {
            if std::mem::take(&mut is_changed) {
                out.send_replace(cache.view());
            }
        }
    };
    watch_optional_kind(client, CLUSTER_TRUST_BUNDLES, handle).await;
}
