//! Projected volumes: what is to be in them, and how it gets there.

pub mod content;
pub mod definition;
pub mod path;
pub mod payload;
pub mod plan;
pub mod writer;
