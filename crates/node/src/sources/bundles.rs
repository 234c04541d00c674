//! All ClusterTrustBundles, in whichever version the server has.

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

use super::discovery::{self, ApiAvailability, RecheckSignal, TRUST_BUNDLES};
use super::watch::{ResilientWatch, WatchFailure, WatchItem};
use crate::clock::{Clock, ClockReading};
use crate::feature_gates::FeatureGates;
use crate::volume::plan::OptionalApi;
use crate::volume::trust_anchors::TrustBundleIndex;

use cache::BundleCache;

/// What is known of bundles.
#[derive(Clone, Debug)]
pub struct BundleView {
    /// All ClusterTrustBundles, or why they are not available.
    pub bundles: OptionalApi<TrustBundleIndex>,
    /// When the last change of each came, of those that changed while they were watched. Those that
    /// were there at the beginning are not in it.
    pub arrivals: BTreeMap<String, BundleArrival>,
}

/// Times of the last observed change of a ClusterTrustBundle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BundleArrival {
    /// When this agent received the change, on both clocks.
    pub received: ClockReading,
    /// When it was made, as the newest entry of `metadata.managedFields` has it, to the second.
    pub written: Option<OffsetDateTime>,
}

/// What is known before anything is.
pub fn initial_view(gates: FeatureGates) -> Arc<BundleView> {
    let on = gates.cluster_trust_bundle_projection;
    let bundles = if on { OptionalApi::Unsynced } else { OptionalApi::Off };
    Arc::new(BundleView { bundles, arrivals: BTreeMap::new() })
}

/// Says which bundles there are, whenever that changes. Does not end.
pub async fn watch_bundles(client: Client, clock: Clock, out: watch::Sender<Arc<BundleView>>) {
    let (told, presence) = watch::channel(ApiAvailability::Unknown);
    let again = RecheckSignal::default();
    let looking = discovery::watch_availability(client.clone(), TRUST_BUNDLES, again.clone(), told);
    tokio::join!(looking, watch_availability(client, clock, presence, again, out));
}

async fn watch_availability(
    client: Client,
    clock: Clock,
    mut presence: watch::Receiver<ApiAvailability>,
    again: RecheckSignal,
    out: watch::Sender<Arc<BundleView>>,
) {
    let mut known = BundleCache::default();
    loop {
        let now = presence.borrow_and_update().clone();
        let following = async {
            match now {
                ApiAvailability::Unknown => std::future::pending().await,
                ApiAvailability::Missing => {
                    known.mark_missing();
                    out.send_replace(known.view());
                    std::future::pending().await
                }
                ApiAvailability::Served(resource) => {
                    watch_version(&client, &resource, &clock, &again, &mut known, &out).await;
                }
            }
        };
        tokio::select! {
            () = following => {}
            // Its sender goes on for as long as this does.
            _ = presence.changed() => {}
        }
    }
}

/// Does not end. What another version has shown before stays until this one has shown all.
async fn watch_version(
    client: &Client,
    resource: &ApiResource,
    clock: &Clock,
    again: &RecheckSignal,
    known: &mut BundleCache,
    out: &watch::Sender<Arc<BundleView>>,
) {
    let mut feed =
        ResilientWatch::new(Api::<DynamicObject>::all_with(client.clone(), resource), None);
    loop {
        let mut changed = false;
        feed.next_batch(|fed| match fed {
            WatchItem::Event(event) => changed |= known.apply(event, clock()),
            WatchItem::Trouble(WatchFailure::Unserved(why)) => {
                tracing::debug!(why, "the server has no ClusterTrustBundles any more");
                again.notify_one();
            }
            WatchItem::Trouble(WatchFailure::Refused(why)) => {
                tracing::warn!(why, "cannot watch ClusterTrustBundles; trying again");
                // A server that has turned them off may say so before it says that there are none.
                again.notify_one();
            }
            WatchItem::Trouble(WatchFailure::Broken(why)) => {
                tracing::debug!(why, "the watch of ClusterTrustBundles broke off");
            }
        })
        .await;
        if changed {
            out.send_replace(known.view());
        }
    }
}
