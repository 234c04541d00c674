//! The API server.

pub mod discovery;
pub mod openapi;
pub mod registry;
