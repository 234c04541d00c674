//! The kinds that are served, one folder each.

pub mod kind;
