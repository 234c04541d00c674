//! Projected volumes with a real agent and server: the files match the objects.

mod anchors;
mod attacks;
mod contents;
mod gates;
mod host_projections;
mod lifecycle;
mod metrics;
mod revocation_lists;
mod trust_reads;
pub mod volume_fixture;
