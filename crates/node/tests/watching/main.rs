//! What a node watches on a real server in this process: its pods, bundles, the objects that its
//! pods reference, and tokens.

#![allow(clippy::unwrap_used)]

mod credentials;
mod fixture;
mod sets;
