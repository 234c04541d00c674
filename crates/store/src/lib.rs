//! Durable, revisioned bytes: commit, range, watch, compact.
//!
//! A store is one sequence of changes to a map from keys to values. Every change gets the next
//! revision of a store-wide counter. The store never looks into a value and knows no kind.
//!
//! What it promises, on every engine:
//!
//! - A commit that was acknowledged survives `kill -9` and power loss on a disk that honours fsync.
//! - Revisions only grow, and none is used twice, also across restarts.
//! - The [`Feed`] delivers every change after its start once, in order, or ends with
//!   [`Error::Compacted`]; never a silent gap.
//! - A commit is acknowledged after the feed's sink has seen it, so who reads what the sink keeps
//!   reads their own writes.
