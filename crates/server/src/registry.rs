//! The kinds that are served, one folder each.

pub mod cells;
pub mod configmaps;
pub mod csidrivers;
pub mod csinodes;
pub mod events;
pub mod kind;
pub mod leases;
pub mod namespaces;
pub mod parts;
pub mod persistentvolumeclaims;
pub mod persistentvolumes;
pub mod resourceslices;
pub mod runtimeclasses;
pub mod secrets;
pub mod serviceaccounts;
pub mod services;
