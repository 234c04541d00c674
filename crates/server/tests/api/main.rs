//! Tests of the server in process, through its request chain: no socket (except in `transport`),
//! everything else real.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod access;
mod advertise;
mod apply;
mod audit;
mod authentication;
mod bad_input;
mod body_mutations;
mod bundles;
mod certificates;
mod conformance;
mod create_rights;
mod crud;
mod cves;
mod delayed_events;
mod deletion;
mod etcd;
mod etcd_failures;
mod etcd_tls;
mod events;
mod failing_checks;
mod flow;
mod forgery;
mod impersonation;
mod list_formats;
mod lists;
mod long_lists;
mod matrix;
mod mutations;
mod nodes;
mod options;
mod patches;
mod path_confusion;
mod pods_accounts;
mod policy;
mod protobuf;
mod replicas;
mod replicas_access;
mod signers;
mod transport;
mod views;
mod watches;
