//! Tests of the controllers against the real server in one process; they use only the API.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod aggregation;
mod bundles;
mod certificates;
mod custom_signers;
mod fixture;
mod garbage_collector;
mod issuance;
mod kubelet;
mod ledger;
mod namespaces;
mod node_lifecycle;
mod pod_signer;
mod publisher;
mod revocation;
mod service_accounts;
mod unscheduled_pods;
