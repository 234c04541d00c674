//! Bundles with `windlass up` and kubectl, as trust-manager users know them.

mod anchors;
mod bundle_fixture;
mod docs_page;
mod error_reporting;
mod keystores;
mod life_cycles;
mod packages;
mod trust_manager_migration;
mod validation;
