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
//! - `node_lifecycle`: sets the conditions of nodes that stopped reporting to Unknown.
//! - `unscheduled`: explains on pods that nobody schedules why they stay Pending.
//! - `garbage`: deletes what has lost its owners; `graph` knows who owns what, `decide` is pure.
//! - `approve`, `sign`, `clean`: what becomes of a request for a certificate; `requests` reads
//!   them, `waiting` holds those that wait, `notices` tells why.
//! - `signers`: those of the user's own, as their file describes them.
//! - `ca`: a signer's certificate and key, as their files change; `followed` hears of that.
//! - `publish`: tells the cluster what to verify the API server with.
//! - `bundles`: what trust-manager does.
//! - `election`: of several processes one works, and the others' writes are not sent.
//! - `options`: what the controllers are told; `served`: loops for kinds that not every server has.
//! - `catalog` knows which kinds the server has; `feed` watches one of them; `uid` and `namespaced` name one object.
//! - `metrics`: what Kubernetes' work queues report, as text.

mod aggregation;
mod api_catalog;
pub mod approver;
pub mod bundles;
pub mod ca;
pub mod cleaner;
mod csr;
pub mod csr_signer;
pub mod discovery;
pub mod election;
mod event_recorder;
mod failure_log;
mod file_watch;
mod garbage_collector;
mod limits;
mod metrics;
mod namespaced_name;
mod namespaces;
mod node_lifecycle;
mod options;
mod pending_requests;
pub mod publisher;
mod resource_watch;
mod service_accounts;
pub mod signers;
mod uid;
mod unscheduled_pods;
mod work_queue;
mod workers;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;

use api_catalog::ApiCatalog;
use publisher::anchors::RolloutTiming;
use signers::CustomSigner;
use signers::rollout::PublicationState;

pub use election::LeaderElection;
pub use metrics::metrics;
pub use node_lifecycle::NodeMonitor;
pub use options::{Clock, ControllerName, ControllerOptions, ControllerSelection};
pub use publisher::RootCa;

/// Runs the controllers until `shutdown` turns true or its sender is gone; then everything ends at
/// once. With an election they run whenever this process leads.
pub async fn run(client: Client, options: ControllerOptions, mut shutdown: watch::Receiver<bool>) {
    let options = Arc::new(options);
    match options.election.clone() {
        Some(election) => {
            let clock = options.clock.clone();
            let start = |client| run_controllers(client, options.clone());
            let connection = options.connection.clone();
            election::run(client, connection, election, clock, shutdown, start).await;
        }
        None => {
            tokio::select! {
                () = run_controllers(client, options) => {}
                _ = shutdown.wait_for(|down| *down) => {}
            }
        }
    }
}

/// Runs every loop that is wanted; does not end.
async fn run_controllers(client: Client, options: Arc<ControllerOptions>) {
    // Dropping the set ends the loops, and with them the tasks they started.
    let mut loops = JoinSet::new();
    if options.housekeeping {
        spawn_housekeeping(&mut loops, &client, &options.controllers);
        spawn_node_controllers(&mut loops, &client, &options);
    }
    spawn_root_ca_publishers(&mut loops, &client, &options);
    spawn_anchor_publisher(&mut loops, &client, &options);
    spawn_csr_controllers(&mut loops, &client, &options);
    spawn_pod_request_controllers(&mut loops, &client, &options);
    spawn_bundle_controller(&mut loops, &client, &options);
    while loops.join_next().await.is_some() {}
    std::future::pending().await
}

fn spawn_housekeeping(loops: &mut JoinSet<()>, client: &Client, selection: &ControllerSelection) {
    let catalog = Arc::new(ApiCatalog::new(client.clone()));
    let departures = Arc::new(namespaces::TerminatingNamespaces::new());
    loops.spawn(supervise("catalog", {
        let catalog = catalog.clone();
        move || api_catalog::run_refresh(catalog.clone())
    }));
    if selection.is_enabled(ControllerName::Accounts) {
        let client = client.clone();
        loops.spawn(supervise("serviceaccount", move || service_accounts::run(client.clone())));
    }
    if selection.is_enabled(ControllerName::Aggregation) {
        let client = client.clone();
        loops.spawn(supervise("clusterrole-aggregation", move || aggregation::run(client.clone())));
    }
    if selection.is_enabled(ControllerName::Namespaces) {
        let (client, catalog, departures) = (client.clone(), catalog.clone(), departures.clone());
        loops.spawn(supervise("namespace", move || {
            namespaces::run(client.clone(), catalog.clone(), departures.clone())
        }));
    }
    if selection.is_enabled(ControllerName::Garbage) {
        let client = client.clone();
        loops.spawn(supervise("garbage-collector", move || {
            garbage_collector::run(client.clone(), catalog.clone(), departures.clone())
        }));
    }
}

fn spawn_node_controllers(loops: &mut JoinSet<()>, client: &Client, options: &ControllerOptions) {
    if options.controllers.is_enabled(ControllerName::NodeLifecycle) {
        let (client, clock, monitor) =
            (client.clone(), options.clock.clone(), options.node_monitor);
        loops.spawn(supervise("node-lifecycle", move || {
            node_lifecycle::run(client.clone(), monitor, clock.clone())
        }));
    }
    if options.controllers.is_enabled(ControllerName::UnscheduledPods) {
        let (client, clock, after) =
            (client.clone(), options.clock.clone(), options.unscheduled_after);
        loops.spawn(supervise("unscheduled-pod", move || {
            unscheduled_pods::run(client.clone(), after, clock.clone())
        }));
    }
}

fn spawn_root_ca_publishers(loops: &mut JoinSet<()>, client: &Client, options: &ControllerOptions) {
    let Some(ca) = &options.root_ca else { return };
    loops.spawn(supervise("root-ca-file", {
        let ca = ca.clone();
        move || ca.clone().watch()
    }));
    if options.controllers.is_enabled(ControllerName::RootCa) {
        let (client, ca) = (client.clone(), ca.clone());
        loops.spawn(supervise("root-ca-cert-publisher", move || {
            publisher::root_ca::run(client.clone(), ca.clone())
        }));
    }
    if options.controllers.is_enabled(ControllerName::TrustBundle) {
        let (client, ca) = (client.clone(), ca.clone());
        let (overlap, clock) = (options.ca_overlap, options.clock.clone());
        let name = ControllerName::TrustBundle.name();
        loops.spawn(supervise(name, move || {
            let (to, ca, clock) = (client.clone(), ca.clone(), clock.clone());
            discovery::run_while_served(
                client.clone(),
                discovery::TRUST_BUNDLES,
                name,
                move |resource| {
                    let (ca, clock) = (ca.clone(), clock.clone());
                    publisher::trust_bundle::run(to.clone(), resource, ca, overlap, clock)
                },
            )
        }));
    }
}

fn spawn_anchor_publisher(loops: &mut JoinSet<()>, client: &Client, options: &ControllerOptions) {
    let mut signers: Vec<CustomSigner> = Vec::new();
    if options.controllers.is_enabled(ControllerName::CustomSigners) {
        let published = options.custom.iter().filter(|signer| signer.custom.publish.is_some());
        signers.extend(published.cloned());
    }
    if options.controllers.is_enabled(ControllerName::TrustBundle)
        && options.publish_kubelet_serving
    {
        signers.extend(csr_signer::kubelet_serving_anchors(&options.built_in));
    }
    if signers.is_empty() {
        return;
    }
    let (client, clock) = (client.clone(), options.clock.clone());
    let pace = RolloutTiming {
        overlap: options.ca_overlap,
        delivery_timeout: options.ca_delivery_timeout,
    };
    for signer in &signers {
        signer.rollout.require_publication(pace.delivery_timeout);
    }
    loops.spawn(supervise("signer-anchors", move || {
        let (to, signers, clock) = (client.clone(), signers.clone(), clock.clone());
        let (unserved, at) = (signers.clone(), clock.clone());
        let name = ControllerName::CustomSigners.name();
        let start = move |resource| {
            let (signers, clock) = (signers.clone(), clock.clone());
            publisher::anchors::run(to.clone(), resource, signers, pace, clock)
        };
        // Where no anchors can be published, nobody waits for them.
        let absent = move || {
            for signer in &unserved {
                signer.rollout.set_publication(PublicationState::None, at());
            }
        };
        discovery::run_while_served_or(
            client.clone(),
            discovery::TRUST_BUNDLES,
            name,
            start,
            absent,
        )
    }));
}

fn spawn_csr_controllers(loops: &mut JoinSet<()>, client: &Client, options: &ControllerOptions) {
    let ControllerOptions { clock, controllers, longest, .. } = options;
    let mut custom = Vec::new();
    if controllers.is_enabled(ControllerName::CustomSigners) {
        custom.clone_from(&options.custom);
    }
    let approving = controllers.is_enabled(ControllerName::Approve);
    let approvals = approver::ApprovalPolicy {
        kubelet_client: approving,
        kubelet_serving: approving && options.approve_kubelet_serving,
        reserved: approver::ReservedNames::new(options.api_server_names.iter().map(String::as_str)),
        custom: custom.iter().filter(|signer| signer.approves()).cloned().collect(),
    };
    if approving || !approvals.custom.is_empty() {
        let (client, clock) = (client.clone(), clock.clone());
        loops.spawn(supervise("csrapproving", move || {
            approver::run(client.clone(), approvals.clone(), clock.clone())
        }));
    }
    let mut built_in = Vec::new();
    if controllers.is_enabled(ControllerName::Sign) {
        csr_signer::log_missing_signers(&options.built_in);
        built_in.clone_from(&options.built_in);
    }
    for signer in &custom {
        ca::report(signer.custom.name.as_str(), &signer.ca);
    }
    let of_custom = custom.iter().map(|signer| signer.ca.clone());
    for ca in csr_signer::ca_sources(&built_in).into_iter().chain(of_custom) {
        loops.spawn(supervise("ca-files", move || ca.clone().watch()));
    }
    if !built_in.is_empty() || !custom.is_empty() {
        let (client, clock, longest) = (client.clone(), clock.clone(), *longest);
        loops.spawn(supervise("csrsigning", move || {
            csr_signer::run(
                client.clone(),
                built_in.clone(),
                longest,
                custom.clone(),
                clock.clone(),
            )
        }));
    }
    spawn_csr_cleaner(loops, client, options);
}

fn spawn_csr_cleaner(loops: &mut JoinSet<()>, client: &Client, options: &ControllerOptions) {
    let ControllerOptions { clock, controllers, .. } = options;
    if controllers.is_enabled(ControllerName::CleanRequests) {
        let (client, clock) = (client.clone(), clock.clone());
        loops.spawn(supervise("csrcleaner", move || {
            cleaner::run_csr_cleaner(client.clone(), clock.clone())
        }));
    }
}

fn spawn_pod_request_controllers(
    loops: &mut JoinSet<()>,
    client: &Client,
    options: &ControllerOptions,
) {
    let ControllerOptions { clock, controllers, custom, .. } = options;
    if controllers.is_enabled(ControllerName::CustomSigners)
        && custom.iter().any(|each| each.custom.pods.is_some())
    {
        let (client, clock, custom) = (client.clone(), clock.clone(), custom.clone());
        let name = "podcertificatesigning";
        loops.spawn(supervise(name, move || {
            let (to, clock, custom) = (client.clone(), clock.clone(), custom.clone());
            discovery::run_while_served(
                client.clone(),
                discovery::POD_REQUESTS,
                name,
                move |resource| {
                    signers::pods::run(to.clone(), resource, custom.clone(), clock.clone())
                },
            )
        }));
    }
    if controllers.is_enabled(ControllerName::CleanPodRequests) {
        let (client, clock, name) =
            (client.clone(), clock.clone(), ControllerName::CleanPodRequests.name());
        loops.spawn(supervise(name, move || {
            let (to, clock) = (client.clone(), clock.clone());
            discovery::run_while_served(
                client.clone(),
                discovery::POD_REQUESTS,
                name,
                move |resource| {
                    cleaner::run_pod_request_cleaner(to.clone(), resource, clock.clone())
                },
            )
        }));
    }
}

fn spawn_bundle_controller(loops: &mut JoinSet<()>, client: &Client, options: &ControllerOptions) {
    if !options.controllers.is_enabled(ControllerName::Bundles) {
        return;
    }
    if let Some(package) = options.bundles.package.clone() {
        loops.spawn(supervise("default-package", move || package.clone().watch()));
    }
    let (client, clock) = (client.clone(), options.clock.clone());
    let (settings, name) = (Arc::new(options.bundles.clone()), ControllerName::Bundles.name());
    loops.spawn(supervise(name, move || {
        let (to, clock, settings) = (client.clone(), clock.clone(), settings.clone());
        discovery::run_while_served(client.clone(), discovery::BUNDLES, name, move |resource| {
            bundles::run(to.clone(), resource, settings.clone(), clock.clone())
        })
    }));
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
        let error = ended.and_then(Result::err).map(|error| error.to_string());
        tracing::error!(controller = name, error, "controller ended; restarting");
        tokio::time::sleep(RESTART).await;
    }
}
