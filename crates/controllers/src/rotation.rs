//! Rotation of the CAs of custom signers, with proof that consumers have the trust anchors.
//!
//! - `policy`: what a CARotation asks for; `observation`: what is observed of its signer.
//! - `phase`: derives phase and next step from the two, a pure function; `consumers`: who has which bundle;
//!   `delivery_history`: who had it.
//! - `authorities`, `trust_bundle`, `reports`, `bundle_targets`: observe Secret slots and CA sources, bundles, NodeTrusts,
//!   and Bundles of trust-manager; `agent_nodes`: nodes that should report.
//! - `controller`: watches and the work queue; `reconcile`: one step, which `executor` takes; `status`: status of the object, pure.
//! - `trigger`: when a rotation is created without an operator; `revocation`: leaves of a compromised CA;
//!   `key_disposal`: keys that nobody needs.
//!
//! The phase is never stored as a decision: it is derived from Secrets, bundles, reports and the ledger each time. So a
//! crash, a second controller or an edit by hand cannot confuse a rotation.

mod agent_nodes;
mod authorities;
mod bundle_targets;
mod consumers;
mod controller;
mod delivery_history;
mod executor;
mod key_disposal;
mod metrics;
#[cfg(test)]
mod model;
mod observation;
mod phase;
mod policy;
mod reconcile;
mod reports;
mod revocation;
mod status;
mod trigger;
mod trust_bundle;

pub(crate) use controller::{RotationSettings, run};
pub(crate) use metrics::RotationMetrics;
