//! Approval of kubelet-serving requests: all names must be those of the kubelet's own Node.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use windlass_pki::CertificateRequest;

use super::reserved_names::ReservedNames;
use crate::csr::Csr;
use crate::csr_signer::KubernetesSigner;

/// Message of the `Approved` condition that automatic approval sets.
pub const MESSAGE: &str = "Auto approving kubelet serving certificate for the node's own addresses.";

/// Verdict on a request for a kubelet serving certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServingVerdict {
    /// All names are those of the Node.
    Good,
    /// Not a request of a kubelet; another approver decides.
    Foreign,
    /// The requester is not the node that the certificate is for.
    Requester(String),
    /// The Node does not exist.
    NoNode(String),
    /// A name or address that the Node does not have.
    Name(String),
    /// A name that is never approved automatically, whatever the Node says.
    Reserved(String),
}

impl ServingVerdict {
    /// Returns reason and message of the condition; `None` if there is no objection.
    pub fn objection(&self) -> Option<(&'static str, String)> {
        match self {
            ServingVerdict::Good | ServingVerdict::Foreign => None,
            ServingVerdict::Requester(name) => Some((
                "RequesterMismatch",
                format!("the request is for {name:?}, but another user requested it"),
            )),
            ServingVerdict::NoNode(name) => Some(("NodeNotFound", format!("node {name:?} does not exist"))),
            ServingVerdict::Name(name) => {
                Some(("AddressMismatch", format!("{name:?} is not among the addresses of the node")))
            }
            ServingVerdict::Reserved(name) => Some((
                "ReservedName",
                format!(
                    "{name:?} is a name of the API server, a loopback or link-local name, or a \
                     wildcard; leaving it for an authorized approver"
                ),
            )),
        }
    }
}

/// Returns the name of the requesting node if the request is a kubelet-serving request for itself.
pub fn node_name<'a>(request: &Csr, asked: &'a CertificateRequest) -> Result<&'a str, ServingVerdict> {
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    if KubernetesSigner::KubeletServing.check(asked, usages).is_err() {
        return Err(ServingVerdict::Foreign);
    }
    let common_name = asked.subject().common_name();
    let groups = request.spec.groups.as_deref().unwrap_or_default();
    let is_node = groups.iter().any(|group| group == "system:nodes");
    match common_name.strip_prefix("system:node:") {
        Some(name)
            if !name.is_empty() && is_node && request.spec.username.as_deref() == Some(common_name) =>
        {
            Ok(name)
        }
        _ => Err(ServingVerdict::Requester(common_name.to_owned())),
    }
}

/// Checks that all requested names are those of the Node and none is reserved: a node writes the addresses of its own
/// Node object.
pub fn evaluate(asked: &CertificateRequest, node: Option<&Node>, reserved: &ReservedNames) -> ServingVerdict {
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
