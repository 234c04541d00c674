//! `windlass crds`: prints the kinds that Windlass adds to Kubernetes, as CustomResourceDefinitions
//! for other API servers, and the ValidatingAdmissionPolicies for what Windlass' own admission checks.

use anyhow::Result;
use windlass_api::{ca_rotation, ledger_segment, node_trust, revocation, signer, trust_bundle};

use super::print;
use crate::cli::{CrdsArgs, CustomResource};

const SIGNERS_POLICY: &str = include_str!("crds/signers-policy.yaml");
const ROTATIONS_POLICY: &str = include_str!("crds/carotations-policy.yaml");
const REVOCATIONS_POLICY: &str = include_str!("crds/certificaterevocations-policy.yaml");

pub fn run(arguments: &CrdsArgs) -> Result<()> {
    print::write_stdout(&text(&arguments.names)?)
}

fn text(names: &[CustomResource]) -> Result<String> {
    let all = [
        CustomResource::NodeTrusts,
        CustomResource::Bundles,
        CustomResource::Signers,
        CustomResource::CaRotations,
        CustomResource::LedgerSegments,
        CustomResource::CertificateRevocations,
        CustomResource::CertificateRevocationLists,
    ];
    let wanted = all.into_iter().filter(|crd| names.is_empty() || names.contains(crd));
    Ok(wanted.map(manifest).collect::<Result<Vec<_>>>()?.join("---\n"))
}

/// Returns one definition, after a comment that says what it is for.
fn manifest(crd: CustomResource) -> Result<String> {
    let (head, resource, policy) = match crd {
        CustomResource::NodeTrusts => (
            "NodeTrust on a server that is not Windlass. Nodes need deploy/nodetrust-rbac.yaml as well.",
            node_trust::RESOURCE,
            None,
        ),
        CustomResource::Bundles => (
            "Bundle of trust-manager on a server that is not Windlass; it replaces the \
             definition of trust-manager.",
            trust_bundle::RESOURCE,
            None,
        ),
        CustomResource::Signers => (
            "Signer on a server that is not Windlass. The policy requires the right to sign and to attest.",
            signer::RESOURCE,
            Some(SIGNERS_POLICY),
        ),
        CustomResource::CaRotations => (
            "CARotation on a server that is not Windlass. The policy requires the right to sign and to attest.",
            ca_rotation::RESOURCE,
            Some(ROTATIONS_POLICY),
        ),
        CustomResource::LedgerSegments => {
            ("LedgerSegment on a server that is not Windlass.", ledger_segment::RESOURCE, None)
        }
        CustomResource::CertificateRevocations => (
            "CertificateRevocation on a server that is not Windlass. The policy requires the right to sign.",
            revocation::RESOURCE,
            Some(REVOCATIONS_POLICY),
        ),
        CustomResource::CertificateRevocationLists => {
            ("CertificateRevocationList on a server that is not Windlass.", revocation::LIST_RESOURCE, None)
        }
    };
    let policy = policy.map(|policy| format!("---\n{policy}")).unwrap_or_default();
    Ok(format!("# {head}\n{}{policy}", print::yaml(&resource.definition())?))
}

#[cfg(test)]
mod tests;
