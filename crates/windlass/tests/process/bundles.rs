//! Bundles, by `windlass up` and kubectl, as trust-manager's users have them.

mod anchors;
mod life_cycles;
mod packages;
mod page;
mod rules;
mod scene;
mod stores;
mod switch;
mod troubles;
