//! `windlass crds`: the kinds that Windlass has beyond Kubernetes, as custom resources for other
//! servers.

use anyhow::Result;

use super::print;

/// What nodes report on trust.
const NODE_TRUST: &str = include_str!("../../../../deploy/nodetrust-crd.yaml");
/// Which certificates are gathered, and where they go.
const BUNDLE: &str = include_str!("../../../../deploy/bundle-crd.yaml");

/// Prints them.
pub fn run() -> Result<()> {
    print::out(&format!("{NODE_TRUST}---\n{BUNDLE}"))
}

#[cfg(test)]
mod bundle;
#[cfg(test)]
mod tests;
