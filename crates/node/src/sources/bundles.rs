//! Watch of all ClusterTrustBundles, in the API version that the server has.

mod cache;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client};
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::clock::{Clock, ClockReading};
use crate::feature_gates::FeatureGates;
use crate::volume::plan::OptionalApi;
use crate::volume::tainted_authority::TaintedAuthorities;
use crate::volume::trust_anchors::TrustBundleIndex;
use windlass_runtime::discovery::{
    AGENT_PACING, CLUSTER_TRUST_BUNDLES, KindPresence, RecheckSignal, watch_presence,
};
use windlass_runtime::watch::{ObjectWatch, WatchErrorKind};

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
    let (found, presence) = watch::channel(KindPresence::Unknown);
    let recheck = RecheckSignal::default();
    let kind = CLUSTER_TRUST_BUNDLES;
    let discovery = watch_presence(client.clone(), kind, AGENT_PACING, recheck.clone(), found);
    tokio::join!(discovery, watch_while_served(client, clock, presence, recheck, out));
}

async fn watch_while_served(
    client: Client,
    clock: Clock,
    mut presence: watch::Receiver<KindPresence>,
    recheck: RecheckSignal,
    out: watch::Sender<Arc<BundleView>>,
) {
    let mut cache = BundleCache::default();
    loop {
        let now = presence.borrow_and_update().clone();
        let watching = async {
            match now {
                KindPresence::Unknown => std::future::pending().await,
                KindPresence::NotServed => {
                    cache.mark_missing();
                    out.send_replace(cache.view());
                    std::future::pending().await
                }
                KindPresence::Served(resource) => {
                    watch_version(&client, &resource, &clock, &recheck, &mut cache, &out).await;
                }
            }
        };
        tokio::select! {
            () = watching => {}
            // The sender outlives this future.
            _ = presence.changed() => {}
        }
    }
}

/// Watches one API version. Never returns. Bundles of another version stay until the first list of
/// this one is complete.
async fn watch_version(
    client: &Client,
    resource: &ApiResource,
    clock: &Clock,
    recheck: &RecheckSignal,
    cache: &mut BundleCache,
    out: &watch::Sender<Arc<BundleView>>,
) {
    let api = Api::<DynamicObject>::all_with(client.clone(), resource);
    let mut events = ObjectWatch::with_fields(api, None);
    loop {
        let mut changed = false;
        events
            .next_batch(|event| match event {
                Ok(event) => changed |= cache.apply(event, clock()),
                Err(error) => {
                    match error.kind {
                        WatchErrorKind::Refused => {
                            tracing::warn!(%error, "cannot watch ClusterTrustBundles; retrying with backoff");
                        }
                        WatchErrorKind::NotServed | WatchErrorKind::Broken => {
                            tracing::debug!(%error, "watch of ClusterTrustBundles ended; resuming");
                        }
                    }
                    // A server that has turned the kind off may respond 403 before it responds 404.
                    if error.kind != WatchErrorKind::Broken {
                        recheck.notify_one();
                    }
                }
            })
            .await;
        if changed {
            out.send_replace(cache.view());
        }
    }
}
