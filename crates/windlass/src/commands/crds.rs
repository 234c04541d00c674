//! `windlass crds`: prints the kinds that Windlass adds to Kubernetes, as CustomResourceDefinitions
//! for other API servers.

use anyhow::Result;
use windlass_api::{node_trust, trust_bundle};

use super::print;
use crate::cli::{CrdsArgs, CustomResource};

pub fn run(arguments: &CrdsArgs) -> Result<()> {
    print::write_stdout(&text(&arguments.names)?)
}

fn text(names: &[CustomResource]) -> Result<String> {
    let all = [CustomResource::NodeTrusts, CustomResource::Bundles];
    let wanted = all.into_iter().filter(|crd| names.is_empty() || names.contains(crd));
    Ok(wanted.map(manifest).collect::<Result<Vec<_>>>()?.join("---\n"))
}

/// Returns the contents of the file of the same name in `deploy/`.
fn manifest(crd: CustomResource) -> Result<String> {
    let (head, resource) = match crd {
        CustomResource::NodeTrusts => (
            "NodeTrust on a server that is not Windlass. Nodes need nodetrust-rbac.yaml as well.",
            node_trust::RESOURCE,
        ),
        CustomResource::Bundles => (
            "Bundle of trust-manager on a server that is not Windlass; it takes the place of \
             trust-manager's own.",
            trust_bundle::RESOURCE,
        ),
    };
    Ok(format!("# {head}\n{}", print::yaml(&resource.definition())?))
}

#[cfg(test)]
mod tests;
