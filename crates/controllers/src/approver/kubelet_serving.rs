//! Whether a kubelet may serve under the names that it asks for: those of its own node.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use windlass_pki::CertificateRequest;

use super::reserved_names::ReservedNames;
use crate::csr::Csr;
use crate::csr_signer::KubernetesSigner;

/// Message of the `Approved` condition that automatic approval sets.
pub const MESSAGE: &str =
    "Auto approving kubelet serving certificate for the node's own addresses.";

/// What is thought of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServingVerdict {
    /// All names are the node's.
    Good,
    /// Not a request of a kubelet; the signer or a person decides.
    Foreign,
    /// Somebody else asks for a node's certificate.
    Requester(String),
    /// There is no such node.
    NoNode(String),
    /// A name that is not the node's.
    Name(String),
    /// A name that no kubelet gets by itself, whatever its Node object says.
    Reserved(String),
}

impl ServingVerdict {
    /// What speaks against it, in one word and in many.
    pub fn objection(&self) -> Option<(&'static str, String)> {
        match self {
            ServingVerdict::Good | ServingVerdict::Foreign => None,
            ServingVerdict::Requester(name) => Some((
                "RequesterMismatch",
                format!("the request is for {name:?}, which is not who asks for it"),
            )),
            ServingVerdict::NoNode(name) => {
                Some(("NodeNotFound", format!("there is no node {name:?}")))
            }
            ServingVerdict::Name(name) => Some((
                "AddressMismatch",
                format!("{name:?} is not among the addresses of the node"),
            )),
            ServingVerdict::Reserved(name) => Some((
                "ReservedName",
                format!(
                    "{name:?} is a name of the API server, a loopback or link-local name, or a \
                     wildcard; such a certificate must be approved by hand"
                ),
            )),
        }
    }
}

/// The node that asks, if it asks for itself and for what a kubelet serves with.
pub fn node_name<'a>(
    request: &Csr,
    asked: &'a CertificateRequest,
) -> Result<&'a str, ServingVerdict> {
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    if KubernetesSigner::KubeletServing.check(asked, usages).is_err() {
        return Err(ServingVerdict::Foreign);
    }
    let common_name = asked.subject().common_name();
    let groups = request.spec.groups.as_deref().unwrap_or_default();
    let is_node = groups.iter().any(|group| group == "system:nodes");
    match common_name.strip_prefix("system:node:") {
        Some(name)
            if !name.is_empty()
                && is_node
                && request.spec.username.as_deref() == Some(common_name) =>
        {
            Ok(name)
        }
        _ => Err(ServingVerdict::Requester(common_name.to_owned())),
    }
}

/// Whether all names that are asked for are the node's, and none of them is reserved: a node writes
/// its own addresses.
pub fn evaluate(
    asked: &CertificateRequest,
    node: Option<&Node>,
    reserved: &ReservedNames,
) -> ServingVerdict {
    if let Some(name) = reserved.find_reserved(asked.alt_names()) {
        return ServingVerdict::Reserved(name);
    }
    let Some(node) = node else {
        let name = asked.subject().common_name();
        return ServingVerdict::NoNode(name.trim_start_matches("system:node:").to_owned());
    };
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let mut hosts = Vec::new();
    let mut numbers: Vec<IpAddr> = Vec::new();
    for address in addresses {
        match address.type_.as_str() {
            "Hostname" | "InternalDNS" | "ExternalDNS" => hosts.push(address.address.as_str()),
            "InternalIP" | "ExternalIP" => numbers.extend(address.address.parse::<IpAddr>().ok()),
            _ => {}
        }
    }
    let names = asked.alt_names();
    let host = names.dns_names.iter().find(|name| !hosts.contains(&name.as_str()));
    let number = names.ip_addresses.iter().find(|number| !numbers.contains(number));
    match host.cloned().or_else(|| number.map(IpAddr::to_string)) {
        Some(name) => ServingVerdict::Name(name),
        None => ServingVerdict::Good,
    }
}
