//! Bundles, by `windlass up` and kubectl, as trust-manager's users have them.

mod anchors;
mod life_cycles;
mod packages;
mod docs_page;
mod validation;
mod bundle_fixture;
mod keystores;
mod trust_manager_migration;
mod error_reporting;
