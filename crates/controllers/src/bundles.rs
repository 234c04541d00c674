//! trust-manager's Bundles: what a Bundle gathers, what its targets should be, what is to be done about
//! each, and what is said of it.
//!
//! ```text
//! sources ─ gather ─▶ pool ─ desire ─▶ one wanted target of each kind ─ decide ─▶ an action
//!                      │                                                 for each namespace
//!                      └── encode ─▶ the content, made once, when the first is written
//! ```
//!
//! - [`gather`]: which certificates the sources hold; [`pool`]: the set of them.
//! - [`package`]: the default certificates.
//! - [`reach`]: which namespaces.
//! - [`hash`], [`target`]: what targets are and whether one found is so; [`encode`], [`apply`]: what is
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

pub mod apply;
pub mod encode;
pub mod gather;
mod gauges;
pub mod hash;
mod interest;
mod listing;
pub mod package;
mod pass;
mod plan;
pub mod pool;
pub mod reach;
mod rights;
mod run;
mod seen;
mod settings;
pub mod status;
pub mod target;
mod targets;
mod write;

pub use gauges::metrics;
pub use run::run;
pub use settings::{PackageFile, Settings, TRUST_NAMESPACE};

#[cfg(test)]
mod samples;
