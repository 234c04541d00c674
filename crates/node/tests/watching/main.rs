//! What a node sees of a real server in this process: its pods, bundles, those objects that its pods
//! name, and tokens.

#![allow(clippy::unwrap_used)]

mod credentials;
mod fixture;
mod sets;
