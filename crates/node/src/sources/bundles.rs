//! All ClusterTrustBundles, in whichever version the server has.

mod known;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client};
use time::OffsetDateTime;
use tokio::sync::watch;

use super::feed::{Fed, Feed, Trouble};
use super::served::{self, Again, Presence, TRUST_BUNDLES};
use crate::clock::{Clock, Moment};
use crate::gates::Gates;
use crate::volume::content::Bundles;
use crate::volume::plan::Served;

use known::Known;

/// What is known of bundles.
#[derive(Clone, Debug)]
pub struct View {
    /// The bundles.
    pub bundles: Served<Bundles>,
    /// When the last change of each came, of those that changed while they were watched. Those that
    /// were there at the beginning are not in it.
    pub arrivals: BTreeMap<String, Arrival>,
}

/// When a change came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// When it came here.
    pub came: Moment,
    /// When it was made, as the newest entry of `metadata.managedFields` has it, to the second.
    pub made: Option<OffsetDateTime>,
}

/// What is known before anything is.
pub fn unknown(gates: Gates) -> Arc<View> {
    let on = gates.cluster_trust_bundle_projection;
    let bundles = if on { Served::Unsynced } else { Served::Off };
    Arc::new(View { bundles, arrivals: BTreeMap::new() })
}

/// Says which bundles there are, whenever that changes. Does not end.
pub async fn follow(client: Client, clock: Clock, out: watch::Sender<Arc<View>>) {
    let (told, presence) = watch::channel(Presence::Unknown);
    let again = Again::default();
    let looking = served::follow(client.clone(), TRUST_BUNDLES, again.clone(), told);
    tokio::join!(looking, follow_present(client, clock, presence, again, out));
}

async fn follow_present(
    client: Client,
    clock: Clock,
    mut presence: watch::Receiver<Presence>,
    again: Again,
    out: watch::Sender<Arc<View>>,
) {
    let mut known = Known::default();
    loop {
        let now = presence.borrow_and_update().clone();
        let following = async {
            match now {
                Presence::Unknown => std::future::pending().await,
                Presence::Missing => {
                    known.vanish();
                    out.send_replace(known.view());
                    std::future::pending().await
                }
                Presence::Is(resource) => {
                    follow_version(&client, &resource, &clock, &again, &mut known, &out).await;
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
async fn follow_version(
    client: &Client,
    resource: &ApiResource,
    clock: &Clock,
    again: &Again,
    known: &mut Known,
    out: &watch::Sender<Arc<View>>,
) {
    let mut feed = Feed::new(Api::<DynamicObject>::all_with(client.clone(), resource), None);
    loop {
        let mut changed = false;
        feed.together(|fed| match fed {
            Fed::Event(event) => changed |= known.take(event, clock()),
            Fed::Trouble(Trouble::Unserved(why)) => {
                tracing::debug!(why, "the server has no ClusterTrustBundles any more");
                again.notify_one();
            }
            Fed::Trouble(Trouble::Refused(why)) => {
                tracing::warn!(why, "cannot watch ClusterTrustBundles; trying again");
                // A server that has turned them off may say so before it says that there are none.
                again.notify_one();
            }
            Fed::Trouble(Trouble::Broken(why)) => {
                tracing::debug!(why, "the watch of ClusterTrustBundles broke off");
            }
        })
        .await;
        if changed {
            out.send_replace(known.view());
        }
    }
}
