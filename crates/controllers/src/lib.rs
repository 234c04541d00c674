//! Controllers: tasks that watch a Kubernetes API and reconcile it.
//!
//! They use the API only through a [`kube::Client`] and do not know which server answers. [`run`] starts them with
//! [`ControllerOptions`], whenever this process is the leader if there is an election.
//!
//! # How a change is reconciled
//!
//! All controllers have the same structure, from [`windlass_runtime`]: watches ([`watch`](windlass_runtime::watch)) add
//! keys to a [work queue](windlass_runtime::work_queue), [workers](windlass_runtime::workers) take them, and a `reconcile` function reads
//! the state, calls a pure function that decides (`decide`, `plan`, `evaluate`), and executes the decision. Failures are retried with backoff. The decisions
//! are in files of their own (`decision.rs`, `plan.rs`), so that tables of cases test them without a server.
//!
//! # How a certificate is issued
//!
//! 1. `csr` watches CertificateSigningRequests; `pending_requests` keeps those that wait for this process.
//! 2. [`approver`] checks who requests what, by SubjectAccessReviews for kubelets or by the approval rules of a custom signer, and writes `Approved`.
//! 3. [`csr_signer`] finds the signer, checks its policy, signs with the CA that [`signers::rollout`] selects, and writes
//!    the certificate in one update of the object that was checked: if that changed meanwhile, the server rejects the write.
//! 4. [`publisher::anchors`] publishes the trust anchors of the CA as a ClusterTrustBundle, and holds a new CA back until nodes have its anchor.
//! 5. [`cleaner`] deletes the request when its retention period has ended.
//!
//! [`signers::pods`] does the same as step 3 for PodCertificateRequests.
//!
//! # Modules
//!
//! | module | holds |
//! |---|---|
//! | [`approver`], [`csr_signer`], [`cleaner`] | the life of a CertificateSigningRequest |
//! | [`signers`] | custom signers: `signers.yaml`, profiles, PodCertificateRequests, CA rotation |
//! | [`ca`] | CA certificate and key in files, reloaded when they change; self-signed CAs |
//! | [`publisher`] | root CA of the API server as ConfigMaps and as a ClusterTrustBundle; trust anchors of signers |
//! | [`bundles`] | Bundles of trust-manager |
//! | `garbage_collector`, `namespaces`, `service_accounts`, `aggregation` | housekeeping that every cluster needs once |
//! | `node_lifecycle`, `unscheduled_pods` | health of nodes; pods that no scheduler binds |
//! | `election` | leader election through a Lease; a client that does not write after the lease was lost |
//! | `api_catalog` | resources that the server serves, by discovery |
//! | `csr`, `pending_requests` | requests that wait for an approver or a signer |
//! | `metrics`, `options`, `limits` | metric families, options, limits on attacker-controlled work |
//! | `uid`, `namespaced_name` | identities of objects |

mod aggregation;
mod api_catalog;
pub mod approver;
pub mod bundles;
pub mod ca;
pub mod cleaner;
mod csr;
pub mod csr_signer;
mod election;
mod garbage_collector;
mod limits;
mod metrics;
mod namespaced_name;
mod namespaces;
mod node_lifecycle;
mod options;
mod pending_requests;
pub mod publisher;
mod service_accounts;
pub mod signers;
mod uid;
mod unscheduled_pods;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_runtime::discovery::{
    CLUSTER_TRUST_BUNDLES, POD_CERTIFICATE_REQUESTS, TRUST_MANAGER_BUNDLES, run_while_served,
};

use api_catalog::ApiCatalog;
use metrics::{ACCOUNTS, AGGREGATION, GARBAGE, NAMESPACES, NODE_LIFECYCLE, UNSCHEDULED};
use publisher::anchors::RolloutTiming;
use signers::CustomSigner;
use signers::rollout::PublicationState;

pub use election::LeaderElection;
pub use metrics::MetricFamilies;
pub use node_lifecycle::NodeMonitor;
pub use options::{Clock, ControllerName, ControllerOptions, ControllerSelection};
pub use publisher::RootCa;

/// Runs the controllers until `shutdown` turns true or its sender is dropped; then all of them end at once. With an
/// election they run while this process is the leader.
pub async fn run(client: Client, options: ControllerOptions, mut shutdown: watch::Receiver<bool>) {
    let metrics = MetricFamilies::register(&options.metrics);
    let options = Arc::new(options);
    match options.election.clone() {
        Some(election) => {
            let (clock, lease) = (options.clock.clone(), metrics.elections.lease(&election.name));
            let start = |client| run_controllers(client, options.clone(), metrics.clone());
            let connection = options.connection.clone();
            election::run(client, connection, election, clock, lease, shutdown, start).await;
        }
        None => {
            tokio::select! {
                never = run_controllers(client, options, metrics) => match never {},
                _ = shutdown.wait_for(|down| *down) => {}
            }
        }
    }
}

/// Runs every controller that is enabled.
async fn run_controllers(
    client: Client,
    options: Arc<ControllerOptions>,
    metrics: Arc<MetricFamilies>,
) -> Infallible {
    let mut controllers = ControllerSet { tasks: JoinSet::new(), client, options, metrics };
    if controllers.options.housekeeping {
        controllers.spawn_housekeeping();
        controllers.spawn_node_controllers();
    }
    controllers.spawn_root_ca_publishers();
    controllers.spawn_anchor_publisher();
    controllers.spawn_csr_controllers();
    controllers.spawn_pod_request_controllers();
    controllers.spawn_bundle_controller();
    while controllers.tasks.join_next().await.is_some() {}
    std::future::pending().await
}

/// Running controllers, and what they are started with. Dropping the set ends the tasks, and with them the tasks
/// that they started.
struct ControllerSet {
    tasks: JoinSet<Infallible>,
    client: Client,
    options: Arc<ControllerOptions>,
    metrics: Arc<MetricFamilies>,
}

impl ControllerSet {
    /// Runs a controller and restarts it if it panics. `start` gets a client and the metrics.
    fn spawn<L>(
        &mut self,
        name: &'static str,
        start: impl Fn(Client, Arc<MetricFamilies>) -> L + Send + 'static,
    ) where
        L: Future<Output: Send + 'static> + Send + 'static,
    {
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        self.tasks.spawn(supervise(name, move || start(client.clone(), metrics.clone())));
    }

    fn is_enabled(&self, controller: ControllerName) -> bool {
        self.options.controllers.is_enabled(controller)
    }

    fn spawn_housekeeping(&mut self) {
        let failures = self.metrics.discovery_failures.clone();
        let catalog = Arc::new(ApiCatalog::new(self.client.clone(), failures));
        let queue = self.metrics.queue(NAMESPACES);
        let terminating = Arc::new(namespaces::TerminatingNamespaces::new(queue));
        self.spawn("catalog", {
            let catalog = catalog.clone();
            move |_, _| api_catalog::run_refresh(catalog.clone())
        });
        if self.is_enabled(ControllerName::Accounts) {
            self.spawn("serviceaccount", |client, metrics| {
                service_accounts::run(client, metrics.queue(ACCOUNTS))
            });
        }
        if self.is_enabled(ControllerName::Aggregation) {
            self.spawn("clusterrole-aggregation", |client, metrics| {
                aggregation::run(client, metrics.queue(AGGREGATION))
            });
        }
        if self.is_enabled(ControllerName::Namespaces) {
            let (catalog, terminating) = (catalog.clone(), terminating.clone());
            self.spawn("namespace", move |client, _| {
                namespaces::run(client, catalog.clone(), terminating.clone())
            });
        }
        if self.is_enabled(ControllerName::Garbage) {
            self.spawn("garbage-collector", move |client, metrics| {
                let (catalog, terminating) = (catalog.clone(), terminating.clone());
                garbage_collector::run(client, catalog, terminating, metrics.queue(GARBAGE))
            });
        }
    }

    fn spawn_node_controllers(&mut self) {
        let options = self.options.clone();
        if self.is_enabled(ControllerName::NodeLifecycle) {
            let (clock, monitor) = (options.clock.clone(), options.node_monitor);
            self.spawn("node-lifecycle", move |client, metrics| {
                node_lifecycle::run(client, monitor, clock.clone(), metrics.queue(NODE_LIFECYCLE))
            });
        }
        if self.is_enabled(ControllerName::UnscheduledPods) {
            let (clock, after) = (options.clock.clone(), options.unscheduled_after);
            self.spawn("unscheduled-pod", move |client, metrics| {
                unscheduled_pods::run(client, after, clock.clone(), metrics.queue(UNSCHEDULED))
            });
        }
    }

    fn spawn_root_ca_publishers(&mut self) {
        let options = self.options.clone();
        let Some(ca) = &options.root_ca else { return };
        self.spawn("root-ca-file", {
            let ca = ca.clone();
            move |_, _| ca.clone().watch()
        });
        if self.is_enabled(ControllerName::RootCa) {
            let (ca, clock) = (ca.clone(), options.clock.clone());
            self.spawn("root-ca-cert-publisher", move |client, metrics| {
                publisher::root_ca::run(client, ca.clone(), clock.clone(), metrics)
            });
        }
        if self.is_enabled(ControllerName::TrustBundle) {
            let (ca, clock, overlap) = (ca.clone(), options.clock.clone(), options.ca_overlap);
            let name = ControllerName::TrustBundle.name();
            self.spawn(name, move |client, metrics| {
                let (ca, clock, to) = (ca.clone(), clock.clone(), client.clone());
                let start = move |resource| {
                    let (to, ca, clock) = (to.clone(), ca.clone(), clock.clone());
                    publisher::trust_bundle::run(to, resource, ca, overlap, clock, metrics.clone())
                };
                run_while_served(client, CLUSTER_TRUST_BUNDLES, name, start, || {})
            });
        }
    }

    fn spawn_anchor_publisher(&mut self) {
        let options = self.options.clone();
        let mut signers: Vec<CustomSigner> = Vec::new();
        if self.is_enabled(ControllerName::CustomSigners) {
            let published = options.custom.iter().filter(|signer| signer.custom.publish.is_some());
            signers.extend(published.cloned());
        }
        if self.is_enabled(ControllerName::TrustBundle) && options.publish_kubelet_serving {
            signers.extend(csr_signer::kubelet_serving_anchors(&options.built_in));
        }
        if signers.is_empty() {
            return;
        }
        let (overlap, delivery_timeout) = (options.ca_overlap, options.ca_delivery_timeout);
        let timing = RolloutTiming { overlap, delivery_timeout };
        for CustomSigner { custom, rollout, .. } in &signers {
            rollout.require_publication(delivery_timeout);
            self.metrics.authorities.add_rollout(custom.name.as_str(), rollout);
        }
        let clock = options.clock.clone();
        self.spawn("signer-anchors", move |client, metrics| {
            let (to, unserved, at) = (client.clone(), signers.clone(), clock.clone());
            let (signers, clock) = (signers.clone(), clock.clone());
            let start = move |resource| {
                let (to, signers, clock) = (to.clone(), signers.clone(), clock.clone());
                publisher::anchors::run(to, resource, signers, timing, clock, metrics.clone())
            };
            // Where anchors cannot be published, no CA waits for that.
            let not_served = move || {
                for signer in &unserved {
                    signer.rollout.set_publication(PublicationState::None, at());
                }
            };
            let name = ControllerName::CustomSigners.name();
            run_while_served(client, CLUSTER_TRUST_BUNDLES, name, start, not_served)
        });
    }

    fn spawn_csr_controllers(&mut self) {
        let options = self.options.clone();
        let mut custom = Vec::new();
        if self.is_enabled(ControllerName::CustomSigners) {
            custom.clone_from(&options.custom);
        }
        self.spawn_approver(&custom);
        let mut built_in = Vec::new();
        if self.is_enabled(ControllerName::Sign) {
            csr_signer::log_missing_signers(&options.built_in);
            built_in.clone_from(&options.built_in);
        }
        for signer in &custom {
            self.metrics.authorities.add_source(signer.custom.name.as_str(), &signer.ca);
        }
        let custom_cas = custom.iter().map(|signer| signer.ca.clone());
        for ca in csr_signer::ca_sources(&built_in).into_iter().chain(custom_cas) {
            self.spawn("ca-files", move |_, _| ca.clone().watch());
        }
        if !built_in.is_empty() || !custom.is_empty() {
            let (clock, longest) = (options.clock.clone(), options.longest);
            self.spawn("csrsigning", move |client, metrics| {
                let (built_in, custom) = (built_in.clone(), custom.clone());
                csr_signer::run(client, built_in, longest, custom, clock.clone(), metrics)
            });
        }
        if self.is_enabled(ControllerName::CleanRequests) {
            let clock = options.clock.clone();
            self.spawn("csrcleaner", move |client, metrics| {
                cleaner::run_csr_cleaner(client, clock.clone(), metrics)
            });
        }
    }

    fn spawn_approver(&mut self, custom: &[CustomSigner]) {
        let options = self.options.clone();
        let approving = self.is_enabled(ControllerName::Approve);
        let names = options.api_server_names.iter().map(String::as_str);
        let policy = approver::ApprovalPolicy {
            kubelet_client: approving,
            kubelet_serving: approving && options.approve_kubelet_serving,
            reserved: approver::ReservedNames::new(names),
            custom: custom.iter().filter(|signer| signer.approves()).cloned().collect(),
        };
        if approving || !policy.custom.is_empty() {
            let clock = options.clock.clone();
            self.spawn("csrapproving", move |client, metrics| {
                approver::run(client, policy.clone(), clock.clone(), metrics)
            });
        }
    }

    fn spawn_pod_request_controllers(&mut self) {
        let options = self.options.clone();
        if self.is_enabled(ControllerName::CustomSigners)
            && options.custom.iter().any(|each| each.custom.pods.is_some())
        {
            let (clock, custom) = (options.clock.clone(), options.custom.clone());
            let name = "podcertificatesigning";
            self.spawn(name, move |client, metrics| {
                let (to, clock, custom) = (client.clone(), clock.clone(), custom.clone());
                let start = move |resource| {
                    let (to, custom, clock) = (to.clone(), custom.clone(), clock.clone());
                    signers::pods::run(to, resource, custom, clock, metrics.clone())
                };
                run_while_served(client, POD_CERTIFICATE_REQUESTS, name, start, || {})
            });
        }
        if self.is_enabled(ControllerName::CleanPodRequests) {
            let (clock, name) = (options.clock.clone(), ControllerName::CleanPodRequests.name());
            self.spawn(name, move |client, metrics| {
                let (to, clock) = (client.clone(), clock.clone());
                let start = move |resource| {
                    let (to, clock) = (to.clone(), clock.clone());
                    cleaner::run_pod_request_cleaner(to, resource, clock, metrics.clone())
                };
                run_while_served(client, POD_CERTIFICATE_REQUESTS, name, start, || {})
            });
        }
    }

    fn spawn_bundle_controller(&mut self) {
        let options = self.options.clone();
        if !self.is_enabled(ControllerName::Bundles) {
            return;
        }
        if let Some(package) = options.bundles.package.clone() {
            self.spawn("default-package", move |_, _| package.clone().watch());
        }
        let (clock, settings) = (options.clock.clone(), Arc::new(options.bundles.clone()));
        let name = ControllerName::Bundles.name();
        self.spawn(name, move |client, metrics| {
            let (to, clock, settings) = (client.clone(), clock.clone(), settings.clone());
            let start = move |resource| {
                let (to, settings, clock) = (to.clone(), settings.clone(), clock.clone());
                bundles::run(to, resource, settings, clock, metrics.clone())
            };
            run_while_served(client, TRUST_MANAGER_BUNDLES, name, start, || {})
        });
    }
}

/// Delay before a controller that panicked is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Restarts a controller when it ends, which happens only if it panics.
async fn supervise<F, L>(name: &'static str, start: F) -> Infallible
where
    F: Fn() -> L,
    L: Future<Output: Send + 'static> + Send + 'static,
{
    loop {
        let mut task = JoinSet::new();
        task.spawn(start());
        let ended = task.join_next().await;
        let error = ended.and_then(Result::err).map(|error| error.to_string());
        tracing::error!(controller = name, error, "controller panicked; restarting");
        tokio::time::sleep(RESTART_DELAY).await;
    }
}
