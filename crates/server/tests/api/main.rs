//! The server in process, through its request chain: no socket, everything else real.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod apply;
mod bad_input;
mod certificates;
mod conformance;
mod crud;
mod deletion;
mod events;
mod fixture;
mod lists;
mod mutations;
mod options;
mod patches;
mod protobuf;
mod views;
mod watches;
