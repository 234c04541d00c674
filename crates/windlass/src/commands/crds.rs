//! `windlass crds`: the kinds that Windlass has beyond Kubernetes, as custom resources for other
//! servers.

use anyhow::Result;

use super::print;
use crate::cli::{CrdsArgs, CustomResource};

/// What nodes report on trust.
const NODE_TRUST: &str = include_str!("../../../../deploy/nodetrust-crd.yaml");
/// Which certificates are gathered, and where they go.
const BUNDLE: &str = include_str!("../../../../deploy/bundle-crd.yaml");

pub fn run(arguments: &CrdsArgs) -> Result<()> {
    print::write_stdout(&text(&arguments.names))
}

fn text(names: &[CustomResource]) -> String {
    let all = [(CustomResource::NodeTrusts, NODE_TRUST), (CustomResource::Bundles, BUNDLE)];
    let wanted = all.into_iter().filter(|(crd, _)| names.is_empty() || names.contains(crd));
    wanted.map(|(_, text)| text).collect::<Vec<_>>().join("---\n")
}

#[cfg(test)]
mod bundle;
#[cfg(test)]
mod tests;
