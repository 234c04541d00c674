//! Signers of the user's own, as `signers.yaml` describes them.
//!
//! - `config`: the file, as it is meant.

pub mod config;
