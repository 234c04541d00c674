//! The server in process, through its request chain: no socket, everything else real.

// A test that cannot go on fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod apply;
mod bad_input;
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
