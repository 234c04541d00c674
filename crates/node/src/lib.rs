//! The node agent: obtains and renews the certificates of a node, and keeps the projected volumes of its pods and of the
//! host up to date, as kubelet does.
//!
//! Start an agent with [`run`]:
//!
//! ```no_run
//! # async fn start() -> Result<(), windlass_node::RunError> {
//! use windlass_node::AgentOptions;
//!
//! let options = AgentOptions {
//!     node_name: "node-1".into(),
//!     bootstrap_kubeconfig: Some("/etc/windlass/bootstrap.kubeconfig".into()),
//!     ..AgentOptions::new("/var/lib/windlass/kubeconfig".into(), "/var/lib/windlass/pki".into())
//! };
//! let (_stop, shutdown) = tokio::sync::watch::channel(false);
//! windlass_node::run(options, shutdown).await
//! # }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`agent`] | options, start and shutdown of an agent |
//! | [`bootstrap`], [`client`], `client_switch`, [`credential_monitor`] | the first credential and the kubeconfig; the API client with the current certificate, and whether the server accepts it |
//! | [`node_certificates`], [`cert_store`], [`key_pair`], [`template`], [`csr`] | client and serving certificate: renewal, files in kubelet's layout, what is requested, and the requests |
//! | `renewal` | renewal times and retries, shared with volume certificates |
//! | [`tls_resolver`], [`serving`] | TLS with the current certificate; the server for health and metrics |
//! | [`node_status`], [`events`] | the Node object with its heartbeat; events on it |
//! | [`volume`] | projected volumes: definition, plan and writer |
//! | [`sources`] | pods, ClusterTrustBundles, ConfigMaps, Secrets and tokens, as the server has them |
//! | [`volume_certificates`] | keys and certificates in volumes |
//! | [`volume_manager`] | keeps all volumes up to date |
//! | [`projections`] | volumes of the host, from a file, and notifications of applications |
//! | [`read_observer`] | whether applications opened trust-anchor files after their last change |
//! | [`trust`] | NodeTrust: which trust anchors the volumes hold |
//! | [`metrics`], [`status_file`] | the state of the agent, for Prometheus and for `windlass node status` |
//! | [`exposure`], [`limits`], [`feature_gates`], [`clock`] | access of other users, limits, feature gates, time |
//!
//! The agent never holds the key of an authority, never opens the store, and speaks to the server through the Kubernetes
//! API only. Private keys are created here and never leave the machine.

pub mod agent;
pub mod bootstrap;
pub mod cert_store;
pub mod client;
mod client_switch;
pub mod clock;
pub mod credential_monitor;
pub mod csr;
pub mod events;
pub mod exposure;
pub mod feature_gates;
pub mod key_pair;
pub mod limits;
pub mod metrics;
pub mod node_certificates;
pub mod node_status;
pub mod projections;
pub mod read_observer;
mod renewal;
pub mod serving;
pub mod sources;
pub mod status_file;
pub mod template;
pub mod tls_resolver;
pub mod trust;
pub mod volume;
pub mod volume_certificates;
pub mod volume_manager;

pub use agent::{AgentOptions, RunError, run};

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod testing;
