//! Publishers of trust anchors: the CA of the API server as ConfigMaps (`root_ca`) and as a ClusterTrustBundle
//! (`trust_bundle`), and the CAs of signers as ClusterTrustBundles (`anchors`).
//!
//! - `root_ca_source`: the CA file of the API server, reloaded when it changes.
//! - `delay_queue`: keys that are reconciled again at a given time.
//! - `conflict_limiter`: limits writes of objects that another manager keeps changing.
//! - `sync_metrics`: counters and durations of syncs.

pub mod anchors;
pub(crate) mod conflict_limiter;
pub(crate) mod delay_queue;
pub mod root_ca;
mod root_ca_source;
mod sync_metrics;
pub mod trust_bundle;

pub use root_ca_source::{PublishedCa, RootCa, RootCaBundle};
pub(crate) use sync_metrics::PublisherMetrics;
