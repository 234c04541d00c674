//! The kinds that are served, one folder each.

pub mod kind;
pub mod nodes;
pub mod pods;
