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
//! 3. [`csr_signer`] finds the signer, checks its policy, records the certificate in the [`ledger`], signs it with the CA that [`signers::rollout`] selects, and writes
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
//! | [`signers`] | custom signers: `signers.yaml` and Signer objects, profiles, PodCertificateRequests, CA rotation, limits |
//! | [`ca`] | CA certificate and key in files or Secrets, reloaded when they change; generated CAs |
//! | [`pkcs11`] | CA keys in PKCS#11 tokens |
//! | [`ledger`] | the ledger of issued certificates: recording before signing, confirmation, pruning |
//! | `revocation` | revocations in the ledger, certificate revocation lists |
//! | `rotation` | CARotations: new CAs sign when consumers have their anchors, old anchors go when no leaf needs them |
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
pub mod ledger;
mod limits;
mod metrics;
mod namespaced_name;
mod namespaces;
mod node_lifecycle;
mod options;
mod pending_requests;
pub mod pkcs11;
pub mod publisher;
mod revocation;
mod rotation;
mod service_accounts;
pub mod signers;
mod uid;
mod unscheduled_pods;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::core::ApiResource;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_runtime::discovery::{
    CA_ROTATIONS, CLUSTER_TRUST_BUNDLES, POD_CERTIFICATE_REQUESTS, SIGNERS, TRUST_MANAGER_BUNDLES,
    run_while_served,
};

use api_catalog::ApiCatalog;
use ledger::{Ledger, LedgerTask};
use metrics::{ACCOUNTS, AGGREGATION, GARBAGE, NAMESPACES, NODE_LIFECYCLE, UNSCHEDULED};
use publisher::anchors::RolloutTiming;
use revocation::{CERTIFICATE_REVOCATIONS, RevocationContext};
use signers::config::SignersConfig;
use signers::objects::SignerSources;
use signers::rollout::PublicationState;
use signers::{CustomSigner, SignerSet, SignersFile};

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
    let signers = open_signers(&options).await;
    match options.election.clone() {
        Some(election) => {
            let (clock, lease) = (options.clock.clone(), metrics.elections.lease(&election.name));
            let start = |client| run_controllers(client, options.clone(), metrics.clone(), signers.clone());
            let connection = options.connection.clone();
            election::run(client, connection, election, clock, lease, shutdown, start).await;
        }
        None => {
            tokio::select! {
                never = run_controllers(client, options, metrics, signers) => match never {},
                _ = shutdown.wait_for(|down| *down) => {}
            }
        }
    }
}

/// Opens the sources of custom signers, which outlive a time as leader.
async fn open_signers(options: &Arc<ControllerOptions>) -> Arc<SignerSources> {
    let enabled = options.controllers.is_enabled(ControllerName::CustomSigners);
    let settings = &options.signers;
    let custom = if enabled { options.custom.clone() } else { Vec::new() };
    let configs: Vec<_> = custom.iter().map(|signer| signer.custom.clone()).collect();
    let timeout = enabled.then_some(options.ca_delivery_timeout);
    let set = SignerSet::new(custom, settings, timeout, options.clock.clone());
    // Until it is known whether the server has CARotations.
    set.set_governed(enabled && options.controllers.is_enabled(ControllerName::CaRotation));
    if !enabled || settings.file.is_none() {
        return SignerSources::new(set, configs, None);
    }
    let settings = settings.clone();
    // The file was valid a moment ago; until it is again, its signers run without objects.
    let known = SignersConfig { signers: configs, specs: Vec::new() };
    let file = tokio::task::spawn_blocking(move || SignersFile::open(&settings, known)).await;
    let file = file.ok().flatten();
    file.iter().for_each(|file| file.register_metric(&options.metrics));
    SignerSources::new(set, Vec::new(), file)
}

/// Runs every controller that is enabled.
async fn run_controllers(
    client: Client,
    options: Arc<ControllerOptions>,
    metrics: Arc<MetricFamilies>,
    signers: Arc<SignerSources>,
) -> Infallible {
    let (ledger, task) = Ledger::new(client.clone(), options.clock.clone(), &metrics);
    let mut controllers = ControllerSet { tasks: JoinSet::new(), client, options, metrics, signers, ledger };
    controllers.spawn_ledger(task);
    if controllers.options.housekeeping {
        controllers.spawn_housekeeping();
        controllers.spawn_node_controllers();
    }
    controllers.spawn_root_ca_publishers();
    controllers.spawn_signer_sources();
    controllers.spawn_rotation_controller();
    controllers.spawn_anchor_publisher();
    controllers.spawn_csr_controllers();
    controllers.spawn_pod_request_controllers();
    controllers.spawn_bundle_controller();
    controllers.spawn_revocation_controller();
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
    signers: Arc<SignerSources>,
    ledger: Ledger,
}

impl ControllerSet {
    /// Writes the ledger if there is a signer.
    fn spawn_ledger(&mut self, task: Arc<LedgerTask>) {
        let built_in = self.is_enabled(ControllerName::Sign) && !self.options.built_in.is_empty();
        if built_in || self.is_enabled(ControllerName::CustomSigners) {
            self.spawn("ledger", move |_, _| task.clone().run());
        }
    }

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

    /// Follows the signers file and Signer objects, and keeps the CAs of custom signers current.
    fn spawn_signer_sources(&mut self) {
        if !self.is_enabled(ControllerName::CustomSigners) {
            return;
        }
        let set = self.signers.set.clone();
        self.spawn("signer-authorities", move |client, metrics| {
            signers::watch_authorities(client, set.subscribe(), metrics)
        });
        if let Some(file) = self.signers.file().cloned() {
            self.spawn("signers-file", move |_, _| file.clone().watch());
        }
        let sources = self.signers.clone();
        self.spawn("signer-sources", move |_, _| sources.clone().run());
        let (sources, clock) = (self.signers.clone(), self.options.clock.clone());
        self.spawn("signer-objects", move |client, metrics| {
            let (to, unserved) = (client.clone(), sources.clone());
            let (sources, clock) = (sources.clone(), clock.clone());
            let start = move |resource| {
                signers::objects::run(to.clone(), resource, sources.clone(), clock.clone(), metrics.clone())
            };
            let name = ControllerName::CustomSigners.name();
            run_while_served(client, SIGNERS, name, start, move || unserved.clear_objects())
        });
    }

    /// Rotates CAs where the server has CARotations. Elsewhere, and without the controller, times decide.
    fn spawn_rotation_controller(&mut self) {
        let set = self.signers.set.clone();
        if !self.is_enabled(ControllerName::CustomSigners) || !self.is_enabled(ControllerName::CaRotation) {
            return set.set_governed(false);
        }
        let (clock, ledger) = (self.options.clock.clone(), self.ledger.clone());
        let name = ControllerName::CaRotation.name();
        self.spawn(name, move |client, metrics| {
            let (to, unserved) = (client.clone(), set.clone());
            let (set, clock, ledger) = (set.clone(), clock.clone(), ledger.clone());
            let start = move |resource| {
                rotation::run(rotation::RotationSettings {
                    client: to.clone(),
                    resource,
                    set: set.clone(),
                    ledger: ledger.clone(),
                    clock: clock.clone(),
                    metrics: metrics.clone(),
                })
            };
            run_while_served(client, CA_ROTATIONS, name, start, move || unserved.set_governed(false))
        });
    }

    fn spawn_anchor_publisher(&mut self) {
        let options = self.options.clone();
        let mut fixed: Vec<CustomSigner> = Vec::new();
        if self.is_enabled(ControllerName::TrustBundle) && options.publish_kubelet_serving {
            fixed.extend(csr_signer::kubelet_serving_anchors(&options.built_in));
        }
        if fixed.is_empty() && !self.is_enabled(ControllerName::CustomSigners) {
            return;
        }
        let (overlap, delivery_timeout) = (options.ca_overlap, options.ca_delivery_timeout);
        let timing = RolloutTiming { overlap, delivery_timeout };
        for CustomSigner { custom, rollout, .. } in &fixed {
            rollout.require_publication(delivery_timeout);
            self.metrics.authorities.add_rollout(custom.name.as_str(), rollout);
        }
        let (clock, set) = (options.clock.clone(), self.signers.set.clone());
        self.spawn("signer-anchors", move |client, metrics| {
            let (to, unserved, at) = (client.clone(), (fixed.clone(), set.clone()), clock.clone());
            let (fixed, set, clock) = (fixed.clone(), set.clone(), clock.clone());
            let start = move |resource: ApiResource| {
                set.set_publishable(true);
                let (to, fixed, clock) = (to.clone(), fixed.clone(), clock.clone());
                let metrics = metrics.clone();
                signers::restart_on_change(set.subscribe(), move |list| {
                    let custom = list.iter().filter(|signer| signer.custom.publish.is_some());
                    let signers = fixed.iter().chain(custom).cloned().collect();
                    let (to, resource, clock) = (to.clone(), resource.clone(), clock.clone());
                    publisher::anchors::run(to, resource, signers, timing, clock, metrics.clone())
                })
            };
            // Where anchors cannot be published, no CA waits for that.
            let not_served = move || {
                let (fixed, set) = &unserved;
                set.set_publishable(false);
                for signer in fixed {
                    signer.rollout.set_publication(PublicationState::None, at());
                }
            };
            let name = ControllerName::CustomSigners.name();
            run_while_served(client, CLUSTER_TRUST_BUNDLES, name, start, not_served)
        });
    }

    fn spawn_csr_controllers(&mut self) {
        let options = self.options.clone();
        self.spawn_approver();
        let mut built_in = Vec::new();
        if self.is_enabled(ControllerName::Sign) {
            csr_signer::log_missing_signers(&options.built_in);
            built_in.clone_from(&options.built_in);
        }
        for ca in csr_signer::ca_sources(&built_in) {
            self.spawn("ca-files", move |_, _| ca.clone().watch());
        }
        if !built_in.is_empty() || self.is_enabled(ControllerName::CustomSigners) {
            let (clock, max_duration) = (options.clock.clone(), options.cluster_signing_duration);
            let (set, ledger) = (self.signers.set.clone(), self.ledger.clone());
            self.spawn("csrsigning", move |client, metrics| {
                let (built_in, custom, ledger) = (built_in.clone(), set.subscribe(), ledger.clone());
                csr_signer::run_set(client, built_in, max_duration, custom, ledger, clock.clone(), metrics)
            });
        }
        if self.is_enabled(ControllerName::CleanRequests) {
            let clock = options.clock.clone();
            self.spawn("csrcleaner", move |client, metrics| {
                cleaner::run_csr_cleaner(client, clock.clone(), metrics)
            });
        }
    }

    fn spawn_approver(&mut self) {
        let options = self.options.clone();
        let approving = self.is_enabled(ControllerName::Approve);
        if !approving && !self.is_enabled(ControllerName::CustomSigners) {
            return;
        }
        let (clock, set) = (options.clock.clone(), self.signers.set.clone());
        self.spawn("csrapproving", move |client, metrics| {
            let (options, clock) = (options.clone(), clock.clone());
            signers::restart_on_change(set.subscribe(), move |list| {
                let names = options.api_server_names.iter().map(String::as_str);
                let policy = approver::ApprovalPolicy {
                    kubelet_client: approving,
                    kubelet_serving: approving && options.approve_kubelet_serving,
                    reserved: approver::ReservedNames::new(names),
                    custom: list.iter().filter(|signer| signer.approves()).cloned().collect(),
                };
                approver::run(client.clone(), policy, clock.clone(), metrics.clone())
            })
        });
    }

    fn spawn_pod_request_controllers(&mut self) {
        let options = self.options.clone();
        if self.is_enabled(ControllerName::CustomSigners) {
            let (clock, set) = (options.clock.clone(), self.signers.set.clone());
            let (name, ledger) = ("podcertificatesigning", self.ledger.clone());
            self.spawn(name, move |client, metrics| {
                let (to, clock, set) = (client.clone(), clock.clone(), set.clone());
                let ledger = ledger.clone();
                let start = move |resource| {
                    let (to, custom, clock) = (to.clone(), set.subscribe(), clock.clone());
                    signers::pods::run_set(to, resource, custom, ledger.clone(), clock, metrics.clone())
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

    /// Records revocations and signs lists if there is a signer.
    fn spawn_revocation_controller(&mut self) {
        let signs = self.is_enabled(ControllerName::Sign);
        let built_in = if signs { self.options.built_in.clone() } else { Vec::new() };
        let has_signers = !built_in.is_empty() || self.is_enabled(ControllerName::CustomSigners);
        if !self.is_enabled(ControllerName::Revocations) || !has_signers {
            return;
        }
        let (custom, ledger) = (self.signers.set.clone(), self.ledger.clone());
        let (clock, metrics) = (self.options.clock.clone(), self.metrics.clone());
        let context = RevocationContext { built_in, custom, ledger, clock, metrics };
        let name = ControllerName::Revocations.name();
        self.spawn(name, move |client, _| {
            let (to, context) = (client.clone(), context.clone());
            let start = move |resource| revocation::run(to.clone(), resource, context.clone());
            run_while_served(client, CERTIFICATE_REVOCATIONS, name, start, || {})
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
