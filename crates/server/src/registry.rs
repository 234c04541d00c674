//! The kinds that are served, one folder each.

pub mod cells;
pub mod configmaps;
pub mod events;
pub mod kind;
pub mod leases;
pub mod namespaces;
pub mod parts;
pub mod secrets;
pub mod serviceaccounts;
