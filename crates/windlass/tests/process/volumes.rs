//! Projected volumes, by a real agent on a real server: what is in the objects is in the files.

mod anchors;
mod attacks;
mod contents;
mod gates;
mod host_projections;
mod lifecycle;
mod metrics;
pub mod volume_fixture;
