//! trust-manager's Bundles, as far as they can be thought through without an API server: what a
//! Bundle gathers, what its targets should be, what is to be done about each, and what is said of it.
//!
//! ```text
//! sources ─ gather ─▶ pool ─ desire ─▶ one wanted target of each kind ─ decide ─▶ an action
//!                      │                                                 for each namespace
//!                      └── encode ─▶ the content, made once, when the first is written
//! ```
//!
//! - [`gather`]: which certificates the sources hold; [`pool`]: the set of them.
//! - [`package`]: the default certificates.
//! - [`reach`]: which namespaces.
//! - [`hash`], [`target`]: what targets are and whether one found is so; [`encode`], [`apply`]: what is
//!   written.
//! - [`status`]: conditions, and events.
//!
//! What others can see is as trust-manager does it: names, labels, the hash, field manager, owner,
//! order of certificates, reasons and messages.

pub mod apply;
pub mod encode;
pub mod gather;
pub mod hash;
pub mod package;
pub mod pool;
pub mod reach;
pub mod status;
pub mod target;

#[cfg(test)]
mod samples;
