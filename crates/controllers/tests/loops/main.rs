//! The controllers against the real server, in one process: they have the API and nothing else.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod accounts;
mod aggregation;
mod fixture;
mod garbage;
mod namespaces;
mod publish;
