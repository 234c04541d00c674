//! `windlass crds`: the kinds of Windlass' own, as custom resources for other servers.

use anyhow::Result;

use super::print;

/// What nodes report on trust.
const NODE_TRUST: &str = include_str!("../../../../deploy/nodetrust-crd.yaml");

/// Prints them.
pub fn run() -> Result<()> {
    print::out(NODE_TRUST)
}

#[cfg(test)]
mod tests;
