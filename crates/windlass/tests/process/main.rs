//! Tests of the built binary as a process, with real clients over real sockets.
//!
//! `cargo xtask test` installs the clients and sets `WINDLASS_KUBECTL`, `WINDLASS_PYTHON` and
//! `WINDLASS_STRACE`; without these variables, the programs are looked up in `PATH`. A missing
//! program fails its tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, fixtures included")]

mod access;
mod alerts;
mod audit;
mod bad_input;
mod bundle_command;
mod bundles;
mod ca_replacement;
mod ca_sources;
mod canary;
mod cert_command;
mod certificates;
mod command_line;
mod controller_rbac;
mod controllers;
mod crash_recovery;
mod csr_command;
mod custom_signers;
mod cves;
mod descriptors;
mod election;
mod examples;
mod faults;
mod issue;
mod kube;
mod kubectl;
mod leader_failover;
mod ledger;
mod lifecycle;
mod node;
mod node_faults;
mod overload;
mod pod_certificates;
mod python;
mod reload;
mod replicas;
mod request_backlog;
mod revocation;
mod rotate_command;
mod rotation;
mod server;
mod signer_command;
mod signing;
mod store_migration;
mod token_command;
mod traffic;
mod trust_command;
mod trust_docs;
mod unread_responses;
mod unscheduled_pods;
mod upgrade;
mod volumes;
