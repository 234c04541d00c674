//! trust-manager's Bundles: what a Bundle gathers, what its targets should be, what is to be done about
//! each, and what is said of it.
//!
//! ```text
//! sources ─ gather ─▶ pool ─ desire ─▶ one wanted target of each kind ─ decide ─▶ an action
//!                      │                                                 for each namespace
//!                      └── encode ─▶ the content, made once, when the first is written
//! ```
//!
//! - [`sources`]: which certificates the sources hold; [`certificates`]: the set of them.
//! - [`package`]: the default certificates.
//! - [`namespace_filter`]: which namespaces.
//! - [`hash`], [`target`]: what targets are and whether one found is so; [`encoder`], [`apply_patch`]: what is
//!   written.
//! - [`status`]: conditions, and events.
//!
//! All of that is thought through without an API server. Around it is the loop:
//!
//! - `run`: watches, and workers; `seen`, `targets`, `listing`: what the watches have brought;
//!   `interest`: whom a change concerns; `rights`: what may be watched.
//! - `pass`: brings one Bundle in order; `plan`: what is to be done about all its targets; `write`: does it.
//! - `settings`: what it is told; `gauges`: what it tells Prometheus.
//!
//! What others can see is as trust-manager does it: names, labels, the hash, field manager, owner,
//! order of certificates, reasons and messages.

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
