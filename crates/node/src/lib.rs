//! The node agent: obtains and keeps the certificates of a node, as kubelet does.
//!
//! - [`key_pair`]: a certificate, those that vouch for it, and its key.
//! - [`cert_store`]: the certificates and keys of one purpose on disk, in kubelet's layout.
//! - [`template`]: what a certificate is for, and what has to be in it.
//! - [`csr`]: asking the API for a certificate, and waiting for it.
//! - [`node_certificates`]: obtains one certificate and keeps it good.
//! - [`tls_resolver`]: shows in TLS handshakes whatever certificate is current.
//! - [`client`]: a client of the API that is the node.
//! - [`node_status`]: the Node object, its status and its heartbeat.
//! - [`volume`]: projected volumes: what is to be in them, and how it gets there.
//! - [`sources`]: what they are made of, as the server has it.
//! - [`volume_certificates`]: keys for them that are made here, and certificates for these.
//! - [`projections`]: volumes of the machine itself.
//! - [`volume_manager`]: keeps all volumes as they should be.
//! - [`trust`]: tells the server which trust anchors are in them.
//! - [`exposure`]: whether other users of the machine have access to all this.
//! - [`limits`]: how much of the machine others make it use.
//! - [`feature_gates`]: features that can be turned off.
//! - [`events`]: what happens, told on the Node.
//! - [`serving`]: the node's own server: health and metrics.
//! - [`metrics`], [`status_file`]: what is known, for programs and for people.
//! - [`agent`]: joins all of it.
//! - [`bootstrap`]: which credential to begin with, and the kubeconfig.
//! - [`clock`]: what time it is.
//!
//! What it must never do: hold the key of an authority, open the store, or speak to the server in
//! any way but the Kubernetes API. It makes its own private keys, and they never leave the machine.

pub mod agent;
pub mod bootstrap;
pub mod cert_store;
pub mod client;
mod client_switch;
pub mod clock;
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
