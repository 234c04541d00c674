//! The API server.

pub mod registry;
