//! The controllers against the real server, in one process: they have the API and nothing else.

mod accounts;
mod fixture;
mod garbage;
mod namespaces;
