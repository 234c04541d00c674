//! Tells the cluster what to verify the API server with: as ConfigMaps for pods (`root_ca`) and as
//! a trust bundle (`trust_bundle`).
//!
//! - `source`: the CA file, followed as it changes, and what is made of it.
//! - `contest`: notices that somebody else writes the same objects.
//! - `syncs`: what is counted.

mod contest;
pub mod root_ca;
mod source;
mod syncs;
pub mod trust_bundle;

pub use source::{Bundle, Published, RootCa};
pub use syncs::metrics;
