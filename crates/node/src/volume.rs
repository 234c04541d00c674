//! Projected volumes: what is to be in them, and how it gets there.

pub mod path;
pub mod payload;
pub mod writer;
