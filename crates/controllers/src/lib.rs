//! The controllers: loops that watch a Kubernetes API and bring what they see in order.
//!
//! They speak to the API only through a [`kube::Client`] and do not know which server answers it.
//! Every loop has the same shape: watches put keys into a `queue`, a `pool` takes them
//! out, and for each a short `reconcile` reads the world, asks a pure function what to do and
//! does it.
//!
//! - `accounts`: a `default` service account in every namespace.
//! - `aggregation`: the rules of cluster roles that are put together from others.
//! - `namespaces`: empties a namespace that is being deleted, then lets it go.
//! - `garbage`: deletes what has lost its owners; `graph` knows who owns what, `decide` is pure.
//! - `approve`, `sign`, `clean`: what becomes of a request for a certificate; `requests` holds those
//!   that wait, `notices` tells why.
//! - `ca`: a signer's certificate and key, as their files change.
//! - `catalog` knows which kinds the server has; `feed` watches one of them; `uid` names one object.
//! - `metrics`: what Kubernetes' work queues report, as text.

mod accounts;
mod aggregation;
pub mod approve;
pub mod ca;
mod catalog;
pub mod clean;
mod feed;
mod garbage;
mod metrics;
mod namespaces;
mod notices;
mod pool;
mod queue;
mod requests;
pub mod sign;
mod uid;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;

use catalog::Catalog;

pub use ca::Clock;
pub use metrics::metrics;

/// Runs every controller until `shutdown` turns true or its sender is gone; then everything ends
/// at once.
pub async fn run(client: Client, mut shutdown: watch::Receiver<bool>) {
    let catalog = Arc::new(Catalog::new(client.clone()));
    let departures = Arc::new(namespaces::Departures::new());
    // Dropping the set ends the loops, and with them the tasks they started.
    let mut loops = JoinSet::new();
    loops.spawn(supervise("catalog", {
        let catalog = catalog.clone();
        move || catalog::keep_current(catalog.clone())
    }));
    loops.spawn(supervise("serviceaccount", {
        let client = client.clone();
        move || accounts::run(client.clone())
    }));
    loops.spawn(supervise("clusterrole-aggregation", {
        let client = client.clone();
        move || aggregation::run(client.clone())
    }));
    loops.spawn(supervise("namespace", {
        let (client, catalog, departures) = (client.clone(), catalog.clone(), departures.clone());
        move || namespaces::run(client.clone(), catalog.clone(), departures.clone())
    }));
    loops.spawn(supervise("garbage-collector", move || {
        garbage::run(client.clone(), catalog.clone(), departures.clone())
    }));
    let _ = shutdown.wait_for(|down| *down).await;
}

/// How long a loop that broke down rests before it starts anew.
const RESTART: Duration = Duration::from_secs(1);

/// Starts a loop again when it ends, which only a panic in it brings about.
async fn supervise<F, L>(name: &'static str, start: F)
where
    F: Fn() -> L,
    L: Future<Output = ()> + Send + 'static,
{
    loop {
        let mut task = JoinSet::new();
        task.spawn(start());
        let ended = task.join_next().await;
        tracing::error!(controller = name, ?ended, "a controller broke down; starting it anew");
        tokio::time::sleep(RESTART).await;
    }
}
