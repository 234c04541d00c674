//! Tells the cluster what to verify the API server with: as ConfigMaps for pods (`root_ca`) and as
//! a trust bundle (`trust_bundle`). And what to verify certificates of the user's own signers with
//! (`anchors`).
//!
//! - `source`: the CA file, followed as it changes, and what is made of it.
//! - `alarm`: when to look again.
//! - `contest`: notices that somebody else writes the same objects.
//! - `syncs`: what is counted.

pub mod anchors;
pub(crate) mod conflict_limiter;
pub(crate) mod delay_queue;
pub mod root_ca;
mod root_ca_source;
mod sync_metrics;
pub mod trust_bundle;

pub use root_ca_source::{PublishedCa, RootCa, RootCaBundle};
pub(crate) use sync_metrics::PublisherMetrics;
