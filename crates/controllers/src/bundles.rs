//! Bundles of trust-manager: a Bundle gathers certificates from sources and distributes them to targets in namespaces.
//!
//! ```text
//! sources ─ gather ─▶ certificate set ─▶ one desired target of each kind ─ plan ─▶ an operation
//!                      │                                                 for each namespace
//!                      └── encode ─▶ the content, encoded once, when the first target is written
//! ```
//!
//! Pure functions, without an API server:
//!
//! - [`sources`]: certificates in the sources; [`certificate_set`]: the set of them; [`package`]: the default CA package.
//! - [`namespace_filter`]: selected namespaces.
//! - [`target`], [`hash`]: desired targets and their comparison with existing ones; `plan`: operations on all targets.
//! - [`encoder`], [`apply_patch`]: what is written.
//! - [`status`]: conditions and events.
//!
//! Around them the controller:
//!
//! - `controller`: watches and workers; `access_check`: permissions to watch.
//! - `cache`, `target_index`: watched objects; `mapper`: Bundles that a change affects.
//! - `reconcile`: reconciliation of one Bundle; `target_writer`: writes to the API server.
//! - `settings`, `metrics`: settings and metrics.
//!
//! Everything that others can observe is as in trust-manager: names, labels, the hash, field manager, owner, order of
//! certificates, reasons and messages.

mod access_check;
pub mod apply_patch;
mod cache;
pub mod certificate_set;
mod controller;
pub mod encoder;
pub mod hash;
mod mapper;
mod metrics;
pub mod namespace_filter;
pub mod package;
mod plan;
mod reconcile;
mod settings;
pub mod sources;
pub mod status;
pub mod target;
mod target_index;
mod target_writer;

pub use controller::run;
pub(crate) use metrics::BundleMetrics;
pub use settings::{BundleSettings, PackageFile, TRUST_NAMESPACE};

#[cfg(test)]
mod fixtures;
